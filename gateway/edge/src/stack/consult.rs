//! Asks identity, policy and, for reading tools, the ledger at once.

use postern_kit::Failure;
use postern_proto::{catalogue, ledger::v1::begin_response::Outcome};

use super::{
    judge::{Judge, Verdict},
    layer::{Inner, Stage},
    receipt::Ledger,
    sessions::Admission,
};
use crate::{call::Call, reply::Answer};

/// A call with what the services said of it, not judged yet.
#[derive(Debug)]
pub(super) struct Consulted {
    pub(super) call: Call,
    pub(super) admission: Result<(), Failure>,
    /// What the ledger knows of the ids. For a tool with an effect nobody asked: its receipt is looked up and made in
    /// one step.
    pub(super) known: Result<Option<Outcome>, Failure>,
    pub(super) verdict: Verdict,
}

#[derive(Debug)]
pub(super) struct Consult {
    admission: Admission,
    judge: Judge,
    ledger: Ledger,
}

impl Consult {
    pub(super) const fn new(admission: Admission, judge: Judge, ledger: Ledger) -> Self {
        Self {
            admission,
            judge,
            ledger,
        }
    }

    async fn known(&self, call: &Call) -> Result<Option<Outcome>, Failure> {
        // A name that no tool has cannot have a receipt of a reading call; it is refused through the ledger.
        if catalogue::has_effect(&call.tool) || catalogue::workspace_tool(&call.tool).is_none() {
            return Ok(None);
        }
        self.ledger.lookup(call).await.map(Some)
    }
}

impl Consult {
    async fn consult(&self, call: Call) -> Consulted {
        let (admission, verdict, known) = tokio::join!(
            self.admission.admit(&call),
            self.judge.judge(&call, None),
            self.known(&call)
        );
        Consulted {
            call,
            admission,
            known,
            verdict,
        }
    }
}

impl Stage<Call> for Consult {
    type Inner = Consulted;

    async fn handle<I: Inner<Consulted>>(&self, call: Call, inner: I) -> Answer {
        let call = call.digested().await;
        postern_kit::fault_point!(crate::fault_points::CONSULT_BEFORE);
        let mut consulted = Box::pin(self.consult(call)).await;
        // The owner may take minutes, so everything is asked afresh then. Workspace and intention were found right before.
        if let Err(refused) = &consulted.admission
            && self.admission.asks_owner(refused)
        {
            match self.admission.ask_owner(&consulted.call).await {
                Ok(()) => consulted = Box::pin(self.consult(consulted.call)).await,
                Err(refused) => consulted.admission = Err(refused),
            }
        }
        postern_kit::fault_point!(crate::fault_points::CONSULT_AFTER);
        inner.answer(consulted).await
    }
}
