//! Tokens, and how long what is open by them may stay open.
//!
//! A channel, a stream and a call that waits live by a token that was shown at their start. Identity is asked after it
//! again at each sign of a revocation, when the token or its launch is over, and now and then in case a sign was lost.

use std::{fmt, time::Duration};

use postern_kit::{Clock, task::Tasks};
use postern_proto::identity::v1::{Token, TokenKind};
use postern_types::Timestamp;
use tokio::sync::watch;
use tonic::{Code, Status};

use crate::identity::Identity;

/// Wait before the revocations are asked for again, when identity is away.
const RETRY: Duration = Duration::from_secs(1);
/// Time between two looks at a channel's token while nothing tells when its launch is over.
const LAUNCH_CHECK: Duration = Duration::from_secs(1);
/// Shortest time between two looks, for when identity's clock is behind the host's.
const LEAST_CHECK: Duration = Duration::from_millis(10);

/// A token that was just shown.
pub(crate) struct Shown {
    pub(crate) token: Token,
    secret: String,
    as_of: u64,
}

impl Shown {
    /// What it opens that workspace with, if it does.
    pub(crate) fn opens(&self, workspace_id: &str) -> Option<Credentials> {
        opens(&self.token, workspace_id)
            .then(|| Credentials::new(&self.token, workspace_id, &self.secret, self.as_of))
    }
}

/// A token that opens a workspace: its channel, or its tools.
#[derive(Clone)]
pub(crate) struct Credentials {
    /// The token's id.
    pub(crate) token_id: String,
    /// The workspace.
    pub(crate) workspace_id: String,
    kind: TokenKind,
    secret: String,
    expires_at: Option<Timestamp>,
    /// Signs of revocation seen before the token was shown. What came later may have been about it.
    as_of: u64,
}

impl Credentials {
    pub(crate) fn new(token: &Token, workspace_id: &str, secret: &str, as_of: u64) -> Self {
        Self {
            token_id: token.id.clone(),
            workspace_id: workspace_id.to_owned(),
            kind: token.kind(),
            secret: secret.to_owned(),
            expires_at: token.expires_at_ms.map(Timestamp::from_millis),
            as_of,
        }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Credentials({})", self.token_id)
    }
}

/// What identity says of tokens. Clones stand for the same.
#[derive(Clone)]
pub(crate) struct Tokens {
    identity: Identity,
    clock: Clock,
    /// Counts the signs that a token was revoked, or may have been while nobody listened.
    signs: watch::Receiver<u64>,
}

impl Tokens {
    /// Listens for revocations from now on.
    pub(crate) fn new(identity: Identity, clock: Clock, tasks: &Tasks) -> Self {
        Self {
            signs: watch_revocations(identity.clone(), tasks),
            identity,
            clock,
        }
    }

    /// The token of a secret.
    ///
    /// # Errors
    /// `Unauthenticated` when there is no valid one, others when identity is away.
    pub(crate) async fn show(&self, secret: &str) -> Result<Shown, Status> {
        let as_of = *self.signs.borrow();
        let secret = secret.to_owned();
        let token = self.identity.authenticate(secret.clone()).await?;
        Ok(Shown {
            token,
            secret,
            as_of,
        })
    }

    /// Whether they open their workspace at this moment.
    ///
    /// # Errors
    /// Identity's, when it is away and nothing is known.
    pub(crate) async fn are_valid(&self, credentials: &Credentials) -> Result<bool, Status> {
        let asked = self.identity.authenticate(credentials.secret.clone()).await;
        match asked {
            Ok(token) => Ok(opens(&token, &credentials.workspace_id)),
            Err(status) if status.code() == Code::Unauthenticated => Ok(false),
            Err(status) => Err(status),
        }
    }

    /// Ends when they open their workspace no more. They are asked after every `interval` at least. While identity is away
    /// only their own end is known; no call passes in that time either.
    pub(crate) async fn end(&self, credentials: &Credentials, interval: Duration) {
        let mut signs = self.signs.clone();
        let mut seen = credentials.as_of;
        while !self.is_over(credentials.expires_at) {
            let wait = self.next_look(credentials).await.min(interval);
            tokio::select! {
                () = sign_after(&mut signs, seen) => {}
                () = tokio::time::sleep(wait.max(LEAST_CHECK)) => {}
            }
            seen = *signs.borrow_and_update();
            if matches!(self.are_valid(credentials).await, Ok(false)) {
                return;
            }
        }
    }

    /// When it is known that something may end.
    async fn next_look(&self, credentials: &Credentials) -> Duration {
        let own = self.left(credentials.expires_at);
        if credentials.kind != TokenKind::Channel {
            return own;
        }
        // A channel ends with the last launch that its token has there. Of another token's launch, and while identity is
        // away, nothing is learned about that.
        let current = self
            .identity
            .current_launch(&credentials.workspace_id)
            .await;
        match current {
            Ok(Some(launch)) if launch.token_id == credentials.token_id => {
                own.min(self.left(launch.expires_at_ms.map(Timestamp::from_millis)))
            }
            Ok(_) | Err(_) => own.min(LAUNCH_CHECK),
        }
    }

    fn left(&self, end: Option<Timestamp>) -> Duration {
        end.map_or(Duration::MAX, |end| {
            let left = end.as_millis().saturating_sub(self.clock.now().as_millis());
            Duration::from_millis(u64::try_from(left).unwrap_or_default())
        })
    }

    fn is_over(&self, end: Option<Timestamp>) -> bool {
        self.left(end).is_zero()
    }
}

fn opens(token: &Token, workspace_id: &str) -> bool {
    token.workspace_ids.iter().any(|id| id == workspace_id)
}

/// Ends when there was a sign after the first `seen`.
async fn sign_after(signs: &mut watch::Receiver<u64>, seen: u64) {
    if signs.wait_for(|sign| *sign != seen).await.is_err() {
        // The host is going; whatever is open hears of that by itself.
        std::future::pending::<()>().await;
    }
}

fn watch_revocations(identity: Identity, tasks: &Tasks) -> watch::Receiver<u64> {
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
