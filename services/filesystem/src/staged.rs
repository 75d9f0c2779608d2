//! A file's new content, whole and durable before it takes its place.
//!
//! Where the file system can, the content stands in a file without a name until then, so a crash leaves nothing
//! behind; a file that replaces another is named after its receipt for the instant between the link and the rename.
//!
//! A replaced file keeps permission bits, owner, group and extended attributes, and is never readable by more than
//! before at any instant. The set-user-ID and set-group-ID bits and file capabilities are lost, as by any write. Other
//! hard links keep the old content. A file without write permission can be replaced by whoever may change its directory.

use std::{
    ffi::OsStr,
    fs::File,
    io::{self, Write as _},
    os::fd::{AsRawFd as _, BorrowedFd},
};

use postern_types::{ReceiptId, Sha256};
use rustix::{
    fs::{AtFlags, CWD, Gid, Mode, OFlags, RenameFlags, Stat, Uid, XattrFlags},
    io::Errno,
};
use sha2::Digest as _;

use crate::{disk, left_over, names};

/// Mode of a new file, before the umask.
const NEW_FILE: u32 = 0o666;
/// Mode of a file that is to replace another, until it has that one's.
const PRIVATE: u32 = 0o600;
/// Permission bits that a replaced file keeps.
pub(crate) const KEPT_BITS: u32 = 0o1777;
/// Flags of new content.
const FLAGS: OFlags = OFlags::WRONLY.union(OFlags::CLOEXEC);
/// Access control list of a file.
const ACCESS_LIST: &[u8] = b"system.posix_acl_access";
/// Attributes that speak of the content that was, or that give it power.
const NOT_KEPT: [&[u8]; 3] = [b"security.capability", b"security.ima", b"security.evm"];

/// Content that has not taken its place yet. Dropped, it is gone.
#[derive(Debug)]
pub(crate) struct Staged<'a> {
    directory: BorrowedFd<'a>,
    file: File,
    /// Name beside the target.
    name: String,
    /// Whether it has that name now.
    named: bool,
}

impl<'a> Staged<'a> {
    /// For a new file.
    pub(crate) fn create(
        directory: BorrowedFd<'a>,
        receipt: ReceiptId,
    ) -> rustix::io::Result<Self> {
        Self::open(directory, receipt, Mode::from_raw_mode(NEW_FILE))
    }

    /// To replace `existing`.
    pub(crate) fn replacing(
        directory: BorrowedFd<'a>,
        receipt: ReceiptId,
        existing: &File,
        stat: &Stat,
    ) -> rustix::io::Result<Self> {
        let staged = Self::open(directory, receipt, Mode::from_raw_mode(PRIVATE))?;
        keep_attributes(&staged.file, existing, stat)?;
        Ok(staged)
    }

    fn open(directory: BorrowedFd<'a>, receipt: ReceiptId, mode: Mode) -> rustix::io::Result<Self> {
        match rustix::fs::openat(directory, ".", FLAGS | OFlags::TMPFILE, mode) {
            Ok(file) => {
                left_over::claim(&file)?;
                Ok(Self {
                    directory,
                    file: file.into(),
                    name: names::temporary(receipt),
                    named: false,
                })
            }
            // The file system has no files without a name.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
                Self::open_named(directory, receipt, mode)
            }
            Err(errno) => Err(errno),
        }
    }

    fn open_named(
        directory: BorrowedFd<'a>,
        receipt: ReceiptId,
        mode: Mode,
    ) -> rustix::io::Result<Self> {
        remove_left_over(directory, receipt)?;
        let name = names::temporary(receipt);
        let flags = FLAGS | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let file = rustix::fs::openat(directory, &name, flags, mode)?;
        left_over::claim(&file)?;
        if rustix::fs::fstat(&file)?.st_nlink == 0 {
            return Err(Errno::AGAIN);
        }
        Ok(Self {
            directory,
            file: file.into(),
            name,
            named: true,
        })
    }

    /// Writes the whole content, makes it durable, and tells its revision.
    pub(crate) fn write(&mut self, parts: &[&[u8]]) -> io::Result<Sha256> {
        postern_kit::fault_point!(crate::fault_points::STAGED);
        let mut hash = sha2::Sha256::new();
        for part in parts {
            self.file.write_all(part)?;
            hash.update(part);
        }
        postern_kit::fault_point!(crate::fault_points::WRITTEN);
        self.file.sync_all()?;
        postern_kit::fault_point!(crate::fault_points::SYNCED);
        Ok(Sha256::from_bytes(hash.finalize().into()))
    }

    /// The file, to be filled by others than [`Self::write`].
    pub(crate) const fn content(&self) -> &File {
        &self.file
    }

    /// Leaves it under its name beside the target, for whoever takes it from there, and tells that name. What is left there
    /// without the file being held is swept like the rest of a dead process.
    pub(crate) fn park(mut self) -> rustix::io::Result<(File, String)> {
        if !self.named {
            self.link(self.name.as_ref())?;
        }
        let file = self.file.try_clone().map_err(|_| Errno::MFILE)?;
        self.named = false;
        Ok((file, std::mem::take(&mut self.name)))
    }

    /// Takes the place of the file of this name.
    pub(crate) fn replace(mut self, name: &OsStr) -> rustix::io::Result<()> {
        if !self.named {
            remove_left_over_name(self.directory, &self.name)?;
            self.link(self.name.as_ref())?;
            self.named = true;
        }
        postern_kit::fault_point!(crate::fault_points::NAMED);
        rustix::fs::renameat(self.directory, &self.name, self.directory, name)?;
        postern_kit::fault_point!(crate::fault_points::RENAME_AFTER);
        self.named = false;
        Ok(())
    }

    /// Takes a name that is free; `EEXIST` when it is not.
    pub(crate) fn create_as(mut self, name: &OsStr) -> rustix::io::Result<()> {
        if !self.named {
            return self.link(name);
        }
        let directory = self.directory;
        match rustix::fs::renameat_with(
            directory,
            &self.name,
            directory,
            name,
            RenameFlags::NOREPLACE,
        ) {
            // The file system cannot rename so, but a hard link never replaces anything either.
            Err(errno) if disk::is_plain(errno) => disk::link(directory, self.name.as_ref(), name),
            Ok(()) => {
                self.named = false;
                Ok(())
            }
            refused => refused,
        }
    }

    fn link(&self, name: &OsStr) -> rustix::io::Result<()> {
        let link = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        rustix::fs::linkat(CWD, link, self.directory, name, AtFlags::SYMLINK_FOLLOW)
    }
}

impl Drop for Staged<'_> {
    fn drop(&mut self) {
        if self.named
            && let Err(error) = remove_left_over_name(self.directory, &self.name)
        {
            tracing::warn!(%error, "an unfinished change could not be removed");
        }
    }
}

/// Removes what an unfinished change under a receipt left in a directory.
pub(crate) fn remove_left_over(
    directory: BorrowedFd<'_>,
    receipt: ReceiptId,
) -> rustix::io::Result<()> {
    remove_left_over_name(directory, &names::temporary(receipt))
}

fn remove_left_over_name(directory: BorrowedFd<'_>, name: &str) -> rustix::io::Result<()> {
    match rustix::fs::unlinkat(directory, name, AtFlags::empty()) {
        Err(Errno::NOENT) => Ok(()),
        answer => answer,
    }
}

/// Gives a file the owner, mode and attributes of the one it will replace, in an order that never opens it further.
fn keep_attributes(file: &File, existing: &File, stat: &Stat) -> rustix::io::Result<()> {
    let own = rustix::fs::fstat(file)?;
    if (own.st_uid, own.st_gid) != (stat.st_uid, stat.st_gid) {
        let (owner, group) = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
        rustix::fs::fchown(file, Some(owner), Some(group))?;
    }
    // One may have come with the directory.
    match rustix::fs::fremovexattr(file, ACCESS_LIST) {
        Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP) => {}
        Err(errno) => return Err(errno),
    }
    rustix::fs::fchmod(file, Mode::from_raw_mode(stat.st_mode & KEPT_BITS))?;
    for name in attributes(existing)? {
        copy_attribute(file, existing, &name)?;
    }
    Ok(())
}

fn attributes(file: &File) -> rustix::io::Result<Vec<Vec<u8>>> {
    let size = match rustix::fs::flistxattr_query(file) {
        Err(Errno::OPNOTSUPP) => 0,
        answer => answer?,
    };
    if size == 0 {
        return Ok(Vec::new());
    }
    let mut list = vec![0; size];
    let length = rustix::fs::flistxattr(file, &mut list[..])?;
    Ok(list[..length]
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty() && !NOT_KEPT.contains(name))
        .map(<[u8]>::to_vec)
        .collect())
}

fn copy_attribute(file: &File, existing: &File, name: &[u8]) -> rustix::io::Result<()> {
    let size = rustix::fs::fgetxattr_query(existing, name)?;
    let mut value = vec![0; size];
    let length = rustix::fs::fgetxattr(existing, name, &mut value[..])?;
    let flags = XattrFlags::empty();
    match rustix::fs::fsetxattr(file, name, &value[..length], flags) {
        // Labels of a security module are its own to give; the new file has got one from it already.
        Err(Errno::PERM | Errno::ACCESS | Errno::OPNOTSUPP) if name.starts_with(b"security.") => {
            Ok(())
        }
        answer => answer,
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::fd::AsFd as _, path::Path};

    use pretty_assertions::assert_eq;

    use super::*;

    fn directory(path: &Path) -> File {
        File::open(path).expect("directory")
    }

    fn names(path: &Path) -> Vec<String> {
        let entries = fs::read_dir(path).expect("directory");
        let name = |entry: io::Result<fs::DirEntry>| entry.expect("entry").file_name();
        let mut names: Vec<_> = entries
            .map(|entry| name(entry).to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    /// Both ways, since which one a file system offers is not ours to choose.
    fn both_ways(check: impl Fn(&Path, &dyn Fn(BorrowedFd<'_>) -> Staged<'_>)) {
        let mode = Mode::from_raw_mode(NEW_FILE);
        for named in [false, true] {
            let home = tempfile::tempdir().expect("directory");
            check(home.path(), &|directory| {
                let receipt = ReceiptId::generate();
                let staged = if named {
                    Staged::open_named(directory, receipt, mode)
                } else {
                    Staged::open(directory, receipt, mode)
                };
                staged.expect("staged")
            });
        }
    }

    #[test]
    fn content_that_is_given_up_leaves_nothing() {
        both_ways(|path, open| {
            let directory = directory(path);
            let mut staged = open(directory.as_fd());
            staged.write(&[b"half"]).expect("written");
            drop(staged);
            assert_eq!(names(path), [""; 0]);
        });
    }

    #[test]
    fn a_new_file_never_takes_a_name_that_is_in_use() {
        both_ways(|path, open| {
            let directory = directory(path);
            fs::write(path.join("taken"), "old").expect("file");
            let mut staged = open(directory.as_fd());
            staged.write(&[b"new"]).expect("written");
            assert_eq!(staged.create_as("taken".as_ref()), Err(Errno::EXIST));
            assert_eq!(fs::read(path.join("taken")).expect("content"), b"old");
            let mut staged = open(directory.as_fd());
            let revision = staged.write(&[b"ne", b"w"]).expect("written");
            assert_eq!(revision, Sha256::of(b"new"));
            staged.create_as("free".as_ref()).expect("created");
            assert_eq!(fs::read(path.join("free")).expect("content"), b"new");
            assert_eq!(names(path), ["free", "taken"]);
        });
    }

    #[test]
    fn a_replacement_takes_the_whole_place() {
        both_ways(|path, open| {
            let directory = directory(path);
            fs::write(path.join("f"), "old and longer").expect("file");
            let mut staged = open(directory.as_fd());
            staged.write(&[b"new"]).expect("written");
            staged.replace("f".as_ref()).expect("replaced");
            assert_eq!(fs::read(path.join("f")).expect("content"), b"new");
            assert_eq!(names(path), ["f"]);
        });
    }

    #[test]
    fn a_left_over_of_the_same_receipt_is_no_hindrance() {
        let home = tempfile::tempdir().expect("directory");
        let directory = directory(home.path());
        let receipt = ReceiptId::generate();
        let left = home.path().join(names::temporary(receipt));
        fs::write(&left, "half").expect("file");
        fs::write(home.path().join("f"), "old").expect("file");
        let mode = Mode::from_raw_mode(PRIVATE);
        let mut staged = Staged::open(directory.as_fd(), receipt, mode).expect("staged");
        staged.write(&[b"new"]).expect("written");
        staged.replace("f".as_ref()).expect("replaced");
        assert_eq!(names(home.path()), ["f"]);
    }
}
