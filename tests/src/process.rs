//! The process table, as far as a test may touch it: what carries the test's mark.

use std::{
    fs, io,
    path::Path,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

/// The environment variable that marks whatever a test starts. Not named `POSTERN_…`, so that commands keep it too.
pub const MARK: &str = "HARNESS_RUN";

/// The kernel's unit of processor time towards programs (`USER_HZ`), the same on every machine we run on.
const TICKS_PER_SECOND: f64 = 100.0;
/// How long killed processes may take to vanish.
const GONE_LIMIT: Duration = Duration::from_secs(5);

/// One process of the table.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Process {
    /// Process id.
    pub pid: i32,
    /// Its parent's.
    pub parent: i32,
    /// One letter, as in `/proc/<pid>/stat`: `Z` is a zombie.
    pub state: char,
    /// Program and arguments.
    pub arguments: Vec<String>,
    /// Resident memory in bytes.
    pub resident_bytes: u64,
    /// Processor time that it has used.
    pub cpu: Duration,
}

impl Process {
    fn read(pid: i32) -> io::Result<Self> {
        let folder = Path::new("/proc").join(pid.to_string());
        let stat = fs::read_to_string(folder.join("stat"))?;
        // The name in parentheses may hold anything, so fields are counted from the last one that closes it.
        let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let fields: Vec<&str> = after_name.split_whitespace().collect();
        let number = |index: usize| -> Option<i64> { fields.get(index)?.parse().ok() };
        Ok(Self {
            pid,
            parent: number(1).map_or(0, |value| i32::try_from(value).unwrap_or(0)),
            state: fields
                .first()
                .and_then(|text| text.chars().next())
                .unwrap_or('?'),
            arguments: fs::read(folder.join("cmdline"))?
                .split(|byte| *byte == 0)
                .filter(|part| !part.is_empty())
                .map(|part| String::from_utf8_lossy(part).into_owned())
                .collect(),
            resident_bytes: resident(&folder),
            cpu: Duration::from_secs_f64(
                (number(11).unwrap_or(0) + number(12).unwrap_or(0)) as f64 / TICKS_PER_SECOND,
            ),
        })
    }

    /// Whether the command line has `word` as one of its arguments.
    #[must_use]
    pub fn has_argument(&self, word: &str) -> bool {
        self.arguments.iter().any(|argument| argument == word)
    }

    /// Open descriptors.
    #[must_use]
    pub fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.pid)).map_or(0, Iterator::count)
    }

    /// Sends SIGKILL. A process that is gone already is no error.
    pub fn kill(&self) {
        signal(self.pid, Signal::KILL);
    }
}

/// Resident memory of a process in bytes; zero when there is none.
#[must_use]
pub fn resident_bytes(pid: i32) -> u64 {
    resident(&Path::new("/proc").join(pid.to_string()))
}

fn resident(folder: &Path) -> u64 {
    let status = fs::read_to_string(folder.join("status")).unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok())
        .map_or(0, |kibibytes| kibibytes * 1024)
}

/// Sends a signal to a process of the test. A process that is gone already is no error.
pub fn signal(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        let _gone_already = kill_process(pid, signal);
    }
}

fn all() -> impl Iterator<Item = Process> {
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|pid| Process::read(pid).ok())
}

fn is_marked(pid: i32, needle: &[u8]) -> bool {
    fs::read(format!("/proc/{pid}/environ")).is_ok_and(|environment| {
        environment
            .split(|byte| *byte == 0)
            .any(|entry| entry == needle)
    })
}

/// Every living process that carries `mark`, and everything below one: a process that cleared its environment
/// is still found by its parent.
#[must_use]
pub fn marked(mark: &str) -> Vec<Process> {
    let needle = format!("{MARK}={mark}").into_bytes();
    let table: Vec<Process> = all().collect();
    let mut found: Vec<Process> = table
        .iter()
        .filter(|process| is_marked(process.pid, &needle))
        .cloned()
        .collect();
    let mut next = 0;
    while next < found.len() {
        let parent = found[next].pid;
        for process in &table {
            let is_new = found.iter().all(|known| known.pid != process.pid);
            if process.parent == parent && is_new && process.state != 'Z' {
                found.push(process.clone());
            }
        }
        next += 1;
    }
    found
}

/// Zombies whose parent is `parent`.
#[must_use]
pub fn zombies_of(parent: i32) -> usize {
    all()
        .filter(|process| process.parent == parent && process.state == 'Z')
        .count()
}

/// Kills every process that carries `mark` and waits until none is left, 5 s at most.
pub fn kill_marked(mark: &str) {
    let deadline = Instant::now() + GONE_LIMIT;
    loop {
        let left = marked(mark);
        if left.is_empty() || Instant::now() > deadline {
            return;
        }
        for process in &left {
            process.kill();
        }
        std::thread::sleep(super::LOOK_AGAIN);
    }
}
