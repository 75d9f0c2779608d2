//! What was typed into a command and asked of it, by receipt: noted before it is done and after.

use std::{
    collections::HashMap,
    fs::{self, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use postern_types::ReceiptId;

const NAME: &str = "effects";

/// Where one effect stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum EffectPhase {
    /// It may be under way.
    Begun,
    /// It is done: for an input, so many bytes were taken.
    Done(u64),
    /// It was looked for and not there; it is never done any more.
    Refused,
}

/// Every effect on one command.
pub(crate) type EffectRecord = HashMap<ReceiptId, EffectPhase>;

/// The file, one line a note; the last note of a receipt counts.
#[derive(Debug)]
pub(crate) struct EffectLog(PathBuf);

impl EffectLog {
    pub(crate) fn new(directory: &Path) -> Self {
        Self(directory.join(NAME))
    }

    /// Adds a note.
    pub(crate) fn note(&self, id: ReceiptId, phase: EffectPhase) -> io::Result<()> {
        let line = match phase {
            EffectPhase::Begun => format!("{id} begun\n"),
            EffectPhase::Done(bytes) => format!("{id} done {bytes}\n"),
            EffectPhase::Refused => format!("{id} refused\n"),
        };
        let mut file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&self.0)?;
        let length = file.metadata()?.len();
        file.write_all(line.as_bytes()).inspect_err(|_| {
            // Half a line would spoil the next one. Cutting it off needs no space.
            let _whole = file.set_len(length);
        })
    }

    /// Reads every note.
    pub(crate) fn read(&self) -> io::Result<EffectRecord> {
        let text = match fs::read_to_string(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(HashMap::new()),
            other => other?,
        };
        // A line that a crash of the machine cut off tells nothing.
        Ok(text.lines().filter_map(parse).collect())
    }
}

fn parse(line: &str) -> Option<(ReceiptId, EffectPhase)> {
    let mut words = line.split(' ');
    let id = words.next()?.parse().ok()?;
    let phase = match words.next()? {
        "begun" => EffectPhase::Begun,
        "done" => EffectPhase::Done(words.next()?.parse().ok()?),
        "refused" => EffectPhase::Refused,
        _ => return None,
    };
    Some((id, phase))
}
