//! The token that a channel lives by. It is asked after again whenever something may have been revoked.

use std::{fmt, time::Duration};

use postern_kit::{Clock, task::Tasks};
use postern_proto::identity::v1::Token;
use postern_types::Timestamp;
use tokio::sync::watch;
use tonic::Code;

use crate::identity::Identity;

/// Wait before the revocations are asked for again, when identity is away.
const RETRY: Duration = Duration::from_secs(1);

/// What a channel was opened with.
pub(super) struct Credentials {
    pub(super) token_id: String,
    secret: String,
    expires_at: Option<Timestamp>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Credentials({})", self.token_id)
    }
}

impl Credentials {
    pub(super) fn new(token: Token, secret: &str) -> Self {
        Self {
            token_id: token.id,
            secret: secret.to_owned(),
            expires_at: token.expires_at_ms.map(Timestamp::from_millis),
        }
    }

    /// Ends when the token opens this workspace's channel no more. It is asked after at once (it may have been revoked
    /// between the handshake and now), at each sign of a revocation, and every `interval`, in case a sign was lost.
    /// While identity is away nothing is known and nothing ends; no call passes in that time either.
    pub(super) async fn end(
        &self,
        workspace_id: &str,
        identity: &Identity,
        clock: &Clock,
        mut signs: watch::Receiver<u64>,
        interval: Duration,
    ) {
        loop {
            signs.borrow_and_update();
            match identity.authenticate(self.secret.clone()).await {
                Ok(token) if token.workspace_ids.iter().any(|id| id == workspace_id) => {}
                Ok(_) => return,
                Err(status) if status.code() == Code::Unauthenticated => return,
                Err(_) => {}
            }
            let left = self.expires_at.map_or(interval, |end| {
                let left = end.as_millis().saturating_sub(clock.now().as_millis());
                Duration::from_millis(u64::try_from(left).unwrap_or_default())
            });
            if left.is_zero() {
                return;
            }
            tokio::select! {
                changed = signs.changed() => {
                    if changed.is_err() {
                        // The host is going; the channel hears of that by itself.
                        tokio::time::sleep(interval).await;
                    }
                }
                () = tokio::time::sleep(left.min(interval)) => {}
            }
        }
    }
}

/// Signals whenever a token was revoked, or may have been while nobody listened.
pub(crate) fn watch_revocations(identity: Identity, tasks: &Tasks) -> watch::Receiver<u64> {
    let (signs, receiver) = watch::channel(0);
    let stopping = tasks.stopping();
    tasks.spawn("revocations", async move {
        stopping
            .run_until_cancelled(async {
                loop {
                    if let Ok(mut revocations) = identity.watch_revocations().await {
                        signs.send_modify(|sign| *sign += 1);
                        while let Ok(Some(_)) = revocations.message().await {
                            signs.send_modify(|sign| *sign += 1);
                        }
                    }
                    tokio::time::sleep(RETRY).await;
                }
            })
            .await
    });
    receiver
}
