//! A walk over a chain of any length as a stream: a sign of life every second, and the end. When nobody reads it any more it is
//! dropped, and the walk with it.

use std::{
    fmt,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use postern_proto::ledger::v1 as proto;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};
use tokio_stream::Stream;
use tonic::Status;

use crate::{Error, Verification, wire};

/// Time between two signs of life.
const EVERY: Duration = Duration::from_secs(1);

type Walk = Pin<Box<dyn Future<Output = Result<Verification, Error>> + Send>>;

/// A walk on its way.
pub(crate) struct Walking {
    /// Nothing once it has ended.
    walk: Option<Walk>,
    walked: Arc<AtomicU64>,
    ticks: Interval,
}

impl fmt::Debug for Walking {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Walking")
    }
}

impl Walking {
    /// Of a walk that counts its events in `walked`.
    pub(super) fn new(
        walk: impl Future<Output = Result<Verification, Error>> + Send + 'static,
        walked: Arc<AtomicU64>,
    ) -> Self {
        let mut ticks = interval_at(Instant::now() + EVERY, EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            walk: Some(Box::pin(walk)),
            walked,
            ticks,
        }
    }
}

impl Stream for Walking {
    type Item = Result<proto::WalkResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(walk) = &mut self.walk else {
            return Poll::Ready(None);
        };
        let found = match walk.as_mut().poll(context) {
            Poll::Ready(found) => found,
            Poll::Pending => {
                return self.ticks.poll_tick(context).map(|_| {
                    Some(Ok(proto::WalkResponse {
                        events: self.walked.load(Ordering::Relaxed),
                        found: None,
                    }))
                });
            }
        };
        self.walk = None;
        let last = found.map(|found| proto::WalkResponse {
            events: found.events,
            found: Some(wire::verification(found)),
        });
        Poll::Ready(Some(last.map_err(Status::from)))
    }
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;
    use tokio_stream::StreamExt as _;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_walk_gives_signs_of_life_until_its_end() {
        let walked = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&walked);
        let walk = async move {
            for _ in 0..25 {
                tokio::time::sleep(Duration::from_millis(900)).await;
                counted.fetch_add(100, Ordering::Relaxed);
            }
            Ok(Verification {
                events: 2500,
                ..Verification::default()
            })
        };
        let told: Vec<_> = Walking::new(walk, walked).collect().await;
        let told: Vec<_> = told.into_iter().map(|it| it.expect("told")).collect();
        let (last, before) = told.split_last().expect("an end");
        assert_eq!(before.len(), 22);
        assert!(before.is_sorted_by_key(|it| it.events));
        assert!(before.iter().all(|it| it.found.is_none()));
        assert_eq!((before[0].events, last.events), (100, 2500));
        assert!(last.found.as_ref().is_some_and(|found| found.valid));
    }
}
