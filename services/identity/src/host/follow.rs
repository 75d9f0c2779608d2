//! How what is in memory follows the store: after a change of this process, and after those of others on the same database.

use std::time::{Duration, Instant};

use postern_database::Outage;
use tokio::sync::broadcast;

use super::{
    Service,
    index::{Fresh, Index},
    model::Revocation,
};
use crate::Error;

/// Time between two looks at what others have changed, and between two attempts to read what could not be read.
const POLL: Duration = Duration::from_millis(500);
/// Time that memory counts as true after a look. When the database stays away longer, nobody knows what was revoked, and every
/// request is refused as `UNAVAILABLE`.
const LEASE: Duration = Duration::from_secs(5);

/// What a watcher hears.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Sign {
    /// Something is revoked.
    Revoked(Revocation),
    /// Something may have been, while nobody listened.
    Missed,
}

impl Service {
    /// Brings what is in memory about a token in line with the store, after a change there. When that fails nobody knows what
    /// the token opens now: every request is refused as `UNAVAILABLE` until everything is read anew, which begins at once.
    pub(super) async fn follow(&self, token_id: &str) -> Result<(), Error> {
        let _in_turn = self.0.following.lock().await;
        let stored = self.0.store.holder(token_id, self.0.clock.now()).await;
        self.forget_launches();
        let stored = stored.inspect_err(|error| self.lose(error))?;
        let mut index = self.index_mut();
        index.remove(token_id);
        if let Some((token, doors)) = stored {
            index.insert(token);
            for door in doors {
                index.open_door(door);
            }
        }
        Ok(())
    }

    /// What is in memory counts as true no more, until everything is read anew.
    fn lose(&self, error: &Error) {
        if !self.index_mut().lose() {
            // Somebody is about it already.
            return;
        }
        tracing::warn!(%error, "what has changed in the identity store cannot be read; everything is read anew");
        self.show_readiness();
        if self.0.store.is_shared() {
            self.0.wake.notify_one();
        } else {
            let recovery = self.clone().recover();
            self.0.tasks.spawn("identity recovery", recovery);
        }
    }

    /// Reads everything anew until that succeeds, or the service is closed.
    async fn recover(self) {
        let closing = self.0.closing.clone();
        let recovering = async {
            let mut outage = Outage::default();
            while let Err(error) = self.load().await {
                if outage.is_news(&error) {
                    tracing::warn!(%error, "the identity store cannot be read");
                }
                tokio::time::sleep(POLL).await;
            }
            self.show_readiness();
        };
        closing.run_until_cancelled(recovering).await;
    }

    /// Reads everything anew, and tells as of which change that is.
    pub(super) async fn load(&self) -> Result<i64, Error> {
        let _in_turn = self.0.following.lock().await;
        let fresh = if self.0.store.is_shared() {
            Fresh::Until(Instant::now() + LEASE)
        } else {
            Fresh::Always
        };
        let snapshot = self.0.store.snapshot(self.0.clock.now()).await?;
        let mut index = Index::default();
        for token in snapshot.tokens {
            index.insert(token);
        }
        for door in snapshot.doors {
            index.open_door(door);
        }
        self.index_mut().replace(index, fresh);
        self.forget_launches();
        Ok(snapshot.sequence)
    }

    /// Tokens and launches as they are revoked, from now on.
    pub(super) fn watch_revocations(&self) -> broadcast::Receiver<Sign> {
        self.0.revocations.subscribe()
    }

    /// Lets watchers hear of a revocation that this process has stored. In a shared store it is in the log with all others,
    /// so that each is told once.
    pub(super) fn revoked(&self, revocation: Revocation) {
        if self.0.store.is_shared() {
            self.0.wake.notify_one();
        } else {
            self.tell(Sign::Revoked(revocation));
        }
    }

    fn tell(&self, sign: Sign) {
        // Nobody watching is no fault.
        let _ = self.0.revocations.send(sign);
    }

    /// Follows what other processes change in the store, until the service is closed. While the store is away it tries on.
    pub(super) async fn follow_others(self) {
        let closing = self.0.closing.clone();
        let following = async {
            let (mut position, mut outage) = (None, Outage::default());
            loop {
                match self.catch_up(&mut position).await {
                    Ok(()) => outage.end(),
                    Err(error) => {
                        // What comes back may not be what went away, so everything is read anew.
                        position = None;
                        if outage.is_news(&error) {
                            tracing::warn!(%error, "the identity database is away");
                        }
                    }
                }
                self.show_readiness();
                tokio::select! {
                    () = self.0.wake.notified() => {}
                    () = tokio::time::sleep(POLL) => {}
                }
            }
        };
        closing.run_until_cancelled(following).await;
        self.0.ready.send_replace(false);
    }

    /// Takes in what has changed since `position`, or everything when that is not known. Making the tables and reading
    /// everything have the store's own time; a look at the changes has as long as it is of use.
    async fn catch_up(&self, position: &mut Option<i64>) -> Result<(), Error> {
        loop {
            let known = position.filter(|_| !self.index().is_lost());
            let after = if let Some(after) = known {
                after
            } else {
                self.0.store.prepare().await?;
                let after = self.load().await?;
                self.tell(Sign::Missed);
                *position.insert(after)
            };
            let asked = Instant::now();
            let looked = tokio::time::timeout(LEASE, self.0.store.changes_after(after)).await;
            let Some(changes) = looked.unwrap_or(Err(postern_database::Error::Silent.into()))?
            else {
                *position = None;
                continue;
            };
            if changes.is_empty() {
                self.index_mut().stay_fresh_until(asked + LEASE);
                return Ok(());
            }
            for change in changes {
                self.follow(&change.token_id).await?;
                *position = Some(change.sequence);
                if let Some(revocation) = change.revocation {
                    self.tell(Sign::Revoked(revocation));
                }
            }
        }
    }

    fn show_readiness(&self) {
        self.0.ready.send_if_modified(|ready| {
            // Looked at in here, so that what was seen first is not told last.
            let is_fresh = self.index().must_be_fresh().is_ok();
            let has_changed = *ready != is_fresh;
            *ready = is_fresh;
            if has_changed {
                tracing::info!(
                    ready = is_fresh,
                    "the identity service changed its readiness"
                );
            }
            has_changed
        });
    }
}
