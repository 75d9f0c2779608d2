//! Control groups of commands: one below this process's own for each, in the one hierarchy of version 2 or in those of version 1.
//!
//! The wrapper opens the way in before it is confined, and goes in with the thread that starts the shell (version 1) or as a
//! whole and out again (version 2, where threads cannot go alone). So all that the shell starts is in the group, and the
//! wrapper is not.

mod places;

use std::{
    fs, io,
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::Duration,
};

use super::{Controller, Limits, Reached};
use places::{Place, Version};

/// Names of groups begin with this and the id of the process that made them.
const PREFIX: &str = "postern-";
/// Time over which processor time is counted, in microseconds.
const CPU_PERIOD_US: u64 = 100_000;
/// Groups looked at when what dead workers left is removed.
const SWEPT: usize = 10_000;

/// How often a group is tried to be removed, by the thread that carried its command.
const REMOVE_TRIES: u32 = 5;
/// Time between two tries.
const REMOVE_AGAIN: Duration = Duration::from_millis(5);

/// The number of the next group of this process: all workers in it count together.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// Where groups are made.
#[derive(Debug)]
pub(crate) struct Groups {
    limits: Limits,
    places: Vec<Place>,
}

/// The group of one command, or the parts of it in each hierarchy. Removed when it is dropped and empty.
#[derive(Debug)]
pub(crate) struct Group {
    parts: Vec<Part>,
}

#[derive(Debug)]
struct Part {
    directory: PathBuf,
    version: Version,
    /// Of version 2: where the wrapper stays.
    back: Option<PathBuf>,
    /// Of version 1: what is limited.
    controllers: Vec<Controller>,
}

/// Whether there is a place for groups that limit a resource, as far as that can be seen.
pub(super) fn is_there(controller: Controller) -> bool {
    places::is_there(controller)
}

impl Groups {
    /// Finds where limits can be set, and tries it.
    pub(super) fn open(limits: Limits) -> io::Result<Self> {
        let places = places::find(&limits.controllers())?;
        for place in &places {
            sweep(&place.directory);
        }
        let groups = Self { limits, places };
        groups.make().map(drop)?;
        Ok(groups)
    }

    /// Makes the group of one command.
    pub(crate) fn make(&self) -> io::Result<Group> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}{}-{number}", process::id());
        let mut group = Group { parts: Vec::new() };
        for place in &self.places {
            let directory = place.directory.join(&name);
            fs::create_dir(&directory)?;
            group.parts.push(Part {
                directory,
                version: place.version,
                back: place.back.clone(),
                controllers: place.controllers.clone(),
            });
        }
        for part in &group.parts {
            part.limit(self.limits)?;
        }
        Ok(group)
    }
}

impl Group {
    /// What a wrapper is told, to go in and out.
    pub(crate) fn to_args(&self) -> Vec<std::ffi::OsString> {
        let mut args = Vec::new();
        for part in &self.parts {
            let way_in = match part.version {
                Version::One => "tasks",
                Version::Two => "cgroup.procs",
            };
            args.extend([ENTER.into(), part.directory.join(way_in).into()]);
            if let Some(back) = &part.back {
                args.extend([BACK.into(), back.join("cgroup.procs").into()]);
            }
        }
        args
    }

    /// Kills everything in it at once, where the kernel can.
    pub(crate) fn kill(&self) {
        for part in &self.parts {
            if part.version == Version::Two {
                // Older kernels cannot; then the process tree is all there is.
                let _tree = fs::write(part.directory.join("cgroup.kill"), "1");
            }
        }
    }

    /// A limit that it ran into.
    pub(crate) fn reached(&self) -> Option<Reached> {
        let counted = |name: &str, field: &str| {
            self.parts
                .iter()
                .any(|part| count(&part.directory.join(name), field) > 0)
        };
        if counted("memory.events", "oom_kill") || counted("memory.oom_control", "oom_kill") {
            Some(Reached::Memory)
        } else if counted("pids.events", "max") {
            Some(Reached::Processes)
        } else {
            None
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for part in &self.parts {
            // What has just ended may still be on its way out. One in which something is left stays until a later worker looks.
            for _ in 0..REMOVE_TRIES {
                if fs::remove_dir(&part.directory).is_ok() {
                    break;
                }
                thread::sleep(REMOVE_AGAIN);
            }
        }
    }
}

impl Part {
    fn limit(&self, limits: Limits) -> io::Result<()> {
        let has = |controller| self.controllers.contains(&controller);
        let set = |name: &str, value: String| fs::write(self.directory.join(name), value);
        if let Some(bytes) = limits.memory_bytes.filter(|_| has(Controller::Memory)) {
            let (memory, swap) = match self.version {
                Version::One => ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"),
                Version::Two => ("memory.max", "memory.swap.max"),
            };
            set(memory, bytes.to_string())?;
            // Memory is not to be had on the disk instead. A kernel that does not count swap has no such file.
            let with_swap = match self.version {
                Version::One => bytes,
                Version::Two => 0,
            };
            if self.directory.join(swap).exists() {
                set(swap, with_swap.to_string())?;
            }
        }
        if let Some(processes) = limits.processes.filter(|_| has(Controller::Processes)) {
            set("pids.max", processes.to_string())?;
        }
        if let Some(millicpus) = limits.millicpus.filter(|_| has(Controller::Cpu)) {
            let quota = u64::from(millicpus) * CPU_PERIOD_US / 1000;
            match self.version {
                Version::One => {
                    set("cpu.cfs_period_us", CPU_PERIOD_US.to_string())?;
                    set("cpu.cfs_quota_us", quota.to_string())?;
                }
                Version::Two => set("cpu.max", format!("{quota} {CPU_PERIOD_US}"))?,
            }
        }
        Ok(())
    }
}

const ENTER: &str = "--enter";
const BACK: &str = "--back";

/// A wrapper's way into the group of its command and out again, opened before it is confined.
#[derive(Debug, Default)]
pub(crate) struct Entrance {
    enter: Vec<fs::File>,
    back: Vec<fs::File>,
}

impl Entrance {
    /// Takes its arguments off the front of the others.
    pub(crate) fn from_args(
        args: &mut std::iter::Peekable<impl Iterator<Item = std::ffi::OsString>>,
    ) -> io::Result<Self> {
        let mut entrance = Self::default();
        while let Some(name) = args.next_if(|arg| arg == ENTER || arg == BACK) {
            let path = args.next().ok_or(io::ErrorKind::InvalidInput)?;
            let file = fs::File::options().write(true).open(path)?;
            match name == ENTER {
                true => entrance.enter.push(file),
                false => entrance.back.push(file),
            }
        }
        Ok(entrance)
    }

    /// Does something from within: what it starts stays there.
    pub(crate) fn within<T>(self, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        go(&self.enter)?;
        let done = work();
        go(&self.back)?;
        done
    }
}

/// Goes into each: as a thread by `tasks`, as a process by `cgroup.procs`.
fn go(ways: &[fs::File]) -> io::Result<()> {
    for mut way in ways {
        io::Write::write_all(&mut way, b"0")?;
    }
    Ok(())
}

/// A number of a file of names and numbers; 0 when there is none.
fn count(file: &Path, field: &str) -> u64 {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .find(|(name, _)| *name == field)
        .and_then(|(_, number)| number.trim().parse().ok())
        .unwrap_or(0)
}

/// Removes the groups of dead processes.
fn sweep(directory: &Path) {
    let Ok(entries) = fs::read_dir(directory) else {
        return;
    };
    for entry in entries.take(SWEPT).filter_map(Result::ok) {
        let name = entry.file_name();
        let maker = name
            .to_str()
            .and_then(|name| name.strip_prefix(PREFIX))
            .and_then(|rest| rest.split('-').next())
            .and_then(|id| id.parse::<u32>().ok());
        if maker.is_some_and(|id| !Path::new("/proc").join(id.to_string()).exists()) {
            // One with processes is no empty directory.
            let _alive = fs::remove_dir(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    #[test]
    fn a_wrapper_takes_its_part_of_the_arguments() {
        let folder = tempfile::tempdir().expect("folder");
        let [enter, back] = ["enter", "back"].map(|name| folder.path().join(name));
        for path in [&enter, &back] {
            fs::write(path, "").expect("written");
        }
        let args = [
            ENTER.into(),
            enter.clone().into(),
            BACK.into(),
            back.clone().into(),
            "--abi".into(),
        ];
        let mut args = args.into_iter().peekable();
        let entrance = Entrance::from_args(&mut args).expect("read");
        assert_eq!(args.collect::<Vec<_>>(), ["--abi"]);
        let inside = || {
            assert_eq!(fs::read(&enter)?, b"0");
            assert_eq!(fs::read(&back)?, b"");
            Ok(7)
        };
        assert_eq!(entrance.within(inside).expect("gone in and out"), 7);
        assert_eq!(fs::read(&back).expect("read"), b"0");
    }

    #[test]
    fn numbers_are_found_by_their_names() {
        let folder = tempfile::tempdir().expect("folder");
        let file = folder.path().join("memory.events");
        fs::write(&file, "low 0\noom 3\noom_kill 2\n").expect("written");
        assert_eq!(count(&file, "oom_kill"), 2);
        assert_eq!(count(&file, "max"), 0);
        assert_eq!(count(&folder.path().join("none"), "max"), 0);
    }
}
