//! What the view shows and what keys do to it. Nothing here draws, asks or waits.
//!
//! Invariant: a key decides what its owner saw. The choice sticks to a receipt, not to a row, and nothing is decided that came
//! under the cursor by itself less than [`GUARD`] ago; a key that is too early starts that time anew, so one that is held down
//! decides once.

mod keys;
#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    feed::{Report, Wish},
    model::{Chunk, Command, Item, Receipt, Shown, Snapshot, Status},
    text,
};

pub(super) use keys::Act;

/// Time that what comes under the cursor by itself must have been there before a key decides on it.
const GUARD: Duration = Duration::from_millis(500);
/// Bytes of output that are kept of the chosen command.
const OUTPUT_KEPT: usize = 256 * 1024;
/// Ended commands that are shown.
const ENDED: usize = 50;

/// One of the lists.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Pane {
    Inbox,
    Now,
    Receipts,
}

impl Pane {
    pub(super) const ALL: [Self; 3] = [Self::Inbox, Self::Now, Self::Receipts];
}

/// What is chosen in a list.
#[derive(Clone, Debug)]
struct Cursor {
    id: Option<String>,
    /// Where it was, for when it goes.
    index: usize,
    /// Since when it is chosen without the owner having chosen it, or has been touched too early.
    since: Option<Instant>,
}

/// A text that the owner writes, or a choice that he makes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Prompt {
    /// Why an item is denied.
    Deny { id: String, text: String },
    /// The answer to a question.
    Answer { id: String, text: String },
    /// Which mode.
    Mode,
}

/// What goes on: a call, or a command.
#[derive(Clone, Debug)]
pub(super) enum Busy {
    Call(super::model::Call),
    Command(Command),
}

impl Busy {
    fn id(&self) -> String {
        match self {
            Self::Call(call) => {
                format!(
                    "call {} {}",
                    call.session_id.as_str(),
                    call.call_id.as_str()
                )
            }
            Self::Command(command) => command.command_id.clone(),
        }
    }
}

/// What is told on the last line but the keys.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Note {
    pub(super) text: String,
    pub(super) bad: bool,
}

/// The output of the chosen command.
#[derive(Clone, Debug, Default)]
struct Output {
    command_id: String,
    raw: String,
    lines: Vec<String>,
    cut: bool,
}

/// What is shown of the chosen thing, in rows of a width.
#[derive(Debug, Default)]
struct Rows {
    of: Option<String>,
    width: usize,
    rows: Vec<String>,
}

/// Everything that is shown.
#[derive(Debug)]
pub(super) struct State {
    pub(super) status: Status,
    /// Why the edge does not answer; `None` while it does.
    pub(super) gone: Option<String>,
    /// Whether it has answered yet.
    pub(super) known: bool,
    pub(super) items: Vec<Arc<Item>>,
    pub(super) busy: Vec<Busy>,
    pub(super) receipts: Vec<Receipt>,
    pub(super) pane: Pane,
    pub(super) prompt: Option<Prompt>,
    pub(super) note: Option<Note>,
    /// Rows by which the details are scrolled: from the top, of output from the end.
    pub(super) scroll: usize,
    cursors: [Cursor; 3],
    /// When each item and command was first there.
    seen: HashMap<String, Instant>,
    /// What was handed over and is not done.
    pub(super) pending: Vec<Wish>,
    output: Output,
    rows: Rows,
}

impl State {
    pub(super) fn new() -> Self {
        let cursor = Cursor {
            id: None,
            index: 0,
            since: None,
        };
        Self {
            status: Status::default(),
            gone: None,
            known: false,
            items: Vec::new(),
            busy: Vec::new(),
            receipts: Vec::new(),
            pane: Pane::Inbox,
            prompt: None,
            note: None,
            scroll: 0,
            cursors: [cursor.clone(), cursor.clone(), cursor],
            seen: HashMap::new(),
            pending: Vec::new(),
            output: Output::default(),
            rows: Rows::default(),
        }
    }

    /// Takes in what a thread reports.
    pub(super) fn report(&mut self, report: Report, now: Instant) {
        match report {
            Report::Here(snapshot) => self.here(*snapshot, now),
            Report::Gone(why) => self.gone = Some(Shown::from(why.as_str()).as_str().to_owned()),
            Report::Output(chunk) => self.output(&chunk),
            Report::Done { wish, failure } => self.done(&wish, failure, now),
            // The loop ends by it.
            Report::Stop => {}
        }
    }

    fn here(&mut self, snapshot: Snapshot, now: Instant) {
        (self.gone, self.known) = (None, true);
        let before = std::mem::take(&mut self.seen);
        let items = snapshot.items.iter().map(|item| &item.id);
        let commands = snapshot.commands.iter().map(|it| &it.command_id);
        self.seen = items
            .chain(commands)
            .map(|id| (id.clone(), *before.get(id).unwrap_or(&now)))
            .collect();
        self.items = snapshot.items;
        self.receipts = snapshot.receipts;
        let (running, ended): (Vec<_>, Vec<_>) =
            snapshot.commands.into_iter().partition(Command::runs);
        let calls = snapshot.status.calls.iter().cloned().map(Busy::Call);
        let commands = running.into_iter().chain(ended.into_iter().take(ENDED));
        self.busy = calls.chain(commands.map(Busy::Command)).collect();
        self.status = snapshot.status;
        for pane in Pane::ALL {
            self.settle(pane, now);
        }
        self.drop_prompt();
        self.rows = Rows::default();
    }

    /// Keeps the cursor on what it is on; when that is gone, on what took its place.
    fn settle(&mut self, pane: Pane, now: Instant) {
        let ids = self.ids(pane);
        let cursor = &mut self.cursors[pane as usize];
        let found = ids.iter().position(|id| Some(id) == cursor.id.as_ref());
        if let Some(index) = found {
            cursor.index = index;
            return;
        }
        cursor.index = cursor.index.min(ids.len().saturating_sub(1));
        cursor.id = ids.into_iter().nth(cursor.index);
        cursor.since = Some(now);
        if pane == self.pane {
            self.scroll = 0;
        }
    }

    /// A prompt for an item that is over has nothing to say any more.
    fn drop_prompt(&mut self) {
        let (Some(Prompt::Deny { id, .. }) | Some(Prompt::Answer { id, .. })) = &self.prompt else {
            return;
        };
        if self.items.iter().all(|item| item.id != *id) {
            self.prompt = None;
            self.tell_bad("that item is over: it was decided elsewhere, or its time is up");
        }
    }

    fn output(&mut self, chunk: &Chunk) {
        if Some(&chunk.command_id) != self.followed().map(|command| &command.command_id) {
            return;
        }
        let output = &mut self.output;
        if output.command_id != chunk.command_id {
            *output = Output {
                command_id: chunk.command_id.clone(),
                ..Output::default()
            };
        }
        output.cut |= chunk.gap;
        output.raw.push_str(&chunk.text);
        if output.raw.len() > OUTPUT_KEPT {
            let start = output
                .raw
                .ceil_char_boundary(output.raw.len() - OUTPUT_KEPT);
            output.raw.drain(..start);
            output.cut = true;
        }
        output.lines = text::of_output(&output.raw);
        self.rows = Rows::default();
    }

    fn done(&mut self, wish: &Wish, failure: Option<String>, now: Instant) {
        if let Some(index) = self.pending.iter().position(|pending| pending == wish) {
            self.pending.remove(index);
        }
        if let Some(why) = failure {
            self.give_back(wish);
            self.tell_bad(&why);
            return;
        }
        if let Wish::Decide { id, .. } = wish {
            self.items.retain(|item| item.id != *id);
            self.settle(Pane::Inbox, now);
        }
        self.tell(match wish {
            Wish::Decide { body, .. } => match body["decision"].as_str() {
                Some("deny") => "denied",
                Some("answer") => "answered",
                Some("approve_session") => "approved, and those like it in this session",
                _ => "approved",
            },
            Wish::Stop { .. } => "stopped",
            Wish::Mode(_) => "mode changed",
            Wish::Open(true) => "the door is open",
            Wish::Open(false) => "the door is closed",
        });
    }

    /// What the owner wrote is not lost with a request that failed.
    fn give_back(&mut self, wish: &Wish) {
        let Wish::Decide { id, body } = wish else {
            return;
        };
        let waits = self.items.iter().any(|item| item.id == *id);
        let (Some(text), true, None) = (body["answer"].as_str(), waits, &self.prompt) else {
            return;
        };
        let (id, text) = (id.clone(), text.to_owned());
        self.prompt = Some(match body["decision"].as_str() {
            Some("answer") => Prompt::Answer { id, text },
            _ => Prompt::Deny { id, text },
        });
    }

    fn tell(&mut self, text: &str) {
        self.note = Some(Note {
            text: Shown::from(text).as_str().to_owned(),
            bad: false,
        });
    }

    fn tell_bad(&mut self, text: &str) {
        self.tell(text);
        if let Some(note) = &mut self.note {
            note.bad = true;
        }
    }

    fn ids(&self, pane: Pane) -> Vec<String> {
        match pane {
            Pane::Inbox => self.items.iter().map(|item| item.id.clone()).collect(),
            Pane::Now => self.busy.iter().map(Busy::id).collect(),
            Pane::Receipts => self.receipts.iter().map(|it| it.id.clone()).collect(),
        }
    }

    /// The chosen row of a list, if it has any.
    pub(super) fn chosen(&self, pane: Pane) -> Option<usize> {
        let cursor = &self.cursors[pane as usize];
        cursor.id.as_ref().map(|_| cursor.index)
    }

    pub(super) fn item(&self) -> Option<&Arc<Item>> {
        self.items.get(self.chosen(Pane::Inbox)?)
    }

    pub(super) fn is_pending(&self, item: &str) -> bool {
        let is =
            |wish: &Wish| matches!(wish, Wish::Decide { id, .. } | Wish::Stop { id } if id == item);
        self.pending.iter().any(is)
    }

    pub(super) fn running(&self) -> Option<&Busy> {
        self.busy.get(self.chosen(Pane::Now)?)
    }

    pub(super) fn receipt(&self) -> Option<&Receipt> {
        self.receipts.get(self.chosen(Pane::Receipts)?)
    }

    /// The command whose output is shown.
    pub(super) fn followed(&self) -> Option<&Command> {
        match self.running().filter(|_| self.pane == Pane::Now)? {
            Busy::Command(command) => Some(command),
            Busy::Call(_) => None,
        }
    }

    /// The output of the followed command, and whether some before it is not there.
    pub(super) fn output_lines(&self) -> (&[String], bool) {
        match self.followed() {
            Some(command) if command.command_id == self.output.command_id => {
                (&self.output.lines, self.output.cut)
            }
            _ => (&[], false),
        }
    }

    /// Rows of so many columns of what is chosen, made anew only when something else is.
    pub(super) fn rows(&mut self, width: usize, lines: impl Fn(&Self) -> Vec<String>) -> &[String] {
        let of = self.cursors[self.pane as usize].id.clone();
        if self.rows.of != of || self.rows.width != width {
            let rows = lines(self)
                .iter()
                .flat_map(|line| text::wrap(line, width))
                .collect();
            self.rows = Rows { of, width, rows };
        }
        &self.rows.rows
    }
}
