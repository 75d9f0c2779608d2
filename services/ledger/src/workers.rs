//! Leases of exec workers: who is live, by this ledger's clock.
//!
//! Beginnings and ends are durable before they are told; renewals are kept in memory, since a ledger that comes back gives every
//! worker one whole lease anyway. A lease lapses by the time for which this ledger was there to be renewed with: a ledger that
//! was stopped, starved of the processor or without its database does not count that against the workers.
//!
//! What is asked for is seen to its end when nobody waits for the answer any more: memory and database stay the same.

mod book;
mod grpc;
mod keeper;
#[cfg(test)]
mod tests;

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use postern_kit::{Clock, task::Tasks};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use uuid::Uuid;

use crate::{Error, error::Apart, service::Shared, store::Read};

use book::{Book, Renewed};
pub(crate) use book::{Lease, Load};
pub(crate) use grpc::WorkersGrpc;

/// Ended leases that are remembered.
pub(crate) const ENDED_KEPT: usize = 4096;
/// Live workers at most.
const WORKERS: usize = 1024;
/// Bounds of a lease, in milliseconds.
pub(crate) const LEASE_MS: std::ops::RangeInclusive<u64> = 100..=3_600_000;

/// How a lease ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Past {
    /// Its worker said so.
    Left,
    /// It was not renewed.
    Lapsed,
}

/// Where a worker stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Standing {
    Live,
    Past(Past),
    Unknown,
}

/// A lease as the database has it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct WorkerRow {
    pub(crate) id: Uuid,
    pub(crate) address: String,
    pub(crate) capacity: u32,
    pub(crate) lease_ms: i64,
    /// How it ended, if it has.
    pub(crate) past: Option<Past>,
    pub(crate) registered_ms: i64,
    /// What it stands on; earlier versions did not say.
    pub(crate) ground: Option<Ground>,
}

/// What tells the workers of one project from those of another (`Ground` of the service's contract).
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Ground {
    pub(crate) spool: String,
    pub(crate) boot: String,
    pub(crate) device: u64,
    pub(crate) inode: u64,
}

impl Ground {
    /// As the database has it: JSON, or nothing.
    pub(crate) fn text(ground: Option<&Self>) -> String {
        let text = ground.map(serde_json::to_string);
        text.transpose().ok().flatten().unwrap_or_default()
    }

    pub(crate) fn from_text(text: &str) -> Result<Option<Self>, Error> {
        if text.is_empty() {
            return Ok(None);
        }
        let read = serde_json::from_str(text);
        read.map(Some)
            .map_err(|_| Error::Corrupt("a worker's ground".to_owned()))
    }

    /// What the two certainly do not share.
    pub(crate) fn apart(&self, other: &Self) -> Option<Apart> {
        if self.spool != other.spool {
            return Some(Apart::Spool);
        }
        let same_device = (&self.boot, self.device) == (&other.boot, other.device);
        (same_device && self.inode != other.inode).then_some(Apart::Project)
    }
}

impl Past {
    /// The database's word for a standing.
    pub(crate) const fn number(past: Option<Self>) -> i64 {
        match past {
            None => 1,
            Some(Self::Left) => 2,
            Some(Self::Lapsed) => 3,
        }
    }

    pub(crate) fn from_number(number: i64) -> Result<Option<Self>, Error> {
        match number {
            1 => Ok(None),
            2 => Ok(Some(Self::Left)),
            3 => Ok(Some(Self::Lapsed)),
            _ => Err(Error::Corrupt("a worker's standing".to_owned())),
        }
    }
}

/// The workers of a ledger.
pub(crate) struct Workers<R> {
    ledger: Arc<Shared<R>>,
    book: Mutex<Book>,
    /// Signalled when there is a first lease to look after.
    begun: Notify,
    clock: Clock,
    tasks: Tasks,
}

impl<R> fmt::Debug for Workers<R> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Workers")
    }
}

impl<R: Read> Workers<R> {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a lease, or goes on with it.
    pub(crate) async fn register(
        self: &Arc<Self>,
        id: Uuid,
        address: String,
        load: Load,
        lease: Duration,
        ground: Option<Ground>,
    ) -> Result<Standing, Error> {
        let row = WorkerRow {
            id,
            address,
            capacity: load.capacity,
            lease_ms: i64::try_from(lease.as_millis()).unwrap_or(i64::MAX),
            past: None,
            registered_ms: self.clock.now().as_millis(),
            ground,
        };
        {
            let mut book = self.book();
            match book.renew(id, load)? {
                Renewed::Standing(Standing::Live) if book.is_as(&row) => return Ok(Standing::Live),
                Renewed::Standing(Standing::Live) => {}
                Renewed::Standing(standing @ Standing::Past(_)) => return Ok(standing),
                Renewed::Ending => return Ok(Standing::Past(Past::Lapsed)),
                Renewed::Standing(Standing::Unknown) if book.live() >= WORKERS => {
                    return Err(Error::TooManyWorkers(WORKERS));
                }
                Renewed::Standing(Standing::Unknown) => {}
            }
            book.announce(&row)?;
        }
        let workers = Arc::clone(self);
        let task = self.tasks.spawn("begin a lease", async move {
            let written = workers.ledger.put_workers(vec![row.clone()]).await;
            let mut book = workers.book();
            book.coming.remove(&id);
            written?;
            let standing = book.begin(row, load);
            drop(book);
            workers.begun.notify_one();
            tracing::info!(worker = %id, "an exec worker has registered");
            Ok(standing)
        });
        task.await.unwrap_or(Err(Error::Closed))
    }

    /// Goes on with a lease, and tells where others stand.
    pub(crate) fn renew(
        &self,
        id: Uuid,
        load: Load,
        others: &[Uuid],
    ) -> Result<(Standing, Vec<Standing>), Error> {
        let mut book = self.book();
        let standing = match book.renew(id, load)? {
            Renewed::Standing(standing) => standing,
            // It is decided; only those who would act on it wait until that is durable.
            Renewed::Ending => Standing::Past(Past::Lapsed),
        };
        let others = others.iter().map(|other| book.standing(*other)).collect();
        Ok((standing, others))
    }

    /// Ends a lease.
    pub(crate) async fn leave(self: &Arc<Self>, id: Uuid) -> Result<Standing, Error> {
        let row = {
            let mut book = self.book();
            match book.end(id, Past::Left)? {
                Some(row) => row,
                None => return Ok(book.standing(id)),
            }
        };
        let workers = Arc::clone(self);
        let task = self.tasks.spawn("end a lease", async move {
            match workers.ledger.put_workers(vec![row]).await {
                Ok(()) => {
                    workers.book().ended(id, Past::Left);
                    Ok(Standing::Past(Past::Left))
                }
                Err(error) => {
                    workers.book().go_on(id);
                    Err(error)
                }
            }
        });
        task.await.unwrap_or(Err(Error::Closed))
    }

    /// The live workers, by their registration.
    pub(crate) fn list(&self) -> Result<Vec<(Uuid, Lease)>, Error> {
        self.book().list()
    }
}
