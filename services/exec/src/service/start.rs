//! Starting a command, once for its receipt.

use std::{io, os::fd::OwnedFd, path::PathBuf, sync::Arc, time::Duration};

use postern_kit::Failure;
use postern_types::ReceiptId;

use super::{Service, Told, Worker};
use crate::{
    Error,
    carrier::Errand,
    command::{Command, Refusal, Stage},
    config::{COMMAND_BYTES, COMMAND_CHARS, SESSION_COMMANDS, TIMEOUT_MS},
    pool::Spare,
    spool::{Draft, End, Entry, Header, Seat},
    terminal::Terminal,
    wire::{Job, Order},
};

/// Time for the shell to be started by a wrapper that waits.
pub(super) const START_LIMIT: Duration = Duration::from_secs(8);
/// Wrappers tried, should those that wait have been killed.
const WRAPPERS_TRIED: usize = 3;
/// Time after a start in which the machine is left to the command.
const REFILL_AFTER: Duration = Duration::from_millis(3);
/// How often a claim of another worker is looked at until it says whether the shell was started.
pub(super) const CLAIM_LOOKS: usize = 40;
/// Time between two looks.
pub(super) const CLAIM_LOOK: Duration = Duration::from_millis(50);

/// A command to start.
#[derive(Clone, Debug)]
pub(crate) struct Start {
    pub(crate) receipt: ReceiptId,
    pub(crate) session_id: String,
    pub(crate) command: String,
    pub(crate) cwd: String,
    /// Where the directory must be, if that matters: relative to the root, links followed.
    pub(crate) place: Option<String>,
    pub(crate) timeout_ms: u32,
}

/// What became of the order to start.
#[derive(Debug)]
enum Launch {
    /// A wrapper has it, and its thread the command.
    HandedOver(Started),
    /// The receipt was claimed before; nothing was ordered.
    ClaimedBefore,
}

/// A receipt that was claimed for a start: its part of the spool, its seat, its directory, and that as a path.
type Claim = (Entry, Option<Seat>, OwnedFd, PathBuf);

/// A started command.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Started {
    pub(crate) started_at_ms: i64,
    pub(crate) cwd: String,
    pub(crate) timeout_ms: u32,
}

impl Service {
    /// Starts a command, or tells of the one that was started under the same receipt.
    pub(crate) async fn start(&self, start: Start) -> Result<Started, Error> {
        start.check()?;
        postern_kit::fault_point!(crate::fault_points::START_BEFORE);
        let (command, fresh) = self.reserve(&start)?;
        if !fresh {
            return self.worker.attach(&command).await;
        }
        // A task of its own: a caller that goes away does not leave a claim half made.
        let worker = Arc::clone(&self.worker);
        let task = self.worker.tasks.spawn("start a command", async move {
            let launched = worker.launch(&command, start).await;
            // Once it is handed over, whoever carries it takes it off the desk, however late its shell starts.
            if !matches!(launched, Ok(Launch::HandedOver(_))) {
                worker.desk().commands.remove(&command.id);
                command.set_stage(Stage::Refused(Refusal::Told));
            }
            match launched? {
                Launch::HandedOver(started) => worker.first_word(&command, started).await,
                Launch::ClaimedBefore => worker.recorded(command.id).await,
            }
        });
        let started = task
            .await
            .map_err(|error| Error::System(io::Error::other(error)))?;
        postern_kit::fault_point!(crate::fault_points::START_AFTER);
        self.keep_ready();
        self.tidy_sometimes();
        started
    }

    /// Makes a wrapper ready for the next command, once this one has had its turn: a short one is over by then. At once when
    /// none is left: commands come faster than that then.
    fn keep_ready(&self) {
        let pool = Arc::clone(&self.worker.pool);
        if pool.is_drained() {
            pool.refill();
            return;
        }
        self.worker.tasks.spawn("keep a wrapper ready", async move {
            tokio::time::sleep(REFILL_AFTER).await;
            pool.refill();
        });
    }

    /// The command of this receipt, and whether it is new.
    fn reserve(&self, start: &Start) -> Result<(Arc<Command>, bool), Error> {
        let mut desk = self.worker.desk();
        if let Some(command) = desk.commands.get(&start.receipt) {
            return Ok((Arc::clone(command), false));
        }
        if !self.worker.lease.runs() {
            return Err(Error::Elsewhere);
        }
        desk.check_room(&start.session_id, self.worker.capacity)?;
        let command = Arc::new(Command::new(start.receipt, start.session_id.clone()));
        desk.commands.insert(start.receipt, Arc::clone(&command));
        Ok((command, true))
    }
}

impl Start {
    fn check(&self) -> Result<(), Error> {
        let empty = self.command.is_empty();
        if empty || self.command.chars().count() > COMMAND_CHARS {
            return Err(Error::Invalid {
                pointer: "/command",
                rule: if empty { "minLength" } else { "maxLength" },
                message: format!("A command is 1 to {COMMAND_CHARS} characters."),
            });
        }
        if self.command.contains('\0') {
            return Err(Error::Invalid {
                pointer: "/command",
                rule: "pattern",
                message: "A command cannot hold the character U+0000.".to_owned(),
            });
        }
        if self.command.len() > COMMAND_BYTES {
            return Err(Error::TooLong);
        }
        if !TIMEOUT_MS.contains(&self.timeout_ms) {
            return Err(Error::Invalid {
                pointer: "/timeoutMs",
                rule: if self.timeout_ms < *TIMEOUT_MS.start() {
                    "minimum"
                } else {
                    "maximum"
                },
                message: "A time limit is 1000 to 600000 milliseconds.".to_owned(),
            });
        }
        Ok(())
    }
}

impl Worker {
    /// Waits for a start that is under way, or tells of one that was.
    pub(super) async fn attach(&self, command: &Command) -> Result<Started, Error> {
        match command.started(START_LIMIT).await {
            Stage::Starting | Stage::Refused(Refusal::Unknown) => Err(Error::Uncertain),
            Stage::Refused(Refusal::System(errno)) => Err(refused(errno)),
            // Claimed before, or refused without a claim; then the receipt is free.
            Stage::Refused(Refusal::Told) => match self.recorded(command.id).await {
                Err(Error::NotApplied) => Err(Error::Elsewhere),
                other => other,
            },
            Stage::Running | Stage::Ended | Stage::Gone => self.recorded(command.id).await,
        }
    }

    /// What the spool says of a start.
    async fn recorded(&self, id: ReceiptId) -> Result<Started, Error> {
        for _ in 0..CLAIM_LOOKS {
            let found = self
                .with_entry(id, |entry| Ok((Told::of(&entry), entry.header.launched)))
                .await;
            match found {
                Ok((told, true)) => return Ok(Started::of(&told)),
                Ok((told, false)) if told.end.is_some() => return Err(Error::Uncertain),
                // Claimed by a worker that lives: it is about to start it.
                Ok((_, false)) => tokio::time::sleep(CLAIM_LOOK).await,
                Err(Error::UnknownCommand) => return Err(Error::NotApplied),
                Err(error) => return Err(error),
            }
        }
        Err(Error::Uncertain)
    }

    /// Claims and orders the start.
    async fn launch(
        self: &Arc<Self>,
        command: &Arc<Command>,
        start: Start,
    ) -> Result<Launch, Error> {
        let mut spare = self.pool.take().await.map_err(Error::no_wrapper)?;
        let draft = spare.take_draft()?;
        postern_kit::fault_point!(crate::fault_points::CLAIM_BEFORE);
        let Some((entry, seat, directory, path)) = self.claim(&start, draft).await? else {
            return Ok(Launch::ClaimedBefore);
        };
        command.sit(seat);
        postern_kit::fault_point!(crate::fault_points::CLAIM_AFTER);
        let started = Started::of(&Told::of(&entry));
        let job = Order::Run(Job {
            timeout_ms: start.timeout_ms,
            directory: path,
            command: start.command,
        });
        let spare = match self.order(spare, &job, &directory).await {
            Ok(spare) => spare,
            Err(error) => {
                // Nothing has happened, and the receipt stays free.
                self.blocking(move || Ok(entry.withdraw()?)).await?;
                return Err(Error::no_wrapper(error));
            }
        };
        postern_kit::fault_point!(crate::fault_points::ORDER_AFTER);
        self.hand_over(command, spare, entry, start.timeout_ms)
            .await?;
        postern_kit::fault_point!(crate::fault_points::HANDED_OVER);
        postern_kit::metrics::EXEC_STARTED.add([], 1);
        Ok(Launch::HandedOver(started))
    }

    /// Waits for the shell of a command that was handed over.
    async fn first_word(&self, command: &Command, started: Started) -> Result<Started, Error> {
        match command.started(START_LIMIT).await {
            Stage::Running | Stage::Ended | Stage::Gone => Ok(started),
            Stage::Refused(Refusal::System(errno)) => Err(refused(errno)),
            Stage::Starting | Stage::Refused(_) => Err(Error::Uncertain),
        }
    }

    /// Opens the directory and claims the receipt; `None` when it was claimed before.
    async fn claim(self: &Arc<Self>, start: &Start, draft: Draft) -> Result<Option<Claim>, Error> {
        let worker = Arc::clone(self);
        let start = start.clone();
        self.blocking(move || {
            let (directory, cwd, path) = worker.open_directory(&start.cwd)?;
            // What was permitted in one place is not run in another.
            if start.place.as_ref().is_some_and(|place| *place != cwd) {
                return Err(Error::Moved);
            }
            let seat = match worker.take_seat(&start)? {
                Some(seat) => seat,
                None => return Ok(None),
            };
            let mut meta = worker.spool.meta(&start.session_id, worker.clock.now());
            meta.cwd = cwd;
            meta.tell(&start.command);
            meta.timeout_ms = start.timeout_ms;
            let claimed = worker
                .spool
                .claim(draft, start.receipt, meta, Header::default());
            let entry = match claimed {
                Ok(entry) => entry,
                // An earlier claim of this receipt may have run.
                Err(error) => match worker.spool.find(start.receipt, worker.clock.now()) {
                    Ok(None) => return Err(Error::Unwritten(error)),
                    Ok(Some(_)) => None,
                    Err(_) => return Err(error.into()),
                },
            };
            Ok(entry.map(|entry| (entry, seat, directory, path)))
        })
        .await
    }

    /// A seat among the commands of the session, where other workers run some as well. `None` when the receipt was claimed before.
    fn take_seat(&self, start: &Start) -> Result<Option<Option<Seat>>, Error> {
        if !self.leased {
            return Ok(Some(None));
        }
        let now = self.clock.now();
        if self.spool.find(start.receipt, now)?.is_some() {
            return Ok(None);
        }
        let seat = self
            .spool
            .seat(&start.session_id, start.receipt, SESSION_COMMANDS, now);
        match seat {
            Ok(Some(seat)) => Ok(Some(Some(seat))),
            Ok(None) => Err(Error::TooManyCommands),
            // Somebody who counts them was stopped in that very moment.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(Error::Elsewhere),
            Err(error) => Err(Error::Unwritten(error)),
        }
    }

    /// Opens a directory of the project's; the root when none is named. Tells it relative to the root, too, and its path.
    pub(super) fn open_directory(&self, asked: &str) -> Result<(OwnedFd, String, PathBuf), Error> {
        let asked = if asked.is_empty() { "." } else { asked };
        let (directory, cwd) = self.root.open_dir(asked).map_err(bad_cwd)?;
        let real = &self.root.identity().real_path;
        let path = if cwd == "." {
            real.clone()
        } else {
            real.join(&cwd)
        };
        Ok((directory, cwd, path))
    }

    /// Gives the order to a wrapper that is there.
    async fn order(&self, first: Spare, job: &Order, directory: &OwnedFd) -> io::Result<Spare> {
        let mut spare = first;
        for _ in 1..WRAPPERS_TRIED {
            if spare.order(job, directory).is_ok() {
                return Ok(spare);
            }
            spare = self.pool.take().await?;
        }
        spare.order(job, directory)?;
        Ok(spare)
    }

    async fn hand_over(
        self: &Arc<Self>,
        command: &Arc<Command>,
        spare: Spare,
        entry: Entry,
        timeout_ms: u32,
    ) -> Result<(), Error> {
        let writer = entry.writer();
        command.know(Told::of(&entry));
        command.connect(spare.link().clone());
        let terminal = Terminal::new(Arc::clone(&spare.link().terminal));
        command.typing.lock().await.terminal = Some(terminal);
        let (worker, id) = (Arc::clone(self), command.id);
        let errand = Errand {
            command: Arc::clone(command),
            entry,
            writer,
            timeout: Duration::from_millis(timeout_ms.into()),
            clock: self.clock.clone(),
            retire: Box::new(move || {
                worker.desk().commands.remove(&id);
            }),
        };
        match spare.hand_over(errand) {
            Ok(()) => Ok(()),
            Err(errand) => {
                // The wrapper died with the order in its hands.
                errand.entry.mark_end(&End::lost(self.clock.now()))?;
                Err(Error::Uncertain)
            }
        }
    }
}

impl Started {
    pub(super) fn of(told: &Told) -> Self {
        Self {
            started_at_ms: told.meta.started_at_ms,
            cwd: told.meta.cwd.clone(),
            timeout_ms: told.meta.timeout_ms,
        }
    }
}

/// A directory that cannot be used, told of the argument that named it.
fn bad_cwd(mut failure: Failure) -> Error {
    if let Some(pointer) = failure.details.get_mut("pointer") {
        *pointer = "/cwd".into();
    }
    Error::Directory(failure)
}

/// The shell was not started, by this error of the system's.
fn refused(errno: i32) -> Error {
    let error = io::Error::from_raw_os_error(errno);
    if error.kind() == io::ErrorKind::ArgumentListTooLong {
        Error::TooLong
    } else {
        Error::Shell(error)
    }
}
