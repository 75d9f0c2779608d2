//! The data directory: what the receipts lie in. Everything is tried in a folder of its own that goes with the check.

use std::{
    fs::{self, File},
    io::Write as _,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime},
};

use postern_identity::Database;
use postern_kit::{Clock, serve::Listener, task::Tasks, transport::Address};
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open, statvfs};

use super::Finding;
use crate::{data_dir, services};

/// Free bytes below which the ledger may stop.
const LEAST_BYTES: u64 = 64 << 20;
/// Free bytes below which the output of commands fills the disk soon: each keeps up to 64 MiB.
const FEW_BYTES: u64 = 1 << 30;
/// Time of one durable write above which every call is felt.
const SLOW_SYNC: Duration = Duration::from_millis(50);
/// Difference between the file system's clock and this machine's that no file on this machine has.
const CLOCK_SKEW: Duration = Duration::from_secs(5);
/// Time for the ledger to close.
const CLOSE_LIMIT: Duration = Duration::from_secs(5);

/// What a trial's folder is called, before the number of its process.
const TRIAL: &str = ".postern-doctor-";
/// Age from which a folder that nobody holds was left by a doctor that was ended; a new one is not held yet for a moment.
const LEFT_BEHIND: Duration = Duration::from_secs(60);

/// A folder that goes with this value, and is held as long as it is used.
struct Trial {
    path: PathBuf,
    _held: OwnedFd,
}

impl Trial {
    /// Beside the data, or where the data would be made.
    fn make(data_dir: &Path) -> std::io::Result<Self> {
        let absolute = std::path::absolute(data_dir)?;
        let there = absolute
            .ancestors()
            .find(|path| path.is_dir())
            .ok_or(std::io::ErrorKind::NotFound)?;
        sweep(there);
        let path = there.join(format!("{TRIAL}{}", std::process::id()));
        fs::create_dir(&path)?;
        let held = hold(&path).inspect_err(|_| drop(fs::remove_dir(&path)))?;
        Ok(Self { path, _held: held })
    }
}

/// Locks a folder that nobody else has locked.
fn hold(path: &Path) -> std::io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = open(path, flags, Mode::empty())?;
    flock(&folder, FlockOperation::NonBlockingLockExclusive)?;
    Ok(folder)
}

/// Removes the folders of doctors that were ended before they could.
fn sweep(there: &Path) {
    for entry in fs::read_dir(there).into_iter().flatten().flatten() {
        let is_trial = entry
            .file_name()
            .to_str()
            .and_then(|name| name.strip_prefix(TRIAL))
            .is_some_and(|number| number.parse::<u32>().is_ok());
        let is_old = || {
            let modified = entry.metadata().and_then(|facts| facts.modified()).ok()?;
            Some(modified.elapsed().ok()? >= LEFT_BEHIND)
        };
        if is_trial
            && is_old() == Some(true)
            && let Ok(_held) = hold(&entry.path())
        {
            // Another user's stays.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        if let Err(problem) = fs::remove_dir_all(&self.path) {
            tracing::warn!(%problem, "the doctor's own folder could not be removed");
        }
    }
}

/// Every check of a data directory that may not exist yet, for this project if there is one.
pub(super) async fn check(data_dir: &Path, project: Option<&Path>) -> Vec<Finding> {
    let outside = project.map_or(Ok(()), |root| data_dir::demand_outside(data_dir, root));
    if let Err(problem) = outside.and_then(|()| data_dir::examine(data_dir)) {
        let advice = "Without that, `postern up` does not start";
        return vec![Finding::fail("data-directory", problem.to_string(), advice)];
    }
    let trial = match Trial::make(data_dir) {
        Ok(trial) => trial,
        Err(problem) => {
            return vec![Finding::fail(
                "data-directory",
                format!("'{}' cannot be written ({problem})", data_dir.display()),
                "Make it writable, or choose another with --data-dir",
            )];
        }
    };
    let used = if matches!(data_dir::is_held(data_dir), Ok(true)) {
        "can be written; a postern uses it now"
    } else {
        "can be written"
    };
    vec![
        Finding::ok("data-directory", format!("'{}' {used}", data_dir.display())),
        space(free_bytes(&trial.path)),
        durable(&trial.path),
        socket(&trial.path).await,
        ledger(&trial.path).await,
    ]
}

fn free_bytes(path: &Path) -> u64 {
    statvfs(path).map_or(0, |facts| facts.f_bavail.saturating_mul(facts.f_frsize))
}

fn space(free: u64) -> Finding {
    const CHECK: &str = "space";
    let detail = format!("{} MiB are free for receipts and output", free >> 20);
    if free < LEAST_BYTES {
        return Finding::fail(
            CHECK,
            detail,
            "Free some: without a receipt nothing is done",
        );
    }
    if free < FEW_BYTES {
        return Finding::warn(
            CHECK,
            detail,
            "Free some: each command keeps up to 64 MiB of its output",
        );
    }
    Finding::ok(CHECK, detail)
}

/// A write that is on the disk when it is said to be.
fn durable(folder: &Path) -> Finding {
    let path = folder.join("durable");
    let began = Instant::now();
    let write = || -> std::io::Result<SystemTime> {
        let mut file = File::create(&path)?;
        file.write_all(b"x")?;
        file.sync_all()?;
        File::open(folder)?.sync_all()?;
        file.metadata()?.modified()
    };
    match write() {
        Ok(modified) => sync(began.elapsed(), difference(modified, SystemTime::now())),
        Err(problem) => Finding::fail(
            "durable-sync",
            format!("a write cannot be made durable ({problem})"),
            "Keep the data on a local file system, chosen with --data-dir",
        ),
    }
}

fn difference(one: SystemTime, other: SystemTime) -> Duration {
    one.duration_since(other)
        .unwrap_or_else(|before| before.duration())
}

fn sync(took: Duration, skew: Duration) -> Finding {
    const CHECK: &str = "durable-sync";
    let detail = format!(
        "a durable write takes {:.1} ms",
        took.as_secs_f64() * 1000.0
    );
    if skew > CLOCK_SKEW {
        return Finding::warn(
            CHECK,
            format!(
                "{detail}, and the file system's clock is {} s off",
                skew.as_secs()
            ),
            "Keep the data on a local file system, or set both clocks",
        );
    }
    if took > SLOW_SYNC {
        return Finding::warn(
            CHECK,
            detail,
            "Each effect waits for some; a faster disk helps",
        );
    }
    Finding::ok(CHECK, detail)
}

/// Whether the worker's socket can be there. A path that is too long is no fault: another place is taken then.
async fn socket(folder: &Path) -> Finding {
    let path = folder.join("s");
    if path.as_os_str().len() > crate::worker::SOCKET_PATH_LIMIT {
        return Finding::ok(
            "sockets",
            "the path is too long for one; the temporary directory is used",
        );
    }
    match Listener::bind(&Address::Unix(path)).await {
        Ok(_) => Finding::ok("sockets", "Unix sockets can be made in the data directory"),
        Err(problem) => Finding::fail(
            "sockets",
            problem.to_string(),
            "Keep the data on a file system that takes Unix sockets, chosen with --data-dir",
        ),
    }
}

/// The ledger itself, opened on the same disk.
async fn ledger(folder: &Path) -> Finding {
    let tasks = Tasks::new();
    let database = Database::Sqlite(folder.join("ledger.db"));
    let opened = services::ledger(database, &Clock::system(), &tasks).await;
    let finding = match &opened {
        Ok(_) => Finding::ok("database", "SQLite opens with durable commits"),
        Err(problem) => Finding::fail(
            "database",
            problem.to_string(),
            "Keep the data on a local file system, chosen with --data-dir",
        ),
    };
    drop(opened);
    tasks.shutdown(CLOSE_LIMIT).await;
    finding
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::{super::State, *};

    #[tokio::test]
    async fn a_data_directory_that_cannot_be_written_fails_and_nothing_is_left() {
        let folder = tempfile::tempdir().expect("folder");
        // Root writes anywhere but below what is no directory of a disk.
        for bad in ["/proc/nowhere", "/sys/kernel/nowhere"] {
            let findings = check(Path::new(bad), None).await;
            assert_eq!(findings.len(), 1, "{bad}");
            assert_eq!(findings[0].state, State::Fail, "{bad}");
            let advice = findings[0].advice.as_deref().unwrap_or_default();
            assert!(advice.contains("--data-dir"), "{advice}");
        }
        let good = check(&folder.path().join("a/b/c"), None).await;
        assert!(good.iter().all(|finding| finding.state != State::Fail));
        assert_eq!(fs::read_dir(folder.path()).expect("folder").count(), 0);
    }

    #[tokio::test]
    async fn what_a_doctor_left_that_was_ended_goes() {
        let folder = tempfile::tempdir().expect("folder");
        let old = SystemTime::now() - LEFT_BEHIND * 2;
        let make = |name: &str, modified: SystemTime| {
            let path = folder.path().join(name);
            fs::create_dir(&path).expect("folder");
            fs::write(path.join("ledger.db"), "x").expect("file");
            let handle = File::open(&path).expect("folder");
            handle.set_modified(modified).expect("set");
            path
        };
        make(".postern-doctor-1", old);
        let held = make(".postern-doctor-2", old);
        let _held = hold(&held).expect("held");
        make(".postern-doctor-3", SystemTime::now());
        make(".postern-doctor-notes", old);
        let findings = check(&folder.path().join("data"), None).await;
        assert!(findings.iter().all(|finding| finding.state != State::Fail));
        let mut left: Vec<_> = fs::read_dir(folder.path())
            .expect("folder")
            .map(|entry| entry.expect("entry").file_name())
            .collect();
        left.sort_unstable();
        let expected = [
            ".postern-doctor-2",
            ".postern-doctor-3",
            ".postern-doctor-notes",
        ];
        assert_eq!(left, expected);
    }

    #[test]
    fn little_space_is_told() {
        for (free, expected) in [
            (0, State::Fail),
            (LEAST_BYTES, State::Warn),
            (FEW_BYTES, State::Ok),
        ] {
            assert_eq!(space(free).state, expected, "{free}");
        }
        assert!(free_bytes(Path::new("/")) > 0);
        assert_eq!(free_bytes(Path::new("/nowhere")), 0);
    }

    #[test]
    fn slow_or_skewed_disks_are_told() {
        let none = Duration::ZERO;
        assert_eq!(sync(Duration::from_millis(1), none).state, State::Ok);
        assert_eq!(sync(Duration::from_secs(1), none).state, State::Warn);
        let skewed = sync(none, Duration::from_secs(60));
        assert!(skewed.detail.contains("60 s off"), "{}", skewed.detail);
        let later = SystemTime::UNIX_EPOCH + Duration::from_secs(9);
        assert_eq!(
            difference(SystemTime::UNIX_EPOCH, later),
            Duration::from_secs(9)
        );
        assert_eq!(durable(Path::new("/proc")).state, State::Fail);
    }

    #[tokio::test]
    async fn no_socket_and_no_database_fail() {
        let nowhere = Path::new("/proc/nowhere");
        assert_eq!(socket(nowhere).await.state, State::Fail);
        assert_eq!(ledger(nowhere).await.state, State::Fail);
    }
}
