//! Filesystem service: files of one project, opened only beneath its root.
//!
//! Invariants:
//! - Every path is opened by [`postern_kit::root`], beneath the root handle. Devices, sockets and named pipes are never opened.
//! - A reader sees a file before a change or after it, whole; a change is durable before it is answered.
//! - Of changes that expect the same revision of one target, one is made.
//! - What a change replaces or deletes is kept, durably, before it happens ([`Config::before`]).
//! - A receipt is acted on once, and never for an incarnation that was succeeded.
//! - A page describes one state of a file, and pages never split a character.
//! - No image or document is decoded in this process.
//! - Whatever sizes and numbers a project has, memory is bounded by [`Config`] and the constants beside each use.
//!
//! What is promised of symbolic links: reads, lists, writes and patches follow those that stay inside; a link that
//! leads to nothing is `NOT_FOUND`, also for a write, which does not create what it should lead to; deletes refuse links.
//!
//! Revisions of huge files: a page waits for the revision of its file, but not for ever. A file over [`Config::giant`] that is
//! not hashed within [`Config::revision_wait`], and any file that is not within [`Config::effect_wait`], is told without
//! `sha256` and line endings until the job that hashes it is done.
//!
//! Images and documents are decoded in a short-lived process of their own ([`decode_main`]) that confines itself before it looks
//! at a byte; whatever it makes of the bytes is a clear answer to one call.
//!
//! Deliberately not here: permission, receipts on disk.

mod before;
mod before_stream;
mod change;
mod disk;
#[cfg(feature = "fault-points")]
mod fault_points;
mod grpc;
mod guard;
mod jobs;
mod keeping;
mod left_over;
mod list;
mod locks;
mod media;
mod names;
mod page;
mod patch;
mod plan;
mod project;
mod read;
mod recent;
mod refusal;
mod restore;
mod revision;
mod spot;
mod staged;
mod store;

use std::{io, path::Path};

use postern_kit::root::{Identity, Root};

#[cfg(feature = "fault-points")]
pub use fault_points::ALL as FAULT_POINTS;
pub use grpc::Service;
pub use media::decode_main;
pub use project::Config;

/// Why a project cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its root cannot be opened.
    #[error("the project's root cannot be opened: {0}")]
    Root(#[source] io::Error),
    /// The folder for the bytes before changes cannot be used.
    #[error("the folder for what files were before changes cannot be used: {0}")]
    Before(#[source] io::Error),
}

/// Real path, device and inode of a project's root, for its pin.
pub type RootIdentity = Identity;

/// What tells a project's root from every other.
///
/// # Errors
/// [`Error::Root`].
pub fn root_identity(path: &Path) -> Result<RootIdentity, Error> {
    let root = Root::open(path).map_err(Error::Root)?;
    Ok(root.identity().clone())
}
