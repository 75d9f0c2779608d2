//! Undos that an earlier run of the edge began: gone on with at the start, without anybody asking.

use std::time::Duration;

use postern_kit::{Failure, task::Tasks};
use postern_proto::{
    filesystem::v1::RestoreStep,
    ledger::v1::{ListRequest, Receipt, State, begin_response::Outcome},
};

use super::{TOOL, Undo, plan};
use crate::{call::Call, clients::hop};

/// Wait before the ledger is asked again.
const PAUSE: Duration = Duration::from_secs(1);

/// Starts the look for them.
pub(super) fn start(undo: Undo, tasks: &Tasks) {
    let stopping = tasks.stopping();
    tasks.spawn("unfinished undos", async move {
        while let Err(failure) = undo.go_on().await {
            tracing::warn!(%failure, "unfinished undos could not be looked for");
            tokio::select! {
                () = stopping.cancelled() => return,
                () = undo.0.control.fenced().cancelled() => return,
                () = tokio::time::sleep(PAUSE) => {}
            }
        }
    });
}

impl Undo {
    async fn go_on(&self) -> Result<(), Failure> {
        let mut after = String::new();
        loop {
            let request = ListRequest {
                workspace_id: self.0.control.workspace_id().to_string(),
                tool: TOOL.to_owned(),
                state: State::Executing.into(),
                after,
                ..ListRequest::default()
            };
            let page = hop(self.0.receipts.clone().list(request)).await?;
            for receipt in &page.receipts {
                // What this run began is still being carried out.
                let is_left = receipt.tool == TOOL
                    && receipt.state() == State::Executing
                    && receipt.incarnation < self.0.control.incarnation();
                if is_left {
                    self.go_on_with(receipt).await?;
                }
            }
            if page.next.is_empty() {
                return Ok(());
            }
            after = page.next;
        }
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
