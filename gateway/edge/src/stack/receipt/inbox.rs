//! Waiting in the inbox: until the owner decides, or nobody does in time.

use std::time::Duration;

use postern_kit::{Clock, Failure};
use postern_proto::ledger::v1::{Decision, Receipt, State, WatchResponse};
use postern_types::{ErrorCode, Timestamp};
use tokio_stream::StreamExt as _;
use tonic::Streaming;

use super::{Ledger, channel_closed};
use crate::{clients::is_passing, config::Config, control::Control};

/// Wait before a broken watch is taken up again.
const WATCH_PAUSE: Duration = Duration::from_millis(250);
/// The receipt is looked at this often in any case, should a change have been lost on its way.
const LOOK_INTERVAL: Duration = Duration::from_secs(15);

/// The inbox, for those who wait for one of its items.
#[derive(Clone, Debug)]
pub(in crate::stack) struct Inbox {
    ledger: Ledger,
    control: Control,
    clock: Clock,
    approval_timeout: Duration,
}

impl Inbox {
    pub(in crate::stack) fn new(
        config: &Config,
        ledger: Ledger,
        control: Control,
        clock: Clock,
    ) -> Self {
        Self {
            ledger,
            control,
            clock,
            approval_timeout: config.approval_timeout,
        }
    }

    /// What it waits with, for those who write the items.
    pub(in crate::stack) fn parts(&self) -> (Ledger, Control, Clock) {
        (
            self.ledger.clone(),
            self.control.clone(),
            self.clock.clone(),
        )
    }

    /// When the time of an item that is put there now is over.
    pub(in crate::stack) fn expiry(&self) -> Timestamp {
        self.clock.now().after(self.approval_timeout)
    }

    /// Waits until the receipt is decided or its time is over. Ends early when the owner closes the channel or the edge
    /// ends; the receipt stays in the inbox, and the same ids take the wait up again.
    pub(in crate::stack) async fn decision(&self, receipt: Receipt) -> Result<Receipt, Failure> {
        if is_decided(&receipt) {
            return Ok(receipt);
        }
        tokio::select! {
            decided = self.watch_until_decided(&receipt) => decided,
            () = self.control.wait_open(false) => Err(channel_closed()),
            () = self.control.leaving().cancelled() => Err(Failure::new(
                ErrorCode::Unavailable,
                "The owner's side is going away. The question stays in the inbox; send the call again with the same id.",
            )),
        }
    }

    async fn watch_until_decided(&self, receipt: &Receipt) -> Result<Receipt, Failure> {
        let expires_at = receipt.expires_at_ms.unwrap_or_default();
        loop {
            // Watching first and looking then leaves no gap for a decision to slip through.
            let watched = self.ledger.watch().await;
            match self.ledger.get(&receipt.id).await {
                Ok(present) if is_decided(&present) => return Ok(present),
                Ok(_) => {}
                Err(failure) if is_passing(failure.code) => {}
                Err(failure) => return Err(failure),
            }
            let left = expires_at.saturating_sub(self.clock.now().as_millis());
            let Ok(left @ 1..) = u64::try_from(left) else {
                match self.ledger.expire(&receipt.id).await {
                    Err(failure) if is_passing(failure.code) => {
                        tokio::time::sleep(WATCH_PAUSE).await;
                        continue;
                    }
                    decided => return decided,
                }
            };
            let pause = Duration::from_millis(left).min(LOOK_INTERVAL);
            match watched {
                Ok(changes) => {
                    let changed = tokio::time::timeout(pause, change_of(&receipt.id, changes));
                    if let Ok(None) = changed.await {
                        tokio::time::sleep(WATCH_PAUSE.min(pause)).await;
                    }
                }
                Err(_) => tokio::time::sleep(WATCH_PAUSE.min(pause)).await,
            }
        }
    }
}

/// The next change of this receipt; `None` when the watch broke.
async fn change_of(receipt_id: &str, mut changes: Streaming<WatchResponse>) -> Option<()> {
    while let Some(Ok(change)) = changes.next().await {
        if change
            .receipt
            .is_some_and(|receipt| receipt.id == receipt_id)
        {
            return Some(());
        }
    }
    None
}

fn is_decided(receipt: &Receipt) -> bool {
    receipt.decision() != Decision::Unspecified || receipt.state() != State::AwaitingOwner
}
