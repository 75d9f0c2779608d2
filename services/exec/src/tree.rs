//! The processes below a process, found in `/proc`.
//!
//! Whoever double-forks or makes its own session stays below its wrapper, because the wrapper is a subreaper. A process is
//! named by its id and its start time, and signalled through a handle, so an id that was given out anew is never hit.

use std::{
    collections::{HashMap, HashSet},
    fs, io,
};

use rustix::{
    io::Errno,
    process::{Pid, PidfdFlags, Signal, getpgid, getpid, pidfd_open, pidfd_send_signal},
};

/// Scans in which a tree that grows while it is frozen must come to rest.
const FREEZE_SCANS: usize = 64;
/// Parents followed upwards, above the deepest tree that the process table could hold in practice.
const GENERATIONS: usize = 32_768;
/// Processes looked at in one scan, above the kernel's largest default process table.
const PROCESSES: usize = 4_194_304;

/// One process, as it stood when `/proc` was read.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Process {
    pid: Pid,
    parent: i32,
    /// Clock ticks since boot.
    started: u64,
    zombie: bool,
}

/// Processes that were asked to end, so that none is asked twice: a program may count how often.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    /// By id and start time.
    processes: HashSet<(Pid, u64)>,
    /// A process group that was asked as a whole, while nobody in it could be seen.
    group: Option<Pid>,
}

impl Asked {
    /// Notes that a group is asked as a whole.
    pub(crate) fn group(&mut self, group: Pid) {
        self.group = Some(group);
    }

    /// Whether nobody was asked yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.processes.is_empty() && self.group.is_none()
    }

    /// Notes a process; tells whether it is to be asked now.
    fn note(&mut self, process: &Process) -> bool {
        let is_new = self.processes.insert((process.pid, process.started));
        let of_group = |group| getpgid(Some(process.pid)).is_ok_and(|own| own == group);
        is_new && !self.group.is_some_and(of_group)
    }
}

/// The living processes below `root`, which itself is not among them.
pub(crate) fn below(root: Pid) -> io::Result<Vec<Process>> {
    let all = scan()?;
    Ok(under(&[root.as_raw_nonzero().get()], &all))
}

/// The children of `parent` with an id that `known` does not have, zombies included, and the living processes below them.
pub(crate) fn strangers(parent: Pid, known: &HashSet<Pid>) -> io::Result<(Vec<Pid>, Vec<Process>)> {
    let all = scan()?;
    let children: Vec<Process> = all
        .iter()
        .filter(|process| {
            process.parent == parent.as_raw_nonzero().get() && !known.contains(&process.pid)
        })
        .copied()
        .collect();
    let roots: Vec<i32> = children
        .iter()
        .map(|child| child.pid.as_raw_nonzero().get())
        .collect();
    let mut living = under(&roots, &all);
    living.extend(children.iter().filter(|child| !child.zombie));
    Ok((children.iter().map(|child| child.pid).collect(), living))
}

/// Whether a process is a descendant of this one, or gone. A process that is not of this process's PID namespace or those
/// below it has the id 0, and is none.
pub(crate) fn is_below_this_process(pid: i32) -> bool {
    let own = getpid().as_raw_nonzero().get();
    if pid == own || pid == 0 {
        return false;
    }
    let mut next = pid;
    for _ in 0..GENERATIONS {
        match read(next) {
            Some(process) if process.parent == own => return true,
            Some(process) if process.parent <= 1 => return false,
            Some(process) => next = process.parent,
            None => return true,
        }
    }
    true
}

/// Kills every process below `root`. They are stopped first, so that none can fork away from it. When it fails, those that
/// were found until then were killed all the same.
pub(crate) fn kill_all(root: Pid) -> io::Result<()> {
    let mut frozen = HashSet::new();
    let found = freeze(root, &mut frozen);
    for process in &frozen {
        process.send(Signal::KILL);
    }
    found
}

/// Asks every process below `root` to end that was not asked before. They are stopped first, so that none can fork away from
/// it, and go on afterwards. When it fails, those that were found until then were asked all the same.
pub(crate) fn ask_all(root: Pid, asked: &mut Asked) -> io::Result<()> {
    let mut frozen = HashSet::new();
    let found = freeze(root, &mut frozen);
    for process in &frozen {
        if asked.note(process) {
            process.send(Signal::TERM);
        }
    }
    for process in &frozen {
        process.send(Signal::CONT);
    }
    found
}

/// Stops every process below `root` and notes it.
fn freeze(root: Pid, frozen: &mut HashSet<Process>) -> io::Result<()> {
    for _ in 0..FREEZE_SCANS {
        let mut fresh = below(root)?;
        fresh.retain(|process| !frozen.contains(process));
        if fresh.is_empty() {
            break;
        }
        for process in fresh {
            process.send(Signal::STOP);
            frozen.insert(process);
        }
    }
    Ok(())
}

impl Process {
    /// Sends a signal, unless the process is gone.
    pub(crate) fn send(&self, signal: Signal) {
        let sent = || -> rustix::io::Result<()> {
            let handle = pidfd_open(self.pid, PidfdFlags::empty())?;
            // The handle is of whoever has the id now; only if that is still the same process may it be signalled.
            match read(self.pid.as_raw_nonzero().get()) {
                Some(now) if now.started == self.started => pidfd_send_signal(handle, signal),
                _ => Err(Errno::SRCH),
            }
        };
        // A process that ended meanwhile needs no signal, and one of another user cannot be given any; the caller looks
        // again whether anything is left.
        let _gone = sent();
    }
}

/// Everything below the roots, without zombies: those are dead and only wait to be reaped.
fn under(roots: &[i32], all: &[Process]) -> Vec<Process> {
    let mut children: HashMap<i32, Vec<&Process>> = HashMap::new();
    for process in all {
        children.entry(process.parent).or_default().push(process);
    }
    let mut found = Vec::new();
    let mut waiting = roots.to_vec();
    while let Some(parent) = waiting.pop() {
        // Taken out, so that a tree torn between two reads cannot lead round in a circle.
        for process in children.remove(&parent).unwrap_or_default() {
            waiting.push(process.pid.as_raw_nonzero().get());
            if !process.zombie {
                found.push(*process);
            }
        }
    }
    found
}

/// Every process there is. A table without this one is not the process table: another file system lies over it, or it is
/// another PID namespace's.
fn scan() -> io::Result<Vec<Process>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")?.take(PROCESSES) {
        let pid = entry?
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok());
        found.extend(pid.and_then(read));
    }
    if found.iter().all(|process| process.pid != getpid()) {
        return Err(Errno::SRCH.into());
    }
    Ok(found)
}

/// `/proc/<pid>/stat`; `None` when there is no such process (any more).
fn read(pid: i32) -> Option<Process> {
    let text = fs::read(format!("/proc/{pid}/stat")).ok()?;
    parse(pid, &text)
}

/// The name, in parentheses, may hold anything, parentheses too: what counts is after the last one.
fn parse(pid: i32, text: &[u8]) -> Option<Process> {
    let end = text.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(text.get(end + 1..)?).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    // Field 22 of proc(5); state is field 3, the parent field 4.
    let started = fields.nth(17)?.parse().ok()?;
    Some(Process {
        pid: Pid::from_raw(pid)?,
        parent,
        started,
        zombie: matches!(state, "Z" | "X" | "x"),
    })
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead as _, BufReader, Lines},
        os::unix::process::CommandExt as _,
        process::{Child, ChildStdout, Command, Stdio},
    };

    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn a_name_full_of_parentheses_is_read() {
        let line = b"7 (a) Z 1 (x) R 3 7 7 0 -1 4 1 0 0 0 1 2 0 0 20 0 1 0 4242 9 9 9";
        let process = parse(7, line).expect("process");
        assert_eq!(
            (process.parent, process.started, process.zombie),
            (3, 4242, false)
        );
        assert_eq!(parse(7, b"7 (a"), None);
    }

    #[test]
    fn a_child_is_found_below_its_parent_and_signalled() {
        let mut child = Command::new("/bin/sleep")
            .arg("60")
            .stdin(Stdio::null())
            .spawn()
            .expect("sleep");
        let pid = Pid::from_child(&child);
        let found = below(getpid()).expect("scan");
        let process = found.iter().find(|process| process.pid == pid);
        let process = *process.expect("the child is there");
        // A process with the same id that began at another time is another process.
        let other = Process {
            started: process.started + 1,
            ..process
        };
        other.send(Signal::KILL);
        assert_eq!(child.try_wait().expect("wait"), None);
        process.send(Signal::KILL);
        assert!(!child.wait().expect("wait").success());
        process.send(Signal::KILL);
    }

    /// A shell that tells whenever it is asked to end, below another that leads their process group.
    struct Counting {
        leader: Child,
        lines: Lines<BufReader<ChildStdout>>,
        end: tempfile::NamedTempFile,
    }

    impl Counting {
        fn start() -> Self {
            let end = tempfile::NamedTempFile::new().expect("a file");
            let script = "trap 'echo asked' TERM; echo ready; while [ -e \"$0\" ]; do sleep 0.02; done; echo over";
            let mut leader = Command::new("/bin/sh")
                .args(["-c", "sh -c \"$1\" \"$0\" & wait; wait"])
                .arg(end.path())
                .arg(script)
                .stdout(Stdio::piped())
                .process_group(0)
                .spawn()
                .expect("a shell");
            let output = leader.stdout.take().expect("piped");
            let mut counting = Self {
                leader,
                lines: BufReader::new(output).lines(),
                end,
            };
            assert_eq!(counting.line(), "ready");
            counting
        }

        fn line(&mut self) -> String {
            self.lines.next().expect("a line").expect("text")
        }

        fn ask(&self, asked: &mut Asked) {
            ask_all(Pid::from_child(&self.leader), asked).expect("a table");
        }

        /// Lets it end: what it tells before that, it was asked since.
        fn finish(mut self) {
            fs::remove_file(self.end.path()).expect("removed");
            assert_eq!(self.line(), "over");
            self.leader.wait().expect("waited for");
        }
    }

    #[test]
    fn whoever_was_asked_to_end_is_not_asked_again() {
        let (mut counting, mut asked) = (Counting::start(), Asked::default());
        counting.ask(&mut asked);
        assert_eq!(counting.line(), "asked");
        for _ in 0..3 {
            counting.ask(&mut asked);
        }
        counting.finish();
    }

    #[test]
    fn whoever_was_asked_with_its_group_is_not_asked_again() {
        let (counting, mut asked) = (Counting::start(), Asked::default());
        assert!(asked.is_empty());
        asked.group(Pid::from_child(&counting.leader));
        assert!(!asked.is_empty());
        counting.ask(&mut asked);
        counting.finish();
    }
}
