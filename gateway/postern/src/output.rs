//! What the program prints: one JSON object a line, or text for people. Logs are elsewhere, on standard error.

use std::{
    fmt::Write as _,
    io::{Write as _, stderr, stdout},
};

use postern_types::{is_invisible, printable};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::Value;

use crate::error::Error;

/// Prints one JSON object as a line. A reader that has gone away is not an error of ours.
pub(crate) fn json_line(value: &Value) {
    text_line(&harmless_json(&value.to_string()));
}

/// The same JSON with nothing that steers a terminal or that the eye would miss: such characters stand in strings alone, and are
/// written as escapes.
fn harmless_json(json: &str) -> String {
    let mut shown = String::with_capacity(json.len());
    for c in json.chars() {
        if !c.is_control() && !is_invisible(c) {
            shown.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            // Writing to a string does not fail.
            let _ = write!(shown, "\\u{unit:04x}");
        }
    }
    shown
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
    let _ = writeln!(stderr().lock(), "postern: {}", one_line(text));
}

/// Says on standard error why a command failed, in one line.
pub(crate) fn complain(problem: &Error) {
    let text = one_line(&problem.to_string());
    let _ = writeln!(stderr().lock(), "postern: {text}");
}

/// Some of it may be another's: a host's refusal, a file's name. None of it may steer the terminal.
fn one_line(text: &str) -> String {
    printable(&text.replace('\n', " "))
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;
    use serde_json::json;

    use super::*;

    #[test]
    fn json_is_the_same_and_steers_no_terminal() {
        let value = json!({"a\u{9b}2J": "\u{1b}[31m\u{202e}\u{e0041}é\n\"\\"});
        let shown = harmless_json(&value.to_string());
        let is_odd = |c: char| c.is_control() || is_invisible(c);
        assert!(!shown.contains(is_odd), "{shown}");
        assert!(shown.contains('é'), "{shown}");
        let read: Value = serde_json::from_str(&shown).expect("JSON");
        assert_eq!(read, value);
    }

    #[test]
    fn what_another_says_is_one_line_that_steers_no_terminal() {
        let told = one_line("no\n\u{1b}]0;x\u{7} \u{9b}2J \u{202e}");
        assert_eq!(told, "no \\u{1b}]0;x\\u{7} \\u{9b}2J \\u{202e}");
    }
}
