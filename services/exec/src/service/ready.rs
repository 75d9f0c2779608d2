//! Whether the worker can be given work (docs/adr/0018-ready-is-who-can-be-given-work.md).

use std::sync::Arc;

use postern_kit::{readiness, root::Displaced};
use tokio::sync::watch;

use super::Service;

/// Why no command can be started, whoever asks.
#[derive(Debug, thiserror::Error)]
enum Unfit {
    #[error("the project cannot be worked in: {0}")]
    Project(#[from] Displaced),
    #[error("the spool takes no further command: {0}")]
    Spool(#[from] std::io::Error),
}

impl Service {
    /// Whether a command that is sent now would be taken: the project and the spool can be used, the lease runs if there is to
    /// be one, and the worker does not drain. How full it is does not count: that is its load. Once it drains it is never ready
    /// again.
    #[must_use]
    pub fn readiness(&self) -> watch::Receiver<bool> {
        let worker = Arc::clone(&self.worker);
        let mut fit = readiness::follow(&self.worker.tasks, move || {
            worker.root.look()?;
            worker.spool.look(worker.clock.now())?;
            Ok::<(), Unfit>(())
        });
        let worker = Arc::clone(&self.worker);
        let (sender, ready) = watch::channel(*fit.borrow() && worker.lease.runs());
        let stopping = self.worker.tasks.stopping();
        self.worker.tasks.spawn("readiness", async move {
            let following = async {
                loop {
                    let changed = worker.lease.changed();
                    let is_ready = *fit.borrow_and_update() && worker.lease.runs();
                    sender.send_if_modified(|was| std::mem::replace(was, is_ready) != is_ready);
                    tokio::select! {
                        () = changed => {}
                        looked = fit.changed() => {
                            if looked.is_err() {
                                return;
                            }
                        }
                    }
                }
            };
            tokio::select! {
                biased;
                () = worker.closing.cancelled() => {}
                () = stopping.cancelled() => {}
                () = following => {}
            }
            sender.send_replace(false);
        });
        ready
    }
}
