//! Where control groups can be made: below this process's own, in whichever hierarchy has the controller.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process,
    sync::Mutex,
};

use rustix::fs::{Access, access};

use super::PREFIX;
use crate::limits::{Controller, missing};

/// The kernel's interface.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Version {
    One,
    Two,
}

/// A directory for groups.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Place {
    pub(super) directory: PathBuf,
    pub(super) version: Version,
    pub(super) controllers: Vec<Controller>,
    /// Of version 2: the group of this process itself, beside those of commands.
    pub(super) back: Option<PathBuf>,
}

/// A mounted hierarchy.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Hierarchy {
    version: Version,
    /// What of the hierarchy is mounted.
    root: PathBuf,
    at: PathBuf,
    /// Of version 1.
    controllers: Vec<String>,
}

/// Held while this process goes into a group of its own: once is enough, and two at once would be in each other's way.
static MOVING: Mutex<()> = Mutex::new(());

/// Where each of the controllers can be used.
pub(super) fn find(wanted: &[Controller]) -> io::Result<Vec<Place>> {
    let hierarchies = hierarchies(&fs::read_to_string("/proc/self/mountinfo")?);
    let own = fs::read_to_string("/proc/self/cgroup")?;
    let mut places: Vec<Place> = Vec::new();
    for controller in wanted {
        let place = place(&hierarchies, &own, *controller).ok_or_else(|| missing(*controller))?;
        match places
            .iter_mut()
            .find(|known| known.directory == place.directory)
        {
            Some(known) => known.controllers.push(*controller),
            None => places.push(place),
        }
    }
    for place in &mut places {
        if place.version == Version::Two {
            delegate(place)?;
        }
    }
    Ok(places)
}

/// Whether there is one for a controller that this process may write to. Nothing is changed.
pub(super) fn is_there(controller: Controller) -> bool {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let hierarchies = hierarchies(&read("/proc/self/mountinfo"));
    place(&hierarchies, &read("/proc/self/cgroup"), controller)
        .is_some_and(|place| access(&place.directory, Access::WRITE_OK).is_ok())
}

/// Where one controller is.
fn place(hierarchies: &[Hierarchy], own: &str, controller: Controller) -> Option<Place> {
    hierarchies.iter().find_map(|hierarchy| {
        let directory = hierarchy.directory(own, controller)?;
        let has_it = match hierarchy.version {
            Version::One => true,
            Version::Two => lists(&directory.join("cgroup.controllers"), controller),
        };
        has_it.then(|| Place {
            directory,
            version: hierarchy.version,
            controllers: vec![controller],
            back: None,
        })
    })
}

impl Hierarchy {
    /// The directory of this process's own group, if this hierarchy may have the controller.
    fn directory(&self, own: &str, controller: Controller) -> Option<PathBuf> {
        let name = controller.name();
        let path = own.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':');
            let (number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
            let is_this = match self.version {
                Version::One => {
                    self.controllers.iter().any(|it| it == name)
                        && controllers.split(',').any(|it| it == name)
                }
                Version::Two => number == "0" && controllers.is_empty(),
            };
            is_this.then(|| PathBuf::from(path))
        })?;
        // In a container only its own part of the hierarchy may be mounted.
        let below = path.strip_prefix(&self.root).ok()?;
        Some(self.at.join(below))
    }
}

/// The hierarchies that are mounted, by `/proc/self/mountinfo`.
fn hierarchies(mounts: &str) -> Vec<Hierarchy> {
    mounts.lines().filter_map(hierarchy).collect()
}

/// `ID PARENT DEVICE ROOT MOUNTPOINT OPTIONS [FIELDS…] - TYPE SOURCE SUPEROPTIONS`
fn hierarchy(line: &str) -> Option<Hierarchy> {
    let (mount, kind) = line.split_once(" - ")?;
    let mut mount = mount.split(' ').skip(3);
    let (root, at) = (mount.next()?.into(), mount.next()?.into());
    let mut kind = kind.split(' ');
    let version = match kind.next()? {
        "cgroup" => Version::One,
        "cgroup2" => Version::Two,
        _ => return None,
    };
    let options = kind.nth(1).unwrap_or_default();
    Some(Hierarchy {
        version,
        root,
        at,
        controllers: options.split(',').map(str::to_owned).collect(),
    })
}

/// Version 2 limits the children of a group only when no process is in it. So this process goes into a child of its own, and says
/// that the others are limited. It fails when others are in the same group: it is not for this process to move them.
fn delegate(place: &mut Place) -> io::Result<()> {
    let _moving = MOVING.lock();
    let directory = &place.directory;
    let stays = place
        .directory
        .file_name()
        .is_some_and(|name| *name == *own_name());
    let (parent, own) = match (stays, directory.parent()) {
        // Gone there before.
        (true, Some(parent)) => (parent.to_owned(), directory.clone()),
        _ => (directory.clone(), directory.join(own_name())),
    };
    if !stays {
        fs::create_dir(&own)?;
        if let Err(error) = fs::write(own.join("cgroup.procs"), "0") {
            let _unused = fs::remove_dir(&own);
            return Err(error);
        }
    }
    let wished: Vec<_> = place
        .controllers
        .iter()
        .map(|controller| format!("+{}", controller.name()))
        .collect();
    if let Err(error) = fs::write(parent.join("cgroup.subtree_control"), wished.join(" ")) {
        if !stays {
            fs::write(parent.join("cgroup.procs"), "0")?;
            let _unused = fs::remove_dir(&own);
        }
        return Err(error);
    }
    place.directory = parent;
    place.back = Some(own);
    Ok(())
}

fn own_name() -> String {
    format!("{PREFIX}{}-worker", process::id())
}

/// Whether a file of names has that of a controller.
fn lists(file: &Path, controller: Controller) -> bool {
    let names = fs::read_to_string(file).unwrap_or_default();
    names
        .split_ascii_whitespace()
        .any(|name| name == controller.name())
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    const MOUNTS: &str = "\
24 1 0:22 / /proc rw - proc proc rw
31 24 0:27 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct
32 24 0:28 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
33 24 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate";
    const OWN: &str = "\
5:memory:/docker/abc/worker
4:cpu,cpuacct:/user
1:name=systemd:/user
0::/user/session.scope";

    #[test]
    fn the_own_group_is_found_in_every_kind_of_hierarchy() {
        let found = hierarchies(MOUNTS);
        assert_eq!(found.len(), 3);
        let at = |number: usize, controller| {
            let directory = found[number].directory(OWN, controller);
            directory.map(|path| path.display().to_string())
        };
        let cpu = "/sys/fs/cgroup/cpu,cpuacct/user".to_owned();
        assert_eq!(at(0, Controller::Cpu), Some(cpu));
        assert_eq!(at(0, Controller::Memory), None);
        let memory = "/sys/fs/cgroup/memory/worker".to_owned();
        assert_eq!(at(1, Controller::Memory), Some(memory));
        let unified = "/sys/fs/cgroup/unified/user/session.scope".to_owned();
        assert_eq!(at(2, Controller::Processes), Some(unified));
    }

    #[test]
    fn what_is_mounted_elsewhere_in_the_hierarchy_is_not_taken_for_the_own_group() {
        let mounts = "32 24 0:28 /docker/other /m rw - cgroup cgroup rw,memory";
        let found = hierarchies(mounts);
        assert_eq!(found[0].directory(OWN, Controller::Memory), None);
    }
}
