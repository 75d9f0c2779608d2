//! Pages of a directory (CONTRACT.md, section 3, `workspace_list`).
//!
//! One pass keeps names only, and of these no more than twice as many as can be asked for. So memory is bounded by
//! [`OFFSET_LIMIT`] names whatever the directory holds, `total` is exact, and the entries behind [`OFFSET_LIMIT`] and a page
//! are counted but cannot be reached; `next_offset` still says that they are there. Further pages of a directory that has not
//! changed since need no pass ([`Listings`]).

mod listings;
mod names;

use std::{
    ffi::OsStr,
    os::{fd::OwnedFd, unix::ffi::OsStrExt as _},
    path::Path,
};

use postern_kit::{
    Failure,
    root::{self, Root},
};
use postern_proto::filesystem::v1::{Entry, EntryType, ListRequest, ListResponse};
use rustix::{
    fs::{AtFlags, FileType, OFlags, Stat},
    io::Errno,
};

use crate::{project::Project, refusal};

pub(crate) use listings::Listings;

/// Entries in a page.
pub(crate) const PAGE_ENTRIES: usize = 500;
/// Largest offset.
pub(crate) const OFFSET_LIMIT: u64 = 100_000;

/// One page.
pub(crate) fn list(project: &Project, request: &ListRequest) -> Result<ListResponse, Failure> {
    let root = &project.root;
    let offset = usize::try_from(request.offset)
        .ok()
        .filter(|_| request.offset <= OFFSET_LIMIT)
        .ok_or_else(|| refusal::invalid("/offset", "maximum", "offset is at most 100000."))?;
    let found = project.find(&request.path, request.place.as_deref())?;
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
    let names = project
        .listings
        .names(&directory, &project.revisions)
        .map_err(|error| refusal::system(&error, &shown))?;
    let (page, total) = (names.page(offset, PAGE_ENTRIES), names.total);
    let place = Directory {
        root,
        handle: &directory,
        shown: &shown,
        path: &found.place.path,
    };
    let count = page.len();
    let mut entries = Vec::with_capacity(count);
    for name in page {
        match place.entry(name) {
            Ok(entry) => entries.push(entry),
            // It was deleted since its name was read.
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(root::refusal(errno, &shown)),
        }
    }
    let next = (offset + count) as u64;
    Ok(ListResponse {
        resolved_path: found.place.resolved(),
        path: shown,
        entries,
        total,
        next_offset: (next < total && count > 0).then_some(next),
    })
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

    use super::*;

    #[test]
    fn times_before_1970_are_told() {
        let directory = tempfile::tempdir().expect("directory");
        let mut stat = rustix::fs::stat(directory.path()).expect("stat");
        stat.st_mtime = -1;
        stat.st_mtime_nsec = 500_000_000;
        assert_eq!(modified_at_ms(&stat), -500);
    }
}
