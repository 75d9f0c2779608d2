//! What makes a change durable.

use std::{ffi::OsStr, os::fd::AsFd};

use rustix::{
    fs::{AtFlags, RenameFlags},
    io::Errno,
};

/// The disk's promises. Nothing but system calls; tests count them and make them fail.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    #[cfg(test)]
    pub(crate) trial: std::sync::Mutex<tests::Trial>,
}

impl Disk {
    /// Makes what was changed in a directory durable.
    pub(crate) fn sync_directory(&self, directory: impl AsFd) -> rustix::io::Result<()> {
        self.sync(directory)
    }

    /// Makes a file's content durable, whoever wrote it.
    pub(crate) fn sync_file(&self, file: impl AsFd) -> rustix::io::Result<()> {
        self.sync(file)
    }

    /// Gives a file another name in its directory, with flags that not every file system knows ([`is_plain`]).
    pub(crate) fn rename(
        &self,
        directory: impl AsFd,
        from: &OsStr,
        to: &OsStr,
        flags: RenameFlags,
    ) -> rustix::io::Result<()> {
        #[cfg(test)]
        if self.trial.lock().is_ok_and(|trial| trial.renames_plainly) {
            return Err(Errno::INVAL);
        }
        rustix::fs::renameat_with(&directory, from, &directory, to, flags)
    }

    fn sync(&self, handle: impl AsFd) -> rustix::io::Result<()> {
        #[cfg(test)]
        self.tried(handle.as_fd())?;
        match rustix::fs::fsync(handle) {
            // Some network file systems know no sync of a directory or of a file that is open for reading; there, what was
            // answered is durable.
            Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            answer => answer,
        }
    }
}

/// Whether an error says that the file system renames plainly alone, as NFS and many of FUSE do.
pub(crate) const fn is_plain(errno: Errno) -> bool {
    matches!(errno, Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP)
}

/// Gives a file a second name in its directory, which never replaces anything.
///
/// # Errors
/// `EOPNOTSUPP` where files have one name only.
pub(crate) fn link(directory: impl AsFd, from: &OsStr, to: &OsStr) -> rustix::io::Result<()> {
    match rustix::fs::linkat(&directory, from, &directory, to, AtFlags::empty()) {
        Err(Errno::PERM | Errno::NOSYS | Errno::OPNOTSUPP | Errno::MLINK) => Err(Errno::OPNOTSUPP),
        answer => answer,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::os::fd::BorrowedFd;

    use super::*;
    use crate::jobs::hold;

    #[derive(Debug, Default)]
    pub(crate) struct Trial {
        /// Inodes of what was made durable, in order.
        pub(crate) synced: Vec<u64>,
        /// Whether it fails from now on.
        pub(crate) fails: bool,
        /// Whether the file system knows no flags of renames from now on.
        pub(crate) renames_plainly: bool,
    }

    impl Disk {
        pub(super) fn tried(&self, handle: BorrowedFd<'_>) -> rustix::io::Result<()> {
            let mut trial = hold(&self.trial);
            if trial.fails {
                return Err(Errno::IO);
            }
            trial.synced.push(rustix::fs::fstat(handle)?.st_ino);
            Ok(())
        }
    }
}
