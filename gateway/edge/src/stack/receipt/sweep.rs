//! Items of the inbox that nobody waits for any more: their time ends all the same.
//!
//! Whoever waits for the owner ends the wait himself. But an edge may have been restarted meanwhile, and the host may never
//! send the call again; without this its receipt would await the owner for ever.

use std::time::Duration;

use postern_kit::{Clock, Failure, task::Tasks};
use postern_proto::ledger::v1::{Decision, Receipt, State};
use tokio::time::MissedTickBehavior;

use super::{Ledger, owner};
use crate::reply::Reply;

/// Time between two looks.
const INTERVAL: Duration = Duration::from_secs(60);
/// Pages of the ledger that one look goes through at most; the next one goes on with what is left.
const PAGES: usize = 100;

/// Looks at once, and then now and then, until the tasks end.
pub(super) fn start(ledger: Ledger, clock: Clock, tasks: &Tasks) {
    let stopping = tasks.stopping();
    tasks.spawn("inbox sweep", async move {
        let mut looks = tokio::time::interval(INTERVAL);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stopping.cancelled() => return,
                () = ledger.fenced() => return,
                _ = looks.tick() => {}
            }
            if let Err(failure) = sweep(&ledger, &clock).await {
                tracing::debug!(%failure, "the inbox could not be looked through");
            }
        }
    });
}

async fn sweep(ledger: &Ledger, clock: &Clock) -> Result<(), Failure> {
    let mut after = String::new();
    for _ in 0..PAGES {
        let page = ledger.awaiting(after).await?;
        let now = clock.now().as_millis();
        for receipt in &page.receipts {
            end(ledger, receipt, now).await?;
        }
        after = page.next;
        if after.is_empty() {
            break;
        }
    }
    Ok(())
}

/// Ends what is over. A wait for the same item ends it in the same words, so it does not matter who is first.
async fn end(ledger: &Ledger, receipt: &Receipt, now: i64) -> Result<(), Failure> {
    let is_late = receipt.expires_at_ms.is_some_and(|end| end <= now);
    let decided = match receipt.decision() {
        Decision::Unspecified if is_late => &ledger.expire(&receipt.id).await?,
        Decision::Unspecified
        | Decision::Approve
        | Decision::ApproveSession
        | Decision::Deny
        | Decision::Answer
        | Decision::Expire => receipt,
    };
    let Some(failure) = owner::refusal(decided) else {
        return Ok(());
    };
    let reply = Reply::failure(&failure);
    ledger.complete(&receipt.id, State::Refused, &reply).await
}
