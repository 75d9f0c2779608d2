//! Fault points: places at which the fault suite ends or holds a process of the program.
//!
//! They exist only with the feature `fault-points`, which no ordinary build has; without it [`fault_point!`](crate::fault_point)
//! is nothing at all. With it, a process that finds the variable [`DIRECTORY`] in its environment looks at every point into
//! that directory:
//!
//! - `seen/NAME` is made when the point is reached;
//! - `armed/NAME` says what to do there, once: `kill` (the process sends itself SIGKILL) or `hold`;
//! - `hit/NAME` is what `armed/NAME` becomes when the point takes it. A held process goes on when it is removed.
//!
//! The points of a crate stand in one table of its own, made by [`fault_points!`](crate::fault_points).

use std::{
    fs,
    path::{Path, PathBuf},
    sync::OnceLock,
    time::{Duration, Instant},
};

use rustix::process::{Signal, getpid, kill_process};
use tokio::runtime::{Handle, RuntimeFlavor};

/// The variable that names the directory. Not called `POSTERN_…`, so that exec workers and their wrappers keep it.
pub const DIRECTORY: &str = "FAULT_POINTS";

/// Time between two looks of a process that is held.
const LOOK_AGAIN: Duration = Duration::from_millis(1);
/// Longest hold: a suite that has gone leaves no process standing.
const HOLD_LIMIT: Duration = Duration::from_secs(30);

/// A place was reached. Does what the suite has armed there, if anything.
pub fn reach(point: &str) {
    let Some(directory) = directory() else {
        return;
    };
    note(directory, point);
    let hit = directory.join("hit").join(point);
    let armed = directory.join("armed").join(point);
    let Ok(order) = fs::read_to_string(&armed) else {
        return;
    };
    // Of everybody who comes here at once, one takes the order.
    if fs::rename(&armed, &hit).is_err() {
        return;
    }
    match order.trim() {
        "kill" => end(),
        "hold" => apart(|| hold(&hit)),
        _ => {}
    }
}

fn directory() -> Option<&'static Path> {
    static FOUND: OnceLock<Option<PathBuf>> = OnceLock::new();
    FOUND
        .get_or_init(|| std::env::var_os(DIRECTORY).map(PathBuf::from))
        .as_deref()
}

fn note(directory: &Path, point: &str) {
    let seen = directory.join("seen").join(point);
    if !seen.exists() {
        // The suite misses what cannot be written here, and says so.
        let _missed = fs::write(seen, "");
    }
}

fn end() -> ! {
    loop {
        // It cannot fail, and nothing after it runs in this thread.
        let _never = kill_process(getpid(), Signal::KILL);
    }
}

/// Waits so that the other tasks of a runtime go on.
fn apart(wait: impl FnOnce()) {
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(wait),
        _ => wait(),
    }
}

fn hold(hit: &Path) {
    let until = Instant::now() + HOLD_LIMIT;
    while hit.exists() && Instant::now() < until {
        std::thread::sleep(LOOK_AGAIN);
    }
}
