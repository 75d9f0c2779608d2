//! The private temporary directory of one command.
//!
//! It is alive exactly as long as its worker holds the lock on it, so that what a killed worker left is known.

use std::{
    ffi::OsStr,
    fs::{self, DirBuilder, File, Permissions},
    io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{FlockOperation, Mode, OFlags, flock, open},
    process::geteuid,
};
use uuid::Uuid;

/// How the directories are named.
const PREFIX: &str = "postern-command-";
/// Entries of the common temporary directory looked at for what killed workers left.
const SWEPT: usize = 100_000;
/// Tries to make one while another worker sweeps.
const TRIES: usize = 8;
/// Directories opened up, should a command have closed some against its own user, before removal is given up.
const OPENED: usize = 100_000;

/// A directory that goes when this does.
#[derive(Debug)]
pub(crate) struct Temporary {
    path: PathBuf,
    _lock: File,
}

impl Temporary {
    /// Makes one, for this user alone.
    pub(crate) fn make(parent: &Path) -> io::Result<Self> {
        for _ in 0..TRIES {
            let path = parent.join(format!("{PREFIX}{}", Uuid::new_v4()));
            DirBuilder::new().mode(0o700).create(&path)?;
            let lock = match lock(&path) {
                Ok(lock) => lock,
                // A worker that starts took it for a left-over before it was locked.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Err(error) => return Err(error),
            };
            if lock.metadata()?.nlink() > 0 && path.exists() {
                return Ok(Self { path, _lock: lock });
            }
        }
        Err(io::ErrorKind::ResourceBusy.into())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.path) {
            tracing::warn!(%error, "a command's temporary directory could not be removed");
        }
    }
}

/// Removes what killed workers left.
pub(crate) fn sweep(parent: &Path) -> io::Result<()> {
    for entry in fs::read_dir(parent)?.take(SWEPT) {
        let entry = entry?;
        let path = entry.path();
        if !is_name(&entry.file_name()) || !is_own(&path) {
            continue;
        }
        // A directory that is locked has a worker that lives.
        if let Ok(_lock) = lock(&path)
            && let Err(error) = remove(&path)
        {
            tracing::warn!(%error, "a left temporary directory could not be removed");
        }
    }
    Ok(())
}

/// Whether a name is one of such a directory.
pub(super) fn is_name(name: &OsStr) -> bool {
    name.to_str()
        .and_then(|name| name.strip_prefix(PREFIX))
        .is_some_and(|rest| Uuid::try_parse(rest).is_ok())
}

fn is_own(path: &Path) -> bool {
    fs::symlink_metadata(path)
        .is_ok_and(|facts| facts.is_dir() && facts.uid() == geteuid().as_raw())
}

fn lock(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = File::from(open(path, flags, Mode::empty())?);
    flock(&directory, FlockOperation::NonBlockingLockExclusive)?;
    Ok(directory)
}

/// Removes a tree that nobody works in any more.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            // A command may leave directories that are closed to its own user.
            open_up(path)?;
            fs::remove_dir_all(path)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn open_up(top: &Path) -> io::Result<()> {
    let mut waiting = vec![top.to_owned()];
    let mut opened = 0;
    while let Some(directory) = waiting.pop() {
        opened += 1;
        if opened > OPENED {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        fs::set_permissions(&directory, Permissions::from_mode(0o700))?;
        for entry in fs::read_dir(&directory)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                waiting.push(entry.path());
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    #[test]
    fn only_what_nobody_holds_is_swept() {
        let parent = tempfile::tempdir().expect("folder");
        let held = Temporary::make(parent.path()).expect("made");
        let left = parent.path().join(format!("{PREFIX}{}", Uuid::new_v4()));
        fs::create_dir_all(left.join("closed/inner")).expect("left");
        fs::set_permissions(left.join("closed"), Permissions::from_mode(0o0)).expect("closed");
        let other = parent.path().join(format!("{PREFIX}mine"));
        fs::create_dir(&other).expect("another's");
        let target = parent.path().join("target");
        fs::create_dir(&target).expect("target");
        let link = parent.path().join(format!("{PREFIX}{}", Uuid::new_v4()));
        std::os::unix::fs::symlink(&target, &link).expect("link");
        sweep(parent.path()).expect("swept");
        let there = [held.path(), &left, &other, &target].map(|path| path.exists());
        assert_eq!(there, [true, false, true, true]);
        let mode = fs::metadata(held.path()).expect("facts").mode() & 0o777;
        assert_eq!(mode, 0o700);
        let path = held.path().to_owned();
        drop(held);
        assert!(!path.exists());
    }

    #[test]
    fn closed_directories_are_opened_up() {
        let parent = tempfile::tempdir().expect("folder");
        fs::create_dir_all(parent.path().join("a/b/c")).expect("tree");
        for closed in ["a/b", "a"] {
            fs::set_permissions(parent.path().join(closed), Permissions::from_mode(0o0))
                .expect("closed");
        }
        open_up(&parent.path().join("a")).expect("opened");
        let mode = fs::metadata(parent.path().join("a/b/c"))
            .expect("facts")
            .mode()
            & 0o700;
        assert_eq!(mode, 0o700);
    }
}
