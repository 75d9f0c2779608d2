//! Undos that an earlier run of the edge began: gone on with at the start, without anybody asking.

use std::sync::Arc;

use postern_kit::{Failure, task::Tasks};
use postern_proto::{
    filesystem::v1::RestoreStep,
    ledger::v1::{Receipt, begin_response::Outcome},
};

use super::{TOOL, Undo, plan};
use crate::{call::Call, left_behind};

/// Starts the look for them.
pub(super) fn start(undo: Undo, tasks: &Tasks) {
    // Nobody can have it yet. New undos come after what an earlier run began, which they might be about.
    let turn = Arc::clone(&undo.0.turn).try_lock_owned();
    let of_this_edge = tasks.clone();
    tasks.spawn("unfinished undos", async move {
        let _turn = turn;
        left_behind::until_done(&of_this_edge, &undo.0.control, || undo.go_on()).await;
    });
}

impl Undo {
    async fn go_on(&self) -> Result<(), Failure> {
        for receipt in left_behind::receipts(&self.0.receipts, &self.0.control, TOOL).await? {
            self.go_on_with(&receipt).await?;
        }
        Ok(())
    }

    async fn go_on_with(&self, receipt: &Receipt) -> Result<(), Failure> {
        let Some(call) = Call::of_receipt(receipt) else {
            return Ok(());
        };
        let Outcome::Orphaned(receipt) = self.0.ledger.lookup(&call).await? else {
            return Ok(());
        };
        let files = plan::planned_changes(&receipt).unwrap_or_default();
        postern_kit::fault_point!(crate::fault_points::UNDO_RESUMED);
        if self
            .finish(&receipt.id, &files, RestoreStep::Resume)
            .await
            .is_some()
        {
            tracing::info!(receipt = receipt.id, "an interrupted undo has ended");
        }
        Ok(())
    }
}
