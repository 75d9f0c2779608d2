//! Receipts of the owner's own calls that an earlier run of the edge left executing. No host asks for them again, so each start
//! looks for them and brings them to an end.

use std::time::Duration;

use postern_kit::{Failure, task::Tasks, transport::Transport};
use postern_proto::ledger::v1::{ListRequest, Receipt, State, ledger_client::LedgerClient};

use crate::{clients::hop, control::Control};

/// Wait before it is tried again.
const PAUSE: Duration = Duration::from_secs(1);

/// The receipts of a tool that earlier runs left executing, newest first.
pub(crate) async fn receipts(
    ledger: &LedgerClient<Transport>,
    control: &Control,
    tool: &str,
) -> Result<Vec<Receipt>, Failure> {
    let (mut left, mut after) = (Vec::new(), String::new());
    loop {
        let request = ListRequest {
            workspace_id: control.workspace_id().to_string(),
            tool: tool.to_owned(),
            state: State::Executing.into(),
            after,
            ..ListRequest::default()
        };
        let page = hop(ledger.clone().list(request)).await?;
        let of_earlier_runs = page.receipts.into_iter().filter(|receipt| {
            receipt.tool == tool
                && receipt.state() == State::Executing
                // What this run began is still being carried out.
                && receipt.incarnation < control.incarnation()
        });
        left.extend(of_earlier_runs);
        if page.next.is_empty() {
            return Ok(left);
        }
        after = page.next;
    }
}

/// Tries until it succeeds, the edge ends, or another edge has taken over.
pub(crate) async fn until_done<F>(tasks: &Tasks, control: &Control, mut attempt: impl FnMut() -> F)
where
    F: Future<Output = Result<(), Failure>>,
{
    let stopping = tasks.stopping();
    while let Err(failure) = attempt().await {
        tracing::warn!(%failure, "what an earlier run left unfinished could not be looked into; it is tried again");
        tokio::select! {
            () = stopping.cancelled() => return,
            () = control.fenced().cancelled() => return,
            () = tokio::time::sleep(PAUSE) => {}
        }
    }
}
