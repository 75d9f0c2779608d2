//! Names of directories, gathered once for all pages.
//!
//! A directory of more than one page is remembered as files' revisions are ([`crate::revision`]): by device and inode, and
//! believed while its times are the same, which every name that comes or goes changes. One that was changed within the last
//! two seconds before it was read is not remembered, since a further change might leave no trace.

use std::{
    collections::VecDeque,
    io,
    os::fd::OwnedFd,
    sync::{Arc, Mutex},
};

use rustix::fs::RawDir;

use super::{
    OFFSET_LIMIT, PAGE_ENTRIES,
    names::{Gathered, Names},
};
use crate::{
    jobs::hold,
    names::is_temporary,
    revision::{Revisions, Stamp},
};

/// Directories that are remembered.
const REMEMBERED: usize = 8;
/// Bytes that all of their names take.
const REMEMBERED_BYTES: usize = 32 * 1024 * 1024;
/// Names that one gathers beside others; who has more waits until no other has.
const GATHERED_AT_ONCE: usize = 16 * 1024;
/// Bytes of directory entries taken from the kernel at a time.
const DIRECTORY_BUFFER: usize = 64 * 1024;

/// Remembers directories.
#[derive(Debug, Default)]
pub(crate) struct Listings {
    /// The oldest first.
    remembered: Mutex<VecDeque<(Stamp, Arc<Names>)>>,
    /// Held by who gathers many names, so that only one does.
    many: Mutex<()>,
}

impl Listings {
    /// The names of an open directory.
    pub(super) fn names(
        &self,
        directory: &OwnedFd,
        revisions: &Revisions,
    ) -> io::Result<Arc<Names>> {
        let stamp = Stamp::of(&rustix::fs::fstat(directory)?);
        if let Some(names) = self.known(&stamp) {
            return Ok(names);
        }
        let started = revisions.now();
        let mut gathered = Gathered::new(OFFSET_LIMIT as usize + PAGE_ENTRIES);
        let mut many = None;
        let mut buffer = Vec::with_capacity(DIRECTORY_BUFFER);
        let mut entries = RawDir::new(directory, buffer.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." || is_temporary(name) {
                continue;
            }
            gathered.add(name);
            if many.is_none() && gathered.len() > GATHERED_AT_ONCE {
                many = Some(hold(&self.many));
                // Whoever had it may have gathered the same names.
                if let Some(names) = self.known(&stamp) {
                    return Ok(names);
                }
            }
        }
        let names = Arc::new(gathered.into_names());
        let now = Stamp::of(&rustix::fs::fstat(directory)?);
        if now == stamp && stamp.settled(started) {
            self.remember(stamp, &names);
        }
        Ok(names)
    }

    fn known(&self, stamp: &Stamp) -> Option<Arc<Names>> {
        let remembered = hold(&self.remembered);
        let (_, names) = remembered.iter().find(|(known, _)| known == stamp)?;
        Some(Arc::clone(names))
    }

    fn remember(&self, stamp: Stamp, names: &Arc<Names>) {
        if names.len() <= PAGE_ENTRIES || names.size() > REMEMBERED_BYTES {
            return;
        }
        let mut remembered = hold(&self.remembered);
        remembered.retain(|(known, _)| !known.is_of_same_file(&stamp));
        remembered.push_back((stamp, Arc::clone(names)));
        let size = |all: &VecDeque<(Stamp, Arc<Names>)>| -> usize {
            all.iter().map(|(_, names)| names.size()).sum()
        };
        while remembered.len() > REMEMBERED || size(&remembered) > REMEMBERED_BYTES {
            remembered.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use postern_kit::Clock;
    use postern_types::Timestamp;
    use pretty_assertions::assert_eq;

    use super::*;

    /// So that what was just made has been left alone for long.
    fn later() -> Revisions {
        let clock =
            Clock::from_fn(|| Timestamp::from_millis(Timestamp::now().as_millis() + 10_000));
        Revisions::new(clock, 1)
    }

    fn directory(entries: usize) -> (tempfile::TempDir, OwnedFd) {
        let home = tempfile::tempdir().expect("directory");
        for number in 0..entries {
            File::create(home.path().join(number.to_string())).expect("file");
        }
        let handle = File::open(home.path()).expect("open").into();
        (home, handle)
    }

    fn is_remembered(listings: &Listings, directory: &OwnedFd) -> bool {
        let stamp = Stamp::of(&rustix::fs::fstat(directory).expect("stat"));
        listings.known(&stamp).is_some()
    }

    #[test]
    fn only_directories_of_several_pages_left_alone_are_remembered() {
        for (entries, revisions, expected) in [
            (PAGE_ENTRIES, later(), false),
            (PAGE_ENTRIES + 1, later(), true),
            (PAGE_ENTRIES + 1, Revisions::new(Clock::system(), 1), false),
        ] {
            let (_home, handle) = directory(entries);
            let listings = Listings::default();
            let names = listings.names(&handle, &revisions).expect("names");
            assert_eq!(names.total, entries as u64);
            assert_eq!(is_remembered(&listings, &handle), expected, "{entries}");
        }
    }

    #[test]
    fn the_oldest_directories_are_forgotten() {
        let (listings, revisions) = (Listings::default(), later());
        let all: Vec<_> = (0..=REMEMBERED)
            .map(|_| directory(PAGE_ENTRIES + 1))
            .collect();
        for (_, handle) in &all {
            listings.names(handle, &revisions).expect("names");
        }
        let remembered: Vec<bool> = all
            .iter()
            .map(|(_, handle)| is_remembered(&listings, handle))
            .collect();
        assert!(!remembered[0] && remembered[1..].iter().all(|known| *known));
    }
}
