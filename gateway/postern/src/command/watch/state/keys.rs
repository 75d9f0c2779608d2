//! What keys do.
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "a keyboard has many keys, and most do nothing here"
)]

use std::time::Instant;

use postern_types::Mode;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde_json::{Value, json};

use super::{Busy, GUARD, Pane, Prompt, Rows, State};
use crate::command::watch::{feed::Wish, model::Kind};

/// Longest answer or reason, in characters, as the owner's API has it.
const TEXT_LIMIT: usize = 16_384;
/// Rows by which a key scrolls the details.
const SCROLL: usize = 10;

/// What the loop is to do after a key.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(in crate::command::watch) enum Act {
    /// Nothing but draw.
    Draw,
    /// Carry this out.
    Wish(Wish),
    /// End.
    Quit,
}

impl State {
    /// Takes in a key.
    pub(in crate::command::watch) fn key(&mut self, key: KeyEvent, now: Instant) -> Act {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        if control && key.code == KeyCode::Char('c') {
            return Act::Quit;
        }
        if control || key.modifiers.contains(KeyModifiers::ALT) {
            return Act::Draw;
        }
        self.note = None;
        match self.prompt.take() {
            Some(prompt) => self.prompt_key(prompt, key.code),
            None => self.plain_key(key.code, now),
        }
    }

    /// Takes in pasted text, which is text and never a decision.
    pub(in crate::command::watch) fn paste(&mut self, pasted: &str) {
        if let Some(Prompt::Deny { text, .. } | Prompt::Answer { text, .. }) = &mut self.prompt {
            let room = TEXT_LIMIT.saturating_sub(text.chars().count());
            let lines = pasted.replace("\r\n", "\n").replace('\r', "\n");
            text.extend(lines.chars().take(room));
        }
    }

    /// Notes that a wish was handed over, or that there was no room for it.
    pub(in crate::command::watch) fn handed_over(&mut self, wish: Wish, taken: bool) {
        if taken {
            self.pending.push(wish);
        } else {
            self.tell_bad("too much is waiting to be done; try again in a moment");
        }
    }

    fn plain_key(&mut self, key: KeyCode, now: Instant) -> Act {
        match key {
            KeyCode::Char('q') => return Act::Quit,
            KeyCode::Tab => self.turn(1),
            KeyCode::BackTab => self.turn(Pane::ALL.len() - 1),
            KeyCode::Char('1') => self.turn_to(Pane::Inbox),
            KeyCode::Char('2') => self.turn_to(Pane::Now),
            KeyCode::Char('3') => self.turn_to(Pane::Receipts),
            KeyCode::Down | KeyCode::Char('j') => self.step(1),
            KeyCode::Up | KeyCode::Char('k') => self.step(-1),
            KeyCode::PageDown | KeyCode::Char(' ') => self.scroll_by(SCROLL, true),
            KeyCode::PageUp | KeyCode::Char('b') => self.scroll_by(SCROLL, false),
            _ => return self.act(key, now),
        }
        Act::Draw
    }

    /// Keys that change something.
    fn act(&mut self, key: KeyCode, now: Instant) -> Act {
        let KeyCode::Char(key @ ('a' | 's' | 'd' | 'r' | 'x' | 'm' | 'o' | 'c')) = key else {
            return Act::Draw;
        };
        if self.gone.is_some() || !self.known {
            self.tell_bad("the edge does not answer now; nothing was done");
            return Act::Draw;
        }
        match key {
            'm' => self.prompt = Some(Prompt::Mode),
            'o' => return Act::Wish(Wish::Open(true)),
            'c' => return Act::Wish(Wish::Open(false)),
            'x' if self.pane == Pane::Now => return self.stop(now),
            'a' | 's' | 'd' | 'r' if self.pane == Pane::Inbox => return self.decide(key, now),
            _ => {}
        }
        Act::Draw
    }

    fn turn(&mut self, steps: usize) {
        self.turn_to(Pane::ALL[(self.pane as usize + steps) % Pane::ALL.len()]);
    }

    fn turn_to(&mut self, pane: Pane) {
        self.pane = pane;
        self.scroll = 0;
        self.rows = Rows::default();
    }

    fn step(&mut self, by: isize) {
        let ids = self.ids(self.pane);
        let cursor = &mut self.cursors[self.pane as usize];
        let last = ids.len().saturating_sub(1);
        let index = cursor.index.saturating_add_signed(by).min(last);
        if index != cursor.index {
            cursor.id = ids.into_iter().nth(index);
            (cursor.index, cursor.since) = (index, None);
            self.scroll = 0;
        }
    }

    /// Output is read from its end on, everything else from its beginning.
    fn scroll_by(&mut self, rows: usize, down: bool) {
        let away = down == self.followed().is_none();
        self.scroll = match away {
            true => self.scroll.saturating_add(rows),
            false => self.scroll.saturating_sub(rows),
        };
    }

    /// Whether what is chosen has been there long enough for a key to mean it.
    fn is_meant(&mut self, now: Instant) -> bool {
        let cursor = &mut self.cursors[self.pane as usize];
        let came = cursor.id.as_ref().and_then(|id| self.seen.get(id)).copied();
        let since = cursor.since.max(came);
        if since.is_none_or(|since| now.saturating_duration_since(since) >= GUARD) {
            return true;
        }
        cursor.since = Some(now);
        self.tell_bad("this came only just now: look at it, then press the key again");
        false
    }

    fn stop(&mut self, now: Instant) -> Act {
        let running = match self.running() {
            Some(Busy::Command(command)) if command.runs() => Some(command.command_id.clone()),
            Some(Busy::Command(_) | Busy::Call(_)) | None => None,
        };
        match running {
            None => self.tell("choose a running command to stop"),
            Some(id) if !self.is_pending(&id) && self.is_meant(now) => {
                return Act::Wish(Wish::Stop { id });
            }
            Some(_) => {}
        }
        Act::Draw
    }

    fn decide(&mut self, key: char, now: Instant) -> Act {
        let Some(item) = self.item() else {
            self.tell("nothing waits for you");
            return Act::Draw;
        };
        let (id, kind) = (item.id.clone(), item.kind);
        let fits = match kind {
            Kind::Approval => key != 'r',
            Kind::Question => matches!(key, 'r' | 'd'),
        };
        if !fits {
            self.tell_bad(match kind {
                Kind::Approval => {
                    "this is no question: a approves it, s for the session, d denies it"
                }
                Kind::Question => "this is a question: r answers it, d denies it",
            });
            return Act::Draw;
        }
        if self.is_pending(&id) || !self.is_meant(now) {
            return Act::Draw;
        }
        let text = String::new();
        match key {
            'a' => return decided(id, json!({"decision": "approve"})),
            's' => return decided(id, json!({"decision": "approve_session"})),
            'd' => self.prompt = Some(Prompt::Deny { id, text }),
            _ => self.prompt = Some(Prompt::Answer { id, text }),
        }
        Act::Draw
    }

    fn prompt_key(&mut self, mut prompt: Prompt, key: KeyCode) -> Act {
        if key == KeyCode::Esc {
            return Act::Draw;
        }
        let text = match &mut prompt {
            Prompt::Mode => return self.choose_mode(key),
            Prompt::Deny { text, .. } | Prompt::Answer { text, .. } => text,
        };
        match key {
            KeyCode::Enter if self.gone.is_some() => {
                self.tell_bad("the edge does not answer now; your text is kept");
            }
            KeyCode::Enter => return self.send(prompt),
            KeyCode::Backspace => drop(text.pop()),
            KeyCode::Char(c) if text.chars().count() < TEXT_LIMIT => text.push(c),
            _ => {}
        }
        self.prompt = Some(prompt);
        Act::Draw
    }

    fn choose_mode(&mut self, key: KeyCode) -> Act {
        let mode = match key {
            KeyCode::Char('r') => Mode::ReadOnly,
            KeyCode::Char('a') => Mode::Ask,
            KeyCode::Char('e') => Mode::Edit,
            KeyCode::Char('f') => Mode::Full,
            _ => {
                self.prompt = Some(Prompt::Mode);
                return Act::Draw;
            }
        };
        Act::Wish(Wish::Mode(mode))
    }

    fn send(&mut self, prompt: Prompt) -> Act {
        let (id, decision, text) = match prompt {
            Prompt::Deny { id, text } if text.is_empty() => {
                return decided(id, json!({"decision": "deny"}));
            }
            Prompt::Answer { text, .. } if text.is_empty() => {
                self.tell_bad("an answer needs words; Esc leaves the question waiting");
                return Act::Draw;
            }
            Prompt::Deny { id, text } => (id, "deny", text),
            Prompt::Answer { id, text } => (id, "answer", text),
            Prompt::Mode => return Act::Draw,
        };
        decided(id, json!({"decision": decision, "answer": text}))
    }
}

fn decided(id: String, body: Value) -> Act {
    Act::Wish(Wish::Decide { id, body })
}
