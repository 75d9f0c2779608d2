//! Why a command of the program failed, and its exit code (CONTRACT.md, section 7).

/// Exit code: done.
pub(crate) const DONE: u8 = 0;
/// Exit code: failed.
pub(crate) const FAILED: u8 = 1;
/// Exit code: wrong usage.
pub(crate) const USAGE: u8 = 2;
/// Exit code: unauthorized, or refused by the other side.
pub(crate) const REFUSED: u8 = 3;
/// Exit code: superseded by a newer channel.
pub(crate) const SUPERSEDED: u8 = 4;

/// A failed command. The text is one line for a person: what was wrong and what to do.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// Something failed.
    #[error("{0}")]
    Failed(String),
    /// A service does not answer now. Asking again may help.
    #[error("{0}")]
    Away(String),
    /// The command was used wrongly.
    #[error("{0}")]
    Usage(String),
    /// The other side refused.
    #[error("{0}")]
    Refused(String),
    /// A newer channel took over.
    #[error("{0}")]
    Superseded(String),
}

impl Error {
    /// A failure with what was being done and why it failed.
    pub(crate) fn failed(doing: impl std::fmt::Display, why: impl std::fmt::Display) -> Self {
        Self::Failed(format!("{doing}: {why}"))
    }

    /// The program's exit code.
    pub(crate) const fn exit_code(&self) -> u8 {
        match self {
            Self::Failed(_) | Self::Away(_) => FAILED,
            Self::Usage(_) => USAGE,
            Self::Refused(_) => REFUSED,
            Self::Superseded(_) => SUPERSEDED,
        }
    }
}

impl From<postern_kit::Failure> for Error {
    fn from(failure: postern_kit::Failure) -> Self {
        Self::Failed(failure.message)
    }
}

impl From<tonic::Status> for Error {
    fn from(status: tonic::Status) -> Self {
        let message = status.message().to_owned();
        if status.code() == tonic::Code::Unavailable {
            Self::Away(message)
        } else {
            Self::Failed(message)
        }
    }
}
