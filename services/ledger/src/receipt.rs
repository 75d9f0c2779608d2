//! A receipt as its events make it. The one fold from events to receipts: reading, deciding and verifying all use it.

use std::{mem, sync::Arc};

use bytes::Bytes;
use postern_types::{EventKind, Id, Intention, ReceiptEvent, ReceiptId, Sha256};

use crate::{Error, store::Standing};

/// Where a receipt stands. The numbers are those that the store indexes by.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum State {
    Awaiting = 1,
    Executing = 2,
    Completed = 3,
    Refused = 4,
    Uncertain = 5,
    /// Had no effect; its call id is free again.
    Abandoned = 6,
}

impl State {
    /// States that lists show: every one but abandoned.
    pub(crate) const LISTED: [Self; 5] = [
        Self::Awaiting,
        Self::Executing,
        Self::Completed,
        Self::Refused,
        Self::Uncertain,
    ];
}

/// What the owner is asked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum InboxKind {
    Approval,
    Question,
}

impl InboxKind {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Approval => "approval",
            Self::Question => "question",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        [Self::Approval, Self::Question]
            .into_iter()
            .find(|kind| kind.as_str() == text)
    }
}

/// What the owner decided.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Decision {
    Approve,
    ApproveSession,
    Deny,
    Answer,
    Expire,
}

impl Decision {
    const ALL: [Self; 5] = [
        Self::Approve,
        Self::ApproveSession,
        Self::Deny,
        Self::Answer,
        Self::Expire,
    ];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Approve => "approve",
            Self::ApproveSession => "approve-session",
            Self::Deny => "deny",
            Self::Answer => "answer",
            Self::Expire => "expire",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.as_str() == text)
    }

    /// Whether the receipt may go ahead.
    pub(crate) const fn permits(self) -> bool {
        match self {
            Self::Approve | Self::ApproveSession | Self::Answer => true,
            Self::Deny | Self::Expire => false,
        }
    }

    /// Whether it answers what was asked.
    pub(crate) const fn fits(self, kind: InboxKind) -> bool {
        match self {
            Self::Approve | Self::ApproveSession => matches!(kind, InboxKind::Approval),
            Self::Answer => matches!(kind, InboxKind::Question),
            Self::Deny | Self::Expire => true,
        }
    }
}

/// The ids of a call. Unique among receipts that hold their key.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Key {
    pub(crate) workspace: Id,
    pub(crate) session: Id,
    pub(crate) call: Id,
}

/// One call, as the edge tells it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Call {
    pub(crate) key: Key,
    pub(crate) intention: Intention,
    pub(crate) tool: Arc<str>,
    pub(crate) args_sha256: Sha256,
    pub(crate) trace_id: Arc<str>,
    /// What it is about, for people; may be empty.
    pub(crate) summary: Arc<str>,
}

/// Bytes that stand beside an event and are covered by digests in it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Blobs {
    pub(crate) plan: Option<Bytes>,
    pub(crate) proposal: Option<Bytes>,
    pub(crate) result: Option<Bytes>,
    pub(crate) answer: Option<Bytes>,
}

impl Blobs {
    /// Bytes held.
    pub(crate) fn size(&self) -> usize {
        let all = [&self.plan, &self.proposal, &self.result, &self.answer];
        all.into_iter().flatten().map(Bytes::len).sum()
    }
}

/// What an inbox item asks, and what came of it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Inbox {
    pub(crate) kind: InboxKind,
    pub(crate) proposal: Bytes,
    pub(crate) expires_at_ms: i64,
    pub(crate) decided: Option<Decided>,
}

/// A decision with who and when.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Decided {
    pub(crate) decision: Decision,
    pub(crate) answer: Arc<str>,
    pub(crate) by: Arc<str>,
    pub(crate) at_ms: i64,
}

/// A receipt as it stands. Cheap to clone.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Receipt {
    pub(crate) id: ReceiptId,
    pub(crate) call: Arc<Call>,
    pub(crate) state: State,
    /// Whether it holds its call id.
    pub(crate) keyed: bool,
    pub(crate) outcome: Arc<str>,
    pub(crate) created_at_ms: i64,
    pub(crate) started_at_ms: Option<i64>,
    pub(crate) finished_at_ms: Option<i64>,
    pub(crate) sequence: u64,
    pub(crate) previous_hash: Option<Sha256>,
    pub(crate) hash: Option<Sha256>,
    pub(crate) incarnation: u64,
    pub(crate) policy_id: Arc<str>,
    pub(crate) plan: Bytes,
    pub(crate) inbox: Option<Arc<Inbox>>,
    pub(crate) result: Bytes,
    pub(crate) result_sha256: Option<Sha256>,
}

/// Outcome of a receipt that ended well.
const OK: &str = "ok";
/// Outcome shown for an abandoned receipt.
const ABANDONED: &str = "UNAVAILABLE";

impl Receipt {
    /// The receipt that an event starts.
    pub(crate) fn first(event: &ReceiptEvent, hash: Sha256, blobs: Blobs) -> Result<Self, Error> {
        let missing = || Error::Corrupt(format!("{} starts without its call", event.receipt_id));
        let call = Call {
            key: Key {
                workspace: event.workspace_id.clone(),
                session: event.session_id.clone().ok_or_else(missing)?,
                call: event.call_id.clone().ok_or_else(missing)?,
            },
            intention: event.intention.clone().ok_or_else(missing)?,
            tool: event.tool.as_deref().ok_or_else(missing)?.into(),
            args_sha256: event.args_sha256.ok_or_else(missing)?,
            trace_id: event.trace_id.as_deref().unwrap_or_default().into(),
            summary: event.summary.as_deref().unwrap_or_default().into(),
        };
        let mut receipt = Self {
            id: event.receipt_id,
            call: Arc::new(call),
            state: State::Awaiting,
            keyed: event.unkeyed != Some(true),
            outcome: "".into(),
            created_at_ms: event.at_ms,
            started_at_ms: event.started_at_ms,
            finished_at_ms: None,
            sequence: 0,
            previous_hash: None,
            hash: None,
            incarnation: event.incarnation,
            policy_id: "".into(),
            plan: Bytes::new(),
            inbox: None,
            result: Bytes::new(),
            result_sha256: None,
        };
        receipt.apply(event, hash, blobs)?;
        Ok(receipt)
    }

    /// What a further event makes of it.
    pub(crate) fn apply(
        &mut self,
        event: &ReceiptEvent,
        hash: Sha256,
        blobs: Blobs,
    ) -> Result<(), Error> {
        self.sequence = event.sequence;
        self.previous_hash = Some(event.previous_hash);
        self.hash = Some(hash);
        if let Some(policy_id) = &event.policy_id {
            self.policy_id = policy_id.as_str().into();
        }
        if let Some(plan) = blobs.plan {
            self.plan = plan;
        }
        match event.kind {
            EventKind::Awaiting => self.ask(event, blobs.proposal)?,
            EventKind::Decided => self.decide(event, blobs.answer)?,
            EventKind::Executing => {
                self.state = State::Executing;
                self.incarnation = event.incarnation;
                self.started_at_ms = Some(event.at_ms);
            }
            EventKind::Adopted => self.incarnation = event.incarnation,
            EventKind::Completed => self.end(State::Completed, event, blobs.result),
            EventKind::Refused => self.end(State::Refused, event, blobs.result),
            EventKind::Uncertain => self.end(State::Uncertain, event, blobs.result),
            EventKind::Abandoned => {
                self.end(State::Abandoned, event, None);
                self.outcome = ABANDONED.into();
                self.keyed = false;
            }
        }
        Ok(())
    }

    fn ask(&mut self, event: &ReceiptEvent, proposal: Option<Bytes>) -> Result<(), Error> {
        let kind = event.inbox_kind.as_deref().and_then(InboxKind::parse);
        let (Some(kind), Some(expires_at_ms)) = (kind, event.expires_at_ms) else {
            return Err(Error::Corrupt(format!("{} asks nothing", self.id)));
        };
        self.state = State::Awaiting;
        self.inbox = Some(Arc::new(Inbox {
            kind,
            proposal: proposal.unwrap_or_default(),
            expires_at_ms,
            decided: None,
        }));
        Ok(())
    }

    fn decide(&mut self, event: &ReceiptEvent, answer: Option<Bytes>) -> Result<(), Error> {
        let unreadable = || Error::Corrupt(format!("{} has an unreadable decision", self.id));
        let decision = event.decision.as_deref().and_then(Decision::parse);
        let decision = decision.ok_or_else(unreadable)?;
        let answer = answer.unwrap_or_default();
        let answer = std::str::from_utf8(&answer).map_err(|_| unreadable())?;
        let inbox = self.inbox.as_ref().ok_or_else(unreadable)?;
        self.inbox = Some(Arc::new(Inbox {
            decided: Some(Decided {
                decision,
                answer: answer.into(),
                by: event.decided_by.as_deref().unwrap_or_default().into(),
                at_ms: event.at_ms,
            }),
            ..Inbox::clone(inbox)
        }));
        Ok(())
    }

    fn end(&mut self, state: State, event: &ReceiptEvent, result: Option<Bytes>) {
        self.state = state;
        self.incarnation = event.incarnation;
        self.outcome = event.outcome.as_deref().unwrap_or_default().into();
        self.finished_at_ms = Some(event.at_ms);
        self.result = result.unwrap_or_default();
        self.result_sha256 = event.result_sha256;
    }

    /// The decision, when there is one.
    pub(crate) fn decided(&self) -> Option<&Decided> {
        self.inbox.as_ref()?.decided.as_ref()
    }

    /// What the store's index says of it.
    pub(crate) fn standing(&self) -> Standing {
        Standing {
            keyed: self.keyed,
            state: self.state,
            ok: self.outcome.as_ref() == OK,
        }
    }

    /// Whether something may still happen to it.
    pub(crate) const fn open(&self) -> bool {
        matches!(self.state, State::Awaiting | State::Executing)
    }

    /// Lets go of its result, and of a plan or proposal larger than `limit` bytes.
    pub(crate) fn shed_blobs_over(&mut self, limit: usize) {
        self.result = Bytes::new();
        if self.plan.len() > limit {
            self.plan = Bytes::new();
        }
        if let Some(inbox) = self.inbox.as_ref().filter(|it| it.proposal.len() > limit) {
            self.inbox = Some(Arc::new(Inbox {
                proposal: Bytes::new(),
                ..Inbox::clone(inbox)
            }));
        }
    }

    /// Memory held, in bytes, roughly.
    pub(crate) fn size(&self) -> usize {
        let proposal = self.inbox.as_ref().map_or(0, |inbox| inbox.proposal.len());
        mem::size_of::<Self>()
            + mem::size_of::<Call>()
            + self.call.intention.as_str().len()
            + self.plan.len()
            + self.result.len()
            + proposal
    }
}
