//! The service: what needs no writing is answered here, the rest goes to the writer.

mod verification;

use std::{
    ops::ControlFlow,
    sync::{
        Arc, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use postern_database::Database;
use postern_kit::{Clock, task::Tasks, trace::Place, transport::MESSAGE_LIMIT};
use postern_proto::ledger::v1::{
    ledger_server::{Ledger, LedgerServer},
    workers_server::WorkersServer,
};
use postern_types::{Id, ReceiptId, Sha256};
use tokio::{
    sync::{Semaphore, broadcast, mpsc, oneshot, watch},
    task::JoinHandle,
};

use self::verification::verify;
pub(crate) use self::verification::verify_all;
pub use self::verification::{verify_database, verify_file, verify_file_past, walk_file};
use crate::{
    Error, Lost, Verification,
    command::{Answer, Command, Found, found},
    decide::Decider,
    grpc::Grpc,
    known::KnownKeys,
    lead::{self, Serving, Term},
    lease::Lease,
    observe::{self, select},
    pending::{Pending, Record},
    postgres,
    reader::Reader,
    receipt::{Call, Receipt},
    sqlite,
    store::{Filter, Head, Opened, Page, Read, SessionFilter, SessionPage, Write},
    verify::{Checkpoint, Link},
    workers::{WorkerRow, Workers, WorkersGrpc},
    writer::{Envelope, INCARNATIONS, Incarnations, Request, Writing},
};

/// Requests that may wait for the writer.
const QUEUE_REQUESTS: usize = 1024;
/// KiB that they may hold together.
const QUEUE_KIB: usize = 32 * 1024;
/// Changes that a watcher may be behind.
const WATCH_BEHIND: usize = 256;
/// Receipts whose keys are loaded at a time when a ledger starts.
const KEYS_AT_A_TIME: u32 = 1000;

/// Where the ledger lies.
#[derive(Clone, Debug)]
pub struct Config {
    /// A SQLite file, which with its log and its lock (beside it, `-wal`, `-shm`, `-lock`) is created when it is not there;
    /// or PostgreSQL (14 or newer).
    pub database: Database,
}

/// A running ledger. Clones stand for the same one.
#[derive(Clone, Debug)]
pub struct Service {
    term: watch::Receiver<Term>,
    readiness: watch::Receiver<bool>,
}

/// Has ledgers go on with a database that lacks what was acknowledged ([`Error::WentBack`]). Tells what it lacked; nothing when
/// nothing was missed.
///
/// # Errors
/// [`Error::Missing`] when there is no ledger, or whatever keeps the database from being used.
pub async fn accept_loss(database: &Database) -> Result<Vec<Lost>, Error> {
    match database {
        // A file is the one process's that opens it, and its edge's checkpoints tell what it lost.
        Database::Sqlite(_) => Ok(Vec::new()),
        Database::Postgres(server) => postgres::accept_loss(server).await,
    }
}

impl Service {
    /// Opens the database and starts the writer among `tasks`. When they are shut down it writes what waits, ends every
    /// watcher and gives the database up.
    ///
    /// On PostgreSQL it is opened whether or not the server is there; [`Service::readiness`] tells when it serves. While it
    /// does not, or another ledger leads on the database, it refuses everything as `UNAVAILABLE`.
    ///
    /// # Errors
    /// [`Error::InUse`] while another ledger has the file, [`Error::NewerVersion`] and [`Error::Foreign`] for a file that this
    /// program must not touch, [`Error::File`] and [`Error::Unreadable`] when it cannot be used.
    pub async fn open(config: Config, clock: Clock, tasks: &Tasks) -> Result<Self, Error> {
        let path = match &config.database {
            Database::Sqlite(path) => path,
            Database::Postgres(server) => {
                let (term, readiness) = lead::start(server, clock, tasks).await?;
                return Ok(Self { term, readiness });
            }
        };
        let opened = sqlite::open(path).await;
        let (writer, reader, count) = opened.map_err(|error| error.at(path))?;
        let reader = Reader::Sqlite(reader);
        let ledger = Shared::start(writer, reader, count, clock.clone(), tasks);
        let readiness = ledger.lease.readiness();
        let workers = Workers::start(&ledger, clock, tasks, tasks.stopping());
        let (_, term) = watch::channel(Ok(Serving { ledger, workers }));
        Ok(Self { term, readiness })
    }

    /// Whether the ledger serves, as it changes. One on a file always does.
    #[must_use]
    pub fn readiness(&self) -> watch::Receiver<bool> {
        self.readiness.clone()
    }

    /// The leases of exec workers, for the same listener.
    #[must_use]
    pub fn workers_server(
        &self,
    ) -> WorkersServer<impl postern_proto::ledger::v1::workers_server::Workers> {
        WorkersServer::new(WorkersGrpc(self.clone()))
    }

    /// The service for a listener, or for a client in the same process.
    #[must_use]
    pub fn into_server(self) -> LedgerServer<impl Ledger> {
        LedgerServer::new(Grpc::new(self))
            .max_decoding_message_size(MESSAGE_LIMIT)
            .max_encoding_message_size(MESSAGE_LIMIT)
    }

    /// The receipts that are served now.
    pub(crate) fn ledger(&self) -> Result<Arc<Shared<Reader>>, Error> {
        self.term.borrow().clone().map(|serving| serving.ledger)
    }

    /// The leases that are looked after now. They are in memory, which must count.
    pub(crate) fn workers(&self) -> Result<Arc<Workers<Reader>>, Error> {
        let serving = self.term.borrow().clone()?;
        if serving.ledger.knows() {
            Ok(serving.workers)
        } else {
            Err(Error::Standby)
        }
    }
}

/// What every request has at hand.
#[derive(Debug)]
pub(crate) struct Shared<R> {
    reader: R,
    queue: mpsc::Sender<Envelope>,
    room: Arc<Semaphore>,
    pending: Arc<Pending>,
    known: Arc<KnownKeys>,
    incarnations: Arc<Incarnations>,
    changes: broadcast::WeakSender<Receipt>,
    /// Whether what is remembered here counts.
    lease: Arc<Lease>,
}

/// What a ledger begins with.
#[derive(Debug)]
pub(crate) struct Terms {
    /// About how many events are on record.
    pub(crate) count: u64,
    /// Recorded reading calls that are not.
    pub(crate) pending: Arc<Pending>,
    pub(crate) lease: Arc<Lease>,
    pub(crate) clock: Clock,
}

impl<R: Read> Shared<R> {
    /// Begins on a store that is this process's alone.
    pub(crate) fn start<W: Write>(
        writer: W,
        reader: R,
        count: u64,
        clock: Clock,
        tasks: &Tasks,
    ) -> Arc<Self> {
        let terms = Terms {
            count,
            pending: Arc::new(Pending::default()),
            lease: Arc::new(Lease::forever()),
            clock,
        };
        Self::begin(writer, reader, terms, tasks).0
    }

    /// Starts the writer, and the loading of the keys on record. Tells the writer's end, too.
    pub(crate) fn begin<W: Write>(
        writer: W,
        reader: R,
        terms: Terms,
        tasks: &Tasks,
    ) -> (Arc<Self>, JoinHandle<()>) {
        observe::show_metrics();
        let Terms {
            count,
            pending,
            lease,
            clock,
        } = terms;
        let known = Arc::new(KnownKeys::with_room_for(count));
        let incarnations = Arc::new(Incarnations::default());
        let (queue, requests) = mpsc::channel(QUEUE_REQUESTS);
        let (changes, _) = broadcast::channel(WATCH_BEHIND);
        let shared = Arc::new(Self {
            reader,
            queue,
            room: Arc::new(Semaphore::new(QUEUE_KIB)),
            pending: Arc::clone(&pending),
            known: Arc::clone(&known),
            incarnations: Arc::clone(&incarnations),
            changes: changes.downgrade(),
            lease,
        });
        let writing = Writing {
            store: writer,
            decider: Decider::new(Arc::clone(&known)),
            queue: requests,
            pending,
            incarnations,
            changes,
            clock,
        };
        let stopping = tasks.stopping();
        let ended = tasks.spawn("ledger-writer", async move {
            writing.run(stopping.cancelled()).await;
        });
        if count == 0 {
            known.complete();
        } else {
            let (stopping, reader) = (tasks.stopping(), shared.reader.clone());
            tasks.spawn("ledger-keys", async move {
                let loaded = stopping
                    .run_until_cancelled(load_keys(&reader, &known))
                    .await;
                if let Some(Err(error)) = loaded {
                    tracing::warn!(%error, "keys were not loaded; every lookup asks the database");
                }
            });
        }
        (shared, ended)
    }

    /// Whether what is remembered here counts now.
    pub(crate) fn knows(&self) -> bool {
        self.lease.holds()
    }

    /// Has the writer do something, and waits until it is on disk.
    pub(crate) async fn command(&self, command: Command) -> Result<Answer, Error> {
        let kib = u32::try_from(command.size().div_ceil(1024)).unwrap_or(u32::MAX);
        let room = Arc::clone(&self.room)
            .try_acquire_many_owned(kib)
            .map_err(|_| observe::full())?;
        self.ask(|answer| {
            Envelope::Command(Request {
                command,
                answer,
                room,
                queued: Instant::now(),
                place: Place::here(),
            })
        })
        .await
    }

    /// Takes the next incarnation of a workspace.
    pub(crate) async fn open_incarnation(&self, workspace: Id) -> Result<Opened, Error> {
        self.ask(|answer| Envelope::Open { workspace, answer })
            .await
    }

    /// Has leases of exec workers written down.
    pub(crate) async fn put_workers(&self, rows: Vec<WorkerRow>) -> Result<(), Error> {
        self.ask(|answer| Envelope::PutWorkers { rows, answer })
            .await
    }

    /// The leases on disk.
    pub(crate) async fn load_workers(&self) -> Result<Vec<WorkerRow>, Error> {
        self.ask(|answer| Envelope::Workers { answer }).await
    }

    /// What ids stand for. A fresh call is told without asking the database.
    pub(crate) async fn lookup(&self, call: Call, incarnation: u64) -> Result<Found, Error> {
        self.fence(&call.key.workspace, incarnation).await?;
        let receipt = match self.pending.find(&call.key) {
            Some(receipt) => Some(receipt),
            None if self.lease.holds() && !self.known.perhaps(&call.key) => None,
            None => select(&self.reader, self.reader.find(&call.key)).await?,
        };
        let Some(receipt) = receipt else {
            return Ok(Found::Unknown);
        };
        let found = found(receipt, &call, incarnation);
        if !matches!(found, Found::Orphaned(_)) {
            return Ok(found);
        }
        let call = Arc::new(call);
        match self.command(Command::Adopt { call, incarnation }).await? {
            Answer::Found(found) => Ok(found),
            Answer::Receipt(_) | Answer::Decided { .. } => Ok(Found::Unknown),
        }
    }

    /// Queues a finished reading call.
    pub(crate) async fn record(&self, record: Record) -> Result<(), Error> {
        self.fence(&record.call.key.workspace, record.incarnation)
            .await?;
        self.pending.push(record);
        Ok(())
    }

    /// One page of receipts.
    pub(crate) async fn list(&self, filter: &Filter) -> Result<Page, Error> {
        self.flush().await?;
        select(&self.reader, self.reader.list(filter)).await
    }

    /// One page of sessions.
    pub(crate) async fn sessions(&self, filter: &SessionFilter) -> Result<SessionPage, Error> {
        self.flush().await?;
        select(&self.reader, self.reader.sessions(filter)).await
    }

    /// One receipt.
    pub(crate) async fn get(&self, id: ReceiptId) -> Result<Receipt, Error> {
        self.flush().await?;
        let found = select(&self.reader, self.reader.get(id)).await?;
        found.ok_or(Error::NotFound)
    }

    /// The newest event of a workspace, and the hash of the one at `sequence`.
    pub(crate) async fn head(
        &self,
        workspace: &Id,
        sequence: u64,
    ) -> Result<(Option<Head>, Option<Sha256>), Error> {
        self.flush().await?;
        let head = select(&self.reader, self.reader.head(workspace)).await?;
        let hash = match sequence {
            0 => None,
            sequence => self.reader.hash_at(workspace, sequence).await?,
        };
        Ok((head.filter(|head| head.sequence > 0), hash))
    }

    /// Walks the chain of a workspace, or of all. Counts the events on the way.
    pub(crate) async fn verify(
        &self,
        workspace: Option<&Id>,
        checkpoints: Vec<Checkpoint>,
        walked: &AtomicU64,
    ) -> Result<Verification, Error> {
        self.flush().await?;
        let all = |_: Link<'_>| {
            walked.fetch_add(1, Ordering::Relaxed);
            ControlFlow::Continue(())
        };
        verify(&self.reader, workspace, checkpoints, all).await
    }

    /// Changes from now on.
    pub(crate) fn watch(&self) -> Result<broadcast::Receiver<Receipt>, Error> {
        let changes = self.changes.upgrade().ok_or(Error::Closed)?;
        Ok(changes.subscribe())
    }

    /// Has recorded reading calls written that were queued before this.
    async fn flush(&self) -> Result<(), Error> {
        let mut left = self.pending.len();
        while left > 0 {
            let written = self.ask(|answer| Envelope::Flush { answer }).await?;
            left = left.saturating_sub(written);
        }
        Ok(())
    }

    async fn ask<T>(
        &self,
        envelope: impl FnOnce(oneshot::Sender<Result<T, Error>>) -> Envelope,
    ) -> Result<T, Error> {
        let (answer, answered) = oneshot::channel();
        self.queue
            .try_send(envelope(answer))
            .map_err(|error| match error {
                mpsc::error::TrySendError::Full(_) => observe::full(),
                mpsc::error::TrySendError::Closed(_) => Error::Closed,
            })?;
        answered.await.unwrap_or(Err(Error::Closed))
    }

    /// Refuses everything but the workspace's newest incarnation.
    async fn fence(&self, workspace: &Id, incarnation: u64) -> Result<(), Error> {
        let remembered = self
            .incarnations
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(workspace)
            .copied();
        let newest = match remembered {
            Some(newest) if self.lease.holds() => newest,
            Some(_) | None => self.newest_incarnation(workspace).await?,
        };
        if newest == incarnation && incarnation > 0 {
            Ok(())
        } else {
            Err(Error::Fenced)
        }
    }

    async fn newest_incarnation(&self, workspace: &Id) -> Result<u64, Error> {
        let Some(head) = self.reader.head(workspace).await? else {
            return Ok(0);
        };
        let mut incarnations = self
            .incarnations
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        if incarnations.len() >= INCARNATIONS {
            incarnations.clear();
        }
        // A newer one may have been taken since the database was read.
        let newest = incarnations.entry(workspace.clone()).or_default();
        *newest = head.incarnation.max(*newest);
        Ok(*newest)
    }
}

async fn load_keys<R: Read>(reader: &R, known: &KnownKeys) -> Result<(), Error> {
    let mut after = None;
    loop {
        after = reader
            .keys(after, KEYS_AT_A_TIME, |workspace, session, call| {
                known.insert(workspace, session, call);
            })
            .await?;
        if after.is_none() {
            known.complete();
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests;
