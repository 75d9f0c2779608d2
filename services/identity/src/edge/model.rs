//! What an edge's identity is about.

use postern_types::{Intention, Timestamp};

/// What a workspace is tied to. The path alone would not do: another directory can come to stand there.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Pin {
    pub(super) intention: Intention,
    /// Real path of the project's root.
    pub(super) project_path: String,
    pub(super) device: u64,
    pub(super) inode: u64,
}

impl Pin {
    /// What differs between two pins, in words for the owner; no value of either is told.
    pub(super) fn difference(&self, other: &Self) -> &'static str {
        let project = self.project_path != other.project_path;
        let directory = (self.device, self.inode) != (other.device, other.inode);
        let intention = self.intention != other.intention;
        match (project, directory, intention) {
            (true, _, true) => "to another project and another intention",
            (true, _, false) => "to another project",
            (false, true, true) => {
                "to another directory that stood at the same path, and to another intention"
            }
            (false, true, false) => "to another directory that stood at the same path",
            (false, false, _) => "to another intention",
        }
    }
}

/// What a look at a session says.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Admission {
    /// Admitted before.
    Known,
    /// Admitted just now.
    New,
    /// Not admitted, and new ones are not let in.
    Unknown,
    /// The workspace has as many sessions as it may.
    Full,
}

/// An admitted session.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Session {
    pub(super) session_id: String,
    pub(super) admitted_at: Timestamp,
}
