//! Waiting for handles, with an end.

use std::{io, time::Instant};

use rustix::{
    event::{PollFd, Timespec, poll},
    io::Errno,
};

/// Waits until something is ready or the time has come; tells whether something is.
pub(crate) fn wait(ready: &mut [PollFd<'_>], until: Option<Instant>) -> io::Result<bool> {
    let timeout = until
        .map(|until| until.saturating_duration_since(Instant::now()))
        .map(Timespec::try_from)
        .transpose()
        .map_err(|_| io::ErrorKind::InvalidInput)?;
    match poll(ready, timeout.as_ref()) {
        Err(Errno::INTR) => Ok(false),
        Ok(count) => Ok(count > 0),
        Err(error) => Err(error.into()),
    }
}
