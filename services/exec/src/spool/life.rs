//! Which boot of the machine and which workers a spool has seen.
//!
//! A worker is alive exactly as long as it holds the lock on its file: the kernel lets go of the lock when the process ends,
//! however it ends. A boot's file holds the time since which the spool has been whole.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
};

use postern_types::{ReceiptId, Timestamp};
use rustix::fs::{FlockOperation, flock};
use uuid::Uuid;

use super::{OWN, create_file, make_directory};

const WORKERS: &str = ".workers";
const BOOTS: &str = ".boots";
/// Entries looked at when what dead workers left is removed.
const SWEPT: usize = 100_000;

/// This worker's life in the spool.
#[derive(Debug)]
pub(super) struct Life {
    workers: PathBuf,
    boot: String,
    worker: String,
    /// File of the time since when the spool has been whole.
    since: PathBuf,
    /// Locked while the worker lives.
    _lock: File,
}

impl Life {
    pub(super) fn begin(root: &Path, now: Timestamp) -> io::Result<Self> {
        let workers = root.join(WORKERS);
        make_directory(&workers)?;
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?
            .trim()
            .to_owned();
        let since = whole_since(root, &boot, now)?;
        let worker = Uuid::now_v7().to_string();
        // Locked before it has its name, so that it is never seen unlocked.
        let draft = workers.join(format!("{OWN}{worker}"));
        let lock = create_file(&draft)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        fs::rename(&draft, workers.join(&worker))?;
        let life = Self {
            workers,
            boot,
            worker,
            since,
            _lock: lock,
        };
        life.sweep(root)?;
        Ok(life)
    }

    pub(super) fn boot(&self) -> &str {
        &self.boot
    }

    pub(super) fn worker(&self) -> &str {
        &self.worker
    }

    /// Whether a worker holds its lock. What cannot be found out counts as alive: a command is not declared lost by guess.
    pub(super) fn is_alive(&self, worker: &str) -> bool {
        if worker == self.worker {
            return true;
        }
        // The name comes from a file; only a UUID is one.
        if Uuid::try_parse(worker).is_err() {
            return false;
        }
        match File::open(self.workers.join(worker)) {
            Ok(file) => flock(&file, FlockOperation::NonBlockingLockShared).is_err(),
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        }
    }

    /// Whether a receipt is younger than the spool's memory. Only ids that hold their time can be.
    pub(super) fn remembers(&self, id: ReceiptId) -> bool {
        made_at_ms(id).is_some_and(|made| {
            // Another worker may have thrown claims away, so the file is read every time.
            fs::read_to_string(&self.since)
                .is_ok_and(|text| text.trim().parse::<i64>().is_ok_and(|since| made >= since))
        })
    }

    /// Notes, before claims are thrown away, that nothing as old as the newest of them is remembered.
    pub(super) fn forget(&self, newest: ReceiptId) -> io::Result<()> {
        if let Some(made) = made_at_ms(newest)
            && self.remembers(newest)
        {
            let draft = self
                .since
                .with_file_name(format!("{OWN}{}", Uuid::now_v7()));
            create_file(&draft)?.write_all_at((made + 1).to_string().as_bytes(), 0)?;
            fs::rename(&draft, &self.since)?;
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

/// When this spool was first opened since the machine started. Everything claimed after that is there, for it was never
/// away from the kernel's memory.
fn whole_since(root: &Path, boot: &str, now: Timestamp) -> io::Result<PathBuf> {
    let boots = root.join(BOOTS);
    make_directory(&boots)?;
    let path = boots.join(boot);
    if !path.exists() {
        let draft = boots.join(format!("{OWN}{}", Uuid::now_v7()));
        create_file(&draft)?.write_all_at(now.as_millis().to_string().as_bytes(), 0)?;
        // Of two that open at once the first one's time stands: it is the earlier one, and neither has claimed yet.
        let linked = fs::hard_link(&draft, &path);
        fs::remove_file(&draft)?;
        match linked {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
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
