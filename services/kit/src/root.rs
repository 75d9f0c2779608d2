//! One project's root: every path is opened beneath its handle, by the kernel's own rules.
//!
//! Invariants:
//! - A path is opened by `openat2` from the root handle, beneath it, without magic links and without following any link.
//!   Links are read and turned into a link-free path first; if the tree changes meanwhile, the kernel refuses and the
//!   walk starts anew. So no check of a string ever stands for an open.
//! - A link that leaves the project is told by its text alone: what it leads to is never looked at.
//! - What is not a regular file or a directory is held by an `O_PATH` handle at most, never opened.
//!
//! Everything here makes short system calls and may block on a slow file system.

mod path;
mod real;
mod refusal;
mod walk;

use std::{
    ffi::OsString,
    fs::File,
    io,
    os::fd::{AsFd, AsRawFd as _, OwnedFd},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{FileType, Mode, OFlags, ResolveFlags, Stat},
    io::Errno,
};

use crate::Failure;

use self::{
    path::Wanted,
    walk::{Links, Walk},
};

pub use real::real_path;
pub use refusal::{brief, refusal};

/// How often a path is walked anew when the tree changes under the walk.
const WALKS: usize = 16;
/// How often the kernel is asked again when a rename elsewhere disturbed its own walk (`EAGAIN`).
const OPENS: usize = 64;

/// What tells one root from another, for the pin.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Identity {
    /// The root's path without links.
    pub real_path: PathBuf,
    /// Device that holds it.
    pub device: u64,
    /// Its inode.
    pub inode: u64,
}

/// The root of one project.
#[derive(Debug)]
pub struct Root {
    handle: OwnedFd,
    identity: Identity,
}

/// Where a path led.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Place {
    /// The path as it is told: relative to the root, "." for the root.
    pub shown: String,
    /// The link-free path, relative to the root and empty for the root.
    pub path: PathBuf,
}

/// Why a root cannot be worked in now. None of it says where the root is.
#[derive(Debug, thiserror::Error)]
pub enum Displaced {
    /// Nothing can be found where it was.
    #[error("its directory is not where it was: {0}")]
    Gone(#[source] io::Error),
    /// Something else is where it was.
    #[error("another directory is where it was")]
    Replaced,
    /// It is there and cannot be read.
    #[error("its directory cannot be read: {0}")]
    Unreadable(#[source] io::Error),
}

/// A path that exists.
#[derive(Debug)]
pub struct Found {
    /// Where.
    pub place: Place,
    /// `O_PATH` handle.
    pub handle: OwnedFd,
    /// What it is, of this very handle.
    pub stat: Stat,
}

/// A path that a file may be written at.
#[derive(Debug)]
pub struct Target {
    /// Where.
    pub place: Place,
    /// What is there.
    pub existing: Option<Found>,
    /// Link-free path of the deepest directory on the way that exists, relative to the root.
    pub parent: PathBuf,
    /// Directories to be made below `parent`, from the top; empty when the target exists.
    pub missing: Vec<OsString>,
    /// The last name.
    pub name: OsString,
}

impl Place {
    /// Where it is, relative to the root, all links followed; "." for the root.
    #[must_use]
    pub fn real(&self) -> String {
        path::show(&self.path)
    }

    /// Where links led, relative to the root; none when `shown` is that already.
    #[must_use]
    pub fn resolved(&self) -> Option<String> {
        let resolved = self.real();
        (resolved != self.shown).then_some(resolved)
    }
}

impl Found {
    /// The kind of thing.
    #[must_use]
    pub fn file_type(&self) -> FileType {
        FileType::from_raw_mode(self.stat.st_mode)
    }
}

impl Root {
    /// Opens a root. Links on the way to it are followed once, now.
    ///
    /// # Errors
    /// When there is no such directory or it cannot be entered.
    pub fn open(path: &Path) -> io::Result<Self> {
        let real_path = path.canonicalize()?;
        let handle = rustix::fs::open(
            &real_path,
            OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        let stat = rustix::fs::fstat(&handle)?;
        Ok(Self {
            handle,
            identity: Identity {
                real_path,
                device: stat.st_dev,
                inode: stat.st_ino,
            },
        })
    }

    /// What tells this root from another.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Whether the root can be worked in: its directory is where it was when it was opened, and can be read. Calls go on by the
    /// handle all the same; who starts now with the same path would be in another place.
    ///
    /// # Errors
    /// [`Displaced`].
    pub fn look(&self) -> Result<(), Displaced> {
        let there = rustix::fs::stat(&self.identity.real_path)
            .map_err(|errno| Displaced::Gone(errno.into()))?;
        if (there.st_dev, there.st_ino) != (self.identity.device, self.identity.inode) {
            return Err(Displaced::Replaced);
        }
        self.open_beneath(Path::new(""), OFlags::RDONLY | OFlags::DIRECTORY)
            .map(drop)
            .map_err(|errno| Displaced::Unreadable(errno.into()))
    }

    /// The root's own name, never its path; "/" for the file system's root.
    #[must_use]
    pub fn name(&self) -> String {
        let real = &self.identity.real_path;
        real.file_name()
            .unwrap_or(real.as_os_str())
            .to_string_lossy()
            .into_owned()
    }

    /// Finds what is at a path; links that stay inside are followed.
    ///
    /// # Errors
    /// `NOT_FOUND`, `NOT_A_DIRECTORY`, `PATH_ESCAPES_PROJECT`, `INVALID_ARGUMENTS`, `PERMISSION_DENIED`.
    pub fn find(&self, path: &str) -> Result<Found, Failure> {
        self.find_with(path, Links::Follow)
    }

    /// Finds what is at a path; a link at its end is not followed, unless a slash behind it demands so.
    ///
    /// # Errors
    /// As [`Root::find`].
    pub fn find_entry(&self, path: &str) -> Result<Found, Failure> {
        self.find_with(path, Links::KeepLast)
    }

    /// Opens a directory, as a handle for `fchdir` or for opening beneath it, and tells where it is, relative to the root.
    ///
    /// # Errors
    /// As [`Root::find`]; `NOT_A_DIRECTORY`.
    pub fn open_dir(&self, path: &str) -> Result<(OwnedFd, String), Failure> {
        let found = self.find(path)?;
        if found.file_type() != FileType::Directory {
            return Err(refusal(Errno::NOTDIR, &found.place.shown));
        }
        Ok((found.handle, path::show(&found.place.path)))
    }

    /// Finds where a file would be written: what is there, or the directory that it would be made in.
    ///
    /// # Errors
    /// As [`Root::find`], but for `NOT_FOUND`, which means a link that leads to nothing, or `..` behind what is not there.
    pub fn locate(&self, path: &str) -> Result<Target, Failure> {
        let wanted = Wanted::parse(path, &self.identity.real_path)?;
        let walk = self
            .walk(&wanted, Links::Follow)
            .map_err(|errno| refusal(errno, &wanted.shown()))?;
        let Walk {
            mut done,
            mut missing,
            found,
            dangling,
        } = walk;
        if dangling {
            return Err(refusal::dangling(&wanted.shown()));
        }
        let place = wanted.place(&done, &missing);
        if found.is_none() && wanted.directory {
            return Err(refusal::file_with_slash(&place.shown));
        }
        let Some(name) = missing.pop().or_else(|| done.pop()) else {
            return Err(refusal(Errno::ISDIR, &place.shown));
        };
        Ok(Target {
            existing: found.map(|(handle, stat)| Found {
                place: place.clone(),
                handle,
                stat,
            }),
            place,
            parent: done.iter().collect(),
            missing,
            name,
        })
    }

    /// Opens a link-free path beneath the root; empty for the root itself.
    ///
    /// # Errors
    /// The kernel's; `ELOOP` when a link is on the way.
    pub fn open_beneath(&self, path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let path = if path.as_os_str().is_empty() {
            Path::new(".")
        } else {
            path
        };
        open_link_free(&self.handle, path, flags)
    }

    fn find_with(&self, path: &str, links: Links) -> Result<Found, Failure> {
        let wanted = Wanted::parse(path, &self.identity.real_path)?;
        let walk = self
            .walk(&wanted, links)
            .map_err(|errno| refusal(errno, &wanted.shown()))?;
        let place = wanted.place(&walk.done, &walk.missing);
        match walk.found {
            Some((handle, stat)) => Ok(Found {
                place,
                handle,
                stat,
            }),
            None => Err(refusal(Errno::NOENT, &place.shown)),
        }
    }

    /// One question to the kernel when no link is on the way; else a walk link by link.
    fn walk(&self, wanted: &Wanted, links: Links) -> rustix::io::Result<Walk> {
        match self.walk_without_links(wanted, links) {
            Err(Errno::LOOP | Errno::NOENT) => {}
            known => return known,
        }
        for _ in 0..WALKS {
            match walk::link_by_link(self, wanted, links) {
                Err(walk::Stop::Changed) => {}
                Err(walk::Stop::Refused(errno)) => return Err(errno),
                Ok(walk) => return Ok(walk),
            }
        }
        Err(Errno::AGAIN)
    }

    fn walk_without_links(&self, wanted: &Wanted, links: Links) -> rustix::io::Result<Walk> {
        let last = if links == Links::KeepLast && !wanted.directory {
            OFlags::NOFOLLOW
        } else {
            OFlags::empty()
        };
        let handle = self.open_beneath(Path::new(&wanted.relative), OFlags::PATH | last)?;
        let stat = rustix::fs::fstat(&handle)?;
        Ok(Walk {
            done: wanted.without_dots(),
            missing: Vec::new(),
            found: Some((handle, stat)),
            dangling: false,
        })
    }
}

/// Opens a link-free path beneath a directory.
///
/// # Errors
/// The kernel's; `ELOOP` when a link is on the way, `EXDEV` when the path leaves the directory.
pub fn open_link_free(
    directory: impl AsFd,
    path: &Path,
    flags: OFlags,
) -> rustix::io::Result<OwnedFd> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    for _ in 0..OPENS {
        match rustix::fs::openat2(
            directory.as_fd(),
            path,
            flags | OFlags::CLOEXEC,
            Mode::empty(),
            resolve,
        ) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            answer => return answer,
        }
    }
    Err(Errno::AGAIN)
}

/// Opens a regular file for reading that an `O_PATH` handle holds: this very file, whatever its path names by now.
///
/// # Errors
/// `NOT_A_FILE`, `PERMISSION_DENIED`, and what the file system says.
pub fn open_file(found: &Found) -> Result<File, Failure> {
    let shown = &found.place.shown;
    if found.file_type() != FileType::RegularFile {
        return Err(refusal::not_a_file(shown, found.file_type()));
    }
    // Through the handle's own magic link, since a second walk could meet a FIFO or a device that was put in its place.
    let link = format!("/proc/self/fd/{}", found.handle.as_raw_fd());
    rustix::fs::open(link, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .map(File::from)
        .map_err(|errno| refusal(errno, shown))
}

#[cfg(test)]
mod tests;
