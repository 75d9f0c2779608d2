//! Looks after the leases: reads what the database has, and ends those that are over.

use std::{sync::Arc, time::Duration};

use postern_kit::{Clock, task::Tasks};
use tokio::{
    sync::Notify,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{Past, Workers};
use crate::{service::Shared, store::Read};

/// Time between two looks at the leases, while there are any.
const TICK: Duration = Duration::from_millis(100);
/// Time that passes for the leases between two looks, at most: longer than that the ledger was not there itself.
const STEP: Duration = Duration::from_millis(250);
/// Time before a database that could not be read is asked again.
const AGAIN: Duration = Duration::from_millis(500);

impl<R: Read> Workers<R> {
    /// Starts looking after the leases, until it is stopped.
    pub(crate) fn start(
        ledger: &Arc<Shared<R>>,
        clock: Clock,
        tasks: &Tasks,
        stop: CancellationToken,
    ) -> Arc<Self> {
        let workers = Arc::new(Self {
            ledger: Arc::clone(ledger),
            book: super::Mutex::default(),
            begun: Notify::new(),
            clock,
            tasks: tasks.clone(),
        });
        let keeper = Arc::clone(&workers);
        tasks.spawn("worker leases", async move {
            stop.run_until_cancelled(keeper.keep()).await;
        });
        workers
    }

    async fn keep(&self) {
        loop {
            match self.ledger.load_workers().await {
                Ok(rows) => {
                    self.book().load(rows);
                    break;
                }
                Err(error) => tracing::debug!(%error, "the exec workers are not read yet"),
            }
            sleep(AGAIN).await;
        }
        self.look_after().await;
    }

    async fn look_after(&self) {
        let (mut looked, mut answers) = (Instant::now(), true);
        loop {
            if self.book().live() == 0 {
                self.begun.notified().await;
                looked = Instant::now();
            }
            sleep(TICK).await;
            let passed = looked.elapsed().min(STEP);
            looked = Instant::now();
            // As long as its database is away the ledger answers nobody.
            let answered = std::mem::replace(&mut answers, self.ledger.knows());
            if !answers {
                continue;
            }
            if !answered {
                self.book().begin_anew();
            }
            let over = self.book().pass(passed);
            if !over.is_empty() {
                self.lapse(over).await;
            }
        }
    }

    /// Ends leases. Those whose end cannot be written down run on, and are over at the next look.
    async fn lapse(&self, over: Vec<Uuid>) {
        let mut rows = Vec::new();
        for id in over {
            // Read already, so this cannot be refused.
            rows.extend(self.book().end(id, Past::Lapsed).ok().flatten());
        }
        let ids: Vec<_> = rows.iter().map(|row| row.id).collect();
        let written = self.ledger.put_workers(rows).await;
        for id in ids {
            match &written {
                Ok(()) => {
                    self.book().ended(id, Past::Lapsed);
                    tracing::warn!(worker = %id, "the lease of an exec worker has lapsed; its commands are lost");
                }
                Err(error) => {
                    self.book().go_on(id);
                    tracing::warn!(worker = %id, %error, "the end of a lease could not be written down yet");
                }
            }
        }
    }
}
