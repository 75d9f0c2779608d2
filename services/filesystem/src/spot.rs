//! Where a change happens.

use std::{
    ffi::OsString,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use postern_kit::{
    Failure,
    root::{self, Found, Place, Root},
};
use rustix::{
    fs::{AtFlags, Mode, OFlags},
    io::Errno,
};

use crate::{disk::Disk, locks::Key, names, refusal, revision::Stamp};

/// Flags of a directory that is changed and made durable.
const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY);
/// Mode of a new directory, before the umask.
const NEW_DIRECTORY: u32 = 0o777;

/// The target of a change, as it was a moment ago.
#[derive(Debug)]
pub(crate) struct Spot {
    pub(crate) place: Place,
    pub(crate) existing: Option<Found>,
    pub(crate) name: OsString,
    /// The deepest directory on the way that exists.
    pub(crate) directory: OwnedFd,
    directory_path: PathBuf,
    missing: Vec<OsString>,
}

impl Spot {
    /// Where a path leads, links followed.
    pub(crate) fn of_target(root: &Root, path: &str) -> Result<Self, Failure> {
        let target = root.locate(path)?;
        names::allowed(&target.place.path)?;
        let directory = open_directory(root, &target.parent, &target.place.shown)?;
        Ok(Self {
            place: target.place,
            existing: target.existing,
            name: target.name,
            directory,
            directory_path: target.parent,
            missing: target.missing,
        })
    }

    /// What a path names itself, a link at its end not followed.
    pub(crate) fn of_entry(root: &Root, path: &str) -> Result<Self, Failure> {
        let found = root.find_entry(path)?;
        let place = found.place.clone();
        names::allowed(&place.path)?;
        let (Some(parent), Some(name)) = (place.path.parent(), place.path.file_name()) else {
            return Err(root::refusal(Errno::ISDIR, &place.shown));
        };
        Ok(Self {
            directory: open_directory(root, parent, &place.shown)?,
            directory_path: parent.to_owned(),
            name: name.to_owned(),
            missing: Vec::new(),
            existing: Some(found),
            place,
        })
    }

    /// The directories that are missing on the way, relative to the root, the outermost first.
    pub(crate) fn new_directories(&self) -> Vec<String> {
        let mut path = self.directory_path.clone();
        let mut directories = Vec::with_capacity(self.missing.len());
        for name in &self.missing {
            path.push(name);
            directories.push(path.to_string_lossy().into_owned());
        }
        directories
    }

    /// What is locked for this target.
    pub(crate) fn key(&self) -> Result<Key, Failure> {
        let stat = rustix::fs::fstat(&self.directory).map_err(|errno| self.refused(errno))?;
        let path: PathBuf = self.missing.iter().chain([&self.name]).collect();
        Ok(Key {
            device: stat.st_dev,
            inode: stat.st_ino,
            name: path.into_os_string(),
        })
    }

    /// Whether the target is still what it was, and its directory where it was. What other programs do between this
    /// look and the change itself cannot be seen.
    pub(crate) fn unchanged(&self, root: &Root, stamp: &Stamp) -> bool {
        let same_file = rustix::fs::statat(&self.directory, &self.name, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|stat| Stamp::of(&stat) == *stamp);
        same_file && self.directory_unmoved(root)
    }

    /// Whether the directory is still where it was found.
    pub(crate) fn directory_unmoved(&self, root: &Root) -> bool {
        let identity = |stat: rustix::fs::Stat| (stat.st_dev, stat.st_ino);
        let held = rustix::fs::fstat(&self.directory).map(identity);
        let named = root
            .open_beneath(&self.directory_path, OFlags::PATH | OFlags::DIRECTORY)
            .and_then(|directory| rustix::fs::fstat(directory).map(identity));
        matches!((held, named), (Ok(held), Ok(named)) if held == named)
    }

    /// Makes the directories that are missing; `directory` is the last of them then.
    pub(crate) fn make_parents(&self) -> rustix::io::Result<Parents> {
        let mut parents = Parents {
            chain: Vec::with_capacity(self.missing.len()),
            last: self.directory.try_clone().map_err(errno_of)?,
        };
        for name in &self.missing {
            let mode = Mode::from_raw_mode(NEW_DIRECTORY);
            let made = match rustix::fs::mkdirat(&parents.last, name, mode) {
                Ok(()) => true,
                Err(Errno::EXIST) => false,
                Err(errno) => {
                    parents.remove();
                    return Err(errno);
                }
            };
            match root::open_link_free(&parents.last, Path::new(name), DIRECTORY) {
                Ok(next) => {
                    let parent = std::mem::replace(&mut parents.last, next);
                    parents.chain.push((parent, name.clone(), made));
                }
                Err(errno) => {
                    parents.remove();
                    return Err(errno);
                }
            }
        }
        Ok(parents)
    }

    /// Those of the directories on the way that were made, the outermost first.
    pub(crate) fn made(&self, parents: &Parents) -> Vec<PathBuf> {
        let paths = self.new_directories().into_iter();
        let made = paths.zip(parents.chain.iter().map(|(_, _, made)| *made));
        made.filter(|(_, made)| *made)
            .map(|(path, _)| path.into())
            .collect()
    }

    /// Makes durable what stands in the directory, and the way to it: a directory on it may be as new as the file.
    pub(crate) fn sync_way(&self, root: &Root, disk: &Disk) -> rustix::io::Result<()> {
        disk.sync_directory(&self.directory)?;
        for above in self.directory_path.ancestors().skip(1) {
            disk.sync_directory(root.open_beneath(above, DIRECTORY)?)?;
        }
        Ok(())
    }

    /// A system call's failure on this target.
    pub(crate) fn refused(&self, errno: Errno) -> Failure {
        root::refusal(errno, &self.place.shown)
    }

    /// The failure of reading or writing this target.
    pub(crate) fn failed(&self, error: &std::io::Error) -> Failure {
        refusal::system(error, &self.place.shown)
    }
}

/// Directories on the way to a new file.
#[derive(Debug)]
pub(crate) struct Parents {
    /// Each with its parent before it, and whether it is new.
    chain: Vec<(OwnedFd, OsString, bool)>,
    /// The directory of the file.
    pub(crate) last: OwnedFd,
}

impl Parents {
    /// Takes back the new directories, as far as they are empty.
    pub(crate) fn remove(&self) {
        for (parent, name, made) in self.chain.iter().rev() {
            if *made && rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR).is_err() {
                return;
            }
        }
    }

    /// Makes every new entry durable, the file's own first.
    pub(crate) fn sync(&self, disk: &Disk) -> rustix::io::Result<()> {
        disk.sync_directory(&self.last)?;
        for (parent, _, made) in self.chain.iter().rev() {
            if *made {
                disk.sync_directory(parent)?;
            }
        }
        Ok(())
    }
}

fn open_directory(root: &Root, path: &Path, shown: &str) -> Result<OwnedFd, Failure> {
    root.open_beneath(path, DIRECTORY)
        .map_err(|errno| match errno {
            // A link took its place since the path was walked.
            Errno::LOOP => root::refusal(Errno::AGAIN, shown),
            errno => root::refusal(errno, shown),
        })
}

fn errno_of(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}
