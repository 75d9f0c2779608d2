//! Which commands there are, for the owner to look through.

use std::{fs, io};

use postern_types::{ReceiptId, Timestamp};

use super::{Entry, Meta, Spool, retention::ENTRIES};

/// Characters of a command's text that are kept for people.
const SHOWN_CHARS: usize = 2000;

impl Meta {
    /// Keeps the beginning of the command's text.
    pub(crate) fn tell(&mut self, command: &str) {
        let mut characters = command.chars();
        self.command = characters.by_ref().take(SHOWN_CHARS).collect();
        self.command_cut = characters.next().is_some();
    }
}

impl Spool {
    /// One page of commands, newest first, from those claimed before `after`; and whether there are more. A claim that was
    /// thrown away meanwhile, or that cannot be read, is left out.
    pub(crate) fn list(
        &self,
        after: Option<ReceiptId>,
        limit: usize,
        now: Timestamp,
    ) -> io::Result<(Vec<(ReceiptId, Entry)>, bool)> {
        let mut ids = Vec::new();
        for entry in fs::read_dir(self.root())?.take(ENTRIES) {
            let name = entry?.file_name();
            let id: Option<ReceiptId> = name.to_str().and_then(|name| name.parse().ok());
            ids.extend(id.filter(|id| after.is_none_or(|after| *id < after)));
        }
        // Receipt ids sort by their time.
        ids.sort_unstable_by(|one: &ReceiptId, other| other.cmp(one));
        let mut listed = Vec::new();
        for id in ids {
            let entry = match self.find(id, now) {
                Err(error) if error.kind() == io::ErrorKind::InvalidData => None,
                other => other?,
            };
            if let Some(entry) = entry.filter(|entry| !entry.never_started()) {
                if listed.len() == limit {
                    return Ok((listed, true));
                }
                listed.push((id, entry));
            }
        }
        Ok((listed, false))
    }
}
