//! Connections of which nothing that counts has come yet: no request, or no beginning of the protocol.

use std::{
    collections::BTreeMap,
    future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// Time that a connection has in any case before it may be hung up on, so that a burst of honest clients, whose requests lie
/// in the system's buffers and have not been read yet, is not taken for silence.
pub(crate) const PATIENCE: Duration = Duration::from_millis(200);

/// The silent connections of one listener, in the order in which they came.
#[derive(Debug, Default)]
pub(crate) struct Unheard(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    next: u64,
    connections: BTreeMap<u64, Silent>,
}

#[derive(Debug)]
struct Silent {
    since: Instant,
    hang_up: CancellationToken,
}

/// A connection among the silent ones. It leaves them when what counts has come, or when it is dropped.
#[derive(Debug)]
pub(crate) struct Entry {
    unheard: Arc<Unheard>,
    number: u64,
    hang_up: CancellationToken,
}

impl Unheard {
    /// Enters a new connection.
    pub(crate) fn enter(self: &Arc<Self>) -> Entry {
        let hang_up = CancellationToken::new();
        let mut waiting = self.waiting();
        let number = waiting.next;
        waiting.next += 1;
        waiting.connections.insert(
            number,
            Silent {
                since: Instant::now(),
                hang_up: hang_up.clone(),
            },
        );
        Entry {
            unheard: Arc::clone(self),
            number,
            hang_up,
        }
    }

    /// Hangs up on the connection that has been silent longest, once it has had its time. Waits for ever when none is silent,
    /// so it is for one who also waits for a connection to end, and lets none in meanwhile.
    pub(crate) async fn hang_up_on_oldest(&self) {
        while let Some((number, since)) = self.oldest() {
            sleep_until(since + PATIENCE).await;
            let mut waiting = self.waiting();
            if let Some(silent) = waiting.connections.remove(&number) {
                // Still under the lock, so whoever leaves sees either itself in the list or the hanging up.
                silent.hang_up.cancel();
                return;
            }
        }
        future::pending::<()>().await;
    }

    /// As [`Self::hang_up_on_oldest`], for one whom the system refuses the next connection: for no longer than `pause`, and so
    /// that what was hung up on is closed when he tries again.
    pub(crate) async fn make_room(&self, pause: Duration) {
        let _ = timeout(pause, self.hang_up_on_oldest()).await;
        tokio::task::yield_now().await;
    }

    fn oldest(&self) -> Option<(u64, Instant)> {
        let waiting = self.waiting();
        let (number, silent) = waiting.connections.first_key_value()?;
        Some((*number, silent.since))
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    /// Leaves the silent ones, if it has not before. Tells whether it was among them until now.
    pub(crate) fn leave(&self) -> bool {
        let mut waiting = self.unheard.waiting();
        waiting.connections.remove(&self.number).is_some()
    }

    /// Waits until the connection is hung up on.
    pub(crate) fn hung_up(&self) -> WaitForCancellationFutureOwned {
        self.hang_up.clone().cancelled_owned()
    }

    /// Whether the connection is hung up on.
    pub(crate) fn is_hung_up(&self) -> bool {
        self.hang_up.is_cancelled()
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.leave();
    }
}
