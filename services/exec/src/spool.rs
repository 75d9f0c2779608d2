//! The spool: what is known of every command, on disk, for every worker that shares it.
//!
//! One directory a receipt. Making it appear is the *claim*: it happens once, whoever tries, and stands for ever after
//! (a tombstone is a claim that nothing will run). All facts of a command are in its `state` file, so that they are read
//! by any process at any time, also after the worker that wrote them was killed.
//!
//! Nothing here is synced to disk: after a crash of the machine the spool may have forgotten things. It knows since when
//! it has been whole, and what is older and absent is *unknown*, not absent.

mod effects;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod life;
mod listing;
mod locked;
mod output;
mod retention;
mod sessions;
mod state;

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use postern_types::{ReceiptId, Timestamp};

pub(crate) use effects::{EffectLog, EffectPhase, EffectRecord};
pub(crate) use output::{Page, PageError, Writer};
pub(crate) use sessions::Seat;
pub(crate) use state::{End, EndKind, Header, Meta, StateFile};

use life::Life;
use output::Layout;

/// Names that are no commands begin with this.
const OWN: &str = ".";
/// Bytes that must be free for a further command: its facts, and some output.
const ROOM: u64 = 1024 * 1024;

/// Session of a claim that was only made so that nothing is run under its receipt: no session's id is empty.
pub(crate) const TOMBSTONE: &str = "";

/// The spool as one worker has opened it.
#[derive(Debug)]
pub(crate) struct Spool {
    root: PathBuf,
    life: Life,
    drafts: AtomicU64,
    /// Whether what a claim needs could not be made the last time.
    failing: AtomicBool,
}

/// A claim that is not made yet. Thrown away when it is dropped without one.
#[derive(Debug)]
pub(crate) struct Draft {
    path: PathBuf,
    state: StateFile,
}

/// One claim as it stands.
#[derive(Debug)]
pub(crate) struct Entry {
    directory: PathBuf,
    state: StateFile,
    /// What was settled when it was claimed.
    pub(crate) meta: Meta,
    /// What changes.
    pub(crate) header: Header,
}

impl Spool {
    /// Opens or makes a spool, whose workers have leases or not.
    pub(crate) fn open(root: &Path, leased: bool, now: Timestamp) -> io::Result<Self> {
        make_directory(root)?;
        let life = Life::begin(root, leased, now)?;
        let spool = Self {
            root: root.to_owned(),
            life,
            drafts: AtomicU64::new(0),
            failing: AtomicBool::new(false),
        };
        Ok(spool)
    }

    /// Whether a further command could be claimed. It is tried where the last attempt failed, as under a quota; otherwise the free
    /// space tells, so that a worker with nothing to do writes nothing.
    pub(crate) fn look(&self, now: Timestamp) -> io::Result<()> {
        if self.failing.load(Ordering::Relaxed) {
            let draft = self.draft()?;
            self.noted(
                draft
                    .state
                    .write(&self.meta(TOMBSTONE, now), &Header::default()),
            )?;
        }
        let room = rustix::fs::statvfs(&self.root)?;
        // Some file systems do not count.
        let is_full = room.f_blocks > 0 && room.f_bavail.saturating_mul(room.f_frsize) < ROOM
            || room.f_files > 0 && room.f_favail == 0;
        if is_full {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }

    fn noted<T>(&self, made: io::Result<T>) -> io::Result<T> {
        self.failing.store(made.is_err(), Ordering::Relaxed);
        made
    }

    /// The facts of a new claim by this worker.
    pub(crate) fn meta(&self, session_id: &str, started_at: Timestamp) -> Meta {
        Meta {
            session_id: session_id.to_owned(),
            command: String::new(),
            command_cut: false,
            cwd: String::new(),
            started_at_ms: started_at.as_millis(),
            timeout_ms: 0,
            boot: self.life.boot().to_owned(),
            worker: self.life.worker().to_string(),
        }
    }

    /// Makes what a claim needs, ahead of it.
    pub(crate) fn draft(&self) -> io::Result<Draft> {
        self.noted(self.try_draft())
    }

    fn try_draft(&self) -> io::Result<Draft> {
        let number = self.drafts.fetch_add(1, Ordering::Relaxed);
        let worker = self.life.worker();
        let path = self.root.join(format!("{OWN}draft-{worker}-{number}"));
        make_directory(&path)?;
        match StateFile::create(&path) {
            Ok(state) => Ok(Draft { path, state }),
            Err(error) => {
                fs::remove_dir_all(&path)?;
                Err(error)
            }
        }
    }

    /// Claims a receipt; `None` when it was claimed before.
    pub(crate) fn claim(
        &self,
        draft: Draft,
        id: ReceiptId,
        meta: Meta,
        header: Header,
    ) -> io::Result<Option<Entry>> {
        self.noted(draft.state.write(&meta, &header))?;
        let directory = self.directory(id);
        // A directory that holds something is never replaced by a rename: of two claims one fails.
        match fs::rename(&draft.path, &directory) {
            Ok(()) => Ok(Some(Entry {
                directory,
                state: draft.state.clone(),
                meta,
                header,
            })),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists
                ) =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// What was claimed under a receipt. A command whose worker is dead is `lost` from now on.
    pub(crate) fn find(&self, id: ReceiptId, now: Timestamp) -> io::Result<Option<Entry>> {
        let directory = self.directory(id);
        let opened = StateFile::open(&directory);
        let state = match opened {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        let (meta, header) = state.read()?;
        let mut entry = Entry {
            directory,
            state,
            meta,
            header,
        };
        if entry.header.end.is_none() && !self.life.is_alive(&entry.meta.worker) {
            self.lose(&mut entry, now)?;
        }
        Ok(Some(entry))
    }

    /// Whether the absence of a claim proves that there never was one.
    pub(crate) fn remembers(&self, id: ReceiptId) -> bool {
        self.life.remembers(id)
    }

    /// Whether a claim was made since this machine last started.
    pub(crate) fn is_of_this_boot(&self, entry: &Entry) -> bool {
        entry.meta.boot == self.life.boot()
    }

    /// Whether another worker, alive, has the command.
    pub(crate) fn is_elsewhere(&self, entry: &Entry) -> bool {
        entry.header.end.is_none() && *entry.meta.worker != *self.life.worker()
    }

    /// Declares a command lost, unless it has ended.
    pub(crate) fn lose(&self, entry: &mut Entry, now: Timestamp) -> io::Result<()> {
        // The worker may have ended it while its death was being found out.
        entry.refresh()?;
        if entry.header.end.is_some() {
            return Ok(());
        }
        if !self.is_of_this_boot(entry) {
            output::forget_unwritten(&entry.directory, &entry.state, &mut entry.header)?;
        }
        match entry.state.settle_end(&End::lost(now)) {
            Ok(end) => entry.header.end = Some(end),
            // Somebody notes an end at this very moment; the next look tells which.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Id of the spool itself.
    pub(crate) fn id(&self) -> &str {
        self.life.spool()
    }

    /// Id of the machine's boot.
    pub(crate) fn boot(&self) -> &str {
        self.life.boot()
    }

    /// Id of this worker, under which commands are claimed.
    pub(crate) fn worker(&self) -> Arc<str> {
        self.life.worker()
    }

    /// Goes on under another id: the worker of the last one is dead for everybody else.
    pub(crate) fn begin_again(&self) -> io::Result<()> {
        self.life.begin_again()
    }

    /// Whether this worker was declared dead by another.
    pub(crate) fn is_over(&self) -> bool {
        self.life.is_over()
    }

    /// Other workers whose end somebody must be asked about.
    pub(crate) fn others(&self) -> io::Result<Vec<String>> {
        self.life.others()
    }

    /// Notes that another worker's lease has lapsed, or that nobody knows of one.
    pub(crate) fn mark_dead(&self, worker: &str, has_lapsed: bool) -> io::Result<()> {
        self.life.mark_dead(worker, has_lapsed)
    }

    fn root(&self) -> &Path {
        &self.root
    }

    fn directory(&self, id: ReceiptId) -> PathBuf {
        self.root.join(id.to_string())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // After a claim there is nothing at the path. What cannot be removed is removed when a spool is next opened.
        let _later = fs::remove_dir_all(&self.path);
    }
}

impl Entry {
    /// Reads what changes again.
    pub(crate) fn refresh(&mut self) -> io::Result<()> {
        self.header = self.state.read_header()?;
        Ok(())
    }

    /// Notes that the shell runs.
    pub(crate) fn mark_launched(&self) -> io::Result<()> {
        self.state.write_launched()
    }

    /// Notes the end. Tells the one that stands: the first that anybody noted.
    pub(crate) fn mark_end(&self, end: &End) -> io::Result<End> {
        self.state.settle_end(end)
    }

    /// Takes back a claim under which nothing was done.
    pub(crate) fn withdraw(self) -> io::Result<()> {
        fs::remove_dir_all(self.directory)
    }

    /// Whether nothing was run under this claim, and nothing will be.
    pub(crate) fn never_started(&self) -> bool {
        self.header
            .end
            .as_ref()
            .is_some_and(|end| end.kind == EndKind::NeverStarted)
    }

    /// Whether it was claimed only to keep anything from being run.
    pub(crate) fn is_tombstone(&self) -> bool {
        self.meta.session_id == TOMBSTONE
    }

    /// A page of output.
    pub(crate) fn page(&mut self, offset: u64) -> Result<Page, PageError> {
        let layout = Layout::CONTRACT;
        output::page(
            layout,
            &self.directory,
            &self.state,
            &mut self.header,
            offset,
        )
    }

    /// Writes output; there is one writer, the worker that made the claim.
    pub(crate) fn writer(&self) -> Writer {
        Writer::new(Layout::CONTRACT, self.directory.clone(), self.state.clone())
    }

    /// The record of inputs and stops.
    pub(crate) fn effects(&self) -> EffectLog {
        EffectLog::new(&self.directory)
    }
}

fn make_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

fn create_file(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
}

#[cfg(test)]
mod tests;
