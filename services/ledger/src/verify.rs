//! Walks the hash chains and names the first event that does not hold.

use std::{collections::BTreeMap, ops::ControlFlow};

use postern_types::{ReceiptEvent, ReceiptId, Sha256};

/// An event as it lies in a store or a file. Nothing of it is believed.
#[derive(Clone, Copy, Debug)]
pub struct Link<'a> {
    /// Where it lies: more than that of the event before it.
    pub position: i64,
    /// Workspace of the chain.
    pub workspace: &'a str,
    /// Place in the chain, from 1.
    pub sequence: i64,
    /// Receipt, 16 bytes.
    pub receipt: &'a [u8],
    /// Hash, 32 bytes.
    pub hash: &'a [u8],
    /// Canonical JSON of the event.
    pub body: &'a str,
    /// What stands beside it; absent when it was left out.
    pub beside: Option<Beside<'a>>,
}

/// What stands beside an event and is covered by digests in it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Beside<'a> {
    /// What the effect was to change.
    pub plan: Option<&'a [u8]>,
    /// What the owner was asked.
    pub proposal: Option<&'a [u8]>,
    /// The result.
    pub result: Option<&'a [u8]>,
    /// The words of the decision.
    pub answer: Option<&'a [u8]>,
}

/// Chains whose heads are told.
const HEADS: usize = 1000;

/// A place in a workspace's chain.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Checkpoint {
    /// Workspace.
    pub workspace_id: String,
    /// Position of an event, from 1.
    pub sequence: u64,
    /// Hash of that event.
    pub hash: Sha256,
}

/// What a verification found.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Verification {
    /// Events walked.
    pub events: u64,
    /// Receipts seen.
    pub receipts: u64,
    /// The first event that does not hold; absent when all do.
    pub fault: Option<Fault>,
    /// The newest event of each chain, of the first 1000.
    pub heads: Vec<Checkpoint>,
}

/// What does not hold.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Fault {
    /// Receipt of the event; empty when a chain ends too early.
    pub receipt_id: String,
    /// What is wrong with it.
    pub problem: String,
}

/// Follows the chains, given by workspace and then by sequence.
#[derive(Debug, Default)]
pub struct Walker {
    found: Verification,
    /// What must be met, by workspace and sequence.
    checkpoints: BTreeMap<(String, i64), Vec<Sha256>>,
    workspace: String,
    sequence: i64,
    position: i64,
    hash: Option<Sha256>,
}

impl Walker {
    /// A walker that must meet `checkpoints` on its way. One of an empty chain, at 0, is met by every chain.
    #[must_use]
    pub fn past(checkpoints: Vec<Checkpoint>) -> Self {
        let mut places: BTreeMap<_, Vec<Sha256>> = BTreeMap::new();
        for it in checkpoints.into_iter().filter(|it| it.sequence > 0) {
            let sequence = i64::try_from(it.sequence).unwrap_or(i64::MAX);
            let place = (it.workspace_id, sequence);
            places.entry(place).or_default().push(it.hash);
        }
        Self {
            checkpoints: places,
            ..Self::default()
        }
    }

    /// Looks at the next event. Breaks at the first fault.
    pub fn step(&mut self, link: Link<'_>) -> ControlFlow<()> {
        if self.workspace != link.workspace {
            self.head();
            link.workspace.clone_into(&mut self.workspace);
            self.sequence = 0;
            self.position = 0;
            self.hash = None;
        }
        match self.check(&link) {
            Ok(event) => {
                self.found.events += 1;
                self.found.receipts += u64::from(event.session_id.is_some());
                self.sequence = link.sequence;
                self.position = link.position;
                ControlFlow::Continue(())
            }
            Err(problem) => {
                let id = uuid::Uuid::from_slice(link.receipt).map(ReceiptId::from);
                self.fail(
                    id.map(|id| id.to_string()).unwrap_or_default(),
                    format!("event {}: {problem}", link.sequence),
                );
                ControlFlow::Break(())
            }
        }
    }

    /// Whether a fault was found.
    pub(crate) const fn failed(&self) -> bool {
        self.found.fault.is_some()
    }

    /// Records a fault found outside the chains.
    pub(crate) fn fail(&mut self, receipt_id: String, problem: String) {
        self.found.fault = Some(Fault {
            receipt_id,
            problem,
        });
    }

    /// What was found.
    #[must_use]
    pub fn finish(mut self) -> Verification {
        self.head();
        if let Some(((workspace, sequence), _)) = self.checkpoints.pop_first()
            && !self.failed()
        {
            let problem = format!(
                "the chain of workspace {workspace} ends before event {sequence}, which a checkpoint names"
            );
            self.fail(String::new(), problem);
        }
        self.found
    }

    /// Notes the end of the chain that was walked.
    fn head(&mut self) {
        if let Some(hash) = self.hash
            && self.found.heads.len() < HEADS
        {
            self.found.heads.push(Checkpoint {
                workspace_id: self.workspace.clone(),
                sequence: u64::try_from(self.sequence).unwrap_or(0),
                hash,
            });
        }
    }

    fn check(&mut self, link: &Link<'_>) -> Result<ReceiptEvent, String> {
        let expected = self.sequence + 1;
        if link.sequence != expected {
            return Err(format!("event {expected} is missing before it"));
        }
        if link.position <= self.position {
            return Err("it lies before its predecessor".to_owned());
        }
        let event: ReceiptEvent = serde_json::from_str(link.body)
            .map_err(|_| "its content is not that of an event".to_owned())?;
        let hash = Sha256::of(link.body.as_bytes());
        let canonical = event.canonical().is_ok_and(|it| it == link.body.as_bytes());
        for (holds, problem) in [
            (canonical, "its content was changed"),
            (
                hash.as_bytes() == link.hash,
                "its content or hash was changed",
            ),
            (
                event.previous_hash == self.hash.unwrap_or(Sha256::ZERO),
                "it does not follow the event before it, one of them was changed or replaced",
            ),
            (
                i64::try_from(event.sequence) == Ok(link.sequence),
                "it was moved within the chain",
            ),
            (
                event.workspace_id.as_str() == link.workspace,
                "it belongs to another workspace",
            ),
            (
                event.receipt_id.as_uuid().as_bytes() == link.receipt,
                "it belongs to another receipt",
            ),
        ] {
            if !holds {
                return Err(problem.to_owned());
            }
        }
        if let Some(found) = &link.beside {
            beside(&event, found)?;
        }
        let place = (link.workspace.to_owned(), link.sequence);
        if self
            .checkpoints
            .remove(&place)
            .is_some_and(|seen| seen.iter().any(|seen| *seen != hash))
        {
            return Err("it is another event than the one a checkpoint names".to_owned());
        }
        self.hash = Some(hash);
        Ok(event)
    }
}

/// Whether what stands beside an event is what it says.
fn beside(event: &ReceiptEvent, link: &Beside<'_>) -> Result<(), String> {
    for (holds, problem) in [
        (
            matches(event.plan_sha256, link.plan),
            "its plan was changed",
        ),
        (
            matches(event.proposal_sha256, link.proposal),
            "its proposal was changed",
        ),
        (
            matches(event.result_sha256, link.result),
            "its result was changed",
        ),
        (
            matches(event.answer_sha256, link.answer),
            "its answer was changed",
        ),
    ] {
        if !holds {
            return Err(problem.to_owned());
        }
    }
    Ok(())
}

fn matches(digest: Option<Sha256>, blob: Option<&[u8]>) -> bool {
    digest == blob.map(Sha256::of)
}
