//! What makes a change durable.

use std::os::fd::AsFd;

use rustix::io::Errno;

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
