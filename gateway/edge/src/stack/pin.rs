//! Workspace, intention and session: the call must be one of the pinned workspace.

use std::sync::Arc;

use postern_proto::ledger::v1::begin_response::Outcome;
use postern_types::ErrorCode;

use super::{
    consult::Consulted,
    judge::Verdict,
    layer::{Inner, Stage},
    receipt::Ledger,
};
use crate::{
    call::Call,
    clients::is_passing,
    reply::{Answer, Reply},
};

/// A call of the pinned workspace, intention and an admitted session.
#[derive(Debug)]
pub(super) struct Pinned {
    pub(super) call: Arc<Call>,
    pub(super) known: Option<Outcome>,
    pub(super) verdict: Verdict,
}

#[derive(Debug)]
pub(super) struct Pin {
    ledger: Ledger,
}

impl Pin {
    pub(super) const fn new(ledger: Ledger) -> Self {
        Self { ledger }
    }
}

impl Stage<Consulted> for Pin {
    type Inner = Pinned;

    async fn handle<I: Inner<Pinned>>(&self, consulted: Consulted, inner: I) -> Answer {
        let Consulted {
            call,
            admission,
            known,
            verdict,
        } = consulted;
        if let Err(failure) = admission {
            if is_passing(failure.code) || failure.code == ErrorCode::Internal {
                return Err(failure);
            }
            // The ids do not count: kept for the audit, they stay free for a call that is meant for this workspace.
            let reply = Reply::failure(&failure);
            self.ledger.refuse_unkeyed(&call, &reply).await?;
            return Ok(reply);
        }
        postern_kit::fault_point!(crate::fault_points::PIN_AFTER);
        inner
            .answer(Pinned {
                call: Arc::new(call),
                known: known?,
                verdict,
            })
            .await
    }
}
