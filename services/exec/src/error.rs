//! Why a request was not done.

use std::io;

use postern_kit::{Effect, Failure};
use postern_types::ErrorCode;
use rustix::io::Errno;

use crate::spool::{End, PageError};

/// A refused or failed request.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A part of the request is not as it must be.
    #[error("{message}")]
    Invalid {
        /// JSON Pointer to the part, as the tool's arguments have it.
        pointer: &'static str,
        /// What is wrong and what would be right.
        message: String,
    },
    /// The directory cannot be used.
    #[error(transparent)]
    Directory(Failure),
    /// The session has no such command.
    #[error("there is no such command")]
    UnknownCommand,
    /// The command has ended.
    #[error("the command has ended")]
    Ended(Ended),
    /// The session runs as many commands as it may.
    #[error("the session runs too many commands")]
    TooManyCommands,
    /// The worker takes no more.
    #[error("the worker is full")]
    Full,
    /// The worker is about to end, or another worker has the command.
    #[error("the worker does not take this request")]
    Elsewhere,
    /// The shell text is longer than the system takes.
    #[error("the command is too long")]
    TooLong,
    /// The receipt was refused before; nothing happens under it.
    #[error("the receipt was refused before")]
    NotApplied,
    /// Whether the effect happened is not known.
    #[error("it is not known whether the effect happened")]
    Uncertain,
    /// No process could be started for it; nothing happened.
    #[error("no process could be started: {0}")]
    Process(#[source] io::Error),
    /// The shell could not be started; nothing happened.
    #[error("the shell could not be started: {0}")]
    Shell(#[source] io::Error),
    /// The spool or a terminal failed; there may have been an effect.
    #[error("the system failed: {0}")]
    System(#[from] io::Error),
}

/// How a command that takes no more input ended.
#[derive(Debug)]
pub struct Ended(pub(crate) End);

impl From<PageError> for Error {
    fn from(error: PageError) -> Self {
        match error {
            PageError::Beyond => Self::Invalid {
                pointer: "/offset",
                message: "The offset is past the end of the output. Go on from the nextOffset of the last poll."
                    .to_owned(),
            },
            PageError::Io(error) => Self::System(error),
        }
    }
}

impl Error {
    /// The code of the public contract.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Invalid { .. } => ErrorCode::InvalidArguments,
            Self::Directory(failure) => failure.code,
            Self::UnknownCommand => ErrorCode::UnknownCommand,
            Self::Ended(_) => ErrorCode::CommandEnded,
            Self::TooManyCommands => ErrorCode::TooManyCommands,
            Self::Full => ErrorCode::Busy,
            Self::TooLong => ErrorCode::TooLarge,
            Self::NotApplied => ErrorCode::NotApplied,
            Self::Uncertain => ErrorCode::Uncertain,
            Self::Elsewhere | Self::Process(_) => ErrorCode::Unavailable,
            Self::Shell(_) => ErrorCode::Internal,
            Self::System(error) => match Errno::from_io_error(error) {
                Some(Errno::NOSPC | Errno::DQUOT) => ErrorCode::DiskFull,
                _ => ErrorCode::Internal,
            },
        }
    }

    /// Whether there may have been an effect.
    #[must_use]
    pub fn effect(&self) -> Effect {
        match self {
            Self::Invalid { .. }
            | Self::UnknownCommand
            | Self::Ended(_)
            | Self::TooManyCommands
            | Self::Full
            | Self::Elsewhere
            | Self::TooLong
            | Self::NotApplied
            | Self::Process(_)
            | Self::Shell(_) => Effect::None,
            Self::Directory(failure) => failure.effect,
            Self::Uncertain => Effect::Unknown,
            // The claim or the note comes before the effect, and could not be written.
            Self::System(_) if self.code() == ErrorCode::DiskFull => Effect::None,
            Self::System(_) => Effect::Unknown,
        }
    }

    /// What the agent is told; never what the system said, which may hold paths.
    fn message(&self) -> &str {
        match self {
            Self::Invalid { message, .. } => message,
            Self::Directory(failure) => &failure.message,
            Self::UnknownCommand => {
                "This conversation has no such command. Use the commandId that workspace_exec returned."
            }
            Self::Ended(_) => {
                "The command has ended and takes no more input. Poll it for the rest of its output."
            }
            Self::TooManyCommands => {
                "This conversation runs 16 commands already. Wait for one to end or stop one."
            }
            Self::Full => "The worker runs as many commands as it may. Try again later.",
            Self::Elsewhere => {
                "The worker does not take this request now. Send the call again with the same id."
            }
            Self::TooLong => {
                "The command is over 131071 bytes. Write it to a script file and run that."
            }
            Self::NotApplied => {
                "This did not happen and will not under this id. Send it as a new call."
            }
            Self::Uncertain => {
                "It is not known whether this happened. Look at what it would have done before you do it again."
            }
            Self::Process(_) => {
                "The command could not be started now. Send the call again with the same id."
            }
            Self::Shell(_) => "The owner's shell could not be started. The owner's log tells more.",
            Self::System(_) if self.code() == ErrorCode::DiskFull => {
                "The disk that keeps the commands' output is full. The owner must free space first."
            }
            Self::System(_) => "The worker failed. The owner's log tells more.",
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        if matches!(
            error,
            Error::System(_) | Error::Process(_) | Error::Shell(_)
        ) {
            tracing::error!(%error, "a request failed");
        }
        let failure = Self {
            effect: error.effect(),
            ..Self::new(error.code(), error.message())
        };
        if let Error::Directory(failure) = error {
            failure
        } else if let Error::Invalid { pointer, .. } = error {
            failure.with("pointer", pointer)
        } else if let Error::Ended(Ended(end)) = error {
            let state = crate::grpc::state_words(&end);
            failure
                .with("status", state.status)
                .with("exitCode", state.exit_code)
                .with("signal", state.signal)
        } else {
            failure
        }
    }
}
