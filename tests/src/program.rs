//! The binary under test as a child process.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs::File,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use rustix::process::Signal;
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader, Lines},
    process::{Child, ChildStdout, Command},
    time::timeout,
};

use crate::process;

/// Longest standard output of a program that is run to its end, in bytes.
const OUTPUT_LIMIT: u64 = 64 * 1024 * 1024;

/// The binary under test: `$POSTERN_BIN`, or the `postern` in the directory above the test executable's.
///
/// # Panics
/// When there is none. The harness does not build it: `tests/run` does, or `cargo build --workspace --bins --tests`.
#[must_use]
pub fn binary() -> PathBuf {
    let path = env::var_os("POSTERN_BIN").map_or_else(beside_the_test, PathBuf::from);
    assert!(
        path.is_file(),
        "the binary under test is missing: build it (`cargo build --workspace --bins --tests`) or name it in POSTERN_BIN"
    );
    path
}

fn beside_the_test() -> PathBuf {
    in_build("postern")
}

pub(crate) fn in_build(name: &str) -> PathBuf {
    let executable = env::current_exe().expect("a test knows its own executable");
    let deps = executable.parent().unwrap_or(Path::new("."));
    deps.parent().unwrap_or(deps).join(name)
}

/// The same program with its fault points.
///
/// # Panics
/// When it is not there.
#[must_use]
pub(crate) fn binary_with_fault_points() -> PathBuf {
    let path = in_build("postern-faults");
    assert!(
        path.is_file(),
        "the binary with fault points is missing: `tests/faults` builds it"
    );
    path
}

/// How a program ended.
#[derive(Debug)]
pub struct Ended {
    /// Exit code, absent after a signal.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

/// A running `postern`. Dropping it kills it.
#[derive(Debug)]
pub struct Program {
    child: Child,
    pid: i32,
    lines: Lines<BufReader<ChildStdout>>,
    stderr: PathBuf,
    words: String,
}

/// What a program is started with, besides its arguments.
#[derive(Debug)]
pub(crate) struct Surroundings<'a> {
    /// Another program that comes before it on the command line and becomes it; usually none.
    pub(crate) before: &'a [&'a OsStr],
    /// The program's file.
    pub(crate) binary: PathBuf,
    /// The mark of the test.
    pub(crate) mark: &'a str,
    /// Where standard error goes.
    pub(crate) stderr: PathBuf,
    /// Home directory.
    pub(crate) home: &'a Path,
    /// Current directory.
    pub(crate) here: &'a Path,
    /// Further variables.
    pub(crate) variables: &'a [(OsString, OsString)],
}

pub(crate) fn command(arguments: &[&OsStr], around: &Surroundings<'_>) -> Command {
    let stderr = File::options()
        .create(true)
        .append(true)
        .open(&around.stderr)
        .expect("the test's directory is writable");
    let mut words = around.before.iter().copied();
    let mut command = Command::new(words.next().unwrap_or(around.binary.as_os_str()));
    surround(&mut command, around);
    command
        .args(words)
        .args((!around.before.is_empty()).then_some(&around.binary))
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(stderr)
        .kill_on_drop(true);
    command
}

/// Gives a program the directories, the mark and the variables of the test.
pub(crate) fn surround(command: &mut Command, around: &Surroundings<'_>) {
    // Options can be given by environment variables: those of whoever runs the tests are not for the test.
    for (name, _) in env::vars_os() {
        if name.as_encoded_bytes().starts_with(b"POSTERN_") {
            command.env_remove(name);
        }
    }
    command
        .current_dir(around.here)
        .env("HOME", around.home)
        .env("XDG_CONFIG_HOME", around.home.join(".config"))
        .env(process::MARK, around.mark)
        .envs(around.variables.iter().map(|(name, value)| (name, value)));
}

impl Program {
    pub(crate) fn start(arguments: &[&OsStr], around: Surroundings<'_>) -> Self {
        let mut child = command(arguments, &around)
            .spawn()
            .expect("the binary under test starts");
        let stdout = child.stdout.take().expect("standard output is piped");
        let pid = child.id().expect("it has just started");
        Self {
            pid: i32::try_from(pid).expect("a process id fits"),
            lines: BufReader::new(stdout).lines(),
            child,
            stderr: around.stderr,
            words: format!("postern {}", arguments.join(OsStr::new(" ")).display()),
        }
    }

    /// Process id.
    #[must_use]
    pub const fn pid(&self) -> i32 {
        self.pid
    }

    /// What it wrote to standard error until now.
    #[must_use]
    pub fn stderr(&self) -> String {
        let bytes = std::fs::read(&self.stderr).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Reads lines of JSON until one has `"event": event`.
    ///
    /// # Panics
    /// When a line is not JSON, when the program ends first, or after `limit`.
    pub async fn event(&mut self, event: &str, limit: Duration) -> Value {
        match self.event_or_end(event, limit).await {
            Some(value) => value,
            None => panic!(
                "`{}` ended without `{event}`; it said:\n{}",
                self.words,
                self.stderr()
            ),
        }
    }

    /// Reads lines of JSON until one has `"event": event`; `None` when the program ends first.
    ///
    /// # Panics
    /// When a line is not JSON, or after `limit`.
    pub async fn event_or_end(&mut self, event: &str, limit: Duration) -> Option<Value> {
        let found = timeout(limit, async {
            while let Ok(Some(line)) = self.lines.next_line().await {
                let value: Value = serde_json::from_str(&line).unwrap_or_else(|error| {
                    panic!("a line that is not JSON with --json: {line:?} ({error})")
                });
                if value["event"] == event {
                    return Some(value);
                }
            }
            None
        })
        .await;
        found.unwrap_or_else(|_| {
            panic!(
                "`{}` did not say `{event}` within {limit:?}; it said:\n{}",
                self.words,
                self.stderr()
            )
        })
    }

    /// Reads what it says to a person, up to a line that has `last` in it.
    ///
    /// # Panics
    /// When the program ends first, or after `limit`.
    pub async fn text_until(&mut self, last: &str, limit: Duration) -> String {
        let mut text = String::new();
        let read = timeout(limit, async {
            while let Ok(Some(line)) = self.lines.next_line().await {
                text.push_str(&line);
                text.push('\n');
                if line.contains(last) {
                    return true;
                }
            }
            false
        });
        let found = read.await.unwrap_or(false);
        assert!(found, "no `{last}` in:\n{text}\n{}", self.stderr());
        text
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        process::signal(self.pid, signal);
    }

    /// Whether it has not ended.
    #[must_use]
    pub fn runs(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Sends SIGKILL and waits for the end.
    pub async fn kill(&mut self) {
        self.signal(Signal::KILL);
        let _status = self.child.wait().await;
    }

    /// Waits for the end, at most `limit`.
    ///
    /// # Panics
    /// When it is still running then.
    pub async fn ended(mut self, limit: Duration) -> Ended {
        let finish = timeout(limit, async {
            let mut stdout = Vec::new();
            let reader = self.lines.get_mut();
            let _closed = reader.take(OUTPUT_LIMIT).read_to_end(&mut stdout).await;
            let status = self.child.wait().await.expect("a child can be waited for");
            (String::from_utf8_lossy(&stdout).into_owned(), status.code())
        })
        .await;
        let Ok((stdout, code)) = finish else {
            panic!(
                "`{}` was still running after {limit:?}; it said:\n{}",
                self.words,
                self.stderr()
            );
        };
        Ended {
            code,
            stdout,
            stderr: self.stderr(),
        }
    }
}
