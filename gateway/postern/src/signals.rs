//! SIGINT, SIGTERM and SIGHUP as one wish to end.

use std::time::{Duration, Instant};

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::error::Error;

/// A signal this soon after the first is the same wish: a closed terminal sends several, and so do tools that signal a process
/// and its group.
const SAME_WISH: Duration = Duration::from_secs(1);
/// What the kernel sends to a process that passes its file size limit; without a handler it ends the process.
const SIGXFSZ: i32 = 25;

/// Cancels `stop` at the first of them. A further one, [`SAME_WISH`] later, ends the process at once.
pub(crate) fn listen(
    tasks: &postern_kit::task::Tasks,
    stop: CancellationToken,
) -> Result<(), Error> {
    let failed = |problem| Error::failed("cannot listen for signals", problem);
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    // A closed terminal is a wish to end as well: what was started is ended in order.
    let mut hang_up = signal(SignalKind::hangup()).map_err(failed)?;
    // Taken once, the signal stays taken: the write that passed the limit fails instead, and that is told as a full disk.
    drop(signal(SignalKind::from_raw(SIGXFSZ)).map_err(failed)?);
    let ended = tasks.stopping();
    tasks.spawn("signals", async move {
        let mut first: Option<Instant> = None;
        loop {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                _ = hang_up.recv() => {}
                () = ended.cancelled() => return,
            }
            match first {
                None => {
                    first = Some(Instant::now());
                    stop.cancel();
                }
                Some(first) if first.elapsed() < SAME_WISH => {}
                Some(_) => std::process::exit(i32::from(crate::error::FAILED)),
            }
        }
    });
    Ok(())
}
