//! The one writer. All requests that wait when a commit ends share the next one.

use std::{
    collections::HashMap,
    sync::{Arc, RwLock},
    time::{Duration, Instant, SystemTime},
};

use postern_kit::{
    Clock, metrics,
    trace::{self, Place},
};
use postern_types::Id;
use tokio::sync::{OwnedSemaphorePermit, broadcast, mpsc, oneshot};

use crate::{
    Error,
    command::{Answer, Command},
    decide::Decider,
    observe::NAMESPACE,
    pending::Pending,
    receipt::Receipt,
    store::{MAX_ROWS, Opened, Row, Write},
    workers::WorkerRow,
};

/// Requests that share a commit, at most; each appends one event.
const MAX_COMMANDS: usize = MAX_ROWS / 2;
/// Recorded reading calls that share it.
const MAX_RECORDS: usize = MAX_ROWS - MAX_COMMANDS;
/// Commits between two looks at the store's own files.
const TIDY_EVERY: u32 = 1024;
/// Largest plan or proposal that watchers are sent, so that what a slow one holds back stays small.
const WATCHED_BLOB_BYTES: usize = 64 * 1024;
/// How long to leave a failing database alone when only recorded reading calls wait.
const FAILURE_PAUSE: Duration = Duration::from_millis(500);

/// A command and who waits for it.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) command: Command,
    pub(crate) answer: oneshot::Sender<Result<Answer, Error>>,
    /// Room in the queue, given back when the request is done.
    pub(crate) room: OwnedSemaphorePermit,
    /// When it was queued.
    pub(crate) queued: Instant,
    /// Where in its call's trace it was asked for.
    pub(crate) place: Place,
}

/// What comes to the writer.
#[derive(Debug)]
pub(crate) enum Envelope {
    Command(Request),
    /// Takes an incarnation.
    Open {
        workspace: Id,
        answer: oneshot::Sender<Result<Opened, Error>>,
    },
    /// Writes down leases of exec workers.
    PutWorkers {
        rows: Vec<WorkerRow>,
        answer: oneshot::Sender<Result<(), Error>>,
    },
    /// Reads them.
    Workers {
        answer: oneshot::Sender<Result<Vec<WorkerRow>, Error>>,
    },
    /// Answered when the oldest batch of recorded reading calls is written, with how many those were.
    Flush {
        answer: oneshot::Sender<Result<usize, Error>>,
    },
}

/// Workspaces whose newest incarnation is remembered.
pub(crate) const INCARNATIONS: usize = 4096;

/// The newest incarnation of each workspace that was asked for.
pub(crate) type Incarnations = RwLock<HashMap<Id, u64>>;

/// What the writer shares with those who ask it.
#[derive(Debug)]
pub(crate) struct Writing<W> {
    pub(crate) store: W,
    pub(crate) decider: Decider,
    pub(crate) queue: mpsc::Receiver<Envelope>,
    pub(crate) pending: Arc<Pending>,
    pub(crate) incarnations: Arc<Incarnations>,
    /// The only sender: when the writer ends, so do the watchers.
    pub(crate) changes: broadcast::Sender<Receipt>,
    pub(crate) clock: Clock,
}

impl<W: Write> Writing<W> {
    /// Serves until `stop`, then writes what waits and gives the database up.
    pub(crate) async fn run(mut self, stop: impl Future<Output = ()> + Send) {
        let mut stop = std::pin::pin!(stop);
        let mut backlog = Vec::with_capacity(MAX_COMMANDS);
        let mut commits = 0;
        while !self.store.is_lost() {
            tokio::select! {
                biased;
                () = &mut stop => break,
                // What comes all the time must not keep it waiting.
                () = self.store.due() => {
                    self.store.attend().await;
                    continue;
                }
                count = self.queue.recv_many(&mut backlog, MAX_COMMANDS) => if count == 0 { break },
                () = self.pending.due(MAX_RECORDS) => {}
            }
            self.serve(&mut backlog).await;
            commits += 1;
            if commits % TIDY_EVERY == 0
                && let Err(error) = self.store.tidy().await
            {
                tracing::warn!(%error, "the ledger's log could not be cut back");
            }
        }
        self.queue.close();
        while self.queue.recv_many(&mut backlog, MAX_COMMANDS).await > 0 {
            self.serve(&mut backlog).await;
        }
        // When it is lost, who comes after it writes them.
        while self.pending.len() > 0 && !self.store.is_lost() {
            if let Err(error) = self.batch(Vec::new()).await {
                tracing::warn!(%error, "recorded reading calls are lost");
                break;
            }
        }
        self.store.close().await;
    }

    /// Serves what has come, and the records that are queued.
    async fn serve(&mut self, backlog: &mut Vec<Envelope>) {
        let mut commands = Vec::with_capacity(backlog.len());
        let mut flushed = Vec::new();
        for envelope in backlog.drain(..) {
            match envelope {
                Envelope::Command(request) => commands.push(request),
                Envelope::Flush { answer } => flushed.push(answer),
                // Leases have nothing to do with receipts, so their order does not matter. Callers that have gone away ask again.
                Envelope::PutWorkers { rows, answer } => {
                    let _ = answer.send(self.store.put_workers(&rows).await);
                }
                Envelope::Workers { answer } => {
                    let _ = answer.send(self.store.workers().await);
                }
                Envelope::Open { workspace, answer } => {
                    // What came before belongs to the incarnation before.
                    let before = std::mem::take(&mut commands);
                    // Each caller has its own answer already.
                    let _ = self.batch(before).await;
                    let opened = self.open(workspace).await;
                    // A caller that has gone away took its incarnation all the same.
                    let _ = answer.send(opened);
                }
            }
        }
        let alone = commands.is_empty() && flushed.is_empty();
        let written = self.batch(commands).await;
        if alone && written.is_err() {
            tokio::time::sleep(FAILURE_PAUSE).await;
        }
        for answer in flushed {
            let _ = answer.send(written.clone());
        }
    }

    async fn open(&mut self, workspace: Id) -> Result<Opened, Error> {
        self.decider.forget();
        postern_kit::fault_point!(crate::fault_points::OPEN_BEFORE);
        let now_ms = self.clock.now().as_millis();
        let opened = self.store.open(&workspace, now_ms).await;
        postern_kit::fault_point!(crate::fault_points::OPEN_AFTER);
        let mut incarnations = self
            .incarnations
            .write()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        match &opened {
            Ok(opened) => {
                metrics::RECEIPTS_ORPHANED.add([], opened.orphans);
                if incarnations.len() >= INCARNATIONS {
                    incarnations.clear();
                }
                incarnations.insert(workspace, opened.incarnation)
            }
            // It may have been taken all the same: the database is asked.
            Err(_) => incarnations.remove(&workspace),
        };
        opened
    }

    /// Decides, commits, and only then answers. Tells how many recorded reading calls were written; [`usize::MAX`] for all.
    async fn batch(&mut self, requests: Vec<Request>) -> Result<usize, Error> {
        let records = self.pending.oldest(MAX_RECORDS);
        if requests.is_empty() && records.is_empty() {
            return Ok(usize::MAX);
        }
        let recorded = records.len();
        let mut places: Vec<_> = records.iter().map(|record| record.place.clone()).collect();
        let (mut all, mut answers, mut rooms) = (Vec::new(), Vec::new(), Vec::new());
        all.extend(records.into_iter().map(Command::Record));
        for request in requests {
            places.push(request.place);
            metrics::LEDGER_QUEUE_SECONDS.time([], request.queued.elapsed());
            all.push(request.command);
            answers.push(request.answer);
            rooms.push(request.room);
        }
        let since = SystemTime::now();
        let decided = self.decide_and_append(all, recorded).await;
        let system = self.store.system();
        trace::shared_commit(system, NAMESPACE, &places, since, decided.is_ok());
        let written = decided.as_ref().map(|_| recorded).map_err(Clone::clone);
        match decided {
            Ok(decided) => {
                self.pending.written(recorded);
                answer_all(decided.into_iter().zip(answers));
            }
            Err(error) => {
                tracing::warn!(%error, waiting = answers.len(), "the ledger could not commit");
                self.decider.forget();
                let failed = answers
                    .into_iter()
                    .map(|answer| (Err(error.clone()), answer));
                answer_all(failed);
            }
        }
        drop(rooms);
        written
    }

    /// The answers of the commands after the first `recorded`.
    async fn decide_and_append(
        &mut self,
        commands: Vec<Command>,
        recorded: usize,
    ) -> Result<Vec<Result<Answer, Error>>, Error> {
        loop {
            let wanted = self.decider.wanted(commands.iter());
            if wanted.is_empty() {
                break;
            }
            let loaded = self.store.load(&wanted).await?;
            self.decider.admit(wanted, loaded);
        }
        let now_ms = self.clock.now().as_millis();
        let mut answers = Vec::with_capacity(commands.len());
        for (index, command) in commands.into_iter().enumerate() {
            let answer = self.decider.decide(command, now_ms);
            if index >= recorded {
                answers.push(answer);
            }
        }
        let (rows, changes) = self.decider.take();
        if !rows.is_empty() {
            #[cfg(feature = "fault-points")]
            let commit = crate::fault_points::Commit::of(&rows);
            postern_kit::fault_point!(commit.before());
            self.append(rows).await?;
            postern_kit::fault_point!(commit.after());
        }
        self.decider.committed();
        self.tell(changes);
        Ok(answers)
    }

    async fn append(&mut self, rows: Vec<Row>) -> Result<(), Error> {
        let uncertain = rows.iter().filter(|row| row.entry.is_uncertain()).count();
        let (count, since) = (rows.len(), Instant::now());
        self.store.append(rows).await?;
        metrics::LEDGER_COMMIT_SECONDS.time([], since.elapsed());
        metrics::LEDGER_BATCH_SIZE.size([], count);
        metrics::RECEIPTS_UNCERTAIN.add([], u64::try_from(uncertain).unwrap_or(u64::MAX));
        Ok(())
    }

    fn tell(&self, changes: Vec<Receipt>) {
        if self.changes.receiver_count() == 0 {
            return;
        }
        for mut change in changes {
            change.shed_blobs_over(WATCHED_BLOB_BYTES);
            // The last watcher may just have gone.
            let _ = self.changes.send(change);
        }
    }
}

type Outcome = Result<Answer, Error>;

fn answer_all(waiting: impl Iterator<Item = (Outcome, oneshot::Sender<Outcome>)>) {
    for (result, answer) in waiting {
        // A caller that has gone away finds the answer by its ids.
        let _ = answer.send(result);
    }
}
