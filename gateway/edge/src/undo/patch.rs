//! One file's change in the form that git writes and reads.

mod binary;
mod name;

use std::io::Write as _;

use imara_diff::{Algorithm, Diff, InternedInput};
use sha1::{Digest as _, Sha1};

/// Unchanged lines around a change.
const CONTEXT: u32 = 3;
/// Larger contents, and such with more lines, are not compared line by line.
const TEXT_BYTES: usize = 8 * 1024 * 1024;
const TEXT_LINES: usize = 200_000;
/// The name of no content.
const NOTHING: &str = "0000000000000000000000000000000000000000";

/// A file's content and its permission bits, of which git knows whether the owner may execute it.
#[derive(Debug)]
pub(super) struct Content {
    pub(super) bytes: Vec<u8>,
    pub(super) mode: u32,
}

/// For whom it is written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Form {
    /// For `git apply`, with everything.
    Whole,
    /// For people, without the content of binary files.
    Shown,
}

/// A change, written.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) text: Vec<u8>,
    /// Whether it is not compared line by line.
    pub(super) is_binary: bool,
}

/// Writes the change of one file. With the same content and mode on both sides, and with none at all, it is empty.
pub(super) fn write(
    path: &str,
    before: Option<&Content>,
    after: Option<&Content>,
    form: Form,
) -> Written {
    let sides = [before, after];
    let modes = sides.map(|side| side.map(git_mode));
    let bytes = sides.map(|side| side.map_or(&[][..], |side| side.bytes.as_slice()));
    let same = before.is_some() == after.is_some() && bytes[0] == bytes[1];
    if same && modes[0] == modes[1] {
        return Written {
            text: Vec::new(),
            is_binary: false,
        };
    }
    let is_binary = !same && bytes.into_iter().any(|bytes| !is_text(bytes));
    let mut text = Vec::new();
    let (old, new) = (name::quoted("a/", path), name::quoted("b/", path));
    // A vector takes whatever is written to it.
    let mut line = |line: String| text.extend_from_slice(format!("{line}\n").as_bytes());
    line(format!("diff --git {old} {new}"));
    let mut shown_mode = String::new();
    match (modes[0], modes[1]) {
        (None, Some(mode)) => line(format!("new file mode {mode}")),
        (Some(mode), None) => line(format!("deleted file mode {mode}")),
        (Some(old), Some(new)) if old != new => {
            line(format!("old mode {old}"));
            line(format!("new mode {new}"));
        }
        (mode, _) => shown_mode = mode.map(|mode| format!(" {mode}")).unwrap_or_default(),
    }
    if !same {
        let [before_id, after_id] = sides.map(blob_id);
        line(format!("index {before_id}..{after_id}{shown_mode}"));
    }
    if is_binary {
        if form == Form::Whole {
            binary::write(&mut text, bytes[0], bytes[1]);
        }
    } else if bytes[0] != bytes[1] {
        let missing = || "/dev/null".to_owned();
        let old = before.map_or_else(missing, |_| name::in_header(old, path));
        let new = after.map_or_else(missing, |_| name::in_header(new, path));
        line(format!("--- {old}"));
        line(format!("+++ {new}"));
        hunks(&mut text, bytes[0], bytes[1]);
    }
    Written { text, is_binary }
}

fn git_mode(content: &Content) -> &'static str {
    if content.mode & 0o100 == 0 {
        "100644"
    } else {
        "100755"
    }
}

fn is_text(bytes: &[u8]) -> bool {
    bytes.len() <= TEXT_BYTES
        && !bytes.contains(&0)
        && bytes.iter().filter(|byte| **byte == b'\n').count() <= TEXT_LINES
}

/// The name that git gives a content.
fn blob_id(content: Option<&Content>) -> String {
    let Some(content) = content else {
        return NOTHING.to_owned();
    };
    let mut hash = Sha1::new();
    hash.update(format!("blob {}\0", content.bytes.len()));
    hash.update(&content.bytes);
    hash.finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// A run of lines that is written as one: from its first to behind its last line, on either side.
struct Run {
    old: std::ops::Range<u32>,
    new: std::ops::Range<u32>,
    changes: Vec<imara_diff::Hunk>,
}

fn hunks(text: &mut Vec<u8>, before: &[u8], after: &[u8]) {
    let (old, new) = (lines(before), lines(after));
    let mut input = InternedInput::default();
    input.update_before(old.iter().copied());
    input.update_after(new.iter().copied());
    let mut diff = Diff::compute(Algorithm::Histogram, &input);
    diff.postprocess_lines(&input);
    let length = u32::try_from(old.len()).unwrap_or(u32::MAX);
    for run in runs(&diff, length) {
        let header = format!("@@ -{} +{} @@\n", range(&run.old), range(&run.new));
        text.extend_from_slice(header.as_bytes());
        let mut at = run.old.start;
        for change in &run.changes {
            put(text, b' ', &old, at..change.before.start);
            put(text, b'-', &old, change.before.clone());
            put(text, b'+', &new, change.after.clone());
            at = change.before.end;
        }
        put(text, b' ', &old, at..run.old.end);
    }
}

/// Changes with their context; those whose contexts touch are one run.
fn runs(diff: &Diff, old_lines: u32) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for change in diff.hunks() {
        let above = CONTEXT.min(change.before.start);
        let old = change.before.start - above..old_lines.min(change.before.end + CONTEXT);
        let below = old.end - change.before.end;
        // Where lines were removed just above, this is of a run that goes on, and its start is not looked at.
        let new = change.after.start.saturating_sub(above)..change.after.end + below;
        match runs.last_mut() {
            Some(last) if old.start <= last.old.end => {
                last.old.end = old.end;
                last.new.end = new.end;
                last.changes.push(change);
            }
            _ => runs.push(Run {
                old,
                new,
                changes: vec![change],
            }),
        }
    }
    runs
}

/// A range as a hunk's header has it: an empty one is told by the line before it.
fn range(lines: &std::ops::Range<u32>) -> String {
    match lines.end - lines.start {
        0 => format!("{},0", lines.start),
        1 => format!("{}", lines.start + 1),
        count => format!("{},{count}", lines.start + 1),
    }
}

fn lines(bytes: &[u8]) -> Vec<&[u8]> {
    bytes.split_inclusive(|byte| *byte == b'\n').collect()
}

fn put(text: &mut Vec<u8>, sign: u8, lines: &[&[u8]], range: std::ops::Range<u32>) {
    for line in &lines[range.start as usize..range.end as usize] {
        text.push(sign);
        text.extend_from_slice(line);
        if !line.ends_with(b"\n") {
            // A vector takes whatever is written to it.
            let _ = text.write_all(b"\n\\ No newline at end of file\n");
        }
    }
}

#[cfg(test)]
mod tests;
