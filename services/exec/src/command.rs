//! A command of this worker, from its claim until nothing is left of it.

use std::{
    os::fd::OwnedFd,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use postern_types::ReceiptId;
use tokio::sync::watch;

use crate::{
    service::Told,
    spool::{EffectRecord, End, EndKind, Seat},
    terminal::Terminal,
    wire::{Order, Socket},
    wrappers::Handle,
};

/// Where a command stands in this worker.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Stage {
    /// It is being claimed or its shell is being started.
    Starting,
    /// It was not started.
    Refused(Refusal),
    /// Its shell runs, or its output is not drained.
    Running,
    /// It has ended and left processes behind.
    Ended,
    /// Nothing is left of it.
    Gone,
}

/// Why a command was not started.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Refusal {
    /// Whoever asked first was told why.
    Told,
    /// The system could not start the shell: its error number.
    System(i32),
    /// The wrapper died meanwhile.
    Unknown,
}

/// One command.
#[derive(Debug)]
pub(crate) struct Command {
    /// Its receipt, which is its id.
    pub(crate) id: ReceiptId,
    /// Session that owns it.
    pub(crate) session_id: String,
    changes: watch::Sender<Stage>,
    /// What the spool says of it, as long as that is all of it: from the order to run until something goes wrong.
    known: Mutex<Option<Told>>,
    link: OnceLock<Link>,
    /// What the end counts as when the wrapper had to be killed.
    forced: Mutex<Option<EndKind>>,
    /// Held while it runs, where its session is counted over several workers.
    seat: Mutex<Option<Seat>>,
    /// The terminal and what was typed, one typist at a time.
    pub(crate) typing: Arc<tokio::sync::Mutex<Typing>>,
}

/// What one typist at a time works with.
#[derive(Debug, Default)]
pub(crate) struct Typing {
    /// There once the shell was ordered.
    pub(crate) terminal: Option<Terminal>,
    /// What became of every input and stop.
    pub(crate) record: EffectRecord,
}

/// The way to a command's wrapper.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    pub(crate) control: Arc<Socket>,
    pub(crate) handle: Arc<Handle>,
    pub(crate) terminal: Arc<OwnedFd>,
}

impl Command {
    pub(crate) fn new(id: ReceiptId, session_id: String) -> Self {
        Self {
            id,
            session_id,
            changes: watch::Sender::new(Stage::Starting),
            known: Mutex::new(None),
            link: OnceLock::new(),
            forced: Mutex::new(None),
            seat: Mutex::new(None),
            typing: Arc::default(),
        }
    }

    /// Follows the stage; every piece of output counts as a change too.
    pub(crate) fn follow(&self) -> watch::Receiver<Stage> {
        self.changes.subscribe()
    }

    pub(crate) fn stage(&self) -> Stage {
        *self.changes.borrow()
    }

    pub(crate) fn set_stage(&self, stage: Stage) {
        if matches!(stage, Stage::Refused(_)) {
            *self.known() = None;
        }
        if !matches!(stage, Stage::Starting | Stage::Running) {
            self.sit(None);
        }
        self.changes.send_replace(stage);
    }

    /// As [`Self::set_stage`], with the end that the spool says; `None` when it could not be written.
    pub(crate) fn settle(&self, stage: Stage, end: Option<End>) {
        {
            let mut known = self.known();
            match (&mut *known, end) {
                (Some(told), Some(_)) => told.end = end,
                _ => *known = None,
            }
        }
        self.set_stage(stage);
    }

    /// Takes a seat among the commands of its session, or gives it back.
    pub(crate) fn sit(&self, seat: Option<Seat>) {
        let mut own = self.seat.lock().unwrap_or_else(PoisonError::into_inner);
        let left = std::mem::replace(&mut *own, seat);
        drop((own, left));
    }

    /// Remembers what was claimed, so that whoever waits for news need not look at the disk.
    pub(crate) fn know(&self, told: Told) {
        *self.known() = Some(told);
    }

    /// Tells that there is more output, `total` bytes in all; and whether all of it is kept.
    pub(crate) fn tell_output(&self, total: u64, is_whole: bool) {
        {
            let mut known = self.known();
            match &mut *known {
                Some(told) if is_whole => told.total = total,
                _ => *known = None,
            }
        }
        self.changes.send_modify(|_| {});
    }

    /// Where the command stands, when there is nothing to read past `offset`. `None` when the spool has to say.
    pub(crate) fn quiet(&self, session_id: &str, offset: u64) -> Option<Told> {
        let known = self.known();
        let told = known.as_ref()?;
        (self.session_id == session_id && told.total == offset).then(|| told.clone())
    }

    fn known(&self) -> MutexGuard<'_, Option<Told>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it counts as running.
    pub(crate) fn runs(&self) -> bool {
        matches!(self.stage(), Stage::Starting | Stage::Running)
    }

    /// Connects the command with its wrapper; once.
    pub(crate) fn connect(&self, link: Link) {
        // Only the start of the command connects it.
        let _once = self.link.set(link);
        self.changes.send_modify(|_| {});
    }

    /// Whether its order was given to a wrapper.
    pub(crate) fn is_connected(&self) -> bool {
        self.link.get().is_some()
    }

    /// Waits until its wrapper can be told to end it, or it was not started, at most `limit`.
    pub(crate) async fn reachable(&self, limit: Duration) -> Stage {
        self.wait(limit, |stage| {
            stage != Stage::Starting || self.is_connected()
        })
        .await
    }

    /// Waits until the shell runs or does not, at most `limit`.
    pub(crate) async fn started(&self, limit: Duration) -> Stage {
        self.wait(limit, |stage| stage != Stage::Starting).await
    }

    /// Waits until nothing is left, at most `limit`.
    pub(crate) async fn gone(&self, limit: Duration) -> Stage {
        self.wait(limit, |stage| {
            matches!(stage, Stage::Gone | Stage::Refused(_))
        })
        .await
    }

    /// Waits until it has ended, at most `limit`.
    pub(crate) async fn ended(&self, limit: Duration) -> Stage {
        self.wait(limit, |stage| {
            !matches!(stage, Stage::Starting | Stage::Running)
        })
        .await
    }

    async fn wait(&self, limit: Duration, reached: impl Fn(Stage) -> bool) -> Stage {
        let mut stages = self.follow();
        let waited = tokio::time::timeout(limit, stages.wait_for(|stage| reached(*stage))).await;
        match waited {
            Ok(Ok(stage)) => *stage,
            Ok(Err(_)) | Err(_) => self.stage(),
        }
    }

    /// Orders the end of everything that the command started.
    pub(crate) fn end(&self) {
        if let Some(link) = self.link.get() {
            // A wrapper that is gone has ended everything.
            let _gone = link.control.order(&Order::End, &[]);
            link.handle.wake();
        }
    }

    /// Kills a wrapper that does not end its command.
    pub(crate) fn force(&self, kind: EndKind) {
        self.forced().get_or_insert(kind);
        if let Some(link) = self.link.get() {
            link.handle.kill();
        }
    }

    /// What the end counts as when the wrapper was killed.
    pub(crate) fn forced_kind(&self) -> EndKind {
        self.forced().unwrap_or(EndKind::Lost)
    }

    fn forced(&self) -> MutexGuard<'_, Option<EndKind>> {
        self.forced.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
