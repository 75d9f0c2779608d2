//! A lock on a file against every process, held for a moment.

use std::{fs::File, io, thread, time::Duration};

use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};

/// How often a lock is tried: nobody holds one for long, unless he was stopped in that very moment.
const TRIES: u32 = 50;
/// Time between two tries.
const AGAIN: Duration = Duration::from_millis(10);

/// The lock, given back when it is dropped.
pub(super) struct Locked<'a>(&'a File);

impl<'a> Locked<'a> {
    /// Takes it. Fails as `WouldBlock` when it cannot be had.
    pub(super) fn take(file: &'a File) -> io::Result<Self> {
        for _ in 1..TRIES {
            match flock(file, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) => thread::sleep(AGAIN),
                other => return Ok(other.map(|()| Self(file))?),
            }
        }
        flock(file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Self(file))
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // Closing the file gives it back as well.
        let _given = flock(self.0, FlockOperation::Unlock);
    }
}
