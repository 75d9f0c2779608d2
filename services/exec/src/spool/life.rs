//! Which boot of the machine and which workers a spool has seen.
//!
//! A worker is alive as long as it holds the lock on its file: the kernel lets go of the lock when the process ends, however
//! it ends. A worker with a lease is dead as soon as that has lapsed, too, though it may hold its lock: then it is marked, by
//! whoever heard of it first, and the mark is what it finds itself when it comes back. On another machine a lock that is not seen
//! proves nothing where there are leases. A boot's file holds the time since which the spool has been whole.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
};

use postern_types::{ReceiptId, Timestamp};
use rustix::fs::{FlockOperation, flock};
use uuid::Uuid;

use super::{OWN, create_file, make_directory};

const WORKERS: &str = ".workers";
const BOOTS: &str = ".boots";
const LAPSED: &str = ".lapsed";
/// Holds the spool's id.
const ID: &str = ".id";
/// Other workers that are looked after at a time.
const OTHERS: usize = 256;
/// Bytes of a worker's file: the id of its boot.
const BOOT_BYTES: usize = 64;
/// Entries looked at when what dead workers left is removed.
const SWEPT: usize = 100_000;

/// This worker's life in the spool.
#[derive(Debug)]
pub(super) struct Life {
    workers: PathBuf,
    lapsed: PathBuf,
    boot: String,
    spool: String,
    /// Whether workers here have leases.
    leased: bool,
    current: RwLock<Incarnation>,
    /// File of the time since when the spool has been whole.
    since: PathBuf,
}

/// A worker between its start, or the end of its last lease, and the end of its lease.
#[derive(Debug)]
struct Incarnation {
    worker: Arc<str>,
    /// Locked while it lives.
    _lock: File,
}

/// What the lock of a worker tells.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Seen {
    Held,
    Free {
        here: bool,
    },
    Missing,
    /// It cannot be found out.
    Hidden,
}

impl Life {
    pub(super) fn begin(root: &Path, leased: bool, now: Timestamp) -> io::Result<Self> {
        let (workers, lapsed) = (root.join(WORKERS), root.join(LAPSED));
        make_directory(&workers)?;
        make_directory(&lapsed)?;
        let boot = postern_kit::boot_id()?;
        let spool = spool_id(root)?;
        let since = whole_since(root, &boot, now)?;
        let current = RwLock::new(Incarnation::begin(&workers, &boot)?);
        let life = Self {
            workers,
            lapsed,
            boot,
            spool,
            leased,
            current,
            since,
        };
        life.sweep(root)?;
        Ok(life)
    }

    pub(super) fn boot(&self) -> &str {
        &self.boot
    }

    pub(super) fn spool(&self) -> &str {
        &self.spool
    }

    pub(super) fn worker(&self) -> Arc<str> {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&current.worker)
    }

    /// Begins a life of this process's under another name: its last one is over for everybody else.
    pub(super) fn begin_again(&self) -> io::Result<()> {
        let next = Incarnation::begin(&self.workers, &self.boot)?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = next;
        Ok(())
    }

    /// Whether this worker was declared dead.
    pub(super) fn is_over(&self) -> bool {
        let worker = self.worker();
        self.is_marked(&worker) || self.seen(&worker) == Seen::Missing
    }

    /// Whether a worker lives. What cannot be found out counts as alive: a command is not declared lost by guess.
    pub(super) fn is_alive(&self, worker: &str) -> bool {
        // The name comes from a file; only a UUID is one.
        if *worker == *self.worker() || Uuid::try_parse(worker).is_err() {
            return *worker == *self.worker();
        }
        if self.is_marked(worker) {
            return false;
        }
        match self.seen(worker) {
            Seen::Held | Seen::Hidden => true,
            Seen::Free { here } => self.leased && !here,
            Seen::Missing => false,
        }
    }

    /// Other workers whose end somebody must be asked about.
    pub(super) fn others(&self) -> io::Result<Vec<String>> {
        let own = self.worker();
        let mut others = Vec::new();
        for entry in fs::read_dir(&self.workers)?.take(SWEPT) {
            let name = entry?.file_name();
            let name = name.to_str().filter(|name| **name != *own);
            if let Some(name) = name.filter(|name| Uuid::try_parse(name).is_ok())
                && self.is_alive(name)
            {
                others.push(name.to_owned());
            }
            if others.len() == OTHERS {
                break;
            }
        }
        Ok(others)
    }

    /// Notes that a worker's lease has lapsed, or that nobody knows of one: then it is dead unless its lock is seen.
    pub(super) fn mark_dead(&self, worker: &str, has_lapsed: bool) -> io::Result<()> {
        if has_lapsed || !matches!(self.seen(worker), Seen::Held | Seen::Hidden) {
            create_file(&self.lapsed.join(worker))?;
        }
        Ok(())
    }

    fn is_marked(&self, worker: &str) -> bool {
        self.lapsed.join(worker).exists()
    }

    fn seen(&self, worker: &str) -> Seen {
        let file = match File::open(self.workers.join(worker)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Seen::Missing,
            Err(_) => return Seen::Hidden,
        };
        if flock(&file, FlockOperation::NonBlockingLockShared).is_err() {
            return Seen::Held;
        }
        let mut boot = [0; BOOT_BYTES];
        match file.read_at(&mut boot, 0) {
            // Earlier versions wrote nothing, and had no leases.
            Ok(length) => Seen::Free {
                here: length == 0 || boot[..length] == *self.boot.as_bytes(),
            },
            Err(_) => Seen::Hidden,
        }
    }

    /// Whether a receipt is younger than the spool's memory. Only ids that hold their time can be.
    pub(super) fn remembers(&self, id: ReceiptId) -> bool {
        made_at_ms(id).is_some_and(|made| {
            // Another worker may have thrown claims away, so the file is read every time.
            is_whole_at(&self.since, made)
        })
    }

    /// Notes, before claims are thrown away, that nothing as old as the newest of them is remembered: for every machine, since
    /// the spool is the same for all.
    pub(super) fn forget(&self, newest: ReceiptId) -> io::Result<()> {
        let (Some(made), Some(boots)) = (made_at_ms(newest), self.since.parent()) else {
            return Ok(());
        };
        for boot in fs::read_dir(boots)?.take(SWEPT) {
            let boot = boot?.path();
            let is_draft = boot
                .file_name()
                .is_some_and(|name| name.as_encoded_bytes().starts_with(OWN.as_bytes()));
            if !is_draft && is_whole_at(&boot, made) {
                let draft = boots.join(format!("{OWN}{}", Uuid::now_v7()));
                create_file(&draft)?.write_all_at((made + 1).to_string().as_bytes(), 0)?;
                fs::rename(&draft, &boot)?;
            }
        }
        Ok(())
    }

    /// Removes the locks and drafts of workers that are dead.
    fn sweep(&self, root: &Path) -> io::Result<()> {
        for entry in fs::read_dir(&self.workers)?.take(SWEPT) {
            let entry = entry?;
            if let Some(name) = entry.file_name().to_str()
                && !name.starts_with(OWN)
                && !self.is_alive(name)
            {
                // Another worker that starts may have removed it.
                let _gone = fs::remove_file(entry.path());
            }
        }
        for entry in fs::read_dir(&self.lapsed)?.take(SWEPT) {
            let entry = entry?;
            // Without its file a worker is dead anyway.
            if !self.workers.join(entry.file_name()).exists() {
                let _gone = fs::remove_file(entry.path());
            }
        }
        for entry in fs::read_dir(root)?.take(SWEPT) {
            let entry = entry?;
            let name = entry.file_name();
            let owner = name
                .to_str()
                .and_then(|name| name.strip_prefix(".draft-"))
                .and_then(|rest| rest.get(..36));
            if owner.is_some_and(|owner| !self.is_alive(owner)) {
                let _gone = fs::remove_dir_all(entry.path());
            }
        }
        Ok(())
    }
}

impl Incarnation {
    fn begin(workers: &Path, boot: &str) -> io::Result<Self> {
        let worker = Uuid::now_v7().to_string();
        // Locked before it has its name, so that it is never seen unlocked.
        let draft = workers.join(format!("{OWN}{worker}"));
        let lock = create_file(&draft)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        lock.write_all_at(boot.as_bytes(), 0)?;
        fs::rename(&draft, workers.join(&worker))?;
        Ok(Self {
            worker: worker.into(),
            _lock: lock,
        })
    }
}

/// The spool's id, which whoever opens it first gives it.
fn spool_id(root: &Path) -> io::Result<String> {
    let path = root.join(ID);
    if !path.exists() {
        write_once(&path, &Uuid::now_v7().to_string())?;
    }
    let id = fs::read_to_string(&path)?;
    let id = Uuid::try_parse(id.trim()).map_err(io::Error::other)?;
    Ok(id.to_string())
}

/// Writes a file as a whole, unless it is there. Of two that write at once the first one's stands.
fn write_once(path: &Path, text: &str) -> io::Result<()> {
    let draft = path.with_file_name(format!("{OWN}{}", Uuid::now_v7()));
    create_file(&draft)?.write_all_at(text.as_bytes(), 0)?;
    let linked = fs::hard_link(&draft, path);
    fs::remove_file(&draft)?;
    match linked {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Whether a spool has been whole since a time, in milliseconds, by a boot's file.
fn is_whole_at(since: &Path, made: i64) -> bool {
    fs::read_to_string(since)
        .is_ok_and(|text| text.trim().parse::<i64>().is_ok_and(|since| made >= since))
}

/// When this spool was first opened since the machine started. Everything claimed after that is there, for it was never
/// away from the kernel's memory.
fn whole_since(root: &Path, boot: &str, now: Timestamp) -> io::Result<PathBuf> {
    let boots = root.join(BOOTS);
    make_directory(&boots)?;
    let path = boots.join(boot);
    if !path.exists() {
        // Of two that open at once the first one's time is the earlier one, and neither has claimed yet.
        write_once(&path, &now.as_millis().to_string())?;
    }
    Ok(path)
}

/// When a receipt was made, by its own id. Only a UUID of version 7 tells to the millisecond.
fn made_at_ms(id: ReceiptId) -> Option<i64> {
    let uuid = id.as_uuid();
    let (seconds, nanos) = uuid.get_timestamp()?.to_unix();
    let millis = u128::from(seconds) * 1000 + u128::from(nanos) / 1_000_000;
    i64::try_from(millis)
        .ok()
        .filter(|_| uuid.get_version_num() == 7)
}
