//! The decoding process: confines itself, reads its standard input, answers on its standard output, and ends.

use std::{
    any::Any,
    ffi::OsString,
    io::{self, Write as _},
    panic::{self, AssertUnwindSafe},
    process::ExitCode,
};

use rustix::{io::Errno, stdio::stdin};

use super::{
    Task,
    answer::{Answer, Refusal},
    confine, document, picture,
};

/// Bytes read at a time.
const CHUNK: usize = 256 * 1024;

/// Decodes one file. Called in a process that does nothing else, before it has started any thread, with the file as standard
/// input. `args` are those after the ones that [`crate::Config::decoder`] names.
#[must_use]
pub fn decode_main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    // There is nobody to tell but the service, and it sees that no answer came.
    match run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn run(args: impl IntoIterator<Item = OsString>) -> io::Result<()> {
    let task = Task::from_arguments(args).ok_or(io::ErrorKind::InvalidInput)?;
    confine::confine(task)?;
    // A panic is an answer, not a report.
    panic::set_hook(Box::new(|_| {}));
    let answer = match read(task.file_limit())? {
        Some(bytes) => decode(bytes, task),
        None => Answer::Refused(Refusal::TooManyBytes),
    };
    let frame = answer.to_frame().ok_or(io::ErrorKind::InvalidData)?;
    let mut output = io::stdout().lock();
    output.write_all(&frame)?;
    output.flush()
}

/// Decodes a file's bytes. Whatever the libraries do on bytes that were made to break them, short of ending the process,
/// comes back as an answer.
pub(crate) fn decode(bytes: Vec<u8>, task: Task) -> Answer {
    if bytes.is_empty() {
        return Answer::Refused(Refusal::Empty);
    }
    let work = AssertUnwindSafe(|| match task {
        Task::Picture => picture::decode(&bytes),
        Task::Document { page } => document::decode(bytes, page),
    });
    match panic::catch_unwind(work) {
        Ok(Ok(answer)) => answer,
        Ok(Err(refusal)) => Answer::Refused(refusal),
        Err(payload) => Answer::Refused(of_panic(payload)),
    }
}

/// What a panic says of the file: what it was raised for here, or that the file is not as the library expects.
pub(super) fn of_panic(payload: Box<dyn Any + Send>) -> Refusal {
    payload
        .downcast::<Refusal>()
        .map_or(Refusal::Damaged, |refusal| *refusal)
}

/// Reads standard input from its start, whatever others have read of it; none when it is over the limit.
fn read(limit: usize) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    let mut chunk = vec![0; CHUNK];
    loop {
        match rustix::io::pread(stdin(), &mut chunk, bytes.len() as u64) {
            Ok(0) => return Ok(Some(bytes)),
            Ok(length) if bytes.len() + length > limit => return Ok(None),
            Ok(length) => bytes.extend_from_slice(&chunk[..length]),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}
