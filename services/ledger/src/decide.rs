//! Decides what each request of a batch does to the chains, without touching the database: what it needs is loaded
//! before, what it appends is written after, and if that fails everything here is forgotten.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use bytes::Bytes;
use postern_types::{EventKind, Id, ReceiptEvent, ReceiptId, Sha256};

use crate::{
    Error,
    command::{Answer, Command, Found, Question, found},
    event::{first, further, non_empty, with_plan, with_result},
    known::KnownKeys,
    pending::Record,
    receipt::{Blobs, Call, Decision, Key, Receipt, State},
    store::{Entry, Head, Loaded, Row, Wanted},
};

/// Bytes of receipts remembered between batches. They are reloaded when needed.
const MEMORY_BYTES: usize = 4 * 1024 * 1024;
/// Workspaces remembered between batches.
const MEMORY_WORKSPACES: usize = 256;

/// Who decides when the wait is over.
const BY_TIMEOUT: &str = "timeout";

/// The state that a batch is decided on.
#[derive(Debug)]
pub(crate) struct Decider {
    known: Arc<KnownKeys>,
    heads: HashMap<Id, Head>,
    receipts: HashMap<ReceiptId, Receipt>,
    keys: HashMap<Key, ReceiptId>,
    bytes: usize,
    /// Looked for in this batch: what of it is not in memory is not there.
    looked: Looked,
    rows: Vec<Row>,
    changes: Vec<Receipt>,
}

#[derive(Debug, Default)]
struct Looked {
    workspaces: HashSet<Id>,
    keys: HashSet<Key>,
    receipts: HashSet<ReceiptId>,
}

impl Decider {
    pub(crate) fn new(known: Arc<KnownKeys>) -> Self {
        Self {
            known,
            heads: HashMap::new(),
            receipts: HashMap::new(),
            keys: HashMap::new(),
            bytes: 0,
            looked: Looked::default(),
            rows: Vec::new(),
            changes: Vec::new(),
        }
    }

    /// What has to be loaded before these commands can be decided on. A workspace may turn up only after its receipt.
    pub(crate) fn wanted<'a>(&self, commands: impl Iterator<Item = &'a Command>) -> Wanted {
        let mut wanted = Wanted::default();
        let mut seen = (HashSet::new(), HashSet::new(), HashSet::new());
        for command in commands {
            let receipt = command.receipt();
            let of_receipt = receipt.and_then(|id| self.receipts.get(&id));
            let workspace = command
                .workspace()
                .or_else(|| of_receipt.map(|receipt| &receipt.call.key.workspace));
            if let Some(id) = workspace
                && !self.heads.contains_key(id)
                && !self.looked.workspaces.contains(id)
                && seen.0.insert(id)
            {
                wanted.workspaces.push(id.clone());
            }
            if let Some(key) = command.key()
                && !self.keys.contains_key(key)
                && !self.looked.keys.contains(key)
                && self.known.perhaps(key)
                && seen.1.insert(key)
            {
                wanted.keys.push(key.clone());
            }
            if let Some(id) = receipt
                && of_receipt.is_none()
                && !self.looked.receipts.contains(&id)
                && seen.2.insert(id)
            {
                wanted.receipts.push(id);
            }
        }
        wanted
    }

    /// Takes in what was loaded of what was wanted.
    pub(crate) fn admit(&mut self, wanted: Wanted, loaded: Loaded) {
        self.heads.extend(loaded.workspaces);
        for receipt in loaded.receipts {
            self.remember(receipt);
        }
        self.looked.workspaces.extend(wanted.workspaces);
        self.looked.keys.extend(wanted.keys);
        self.looked.receipts.extend(wanted.receipts);
    }

    /// Decides one command.
    pub(crate) fn decide(&mut self, command: Command, now_ms: i64) -> Result<Answer, Error> {
        match command {
            Command::Begin {
                call,
                incarnation,
                plan,
                question,
                policy_id,
            } => self.begin(call, incarnation, plan, question, policy_id, now_ms),
            Command::Adopt { call, incarnation } => {
                let found = self.look(&call, incarnation, now_ms)?;
                Ok(Answer::Found(found.unwrap_or(Found::Unknown)))
            }
            Command::Refuse {
                call,
                incarnation,
                outcome,
                result,
                policy_id,
                unkeyed,
            } => {
                if unkeyed {
                    self.fence(&call.key.workspace, incarnation)?;
                } else if let Some(found) = self.look(&call, incarnation, now_ms)? {
                    return Ok(Answer::Found(found));
                }
                let mut event = first(EventKind::Refused, &call, incarnation, now_ms);
                event.outcome = Some(outcome);
                event.unkeyed = unkeyed.then_some(true);
                event.policy_id = non_empty(policy_id);
                let receipt = self.append(event, with_result(result))?;
                Ok(Answer::Found(Found::Started(receipt)))
            }
            Command::Start {
                receipt,
                incarnation,
                plan,
            } => self.start(receipt, incarnation, plan, now_ms),
            Command::Complete {
                receipt,
                incarnation,
                state,
                outcome,
                result,
            } => self.complete(receipt, incarnation, state, outcome, result, now_ms),
            Command::Abandon {
                receipt,
                incarnation,
            } => self.abandon(receipt, incarnation, now_ms),
            Command::Decide {
                receipt,
                decision,
                answer,
                by,
            } => self.settle(receipt, decision, answer, by, now_ms),
            Command::Record(record) => self.record(&record),
        }
    }

    /// Takes the batch's rows, and the receipts after each of its changes.
    pub(crate) fn take(&mut self) -> (Vec<Row>, Vec<Receipt>) {
        (
            std::mem::take(&mut self.rows),
            std::mem::take(&mut self.changes),
        )
    }

    /// The batch is on disk: only open receipts are worth remembering.
    pub(crate) fn committed(&mut self) {
        self.looked = Looked::default();
        let Self {
            receipts,
            keys,
            bytes,
            ..
        } = self;
        receipts.retain(|_, receipt| {
            let keep = receipt.open();
            if !keep {
                *bytes = bytes.saturating_sub(receipt.size());
            }
            keep
        });
        keys.retain(|_, id| receipts.contains_key(id));
        if self.bytes > MEMORY_BYTES || self.heads.len() > MEMORY_WORKSPACES {
            self.forget();
        }
    }

    /// The batch failed, or a workspace changed hands: what is here may not be so.
    pub(crate) fn forget(&mut self) {
        *self = Self::new(Arc::clone(&self.known));
    }

    fn begin(
        &mut self,
        call: Arc<Call>,
        incarnation: u64,
        plan: Bytes,
        question: Option<Question>,
        policy_id: String,
        now_ms: i64,
    ) -> Result<Answer, Error> {
        if let Some(found) = self.look(&call, incarnation, now_ms)? {
            return Ok(Answer::Found(found));
        }
        let kind = if question.is_some() {
            EventKind::Awaiting
        } else {
            EventKind::Executing
        };
        let mut event = first(kind, &call, incarnation, now_ms);
        event.policy_id = non_empty(policy_id);
        let mut blobs = with_plan(plan);
        if let Some(question) = question {
            event.inbox_kind = Some(question.kind.as_str().to_owned());
            event.expires_at_ms = Some(question.expires_at_ms);
            blobs.proposal = Some(question.proposal);
        }
        let receipt = self.append(event, blobs)?;
        Ok(Answer::Found(Found::Started(receipt)))
    }

    /// What ids stand for. An orphan changes hands.
    fn look(&mut self, call: &Call, incarnation: u64, now_ms: i64) -> Result<Option<Found>, Error> {
        self.fence(&call.key.workspace, incarnation)?;
        let Some(id) = self.keys.get(&call.key) else {
            return Ok(None);
        };
        let receipt = self.receipts.get(id).ok_or(Error::NotFound)?.clone();
        Ok(Some(match found(receipt, call, incarnation) {
            Found::Orphaned(receipt) => {
                let event = further(EventKind::Adopted, &receipt, incarnation, now_ms);
                Found::Orphaned(self.append(event, Blobs::default())?)
            }
            other @ (Found::Started(_)
            | Found::Replay(_)
            | Found::Running(_)
            | Found::Conflict(_)
            | Found::Awaiting(_)
            | Found::Unknown) => other,
        }))
    }

    fn start(
        &mut self,
        id: ReceiptId,
        incarnation: u64,
        plan: Bytes,
        now_ms: i64,
    ) -> Result<Answer, Error> {
        let receipt = self.fenced(id, incarnation)?;
        if receipt.state != State::Awaiting {
            return Err(Error::WrongState("it does not await the owner"));
        }
        match receipt.decided() {
            None => return Err(Error::WrongState("the owner has not decided")),
            Some(decided) if !decided.decision.permits() => {
                return Err(Error::WrongState("the owner did not approve"));
            }
            Some(_) => {}
        }
        let event = further(EventKind::Executing, &receipt, incarnation, now_ms);
        self.append(event, with_plan(plan)).map(Answer::Receipt)
    }

    fn complete(
        &mut self,
        id: ReceiptId,
        incarnation: u64,
        state: State,
        outcome: String,
        result: Bytes,
        now_ms: i64,
    ) -> Result<Answer, Error> {
        let receipt = self.fenced(id, incarnation)?;
        if !receipt.open() {
            let same = receipt.state == state
                && *receipt.outcome == *outcome
                && receipt.result_sha256 == with_result(result).result.map(|it| Sha256::of(&it));
            return if same {
                Ok(Answer::Receipt(receipt))
            } else {
                Err(Error::WrongState("it has ended otherwise"))
            };
        }
        let executing = receipt.state == State::Executing;
        if executing && receipt.incarnation != incarnation {
            return Err(Error::WrongState(
                "an earlier incarnation left it executing; look its ids up to adopt it",
            ));
        }
        let answered = receipt
            .decided()
            .is_some_and(|decided| decided.decision == Decision::Answer);
        let kind = match state {
            State::Completed if executing || answered => EventKind::Completed,
            State::Uncertain if executing => EventKind::Uncertain,
            State::Refused if !executing => EventKind::Refused,
            State::Completed
            | State::Uncertain
            | State::Refused
            | State::Awaiting
            | State::Executing
            | State::Abandoned => {
                return Err(Error::WrongState("it cannot end so from where it stands"));
            }
        };
        let mut event = further(kind, &receipt, incarnation, now_ms);
        event.outcome = Some(outcome);
        self.append(event, with_result(result)).map(Answer::Receipt)
    }

    fn abandon(&mut self, id: ReceiptId, incarnation: u64, now_ms: i64) -> Result<Answer, Error> {
        let receipt = self.fenced(id, incarnation)?;
        match receipt.state {
            State::Abandoned => return Ok(Answer::Receipt(receipt)),
            State::Executing if receipt.incarnation == incarnation => {}
            State::Executing
            | State::Awaiting
            | State::Completed
            | State::Refused
            | State::Uncertain => {
                return Err(Error::WrongState(
                    "only a receipt that the caller holds executing can be abandoned",
                ));
            }
        }
        let event = further(EventKind::Abandoned, &receipt, incarnation, now_ms);
        self.append(event, Blobs::default()).map(Answer::Receipt)
    }

    /// The first decision counts, and after the wait only that nobody decided in time.
    fn settle(
        &mut self,
        id: ReceiptId,
        decision: Decision,
        answer: String,
        by: String,
        now_ms: i64,
    ) -> Result<Answer, Error> {
        let receipt = self.receipts.get(&id).ok_or(Error::NotFound)?.clone();
        let Some(inbox) = &receipt.inbox else {
            return Err(Error::WrongState("it never asked the owner"));
        };
        if !decision.fits(inbox.kind) {
            return Err(Error::Invalid {
                field: "decision",
                rule: "a question is answered or denied, an approval approved or denied",
            });
        }
        if inbox.decided.is_some() || receipt.state != State::Awaiting {
            return Ok(Answer::Decided {
                counted: false,
                receipt,
            });
        }
        let late = decision != Decision::Expire && now_ms >= inbox.expires_at_ms;
        let head = self.heads.get(&receipt.call.key.workspace);
        let incarnation = head.map_or(receipt.incarnation, |head| head.incarnation);
        let mut event = further(EventKind::Decided, &receipt, incarnation, now_ms);
        let mut blobs = Blobs::default();
        if late {
            event.decision = Some(Decision::Expire.as_str().to_owned());
            event.decided_by = Some(BY_TIMEOUT.to_owned());
        } else {
            event.decision = Some(decision.as_str().to_owned());
            event.decided_by = Some(by);
            blobs.answer = non_empty(answer).map(Bytes::from);
        }
        let receipt = self.append(event, blobs)?;
        Ok(Answer::Decided {
            counted: !late,
            receipt,
        })
    }

    /// Its incarnation was checked when it was queued. Known ids keep what they stand for.
    fn record(&mut self, record: &Record) -> Result<Answer, Error> {
        if self.keys.contains_key(&record.call.key) {
            return Ok(Answer::Found(Found::Unknown));
        }
        let at_ms = record.finished_at_ms;
        let mut event = first(
            EventKind::Completed,
            &record.call,
            record.incarnation,
            at_ms,
        );
        event.receipt_id = record.id;
        event.started_at_ms = Some(record.started_at_ms);
        event.outcome = Some(record.outcome.as_ref().to_owned());
        self.append(event, Blobs::default()).map(Answer::Receipt)
    }

    /// Refuses everything but the workspace's newest incarnation.
    fn fence(&self, workspace: &Id, incarnation: u64) -> Result<(), Error> {
        match self.heads.get(workspace) {
            Some(head) if head.incarnation == incarnation => Ok(()),
            Some(_) | None => Err(Error::Fenced),
        }
    }

    fn fenced(&self, id: ReceiptId, incarnation: u64) -> Result<Receipt, Error> {
        let receipt = self.receipts.get(&id).ok_or(Error::NotFound)?;
        self.fence(&receipt.call.key.workspace, incarnation)?;
        Ok(receipt.clone())
    }

    /// Puts an event at the end of its workspace's chain.
    fn append(&mut self, mut event: ReceiptEvent, blobs: Blobs) -> Result<Receipt, Error> {
        let head = self
            .heads
            .get_mut(&event.workspace_id)
            .ok_or(Error::Fenced)?;
        let digest = |blob: &Option<Bytes>| blob.as_ref().map(|it| Sha256::of(it));
        event.sequence = head.sequence + 1;
        event.previous_hash = head.hash;
        event.plan_sha256 = digest(&blobs.plan);
        event.proposal_sha256 = digest(&blobs.proposal);
        event.result_sha256 = digest(&blobs.result);
        event.answer_sha256 = digest(&blobs.answer);
        let unwritable = || Error::Corrupt(format!("{} cannot be written", event.receipt_id));
        let body = event.canonical().map_err(|_| unwritable())?;
        let hash = Sha256::of(&body);
        let (receipt, entry) = match self.receipts.get(&event.receipt_id) {
            Some(receipt) => {
                let mut receipt = receipt.clone();
                receipt.apply(&event, hash, blobs.clone())?;
                let entry = Entry::Changed(receipt.standing());
                (receipt, entry)
            }
            None => {
                let receipt = Receipt::first(&event, hash, blobs.clone())?;
                let entry = Entry::New(Arc::clone(&receipt.call), receipt.standing());
                (receipt, entry)
            }
        };
        self.rows.push(Row {
            workspace: head.number,
            sequence: event.sequence,
            receipt: event.receipt_id,
            session: receipt.call.key.session.clone(),
            at_ms: event.at_ms,
            hash,
            previous: event.previous_hash,
            body: String::from_utf8(body).map_err(|_| unwritable())?,
            blobs,
            entry,
        });
        head.sequence = event.sequence;
        head.hash = hash;
        self.changes.push(receipt.clone());
        self.remember(receipt.clone());
        Ok(receipt)
    }

    fn remember(&mut self, receipt: Receipt) {
        let key = &receipt.call.key;
        if receipt.keyed {
            self.known.insert(
                key.workspace.as_str(),
                key.session.as_str(),
                key.call.as_str(),
            );
            self.keys.insert(key.clone(), receipt.id);
        } else if self.keys.get(key) == Some(&receipt.id) {
            self.keys.remove(key);
        }
        self.bytes += receipt.size();
        if let Some(before) = self.receipts.insert(receipt.id, receipt) {
            self.bytes = self.bytes.saturating_sub(before.size());
        }
    }
}
