//! How many commands of a session run, over all workers of the spool (CONTRACT.md, section 3).
//!
//! A running command holds a *seat*: an empty file named by its receipt, in a folder of its session's. Seats are counted and taken
//! under the folder's lock, so that of two workers one comes first. One that a dead worker left is given back by whoever finds no
//! room.

use std::{
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use postern_types::{ReceiptId, Sha256, Timestamp};

use super::{Spool, create_file, locked::Locked, make_directory};

const SESSIONS: &str = ".sessions";
const LOCK: &str = ".lock";
/// Seats of a session that are looked at: each running command has one, and dead workers may have left as many again.
const LOOKED_AT: usize = 4096;
/// Age of a seat without a claim after which nobody is about to make the claim any more.
const CLAIMED_WITHIN: Duration = Duration::from_secs(30);

/// Age of what happened last in a session's folder after which an empty one is thrown away.
pub(super) const IDLE: Duration = Duration::from_secs(24 * 3600);
/// Folders of sessions that are looked at.
const FOLDERS: usize = 100_000;

/// A running command's place among those of its session. Given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Seat(PathBuf);

impl Spool {
    /// Takes a seat for a command, if fewer than `limit` of its session's are taken.
    pub(crate) fn seat(
        &self,
        session_id: &str,
        id: ReceiptId,
        limit: usize,
        now: Timestamp,
    ) -> io::Result<Option<Seat>> {
        match self.seat_once(session_id, id, limit, now) {
            // The folder was thrown away in this very moment.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.seat_once(session_id, id, limit, now)
            }
            taken => taken,
        }
    }

    /// Throws away the folders of sessions in which nothing has happened for a time.
    pub(super) fn prune_sessions(&self, idle: Duration) -> io::Result<()> {
        let folders = match fs::read_dir(self.root().join(SESSIONS)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            folders => folders?,
        };
        for folder in folders.take(FOLDERS) {
            let folder = folder?;
            let changed = folder.metadata()?.modified()?;
            if changed.elapsed().is_ok_and(|age| age >= idle) {
                throw_away(&folder.path())?;
            }
        }
        Ok(())
    }

    fn seat_once(
        &self,
        session_id: &str,
        id: ReceiptId,
        limit: usize,
        now: Timestamp,
    ) -> io::Result<Option<Seat>> {
        // A session's id may hold what a file's name may not.
        let folder = self
            .root()
            .join(SESSIONS)
            .join(Sha256::of(session_id.as_bytes()).to_string());
        make_directory(&folder)?;
        let lock = create_file(&folder.join(LOCK))?;
        let _lock = Locked::take(&lock)?;
        if lock.metadata()?.nlink() == 0 {
            // Thrown away while it was waited for: who comes next locks another one.
            return Err(io::ErrorKind::NotFound.into());
        }
        let mut taken = seats(&folder)?;
        if taken.len() >= limit {
            for seat in std::mem::take(&mut taken) {
                if self.is_taken(&folder, seat, now)? {
                    taken.push(seat);
                } else {
                    remove(&folder.join(seat.to_string()))?;
                }
            }
        }
        if taken.len() >= limit {
            return Ok(None);
        }
        let path = folder.join(id.to_string());
        create_file(&path)?;
        Ok(Some(Seat(path)))
    }

    fn is_taken(&self, folder: &Path, seat: ReceiptId, now: Timestamp) -> io::Result<bool> {
        match self.find(seat, now) {
            Ok(Some(entry)) => Ok(entry.header.end.is_none()),
            // Somebody is about to claim it, or died just before.
            Ok(None) => {
                let taken = folder.join(seat.to_string()).metadata()?.modified()?;
                Ok(taken.elapsed().is_ok_and(|age| age < CLAIMED_WITHIN))
            }
            Err(error) if error.kind() == io::ErrorKind::InvalidData => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        // One that stays is found to be empty when it is in somebody's way.
        let _later = fs::remove_file(&self.0);
    }
}

/// Removes a session's folder, unless a seat is taken in it or somebody is about to take one.
fn throw_away(folder: &Path) -> io::Result<()> {
    let lock = create_file(&folder.join(LOCK))?;
    let Ok(_lock) = Locked::take(&lock) else {
        return Ok(());
    };
    if seats(folder)?.is_empty() {
        remove(&folder.join(LOCK))?;
        // It is not empty when somebody came in between.
        let _kept = fs::remove_dir(folder);
    }
    Ok(())
}

fn seats(folder: &Path) -> io::Result<Vec<ReceiptId>> {
    let mut seats = Vec::new();
    for entry in fs::read_dir(folder)?.take(LOOKED_AT) {
        let name = entry?.file_name();
        seats.extend(
            name.to_str()
                .and_then(|name| name.parse::<ReceiptId>().ok()),
        );
    }
    Ok(seats)
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
