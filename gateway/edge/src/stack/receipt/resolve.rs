//! Effects of which it is not known whether they happened: the world is asked, and nothing is done again on a guess.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use postern_kit::{Effect, Failure};
use postern_proto::{
    catalogue,
    ledger::v1::{Receipt, State},
};
use postern_types::ErrorCode;
use tokio::time::Instant;

use super::{Permit, Receipts, Step};
use crate::{call::Call, clients::is_passing, reply::Reply, stack::layer::Inner, tools::Finding};

/// Wait between two questions.
const INSPECT_PAUSE: Duration = Duration::from_millis(100);

impl Receipts {
    /// A receipt that a dead process left executing. What did not happen is said so, and never will under this id.
    pub(super) async fn resolve_orphan<I: Inner<Permit>>(
        &self,
        call: &Arc<Call>,
        receipt: &Receipt,
        inner: &I,
    ) -> Result<Step, Failure> {
        match self
            .find(call, &receipt.id, &receipt.plan_json, inner)
            .await?
        {
            Finding::NotApplied => {
                let failure = Failure::new(
                    ErrorCode::NotApplied,
                    "The owner's side was restarted before this call had its effect, so nothing was done. Send it with a new id if it is still wanted.",
                );
                self.complete(&receipt.id, &Reply::failure(&failure)).await
            }
            found @ (Finding::Applied(_) | Finding::Uncertain(_)) => {
                self.close(&receipt.id, found).await
            }
        }
    }

    /// A receipt that this run left executing when a service went away: its call was answered `UNAVAILABLE`, so it may
    /// still act.
    pub(super) async fn resolve_left<I: Inner<Permit>>(
        &self,
        call: &Arc<Call>,
        receipt: &Receipt,
        inner: &I,
    ) -> Result<Step, Failure> {
        match self
            .find(call, &receipt.id, &receipt.plan_json, inner)
            .await?
        {
            Finding::NotApplied => {
                self.ledger.abandon(&receipt.id).await?;
                Ok(Step::Again)
            }
            found @ (Finding::Applied(_) | Finding::Uncertain(_)) => {
                self.close(&receipt.id, found).await
            }
        }
    }

    /// An effect whose service failed in the middle.
    pub(super) async fn resolve_failed<I: Inner<Permit>>(
        &self,
        call: &Arc<Call>,
        receipt_id: &str,
        plan_json: &Bytes,
        failure: Failure,
        inner: &I,
    ) -> Result<Step, Failure> {
        match self.find(call, receipt_id, plan_json, inner).await {
            Ok(Finding::NotApplied) if is_passing(failure.code) => {
                self.ledger.abandon(receipt_id).await?;
                Err(Failure {
                    effect: Effect::None,
                    ..failure
                })
            }
            Ok(Finding::NotApplied) => {
                let failure = certain(failure);
                self.complete(receipt_id, &Reply::failure(&failure)).await
            }
            Ok(found) => self.close(receipt_id, found).await,
            // Still not known: the receipt stays executing, and the same ids ask again.
            Err(_) => Err(failure),
        }
    }

    async fn close(&self, receipt_id: &str, found: Finding) -> Result<Step, Failure> {
        match found {
            Finding::Applied(reply) => self.complete(receipt_id, &reply).await,
            Finding::Uncertain(failure) => {
                let reply = Reply::failure(&failure);
                self.ledger
                    .complete(receipt_id, State::Uncertain, &reply)
                    .await?;
                self.forget(receipt_id);
                Ok(Step::Answered(reply))
            }
            Finding::NotApplied => Ok(Step::Again),
        }
    }

    /// What became of the effect, asked for a while.
    async fn find<I: Inner<Permit>>(
        &self,
        call: &Arc<Call>,
        receipt_id: &str,
        plan_json: &Bytes,
        inner: &I,
    ) -> Result<Finding, Failure> {
        if !catalogue::has_effect(&call.tool) {
            // A reading call that waited for the owner: it may be made again, and what it tells now is true.
            let answer = self.answer(call, receipt_id, plan_json, inner).await;
            return match answer {
                Err(failure) if is_passing(failure.code) => Err(failure),
                answer => Ok(Finding::Applied(
                    answer.unwrap_or_else(|failure| Reply::failure(&failure)),
                )),
            };
        }
        let held = self.held(receipt_id);
        let deadline = Instant::now() + self.patience;
        postern_kit::fault_point!(crate::fault_points::INSPECT_BEFORE);
        loop {
            let asked =
                tokio::time::timeout_at(deadline, self.tools.inspect(call, &held, plan_json));
            match asked.await {
                Ok(Ok(finding)) => {
                    postern_kit::fault_point!(crate::fault_points::INSPECT_AFTER);
                    return Ok(finding);
                }
                Ok(Err(failure)) if Instant::now() + INSPECT_PAUSE >= deadline => {
                    return Err(failure);
                }
                Ok(Err(failure)) if is_passing(failure.code) => {}
                Ok(Err(failure)) => return Err(failure),
                Err(_elapsed) => return Err(still_away()),
            }
            tokio::time::sleep(INSPECT_PAUSE).await;
        }
    }
}

/// A failure whose effect did not happen, as it has turned out. It is an outcome: the same ids get it again.
fn certain(failure: Failure) -> Failure {
    if failure.code != ErrorCode::Uncertain {
        return Failure {
            effect: Effect::None,
            ..failure
        };
    }
    Failure {
        details: failure.details,
        ..Failure::new(
            ErrorCode::NotApplied,
            "This call failed before it had its effect, so nothing was done. Send it with a new id if it is still wanted.",
        )
    }
}

fn still_away() -> Failure {
    Failure::new(
        ErrorCode::Unavailable,
        "The service that knows what became of this call does not answer. Send the call again with the same id.",
    )
}
