//! What the owner's API says, as far as the view shows it.
//!
//! Invariant: what an agent may have written is a [`Shown`], which holds nothing that steers a terminal, or it is turned into
//! lines by [`super::text`], which does the same. Only ids, which are sent back, are kept as they came.

use std::sync::Arc;

use postern_types::{Timestamp, printable};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::text;

/// Text that is harmless to a terminal.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Shown(String);

impl Shown {
    /// The text.
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Shown {
    fn from(text: &str) -> Self {
        Self(printable(text))
    }
}

impl<'de> Deserialize<'de> for Shown {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        Ok(text.as_deref().map_or_else(Self::default, Self::from))
    }
}

/// The edge.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Status {
    pub(super) mode: Shown,
    pub(super) intention: Shown,
    pub(super) channel: Channel,
    pub(super) calls: Vec<Call>,
    pub(super) waiting: Option<u64>,
    pub(super) warnings: Vec<Shown>,
}

/// The channel to the host.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Channel {
    pub(super) open: bool,
    pub(super) connected: bool,
}

/// A call in flight.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Call {
    pub(super) session_id: Shown,
    pub(super) call_id: Shown,
    pub(super) tool: Shown,
    pub(super) summary: Shown,
    pub(super) started_at: Shown,
    pub(super) waiting: bool,
}

/// A command, running or ended.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Command {
    pub(super) command_id: String,
    pub(super) session_id: Shown,
    pub(super) command: Shown,
    pub(super) cwd: Shown,
    pub(super) status: Shown,
    pub(super) exit_code: Option<i64>,
    pub(super) started_at: Shown,
    pub(super) finished_at: Shown,
    pub(super) total_bytes: u64,
}

impl Command {
    pub(super) fn runs(&self) -> bool {
        self.status.as_str() == "running"
    }
}

/// A receipt.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Receipt {
    pub(super) id: String,
    pub(super) session_id: Shown,
    pub(super) tool: Shown,
    pub(super) summary: Shown,
    pub(super) state: Shown,
    pub(super) outcome: Shown,
    pub(super) created_at: Shown,
    pub(super) finished_at: Shown,
    pub(super) decision: Shown,
    pub(super) decided_by: Shown,
    pub(super) policy_id: Shown,
    pub(super) hash: Shown,
    pub(super) trace_id: Shown,
}

/// What can be decided about an item.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    Approval,
    Question,
}

/// An item of the inbox, whole.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) id: String,
    pub(super) kind: Kind,
    pub(super) tool: Shown,
    pub(super) session_id: Shown,
    pub(super) summary: Shown,
    pub(super) expires_at: Option<Timestamp>,
    /// What is asked, every line of it.
    pub(super) asked: Vec<String>,
    /// The same for a patch, with its two texts apart.
    pub(super) sides: Option<Sides>,
}

/// What a patch replaces, and by what: beside each other where there is room.
#[derive(Clone, Debug)]
pub(super) struct Sides {
    /// Everything else that is asked.
    pub(super) rest: Vec<String>,
    pub(super) old: Vec<String>,
    pub(super) new: Vec<String>,
}

impl Sides {
    /// Of a proposal that has both, unless they are longer than what is kept of an item.
    fn of(proposal: &Value, whole: &str) -> Option<Self> {
        let mut rest = proposal.clone();
        let arguments = rest.get_mut("arguments")?.as_object_mut()?;
        let [old, new] = ["oldText", "newText"].map(|name| arguments.remove(name));
        let [old, new] = [old?, new?].map(|side| side.as_str().map(text::quoted));
        Some(Self {
            old: old??,
            new: new??,
            rest: text::of_json(&rest, whole),
        })
    }
}

impl Item {
    /// An item as `GET /owner/v1/inbox/{id}` tells it; `None` for what is none.
    pub(super) fn parse(value: &Value) -> Option<Self> {
        let told = |field: &str| Shown::from(value[field].as_str().unwrap_or_default());
        let id = value["id"].as_str()?.to_owned();
        let (kind, asked) = match value["kind"].as_str()? {
            "question" => (Kind::Question, &value["question"]),
            "approval" => (Kind::Approval, &value["proposal"]),
            _ => return None,
        };
        let whole = format!("postern inbox show {}", printable(&id));
        Some(Self {
            kind,
            tool: told("tool"),
            session_id: told("sessionId"),
            summary: told("summary"),
            expires_at: value["expiresAt"]
                .as_str()
                .and_then(|time| Timestamp::parse(time).ok()),
            asked: text::of_json(asked, &whole),
            sides: Sides::of(asked, &whole),
            id,
        })
    }
}

/// One look at the edge.
#[derive(Clone, Debug, Default)]
pub(super) struct Snapshot {
    pub(super) status: Status,
    /// Oldest first, so that what comes moves nothing.
    pub(super) items: Vec<Arc<Item>>,
    /// Newest first.
    pub(super) receipts: Vec<Receipt>,
    /// Newest first.
    pub(super) commands: Vec<Command>,
}

/// A piece of a command's output.
#[derive(Clone, Debug, Default)]
pub(super) struct Chunk {
    pub(super) command_id: String,
    pub(super) text: String,
    /// Whether what came before it is not there.
    pub(super) gap: bool,
}
