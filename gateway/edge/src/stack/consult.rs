//! Asks identity, policy and, for reading tools, the ledger at once.

use postern_kit::Failure;
use postern_kit::transport::Transport;
use postern_proto::{
    catalogue,
    identity::v1::{AdmitRequest, edge_identity_client::EdgeIdentityClient},
    ledger::v1::begin_response::Outcome,
};

use super::{
    judge::{Judge, Verdict},
    layer::{Inner, Stage},
    receipt::Ledger,
};
use crate::{
    call::Call,
    clients::{Clients, hop},
    config::Config,
    reply::Answer,
};

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
    identity: EdgeIdentityClient<Transport>,
    pinned_workspace_id: String,
    judge: Judge,
    ledger: Ledger,
}

impl Consult {
    pub(super) fn new(config: &Config, clients: &Clients, judge: Judge, ledger: Ledger) -> Self {
        Self {
            identity: clients.identity.clone(),
            pinned_workspace_id: config.workspace_id.to_string(),
            judge,
            ledger,
        }
    }

    async fn admit(&self, call: &Call) -> Result<(), Failure> {
        let request = AdmitRequest {
            workspace_id: call.workspace_id.clone(),
            intention: call.intention.clone(),
            session_id: call.session_id.clone(),
            pinned_workspace_id: self.pinned_workspace_id.clone(),
        };
        hop(self.identity.clone().admit(request)).await.map(drop)
    }

    async fn known(&self, call: &Call) -> Result<Option<Outcome>, Failure> {
        // A name that no tool has cannot have a receipt of a reading call; it is refused through the ledger.
        if catalogue::has_effect(&call.tool) || catalogue::workspace_tool(&call.tool).is_none() {
            return Ok(None);
        }
        self.ledger.lookup(call).await.map(Some)
    }
}

impl Stage<Call> for Consult {
    type Inner = Consulted;

    async fn handle<I: Inner<Consulted>>(&self, call: Call, inner: I) -> Answer {
        let call = call.digested().await;
        let (admission, verdict, known) = tokio::join!(
            self.admit(&call),
            self.judge.judge(&call),
            self.known(&call)
        );
        let consulted = Consulted {
            call,
            admission,
            known,
            verdict,
        };
        inner.answer(consulted).await
    }
}
