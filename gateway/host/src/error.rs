//! Why a host cannot start or stopped serving.

use std::{io, path::PathBuf};

/// Why a host cannot start or stopped serving.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The public URL cannot be used.
    #[error("'{0}' is no public URL; write http://host:port or https://host")]
    PublicUrl(String),
    /// The call journal cannot be opened.
    #[error(
        "the call journal {} cannot be opened: {source}; if it is damaged, move it away with its -wal and -shm files (a \
         call sent again is then run again)",
        path.display()
    )]
    Journal {
        /// The file.
        path: PathBuf,
        /// Why.
        source: sqlx::Error,
    },
    /// The call journal was written by a newer version.
    #[error(
        "the call journal has schema {found}, this program knows {known}; use the newer program"
    )]
    NewerJournal {
        /// Schema of the file.
        found: i64,
        /// Schema of this program.
        known: i64,
    },
    /// The file of the call journal cannot be made private.
    #[error("the call journal's file cannot be used: {0}")]
    File(#[source] io::Error),
}
