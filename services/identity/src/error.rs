//! Why a request was refused or a store could not be opened.

use postern_kit::Problem;
use tonic::{Code, Status};

/// Anything that goes wrong in this crate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database cannot be opened, is away, or did not do what it was asked.
    #[error(transparent)]
    Database(#[from] postern_database::Error),
    /// The database was not there when it was last asked, so that what is in memory may be out of date.
    #[error("the database is away")]
    Away,
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
            Error::Away => return away(),
            Error::Database(error) if error.is_away() => away(),
            Error::Database(error) if error.is_invalid_text() => {
                return Self::new(
                    Code::InvalidArgument,
                    "invalid_text",
                    "No text of a request holds a NUL.",
                );
            }
            Error::Interrupted => away(),
            Error::Database(_) | Error::Corrupt(_) | Error::Random(_) => broken(),
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
