//! What changes of processes that died have left beside their targets.
//!
//! A process holds a lock on what it stages, from before it has a name until it has taken its place, and the kernel lets go
//! of the lock when the process dies. So whoever gets the lock knows that nobody will finish that change.

use std::{
    collections::HashSet,
    ffi::OsStr,
    fs::File,
    os::{
        fd::{AsFd, AsRawFd as _, BorrowedFd},
        unix::ffi::OsStrExt as _,
    },
    path::Path,
    sync::Mutex,
};

use postern_kit::root::open_link_free;
use rustix::{
    fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, RawDir},
    io::Errno,
};

use crate::{jobs::hold, names, recent::Recent};

/// Directories remembered as looked through, at least; at most twice as many.
const DIRECTORIES: usize = 4096;
/// Bytes of directory entries taken from the kernel at a time.
const DIRECTORY_BUFFER: usize = 32 * 1024;

/// The directories that were looked through since this process lives.
#[derive(Debug)]
pub(crate) struct LeftOvers {
    looked_through: Mutex<Recent<(u64, u64), ()>>,
    /// What stands beside targets without its descriptor being held: as many as files that are taken back at once.
    parked: Mutex<HashSet<String>>,
}

impl Default for LeftOvers {
    fn default() -> Self {
        Self {
            looked_through: Mutex::new(Recent::new(DIRECTORIES)),
            parked: Mutex::default(),
        }
    }
}

/// Takes the lock that says that somebody is at work on a staged file. Where the file system knows no locks nobody gets
/// one, so nothing is removed there either.
///
/// # Errors
/// `EAGAIN` when a file that had a name before it was locked was taken for a left-over in between.
pub(crate) fn claim(staged: impl AsFd) -> rustix::io::Result<()> {
    match rustix::fs::flock(&staged, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::AGAIN) => Err(Errno::AGAIN),
        Ok(()) | Err(_) => Ok(()),
    }
}

impl LeftOvers {
    /// Removes what dead processes left in a directory, when this process changes something in it for the first time.
    /// What cannot be removed now is no hindrance to the change.
    pub(crate) fn remove(&self, directory: BorrowedFd<'_>) {
        match self.look_through(directory) {
            Ok(()) => {}
            Err(error) => tracing::debug!(%error, "a directory could not be looked through"),
        }
    }

    /// Says that somebody is at work on what has this name, until [`LeftOvers::let_go`].
    pub(crate) fn keep(&self, name: &str) {
        hold(&self.parked).insert(name.to_owned());
    }

    /// Nobody is at work on these any more.
    pub(crate) fn let_go<'a>(&self, names: impl Iterator<Item = &'a str>) {
        let mut parked = hold(&self.parked);
        for name in names {
            parked.remove(name);
        }
    }

    fn look_through(&self, directory: BorrowedFd<'_>) -> rustix::io::Result<()> {
        let stat = rustix::fs::fstat(directory)?;
        let key = (stat.st_dev, stat.st_ino);
        if hold(&self.looked_through).get(&key).is_some() {
            return Ok(());
        }
        // A handle of its own, since reading moves the handle's place in the directory.
        let listed = open_link_free(
            directory,
            Path::new("."),
            OFlags::RDONLY | OFlags::DIRECTORY,
        )?;
        let mut buffer = Vec::with_capacity(DIRECTORY_BUFFER);
        let mut entries = RawDir::new(&listed, buffer.spare_capacity_mut());
        let mut left = Vec::new();
        while let Some(entry) = entries.next() {
            let name = entry?.file_name().to_bytes().to_vec();
            if names::is_temporary(&name) {
                left.push(name);
            }
        }
        for name in left {
            let is_parked =
                std::str::from_utf8(&name).is_ok_and(|name| hold(&self.parked).contains(name));
            if is_parked {
                continue;
            }
            remove_if_dead(directory, OsStr::from_bytes(&name))?;
        }
        hold(&self.looked_through).insert(key, ());
        Ok(())
    }
}

fn remove_if_dead(directory: BorrowedFd<'_>, name: &OsStr) -> rustix::io::Result<()> {
    let held = match open_link_free(directory, Path::new(name), OFlags::PATH | OFlags::NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(()),
        answer => answer?,
    };
    // Only a regular file is opened, and the very one that was looked at.
    if FileType::from_raw_mode(rustix::fs::fstat(&held)?.st_mode) != FileType::RegularFile {
        return Ok(());
    }
    let link = format!("/proc/self/fd/{}", held.as_raw_fd());
    let file: File =
        rustix::fs::open(link, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?.into();
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::AGAIN | Errno::OPNOTSUPP | Errno::NOLCK) => Ok(()),
        Err(errno) => Err(errno),
        Ok(()) => match rustix::fs::unlinkat(directory, name, AtFlags::empty()) {
            Err(Errno::NOENT) => Ok(()),
            answer => answer,
        },
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use postern_types::ReceiptId;
    use pretty_assertions::assert_eq;

    use super::*;

    /// Also when so many directories were looked through that this one is forgotten, as in an undo of thousands.
    #[test]
    fn what_this_process_is_at_work_on_is_no_left_over() {
        let home = tempfile::tempdir().expect("directory");
        let [ours, dead] = [(); 2].map(|()| names::temporary(ReceiptId::generate()));
        for name in [&ours, &dead] {
            std::fs::write(home.path().join(name), "staged").expect("file");
        }
        let there = |name: &str| home.path().join(name).exists();
        let directory = File::open(home.path()).expect("directory");
        let left_overs = LeftOvers::default();
        left_overs.keep(&ours);
        left_overs.remove(directory.as_fd());
        assert_eq!((there(&ours), there(&dead)), (true, false));
        left_overs.let_go([ours.as_str()].into_iter());
        for forgotten in 0..=2 * u64::try_from(DIRECTORIES).expect("small") {
            hold(&left_overs.looked_through).insert((0, forgotten), ());
        }
        left_overs.remove(directory.as_fd());
        assert!(!there(&ours));
    }
}
