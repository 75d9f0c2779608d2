//! The service's side of a decoding process: starts it, reads its one answer, and ends it.

use std::{
    ffi::OsString,
    fs::File,
    io::{self, Read as _},
    os::unix::process::{CommandExt as _, ExitStatusExt as _},
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    process::Signal,
};

use super::{
    Task,
    answer::{Answer, FRAME_LIMIT},
};

/// Bytes read at a time.
const CHUNK: usize = 64 * 1024;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// No process was started.
    #[error("a decoding process cannot be started: {0}")]
    Start(#[source] io::Error),
    /// It was ended by a limit: time, memory or nesting.
    #[error("a decoding process was ended by its limits")]
    Exhausted,
    /// It answered nothing that is an answer.
    #[error("a decoding process gave no answer ({0})")]
    Broken(ExitStatus),
}

/// Decodes a file in a process of its own, within `limit`. Blocks; the process is gone when this returns.
pub(crate) fn decode(
    program: &[OsString],
    file: &File,
    task: Task,
    limit: Duration,
) -> Result<Answer, Error> {
    let deadline = Instant::now() + limit;
    let mut child = start(program, file, task).map_err(Error::Start)?;
    let heard = listen(&mut child, deadline);
    let status = end(&mut child).map_err(Error::Start)?;
    let frame = heard?;
    match Answer::from_frame(&frame) {
        Some(answer) => Ok(answer),
        None if is_limit(status) && frame.is_empty() => Err(Error::Exhausted),
        None => Err(Error::Broken(status)),
    }
}

fn start(program: &[OsString], file: &File, task: Task) -> io::Result<Child> {
    let (program, arguments) = program.split_first().ok_or(io::ErrorKind::NotFound)?;
    // Nothing here forks: a large service spawns as fast as a small one.
    Command::new(program)
        .args(arguments)
        .args(task.arguments())
        .env_clear()
        .current_dir("/")
        .process_group(0)
        .stdin(file.try_clone()?)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
}

/// Reads until the output ends, outgrows a frame, or time is up.
fn listen(child: &mut Child, deadline: Instant) -> Result<Vec<u8>, Error> {
    let mut frame = Vec::new();
    let Some(mut output) = child.stdout.take() else {
        return Ok(frame);
    };
    let mut chunk = vec![0; CHUNK];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).map_err(|_| Error::Exhausted)?;
        let mut waited = [PollFd::new(&output, PollFlags::IN)];
        match poll(&mut waited, Some(&timeout)) {
            Ok(0) => return Err(Error::Exhausted),
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(errno) => return Err(Error::Start(errno.into())),
        }
        match output.read(&mut chunk) {
            Ok(0) => return Ok(frame),
            // What is longer than any frame is none.
            Ok(length) if frame.len() + length > FRAME_LIMIT => return Ok(chunk),
            Ok(length) => frame.extend_from_slice(&chunk[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Error::Start(error)),
        }
    }
}

/// Ends the process and reaps it. One that has ended by itself keeps its own status.
fn end(child: &mut Child) -> io::Result<ExitStatus> {
    child.kill()?;
    child.wait()
}

/// Whether the process died as one does that meets its limits: out of time, killed for memory, or aborted when there was no
/// more memory or stack.
fn is_limit(status: ExitStatus) -> bool {
    let limits = [
        Signal::XCPU,
        Signal::KILL,
        Signal::ABORT,
        Signal::SEGV,
        Signal::BUS,
    ];
    status
        .signal()
        .is_some_and(|signal| limits.iter().any(|limit| limit.as_raw() == signal))
}
