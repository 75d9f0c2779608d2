//! Keeping the bytes before a change, beside the change's own work.

use std::sync::{Arc, mpsc};

use postern_kit::Failure;
use rustix::io::Errno;
use tokio::runtime::Handle;

use crate::{before::Current, project::Project, refusal, store};

/// Bytes that are being kept.
#[derive(Debug)]
pub(crate) struct Keeping(Option<mpsc::Receiver<Result<bool, store::Error>>>);

/// How it ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kept {
    /// The bytes are kept, or never are of files like this one.
    Settled,
    /// The file is not what it was.
    Changed,
}

impl Project {
    /// Starts keeping what a file is, on a thread of its own, so that its sync and the one of the new content are one wait.
    pub(crate) fn keep(&self, current: &Current) -> Keeping {
        let Some(store) = self.store.as_ref().map(Arc::clone) else {
            return Keeping(None);
        };
        let (file, sha256) = (Arc::clone(&current.file), current.sha256);
        let size = u64::try_from(current.stat.st_size).unwrap_or_default();
        let (sender, answer) = mpsc::sync_channel(1);
        Handle::current().spawn_blocking(move || {
            // Nobody may wait any more: then nothing depends on it.
            let _ = sender.send(store.keep(&file, size, sha256));
        });
        Keeping(Some(answer))
    }
}

impl Keeping {
    /// Waits until the bytes are durable. A change whose bytes cannot be kept is not made.
    pub(crate) fn wait(self, shown: &str) -> Result<Kept, Failure> {
        let Some(answer) = self.0 else {
            return Ok(Kept::Settled);
        };
        match answer.recv() {
            Ok(Ok(_)) => Ok(Kept::Settled),
            Ok(Err(store::Error::Changed)) => Ok(Kept::Changed),
            Ok(Err(error)) => Err(not_kept(&error, shown)),
            // The process ends.
            Err(_) => Err(refusal::busy("The service ends. Nothing was done.")),
        }
    }
}

/// Why a change is refused whose bytes before cannot be kept.
pub(crate) fn not_kept(error: &store::Error, shown: &str) -> Failure {
    tracing::error!(%error, "the bytes before a change could not be kept");
    let full = match error {
        store::Error::Io(error) => {
            matches!(
                Errno::from_io_error(error),
                Some(Errno::NOSPC | Errno::DQUOT)
            )
        }
        store::Error::Changed | store::Error::Gone | store::Error::Damaged => false,
    };
    refusal::not_kept(shown, full)
}
