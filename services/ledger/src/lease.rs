//! How long what a ledger remembers can be believed without asking its database.
//!
//! A ledger that is the only one to write knows what is on record without looking. On a server it is the only one for as long
//! as its connection holds the lock, and it may be the last to hear that it does not any more: a process that was halted wakes
//! up with everything in its memory. So memory counts for a short time after the last answer of the database, shorter than the
//! server takes to give the lock to another.

use std::sync::{Mutex, PoisonError};

use tokio::{
    sync::watch,
    time::{Duration, Instant},
};

/// How long memory counts after the database was last asked something that it answered. The server ends a session that asks
/// nothing for [`IDLE_SESSION`], so that nobody else has the lock before.
pub(crate) const LEASE: Duration = Duration::from_secs(6);
/// After how much silence the server ends the session that holds the lock.
pub(crate) const IDLE_SESSION: Duration = Duration::from_secs(8);

/// Until when memory counts, and whether the ledger is ready.
#[derive(Debug)]
pub(crate) struct Lease {
    /// Nothing for a store that no other process can write to.
    until: Option<Mutex<Instant>>,
    ready: watch::Sender<bool>,
}

impl Lease {
    /// Of a store that is this process's alone.
    pub(crate) fn forever() -> Self {
        Self {
            until: None,
            ready: watch::Sender::new(true),
        }
    }

    /// Of a store that has to be asked first.
    pub(crate) fn lapsed() -> Self {
        Self {
            until: Some(Mutex::new(Instant::now())),
            ready: watch::Sender::new(false),
        }
    }

    /// The database has answered what it was asked at `asked`.
    pub(crate) fn renew(&self, asked: Instant) {
        if let Some(until) = &self.until {
            let mut until = until.lock().unwrap_or_else(PoisonError::into_inner);
            *until = (asked + LEASE).max(*until);
        }
        self.show(true);
    }

    /// The connection is gone, or another ledger has taken over.
    pub(crate) fn end(&self) {
        if let Some(until) = &self.until {
            *until.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        }
        self.show(false);
    }

    /// Whether memory counts now.
    pub(crate) fn holds(&self) -> bool {
        self.until.as_ref().is_none_or(|until| {
            Instant::now() < *until.lock().unwrap_or_else(PoisonError::into_inner)
        })
    }

    /// Whether the ledger is ready, as it changes.
    pub(crate) fn readiness(&self) -> watch::Receiver<bool> {
        self.ready.subscribe()
    }

    fn show(&self, ready: bool) {
        self.ready.send_if_modified(|shown| {
            let changed = *shown != ready;
            *shown = ready;
            if changed {
                tracing::info!(ready, "the ledger changed its readiness");
            }
            changed
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn memory_counts_from_the_question_on_and_for_less_time_than_the_lock() {
        const { assert!(LEASE.as_secs() < IDLE_SESSION.as_secs()) };
        let lease = Lease::lapsed();
        let mut ready = lease.readiness();
        assert!(!lease.holds() && !*ready.borrow_and_update());
        let asked = Instant::now();
        tokio::time::advance(Duration::from_secs(4)).await;
        lease.renew(asked);
        assert!(lease.holds() && *ready.borrow_and_update());
        // An answer that is told late takes nothing back.
        lease.renew(asked - Duration::from_secs(3));
        tokio::time::advance(Duration::from_millis(1999)).await;
        assert!(lease.holds());
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(!lease.holds());
        lease.renew(Instant::now());
        lease.end();
        assert!(!lease.holds() && !*ready.borrow_and_update());
        assert!(Lease::forever().holds());
    }
}
