//! Why a request was refused or a store could not be opened.

use std::path::PathBuf;

use postern_kit::Problem;
use tonic::{Code, Status};

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
            Error::Store(
                sqlx::Error::PoolTimedOut | sqlx::Error::Io(_) | sqlx::Error::PoolClosed,
            )
            | Error::Interrupted => away(),
            Error::Open { .. }
            | Error::Foreign { .. }
            | Error::NewerSchema { .. }
            | Error::Store(_)
            | Error::Corrupt(_)
            | Error::Random(_) => broken(),
        };
        tracing::error!(%error, "an identity request failed");
        problem
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        Problem::from(error).into()
    }
}
