//! The fault points of one world's processes (the program `postern-faults`): arming them, and hearing of what they did.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::wait_for;

/// The variable that tells the processes where their orders lie.
const DIRECTORY: &str = "FAULT_POINTS";

/// What is done at a point.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Strike {
    /// The process that reaches it ends at once, by SIGKILL.
    Kill,
    /// The thread that reaches it stands until it is let go, 30 s at most.
    Hold,
}

/// The orders and what became of them.
#[derive(Clone, Debug)]
pub struct FaultPoints(PathBuf);

impl FaultPoints {
    /// Orders in a new directory.
    pub(crate) fn new(directory: PathBuf) -> Self {
        for name in ["armed", "hit", "seen"] {
            fs::create_dir_all(directory.join(name)).expect("the test's directory is writable");
        }
        Self(directory)
    }

    pub(crate) const fn variable() -> &'static str {
        DIRECTORY
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.0
    }

    /// Orders what is done the next time that a point is reached.
    ///
    /// # Panics
    /// When the directory is gone.
    pub fn arm(&self, point: &str, strike: Strike) {
        let order = match strike {
            Strike::Kill => "kill",
            Strike::Hold => "hold",
        };
        let _none = fs::remove_file(self.0.join("hit").join(point));
        // Never seen half written.
        let draft = self.0.join("draft");
        fs::write(&draft, order).expect("the test's directory is writable");
        fs::rename(draft, self.0.join("armed").join(point)).expect("the same directory");
    }

    /// Takes an order back; tells whether it was still there.
    #[must_use]
    pub fn disarm(&self, point: &str) -> bool {
        fs::remove_file(self.0.join("armed").join(point)).is_ok()
    }

    /// Whether the order for a point was taken, and a held process was not let go yet.
    #[must_use]
    pub fn is_hit(&self, point: &str) -> bool {
        self.0.join("hit").join(point).exists()
    }

    /// Waits until the order for a point is taken.
    ///
    /// # Panics
    /// When it is not within `limit`.
    pub async fn hit(&self, point: &str, limit: Duration) {
        wait_for(point, limit, || async { self.is_hit(point).then_some(()) }).await;
    }

    /// Lets whoever is held go on.
    pub fn release(&self, point: &str) {
        let _not_held = fs::remove_file(self.0.join("hit").join(point));
    }

    /// The points that were reached since they were last forgotten.
    #[must_use]
    pub fn seen(&self) -> BTreeSet<String> {
        let entries = fs::read_dir(self.0.join("seen")).into_iter().flatten();
        entries
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect()
    }

    /// Forgets which points were reached.
    pub fn forget_seen(&self) {
        for point in self.seen() {
            let _gone = fs::remove_file(self.0.join("seen").join(point));
        }
    }
}
