//! `postern session`, and what is kept for undo.

use clap::{Args, Subcommand};

use super::OwnerAccess;

/// What is kept so that changes can be taken back.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct KeepArgs {
    /// Bytes on disk that earlier states of changed files may take; the oldest go first, 0 keeps none
    #[arg(
        long,
        value_name = "BYTES",
        env = "POSTERN_KEEP_BEFORE",
        default_value_t = 1024 * 1024 * 1024
    )]
    pub(crate) keep_before: u64,
}

/// `postern session`
#[derive(Args, Debug)]
pub(crate) struct Session {
    /// The edge
    #[command(flatten)]
    pub(crate) access: OwnerAccess,
    /// What to do
    #[command(subcommand)]
    pub(crate) action: SessionAction,
}

/// What to do with sessions.
#[derive(Debug, Subcommand)]
pub(crate) enum SessionAction {
    /// Those with the newest activity first
    List {
        /// Sessions at most
        #[arg(long, value_name = "N", env = "POSTERN_LIMIT", default_value_t = 100)]
        limit: u32,
    },
    /// What a session changed, all in all, as a patch that `git apply` takes
    Diff {
        /// Session
        id: String,
    },
    /// Take back everything that a session changed, or nothing
    Undo {
        /// Session
        id: String,
    },
}
