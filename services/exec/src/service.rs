//! The worker: which commands it has, and what is asked of them.

mod inspect;
mod listing;
mod pipe;
mod poll;
mod ready;
mod start;
mod typing;

use std::{
    collections::HashMap,
    ffi::OsString,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use postern_kit::{
    Clock, metrics,
    root::{Identity, Root},
    task::Tasks,
};
use postern_types::ReceiptId;
use tokio::{sync::Semaphore, task::JoinHandle, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    Config, Error,
    command::{Command, Stage},
    config::{LEFTOVER_COMMANDS, SESSION_COMMANDS},
    lease::Lease,
    pool::Pool,
    sandbox::Sandbox,
    spool::{End, EndKind, Entry, Meta, Spool},
    tree,
    wrapper::{GRACE, KILL_LIMIT},
    wrappers::Wrappers,
};

pub(crate) use inspect::{Inspected, Kind};
pub(crate) use listing::PAGE;
pub(crate) use pipe::{CHUNKS_AHEAD, HungUp, Pipe, Said};
pub(crate) use start::{Start, Started};

use pipe::PROGRAMS;

/// Blocking work on the spool at the same time.
const SPOOL_WORK: usize = 64;
/// Inputs that are being typed at the same time; a full terminal holds one for two seconds.
const TYPISTS: usize = 64;
/// Commands after which the spool is tidied.
const TIDY_EVERY: u64 = 64;
/// Ended commands told to whoever must stop some.
const TOLD_LEFTOVERS: usize = 8;
/// Time that ending everything may take: both of the wrapper's limits, and some for the way.
const END_LIMIT: Duration = GRACE
    .saturating_add(KILL_LIMIT)
    .saturating_add(Duration::from_millis(1500));
/// Time that wrappers without a command have to go, at the worker's end.
const DEPART_LIMIT: Duration = Duration::from_secs(2);
/// Time that a killed wrapper's command may take to be settled.
const FORCED_LIMIT: Duration = Duration::from_secs(2);

/// One exec worker. Clones stand for the same worker.
#[derive(Clone, Debug)]
pub struct Service {
    pub(crate) worker: Arc<Worker>,
}

/// How many commands a worker runs and takes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Load {
    /// Running commands.
    pub running: u32,
    /// Running commands it takes at most.
    pub capacity: u32,
}

#[derive(Debug)]
pub(crate) struct Worker {
    root: Root,
    pub(crate) spool: Arc<Spool>,
    pub(crate) pool: Arc<Pool>,
    clock: Clock,
    pub(crate) tasks: Tasks,
    capacity: u32,
    orphan_limit: Duration,
    end_when_orphaned: bool,
    sandbox: Sandbox,
    pub(crate) lease: Lease,
    /// Whether others run commands of the same sessions.
    leased: bool,
    /// Signalled when the lease is given up.
    pub(crate) left: CancellationToken,
    /// Variables that a program may get by name.
    passable: Vec<(OsString, OsString)>,
    desk: Mutex<Desk>,
    /// Room for programs; whoever has all of it knows that none is left.
    programs: Arc<Semaphore>,
    spool_work: Arc<Semaphore>,
    typists: Arc<Semaphore>,
    /// Commands started so far.
    started: AtomicU64,
    /// Signalled with [`Desk::closed`].
    closing: CancellationToken,
    finished: CancellationToken,
}

/// What is shared by everything that is asked of the worker.
#[derive(Debug)]
pub(crate) struct Desk {
    commands: HashMap<ReceiptId, Arc<Command>>,
    /// Signalled to end the programs that there are.
    programs_end: CancellationToken,
    /// Takes no new command any more.
    pub(crate) closed: bool,
    /// Takes no new command until it has begun again.
    pub(crate) fenced: bool,
    heard: Instant,
}

/// A command as it is told.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub(crate) meta: Meta,
    pub(crate) end: Option<End>,
    pub(crate) total: u64,
}

impl Service {
    /// Opens the project and the spool, and makes the first wrapper ready. Called within a tokio runtime.
    ///
    /// # Errors
    /// When the project or the spool cannot be opened, or the sandbox cannot be as configured.
    pub fn open(config: Config, clock: Clock, tasks: Tasks) -> Result<Self, Error> {
        let root = Root::open(&config.project)?;
        postern_kit::fault_point!(crate::fault_points::OPEN_BEFORE);
        let spool = Arc::new(Spool::open(&config.spool, config.leased, clock.now())?);
        postern_kit::fault_point!(crate::fault_points::OPEN_AFTER);
        let wrappers = Arc::new(Wrappers::new(&config)?);
        let pool = Arc::new(Pool::new(wrappers, Arc::clone(&spool), config.spares));
        pool.refill();
        let worker = Arc::new(Worker {
            root,
            spool,
            pool,
            clock,
            tasks,
            capacity: config.capacity,
            orphan_limit: config.orphan_limit,
            end_when_orphaned: config.end_when_orphaned,
            passable: config.passable_environment(),
            sandbox: config.sandbox,
            lease: Lease::new(config.leased),
            leased: config.leased,
            left: CancellationToken::new(),
            desk: Mutex::new(Desk {
                commands: HashMap::new(),
                programs_end: CancellationToken::new(),
                closed: false,
                fenced: false,
                heard: Instant::now(),
            }),
            programs: Arc::new(Semaphore::new(PROGRAMS)),
            spool_work: Arc::new(Semaphore::new(SPOOL_WORK)),
            typists: Arc::new(Semaphore::new(TYPISTS)),
            started: AtomicU64::new(0),
            closing: CancellationToken::new(),
            finished: CancellationToken::new(),
        });
        let service = Self { worker };
        service.show_metrics();
        service.tidy();
        service.watch_edge();
        Ok(service)
    }

    /// Shows the worker's figures from its start on.
    fn show_metrics(&self) {
        metrics::EXEC_STARTED.show();
        metrics::EXEC_CAPACITY.set([], self.worker.capacity.into());
        let worker = Arc::downgrade(&self.worker);
        metrics::EXEC_RUNNING.follow(move || Some(worker.upgrade()?.running().into()));
    }

    /// How many commands it runs and takes.
    #[must_use]
    pub fn load(&self) -> Load {
        Load {
            running: self.worker.running(),
            capacity: self.worker.capacity,
        }
    }

    /// What commands may reach.
    pub(crate) fn sandbox(&self) -> &Sandbox {
        &self.worker.sandbox
    }

    /// Whether a process may speak to this worker by its socket: any but what its own commands started, told by the id
    /// that the kernel noted when it connected. Who is gone already cannot be told, and may not.
    #[must_use]
    pub fn admits(peer: i32) -> bool {
        !tree::is_below_this_process(peer)
    }

    /// What tells the project's root from another.
    pub(crate) fn root(&self) -> &Identity {
        self.worker.root.identity()
    }

    /// Signalled when the process is to end: a `Shutdown` was done, or the edge is lost and the worker is to end with it.
    #[must_use]
    pub fn finished(&self) -> CancellationToken {
        self.worker.finished.clone()
    }

    /// Takes no new command from now on; running ones have `limit` to end, then they are stopped. Returns how many those were.
    pub async fn drain(&self, limit: Duration) -> u32 {
        let until = Instant::now() + limit;
        let commands = self.worker.close();
        self.tell_ledger();
        for command in commands {
            command
                .ended(until.saturating_duration_since(Instant::now()))
                .await;
        }
        self.stop_all("drained").await
    }

    /// Takes no new command from now on, and ends every command with all that they started. Returns how many were running.
    pub async fn stop_all(&self, reason: &str) -> u32 {
        self.worker.close();
        self.worker.pool.close();
        let running = self.end_all().await;
        self.worker.pool.gone(DEPART_LIMIT).await;
        tracing::info!(reason, running, "the worker has ended its commands");
        running
    }

    pub(crate) async fn shut_down(&self, reason: &str) -> u32 {
        let running = self.stop_all(reason).await;
        self.worker.finished.cancel();
        running
    }

    pub(crate) async fn end_all(&self) -> u32 {
        self.end_programs();
        let commands = self.worker.all();
        let running = commands.iter().filter(|command| command.runs()).count();
        let mut ending = Vec::new();
        for command in commands {
            ending.push(self.worker.end(command));
        }
        for task in ending {
            // A task that panicked has said so itself.
            let _said = task.await;
        }
        self.programs_gone().await;
        u32::try_from(running).unwrap_or(u32::MAX)
    }

    /// A sign of life from the edge.
    pub(crate) fn hear(&self) {
        self.worker.desk().heard = Instant::now();
    }

    /// Ends the commands when the edge is not heard of for too long.
    fn watch_edge(&self) {
        let service = self.clone();
        let stopping = self.worker.tasks.stopping();
        self.worker.tasks.spawn("watch for the edge", async move {
            loop {
                let due = service.worker.desk().heard + service.worker.orphan_limit;
                tokio::select! {
                    () = stopping.cancelled() => return,
                    () = tokio::time::sleep_until(due) => {}
                }
                if service.worker.desk().heard + service.worker.orphan_limit > Instant::now() {
                    continue;
                }
                if service.worker.end_when_orphaned {
                    service.shut_down("orphaned").await;
                    return;
                }
                let running = service.end_all().await;
                tracing::warn!(running, "no word from the edge; its commands were ended");
                service.hear();
            }
        });
    }

    fn tidy_sometimes(&self) {
        if self.worker.started.fetch_add(1, Ordering::Relaxed) % TIDY_EVERY == TIDY_EVERY - 1 {
            self.tidy();
        }
    }

    /// Throws away what the spool need not keep.
    fn tidy(&self) {
        let (spool, clock) = (Arc::clone(&self.worker.spool), self.worker.clock.clone());
        let worker = Arc::clone(&self.worker);
        self.worker.tasks.spawn("tidy the spool", async move {
            let pruned = worker.blocking(move || Ok(spool.prune(clock.now())?)).await;
            if let Err(error) = pruned {
                tracing::warn!(%error, "the spool could not be tidied");
            }
        });
    }

    /// Ends everything that a command started, and tells how it ended.
    pub(crate) async fn stop(
        &self,
        receipt: ReceiptId,
        session_id: &str,
        command_id: &str,
    ) -> Result<Told, Error> {
        let id = parse_command(command_id)?;
        self.worker.entry_of(id, session_id).await?;
        postern_kit::fault_point!(crate::fault_points::STOP_BEFORE);
        if let Some(command) = self.worker.command(id) {
            self.worker.note_stop(&command, receipt).await?;
            postern_kit::fault_point!(crate::fault_points::STOP_NOTED);
            let _said = self.worker.end(command).await;
        }
        postern_kit::fault_point!(crate::fault_points::STOP_AFTER);
        let told = self
            .worker
            .with_entry(id, |entry| Ok(Told::of(&entry)))
            .await?;
        match told.end {
            Some(_) => Ok(told),
            None if self.worker.command(id).is_some() => Err(Error::Uncertain),
            // Another worker has it; it is asked by whoever knows which.
            None => Err(Error::Elsewhere),
        }
    }
}

impl Worker {
    /// Running commands.
    fn running(&self) -> u32 {
        let desk = self.desk();
        let running = desk.commands.values().filter(|command| command.runs());
        u32::try_from(running.count()).unwrap_or(u32::MAX)
    }

    pub(crate) fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn command(&self, id: ReceiptId) -> Option<Arc<Command>> {
        self.desk().commands.get(&id).map(Arc::clone)
    }

    pub(crate) fn all(&self) -> Vec<Arc<Command>> {
        self.desk().commands.values().map(Arc::clone).collect()
    }

    fn close(&self) -> Vec<Arc<Command>> {
        self.desk().closed = true;
        self.closing.cancel();
        self.all()
    }

    /// Ends a command, by force if its wrapper does not do it. Goes on when nobody waits for it.
    fn end(&self, command: Arc<Command>) -> JoinHandle<()> {
        self.tasks.spawn("end a command", async move {
            command.reachable(END_LIMIT).await;
            command.end();
            postern_kit::fault_point!(crate::fault_points::STOP_ORDERED);
            let stage = command.gone(END_LIMIT).await;
            // With the end told, what is left is what even SIGKILL does not end.
            if matches!(stage, Stage::Starting | Stage::Running) {
                command.force(EndKind::Stopped);
                command.gone(FORCED_LIMIT).await;
            }
        })
    }

    /// Declares a command lost, unless it has ended.
    pub(crate) async fn lose(&self, id: ReceiptId) -> Result<(), Error> {
        let (spool, now) = (Arc::clone(&self.spool), self.clock.now());
        self.with_entry(id, move |mut entry| Ok(spool.lose(&mut entry, now)?))
            .await
    }

    /// Work that may wait for the disk, off the runtime and bounded.
    pub(crate) async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        run_blocking(&self.spool_work, work).await
    }

    /// Works on what the spool has of a command.
    async fn with_entry<T: Send + 'static>(
        &self,
        id: ReceiptId,
        work: impl FnOnce(Entry) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let (spool, now) = (Arc::clone(&self.spool), self.clock.now());
        self.blocking(move || {
            let entry = match spool.find(id, now) {
                // A claim that a crash of the machine left unreadable is of no command that anybody knows.
                Err(error) if error.kind() == std::io::ErrorKind::InvalidData => None,
                other => other?,
            };
            match entry {
                Some(entry) if !entry.never_started() => work(entry),
                _ => Err(Error::UnknownCommand),
            }
        })
        .await
    }

    /// What is known of a session's command.
    async fn entry_of(&self, id: ReceiptId, session_id: &str) -> Result<Told, Error> {
        let session = session_id.to_owned();
        self.with_entry(id, move |entry| {
            check_session(&entry, &session)?;
            Ok(Told::of(&entry))
        })
        .await
    }
}

impl Desk {
    /// Whether one more command may start. Room that only a stop makes is told apart from room that comes by itself.
    fn check_room(&self, session_id: &str, capacity: u32) -> Result<(), Error> {
        let (running, leftover): (Vec<_>, Vec<_>) =
            self.commands.values().partition(|command| command.runs());
        let own = running
            .iter()
            .filter(|command| command.session_id == session_id)
            .count();
        if self.closed || self.fenced {
            Err(Error::Elsewhere)
        } else if own >= SESSION_COMMANDS {
            Err(Error::TooManyCommands)
        } else if running.len() >= usize::try_from(capacity).unwrap_or(usize::MAX) {
            Err(Error::Full)
        } else if leftover.len() >= LEFTOVER_COMMANDS {
            // Only those that whoever asks may stop.
            let mut own: Vec<_> = leftover
                .iter()
                .filter(|command| command.session_id == session_id)
                .map(|command| command.id)
                .collect();
            own.sort_unstable();
            own.truncate(TOLD_LEFTOVERS);
            Err(Error::Leftovers(own))
        } else {
            Ok(())
        }
    }
}

impl Told {
    pub(crate) fn of(entry: &Entry) -> Self {
        Self {
            meta: entry.meta.clone(),
            end: entry.header.end,
            total: entry.header.total,
        }
    }
}

async fn run_blocking<T: Send + 'static>(
    room: &Arc<Semaphore>,
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let permit = Arc::clone(room).acquire_owned().await;
    tokio::task::spawn_blocking(move || {
        // Given back when the work is done, not when its caller has gone.
        let _permit = permit;
        work()
    })
    .await
    .map_err(|error| Error::System(std::io::Error::other(error)))?
}

fn check_session(entry: &Entry, session_id: &str) -> Result<(), Error> {
    if entry.meta.session_id == session_id {
        Ok(())
    } else {
        Err(Error::UnknownCommand)
    }
}

/// An id that is none names no command.
fn parse_command(command_id: &str) -> Result<ReceiptId, Error> {
    command_id.parse().map_err(|_| Error::UnknownCommand)
}
