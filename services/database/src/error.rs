//! Why a database cannot be used, or did not do what it was asked.

use std::path::{Path, PathBuf};

/// Characters of an SQLSTATE. SQLite's codes are shorter.
const SQLSTATE_LENGTH: usize = 5;
/// SQLSTATE of a text that PostgreSQL cannot hold, which is one with a NUL.
const NOT_IN_REPERTOIRE: &str = "22021";
/// SQLSTATE of a server that has no room left on its disk.
const DISK_FULL: &str = "53100";
/// SQLite's code of the same (`SQLITE_FULL`).
const SQLITE_FULL: &str = "13";
/// SQLSTATE classes of a database that is away: connection exceptions, no resources, operator's intervention (which ended
/// statements, shutdown and start-up are).
const AWAY_CLASSES: [&str; 3] = ["08", "53", "57"];
/// Single SQLSTATEs of the same: the lock was not to be had, the transaction stood idle too long, a server that takes no
/// writes because another has taken over, and tables or a database that are not made yet.
const AWAY_CODES: [&str; 5] = ["55P03", "25P03", "25006", "42P01", "3D000"];

/// Anything that goes wrong with a database.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database file cannot be made or opened.
    #[error("the database {} cannot be opened: {source}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The database file cannot be read: it is damaged, held by another, or on a disk that fails.
    #[error(
        "the database {} cannot be read: {source}; if it is damaged, put a copy of it back, or move it away with its \
         -wal and -shm files to begin with an empty one",
        path.display()
    )]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: sqlx::Error,
    },
    /// The file is a database of something else.
    #[error("{} is not a database of this service; name another file", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// A newer version of the program has written the database.
    #[error(
        "the database {} has schema version {found}, and this program knows versions up to {known}; use the newer program",
        path.display()
    )]
    NewerSchema {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// Newest version known here.
        known: i64,
    },
    /// A newer version of the program has made the tables.
    #[error(
        "the database has schema version {found}, and this program knows versions up to {known}; use the newer program"
    )]
    NewerTables {
        /// Their version.
        found: i64,
        /// Newest version known here.
        known: i64,
    },
    /// The database cannot hold every text.
    #[error(
        "the database has the encoding {0}; make one with the encoding UTF8 (CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0)"
    )]
    Encoding(String),
    /// The database does not answer in time.
    #[error("the database does not answer")]
    Silent,
    /// The store failed.
    #[error("the store failed: {0}")]
    Store(#[from] sqlx::Error),
}

impl Error {
    /// The error of opening that file.
    #[must_use]
    pub fn at(self, path: &Path) -> Self {
        let Self::Store(source) = self else {
            return self;
        };
        let path = path.to_owned();
        Self::Unreadable { path, source }
    }

    /// Whether the database is away, or ended the work for a reason of its own: trying again may help.
    #[must_use]
    pub fn is_away(&self) -> bool {
        match self {
            Self::Silent => true,
            Self::Store(error) => is_away(error),
            Self::Open { .. }
            | Self::Unreadable { .. }
            | Self::Foreign { .. }
            | Self::NewerSchema { .. }
            | Self::NewerTables { .. }
            | Self::Encoding(_) => false,
        }
    }

    /// Whether a text cannot be stored, because a NUL is in it.
    #[must_use]
    pub fn is_invalid_text(&self) -> bool {
        matches!(self, Self::Store(error) if has_code(error, |code| code == NOT_IN_REPERTOIRE))
    }
}

/// The same of an error of the driver's.
fn is_away(error: &sqlx::Error) -> bool {
    let is_told = has_code(error, |code| {
        AWAY_CLASSES.iter().any(|class| code.starts_with(class)) || AWAY_CODES.contains(&code)
    });
    is_told
        || matches!(
            error,
            sqlx::Error::PoolTimedOut
                | sqlx::Error::PoolClosed
                | sqlx::Error::WorkerCrashed
                | sqlx::Error::Io(_)
                | sqlx::Error::Tls(_)
        )
}

/// Whether a database has told that its disk is full.
#[must_use]
pub fn is_full(error: &sqlx::Error) -> bool {
    let code = error
        .as_database_error()
        .and_then(sqlx::error::DatabaseError::code);
    code.is_some_and(|code| code == SQLITE_FULL || code == DISK_FULL)
}

/// Whether PostgreSQL has told an SQLSTATE of that kind.
fn has_code(error: &sqlx::Error, is_meant: impl FnOnce(&str) -> bool) -> bool {
    let code = error
        .as_database_error()
        .and_then(sqlx::error::DatabaseError::code);
    code.is_some_and(|code| code.len() == SQLSTATE_LENGTH && is_meant(&code))
}
