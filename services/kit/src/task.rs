//! Tasks with a name and an end.

use std::{future::Future, time::Duration};

use tokio::task::JoinHandle;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::Instrument as _;

/// The tasks of one component. Clones stand for the same tasks.
#[derive(Clone, Debug, Default)]
pub struct Tasks {
    tracker: TaskTracker,
    stop: CancellationToken,
}

impl Tasks {
    /// No tasks yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts a task. It is aborted when [`Tasks::stopping`] has been signalled and the shutdown's limit is over.
    pub fn spawn<F>(&self, name: &'static str, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        spawn_named(&self.tracker, name, future)
    }

    /// Signalled when shutdown begins. Tasks that never end by themselves wait for it.
    #[must_use]
    pub fn stopping(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Signals the end and waits for every task, at most `limit`. Tells whether all ended in time.
    pub async fn shutdown(&self, limit: Duration) -> bool {
        self.stop.cancel();
        self.tracker.close();
        tokio::time::timeout(limit, self.tracker.wait())
            .await
            .is_ok()
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the one place that spawns, with a name and a tracker"
)]
fn spawn_named<F>(tracker: &TaskTracker, name: &'static str, future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let span = tracing::debug_span!("task", name);
    tokio::spawn(tracker.track_future(future.instrument(span)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn shutdown_waits_for_what_ends_and_says_what_does_not() {
        let tasks = Tasks::new();
        let stop = tasks.stopping();
        tasks.spawn("ends", async move { stop.cancelled().await });
        assert!(tasks.shutdown(Duration::from_secs(1)).await);

        let stuck = Tasks::new();
        stuck.spawn("stuck", std::future::pending::<()>());
        assert!(!stuck.shutdown(Duration::from_secs(1)).await);
    }
}
