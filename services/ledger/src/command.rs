//! What the writer is asked, and what it answers.

use std::sync::Arc;

use bytes::Bytes;
use postern_types::{Id, ReceiptId};

use crate::{
    pending::Record,
    receipt::{Call, Decision, InboxKind, Key, Receipt, State},
};

/// A question to the owner.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    pub(crate) kind: InboxKind,
    pub(crate) proposal: Bytes,
    pub(crate) expires_at_ms: i64,
}

/// One request to the writer.
#[derive(Clone, Debug)]
pub(crate) enum Command {
    Begin {
        call: Arc<Call>,
        incarnation: u64,
        plan: Bytes,
        question: Option<Question>,
        policy_id: String,
    },
    /// A lookup that found an orphan, which is adopted by writing.
    Adopt {
        call: Arc<Call>,
        incarnation: u64,
    },
    Refuse {
        call: Arc<Call>,
        incarnation: u64,
        outcome: String,
        result: Bytes,
        policy_id: String,
        unkeyed: bool,
    },
    Start {
        receipt: ReceiptId,
        incarnation: u64,
        plan: Bytes,
    },
    Complete {
        receipt: ReceiptId,
        incarnation: u64,
        state: State,
        outcome: String,
        result: Bytes,
    },
    Abandon {
        receipt: ReceiptId,
        incarnation: u64,
    },
    Decide {
        receipt: ReceiptId,
        decision: Decision,
        answer: String,
        by: String,
    },
    Record(Record),
}

impl Command {
    /// Memory held, in bytes, roughly.
    pub(crate) fn size(&self) -> usize {
        let held = match self {
            Self::Begin {
                call,
                plan,
                question,
                ..
            } => {
                let proposal = question.as_ref().map_or(0, |it| it.proposal.len());
                call.intention.as_str().len() + plan.len() + proposal
            }
            Self::Refuse { call, result, .. } => call.intention.as_str().len() + result.len(),
            Self::Adopt { call, .. } => call.intention.as_str().len(),
            Self::Start { plan, .. } => plan.len(),
            Self::Complete { result, .. } => result.len(),
            Self::Decide { answer, .. } => answer.len(),
            Self::Abandon { .. } | Self::Record(_) => 0,
        };
        size_of::<Self>() + held
    }

    pub(crate) fn key(&self) -> Option<&Key> {
        match self {
            Self::Begin { call, .. } | Self::Adopt { call, .. } => Some(&call.key),
            Self::Refuse { call, unkeyed, .. } => (!unkeyed).then_some(&call.key),
            Self::Record(record) => Some(&record.call.key),
            Self::Start { .. }
            | Self::Complete { .. }
            | Self::Abandon { .. }
            | Self::Decide { .. } => None,
        }
    }

    pub(crate) const fn receipt(&self) -> Option<ReceiptId> {
        match self {
            Self::Start { receipt, .. }
            | Self::Complete { receipt, .. }
            | Self::Abandon { receipt, .. }
            | Self::Decide { receipt, .. } => Some(*receipt),
            Self::Begin { .. } | Self::Adopt { .. } | Self::Refuse { .. } | Self::Record(_) => None,
        }
    }

    pub(crate) fn workspace(&self) -> Option<&Id> {
        match self {
            Self::Refuse { call, .. } => Some(&call.key.workspace),
            Self::Begin { .. }
            | Self::Adopt { .. }
            | Self::Record(_)
            | Self::Start { .. }
            | Self::Complete { .. }
            | Self::Abandon { .. }
            | Self::Decide { .. } => self.key().map(|key| &key.workspace),
        }
    }
}

/// What the ids of a call stand for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Found {
    Started(Receipt),
    Replay(Receipt),
    Running(Receipt),
    Orphaned(Receipt),
    Conflict(Receipt),
    Awaiting(Receipt),
    Unknown,
}

/// What a request led to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Answer {
    Found(Found),
    Receipt(Receipt),
    Decided { counted: bool, receipt: Receipt },
}

/// What ids stand for as far as no writing is needed: an orphan is told as it is.
pub(crate) fn found(receipt: Receipt, call: &Call, incarnation: u64) -> Found {
    if receipt.call.tool != call.tool || receipt.call.args_sha256 != call.args_sha256 {
        return Found::Conflict(receipt);
    }
    match receipt.state {
        State::Awaiting => Found::Awaiting(receipt),
        State::Executing if receipt.incarnation == incarnation => Found::Running(receipt),
        State::Executing => Found::Orphaned(receipt),
        State::Completed | State::Refused | State::Uncertain => Found::Replay(receipt),
        State::Abandoned => Found::Unknown,
    }
}
