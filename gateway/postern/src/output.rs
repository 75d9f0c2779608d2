//! What the program prints: one JSON object a line, or text for people. Logs are elsewhere, on standard error.

use std::io::{Write as _, stderr, stdout};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::Value;

use crate::error::Error;

/// Prints one JSON object as a line. A reader that has gone away is not an error of ours.
pub(crate) fn json_line(value: &Value) {
    text_line(&value.to_string());
}

/// Prints a line of text.
pub(crate) fn text_line(text: &str) {
    let mut out = stdout().lock();
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

/// Prints bytes as they are, such as a patch. A reader that has gone away is not an error of ours.
pub(crate) fn bytes(bytes: &[u8]) {
    let mut out = stdout().lock();
    let _ = out.write_all(bytes).and_then(|()| out.flush());
}

/// Whether whoever read what is printed has gone away.
pub(crate) fn is_unread() -> bool {
    let out = stdout();
    let mut looked = [PollFd::new(&out, PollFlags::empty())];
    poll(&mut looked, Some(&Timespec::default()))
        .is_ok_and(|_| looked[0].revents().contains(PollFlags::ERR))
}

/// Prints JSON for a program, or text for a person.
pub(crate) fn either(json: bool, value: &Value, text: &str) {
    if json {
        json_line(value);
    } else {
        text_line(text);
    }
}

/// Says on standard error, in one line, what the owner must know while the program goes on.
pub(crate) fn warn(text: &str) {
    let _ = writeln!(stderr().lock(), "postern: {}", text.replace('\n', " "));
}

/// Says on standard error why a command failed, in one line.
pub(crate) fn complain(problem: &Error) {
    let text = problem.to_string().replace('\n', " ");
    let _ = writeln!(stderr().lock(), "postern: {text}");
}
