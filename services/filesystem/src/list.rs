//! Pages of a directory (CONTRACT.md, section 3, `workspace_list`).
//!
//! One pass keeps names only, and of these no more than twice as many as are needed to know the page: the names up to
//! its end. So memory is bounded by [`OFFSET_LIMIT`] names whatever the directory holds, `total` is exact, and the
//! entries behind [`OFFSET_LIMIT`] and a page are counted but cannot be reached; `next_offset` still says that they
//! are there.

use std::{
    ffi::OsStr,
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt as _,
    },
    path::Path,
};

use postern_kit::{
    Failure,
    root::{self, Root},
};
use postern_proto::filesystem::v1::{Entry, EntryType, ListRequest, ListResponse};
use rustix::{
    fs::{AtFlags, FileType, OFlags, RawDir, Stat},
    io::Errno,
};

use crate::{names, refusal};

/// Entries in a page.
pub(crate) const PAGE_ENTRIES: usize = 500;
/// Largest offset.
pub(crate) const OFFSET_LIMIT: u64 = 100_000;
/// Bytes of directory entries taken from the kernel at a time.
const DIRECTORY_BUFFER: usize = 64 * 1024;

/// One page.
pub(crate) fn list(root: &Root, request: &ListRequest) -> Result<ListResponse, Failure> {
    let offset = usize::try_from(request.offset)
        .ok()
        .filter(|_| request.offset <= OFFSET_LIMIT)
        .ok_or_else(|| refusal::invalid("/offset", "maximum", "offset is at most 100000."))?;
    let found = root.find(&request.path)?;
    names::allowed(&found.place.path)?;
    let shown = found.place.shown.clone();
    if found.file_type() != FileType::Directory {
        return Err(root::refusal(Errno::NOTDIR, &shown));
    }
    // Opened anew from its own handle, which so far only names it.
    let directory = root::open_link_free(
        &found.handle,
        Path::new("."),
        OFlags::RDONLY | OFlags::DIRECTORY,
    )
    .map_err(|errno| root::refusal(errno, &shown))?;
    let (names, total) = smallest_names(&directory, offset + PAGE_ENTRIES)
        .map_err(|error| refusal::system(&error, &shown))?;
    let page = names.get(offset..).unwrap_or_default();
    let place = Directory {
        root,
        handle: &directory,
        shown: &shown,
        path: &found.place.path,
    };
    let mut entries = Vec::with_capacity(page.len());
    for name in page {
        match place.entry(name) {
            Ok(entry) => entries.push(entry),
            // It was deleted since its name was read.
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(root::refusal(errno, &shown)),
        }
    }
    let next = (offset + page.len()) as u64;
    Ok(ListResponse {
        resolved_path: found.place.resolved(),
        path: shown,
        entries,
        total,
        next_offset: (next < total && !page.is_empty()).then_some(next),
    })
}

/// The first `needed` names by their bytes, in order, and how many there are in all.
fn smallest_names(directory: impl AsFd, needed: usize) -> io::Result<(Vec<Box<[u8]>>, u64)> {
    let mut buffer = Vec::with_capacity(DIRECTORY_BUFFER);
    let mut entries = RawDir::new(directory, buffer.spare_capacity_mut());
    let mut smallest = Smallest::new(needed);
    let mut total = 0;
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." || names::is_temporary(name) {
            continue;
        }
        total += 1;
        smallest.add(name);
    }
    Ok((smallest.into_sorted(), total))
}

/// Keeps the smallest of many names, in at most twice the space that they need.
#[derive(Debug)]
struct Smallest {
    names: Vec<Box<[u8]>>,
    needed: usize,
    /// No name from here on can be among the smallest.
    bound: Option<Box<[u8]>>,
}

impl Smallest {
    fn new(needed: usize) -> Self {
        Self {
            names: Vec::new(),
            needed,
            bound: None,
        }
    }

    fn add(&mut self, name: &[u8]) {
        if self.bound.as_deref().is_some_and(|bound| name >= bound) {
            return;
        }
        self.names.push(name.into());
        if self.names.len() >= 2 * self.needed {
            self.shrink();
        }
    }

    fn shrink(&mut self) {
        let (_, first_over, _) = self.names.select_nth_unstable(self.needed);
        self.bound = Some(first_over.clone());
        self.names.truncate(self.needed);
    }

    fn into_sorted(mut self) -> Vec<Box<[u8]>> {
        self.names.sort_unstable();
        self.names.truncate(self.needed);
        self.names
    }
}

struct Directory<'a> {
    root: &'a Root,
    handle: &'a OwnedFd,
    shown: &'a str,
    path: &'a Path,
}

impl Directory<'_> {
    fn entry(&self, name: &[u8]) -> Result<Entry, Errno> {
        let stat = rustix::fs::statat(self.handle, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let file_type = FileType::from_raw_mode(stat.st_mode);
        let text = String::from_utf8_lossy(name).into_owned();
        let (target, target_type) = if file_type == FileType::Symlink {
            (self.link_text(name), self.link_target(name))
        } else {
            (None, None)
        };
        let path = if self.shown == "." {
            text.clone()
        } else {
            format!("{}/{text}", self.shown)
        };
        Ok(Entry {
            path,
            r#type: entry_type(file_type).into(),
            size: u64::try_from(stat.st_size).unwrap_or_default(),
            modified_at_ms: modified_at_ms(&stat),
            target,
            target_type: target_type.map(Into::into),
            name_bytes: std::str::from_utf8(name)
                .is_err()
                .then(|| hex::encode(name)),
            name: text,
        })
    }

    fn link_text(&self, name: &[u8]) -> Option<String> {
        let text = rustix::fs::readlinkat(self.handle, name, Vec::new()).ok()?;
        Some(String::from_utf8_lossy(text.as_bytes()).into_owned())
    }

    /// What a link leads to; none when that is outside, or nothing.
    fn link_target(&self, name: &[u8]) -> Option<EntryType> {
        let path = self.path.join(OsStr::from_bytes(name));
        let found = self.root.find(path.to_str()?).ok()?;
        Some(entry_type(found.file_type()))
    }
}

fn entry_type(file_type: FileType) -> EntryType {
    match file_type {
        FileType::RegularFile => EntryType::File,
        FileType::Directory => EntryType::Directory,
        FileType::Symlink => EntryType::Symlink,
        FileType::Fifo
        | FileType::Socket
        | FileType::CharacterDevice
        | FileType::BlockDevice
        | FileType::Unknown => EntryType::Other,
    }
}

#[expect(
    clippy::unnecessary_cast,
    reason = "the types of these fields differ between architectures"
)]
fn modified_at_ms(stat: &Stat) -> i64 {
    (stat.st_mtime as i64)
        .saturating_mul(1000)
        .saturating_add(stat.st_mtime_nsec as i64 / 1_000_000)
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_smallest_are_those_of_a_full_sort(
            names in prop::collection::vec("[a-d]{1,4}", 0..60),
            needed in 1_usize..20,
        ) {
            let mut smallest = Smallest::new(needed);
            for name in &names {
                smallest.add(name.as_bytes());
                prop_assert!(smallest.names.len() < 2 * needed.max(1));
            }
            let mut sorted = names;
            sorted.sort();
            sorted.truncate(needed);
            let kept: Vec<_> = smallest
                .into_sorted()
                .iter()
                .map(|name| String::from_utf8_lossy(name).into_owned())
                .collect();
            prop_assert_eq!(kept, sorted);
        }
    }

    #[test]
    fn times_before_1970_are_told() {
        let directory = tempfile::tempdir().expect("directory");
        let mut stat = rustix::fs::stat(directory.path()).expect("stat");
        stat.st_mtime = -1;
        stat.st_mtime_nsec = 500_000_000;
        assert_eq!(modified_at_ms(&stat), -500);
    }
}
