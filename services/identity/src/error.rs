//! Why a request was refused or a store could not be opened.

use std::path::{Path, PathBuf};

use postern_kit::Problem;
use tonic::{Code, Status};

/// Characters of an SQLSTATE. SQLite's codes are shorter.
const SQLSTATE_LENGTH: usize = 5;
/// SQLSTATE of a text that PostgreSQL cannot hold, which is one with a NUL.
const NOT_IN_REPERTOIRE: &str = "22021";
/// SQLSTATE classes of a database that is away: connection exceptions, no resources, operator's intervention (which ended
/// statements, shutdown and start-up are).
const AWAY_CLASSES: [&str; 3] = ["08", "53", "57"];
/// Single SQLSTATEs of the same: the lock was not to be had, the transaction stood idle too long, a server that takes no
/// writes because another has taken over, and tables that are not made yet.
const AWAY_CODES: [&str; 4] = ["55P03", "25P03", "25006", "42P01"];

/// Anything that goes wrong in this crate.
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
    /// The database does not answer in time.
    #[error("the database does not answer")]
    Silent,
    /// The database was not there when it was last asked, so that what is in memory may be out of date.
    #[error("the database is away")]
    Away,
    /// The store failed.
    #[error("the store failed: {0}")]
    Store(#[from] sqlx::Error),
    /// What the store holds makes no sense.
    #[error("the store holds an invalid {0}")]
    Corrupt(&'static str),
    /// The system gave no random bytes.
    #[error("the system gives no random bytes: {0}")]
    Random(#[from] getrandom::Error),
    /// The work behind a request ended before its answer.
    #[error("the service is shutting down")]
    Interrupted,
    /// The request is refused.
    #[error(transparent)]
    Refused(#[from] Problem),
}

impl Error {
    /// The error of opening that file.
    pub(crate) fn at(self, path: &Path) -> Self {
        let Self::Store(source) = self else {
            return self;
        };
        let path = path.to_owned();
        Self::Unreadable { path, source }
    }

    /// A request that is not well formed.
    pub(crate) fn invalid(code: &'static str, message: impl Into<String>) -> Self {
        Self::Refused(Problem::new(Code::InvalidArgument, code, message))
    }

    /// A request that the caller may not make.
    pub(crate) fn forbidden(code: &'static str, message: impl Into<String>) -> Self {
        Self::Refused(Problem::new(Code::PermissionDenied, code, message))
    }

    /// A request about something that is not there, or not for the caller to see.
    pub(crate) fn not_found(code: &'static str, message: impl Into<String>) -> Self {
        Self::Refused(Problem::new(Code::NotFound, code, message))
    }

    /// A request beyond a bound.
    pub(crate) fn exhausted(code: &'static str, message: impl Into<String>) -> Self {
        Self::Refused(Problem::new(Code::ResourceExhausted, code, message))
    }

    /// A token that opens nothing: unknown, expired or revoked, and it is not told which.
    pub(crate) fn invalid_token() -> Self {
        Self::Refused(Problem::new(
            Code::Unauthenticated,
            "invalid_token",
            "The token is unknown, expired or revoked.",
        ))
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let away = || {
            Self::new(
                Code::Unavailable,
                "unavailable",
                "The identity store does not answer. Try again.",
            )
        };
        let broken = || {
            Self::new(
                Code::Internal,
                "internal",
                "The identity service failed. Its log tells more.",
            )
        };
        let problem = match &error {
            Error::Refused(problem) => return problem.clone(),
            Error::Away => return away(),
            Error::Store(error) if is_away(error) => away(),
            Error::Store(error) if has_code(error, |code| code == NOT_IN_REPERTOIRE) => {
                return Self::new(
                    Code::InvalidArgument,
                    "invalid_text",
                    "No text of a request holds a NUL.",
                );
            }
            Error::Silent | Error::Interrupted => away(),
            Error::Open { .. }
            | Error::Unreadable { .. }
            | Error::Foreign { .. }
            | Error::NewerSchema { .. }
            | Error::NewerTables { .. }
            | Error::Store(_)
            | Error::Corrupt(_)
            | Error::Random(_) => broken(),
        };
        tracing::error!(%error, "an identity request failed");
        problem
    }
}

/// Whether the database is away, or ended the work for a reason of its own: trying again may help.
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

/// Whether PostgreSQL has told an SQLSTATE of that kind.
fn has_code(error: &sqlx::Error, is_meant: impl FnOnce(&str) -> bool) -> bool {
    let code = error
        .as_database_error()
        .and_then(sqlx::error::DatabaseError::code);
    code.is_some_and(|code| code.len() == SQLSTATE_LENGTH && is_meant(&code))
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        Problem::from(error).into()
    }
}
