//! Why a request was not done.

use std::io;

use postern_kit::{Effect, Failure};
use postern_types::{ErrorCode, ReceiptId};
use rustix::io::Errno;

use crate::{
    sandbox::Unconfined,
    spool::{End, PageError},
};

/// A refused or failed request.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A part of the request is not as it must be.
    #[error("{message}")]
    Invalid {
        /// JSON Pointer to the part, as the tool's arguments have it.
        pointer: &'static str,
        /// Keyword of what it breaks.
        rule: &'static str,
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
    /// As many commands as the worker keeps have ended and left processes behind.
    #[error("too many ended commands have left processes behind")]
    Leftovers(Vec<ReceiptId>),
    /// The worker takes no more.
    #[error("the worker is full")]
    Full,
    /// A link on the way to the directory was changed.
    #[error("the directory is elsewhere than when it was looked at")]
    Moved,
    /// The command has taken as many inputs as it may.
    #[error("the command has taken too many inputs")]
    TooManyInputs,
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
    /// The owner's sandbox cannot be as configured: what is wrong and what to do. Said when a worker is opened.
    #[error("{0}")]
    Sandbox(String),
    /// The limits of commands cannot be kept. Said when a worker is opened.
    #[error(
        "the limits of commands ({0}) cannot be kept: {1}; give the worker a control group that it may write to (systemd: Delegate=yes), or leave them out and limit the worker as a whole"
    )]
    Limits(String, #[source] io::Error),
    /// The sandbox could not be taken; nothing happened.
    #[error("{0}")]
    Unconfined(#[source] io::Error),
    /// The shell could not be started; nothing happened.
    #[error("the shell could not be started: {0}")]
    Shell(#[source] io::Error),
    /// A program with pipes could not be started; nothing happened.
    #[error("the program could not be started: {0}")]
    Program(#[source] io::Error),
    /// What the spool must hold before the effect could not be written; nothing happened.
    #[error("the spool could not be written: {0}")]
    Unwritten(#[source] io::Error),
    /// The spool or a terminal failed; there may have been an effect.
    #[error("the system failed: {0}")]
    System(#[from] io::Error),
}

/// How a command that takes no more input ended.
#[derive(Debug)]
pub struct Ended(pub(crate) End);

impl Error {
    /// There was no wrapper for a command.
    pub(crate) fn no_wrapper(error: io::Error) -> Self {
        if error
            .get_ref()
            .is_some_and(|inner| inner.is::<Unconfined>())
        {
            Self::Unconfined(error)
        } else {
            Self::Process(error)
        }
    }
}

impl From<PageError> for Error {
    fn from(error: PageError) -> Self {
        match error {
            PageError::Beyond => Self::Invalid {
                pointer: "/offset",
                rule: "maximum",
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
            Self::TooManyCommands | Self::Leftovers(_) => ErrorCode::TooManyCommands,
            Self::Full | Self::Moved => ErrorCode::Busy,
            Self::TooLong | Self::TooManyInputs => ErrorCode::TooLarge,
            Self::NotApplied => ErrorCode::NotApplied,
            Self::Uncertain => ErrorCode::Uncertain,
            // Its temporary directory and its part of the spool are made along with a wrapper.
            Self::Process(error) if is_full(error) => ErrorCode::DiskFull,
            Self::Elsewhere
            | Self::Process(_)
            | Self::Sandbox(_)
            | Self::Limits(..)
            | Self::Unconfined(_) => ErrorCode::Unavailable,
            Self::Unwritten(error) | Self::System(error) if is_full(error) => ErrorCode::DiskFull,
            Self::Program(_) => ErrorCode::InvalidArguments,
            Self::Shell(_) | Self::Unwritten(_) | Self::System(_) => ErrorCode::Internal,
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
            | Self::Leftovers(_)
            | Self::Full
            | Self::Moved
            | Self::TooManyInputs
            | Self::Elsewhere
            | Self::TooLong
            | Self::NotApplied
            | Self::Process(_)
            | Self::Sandbox(_)
            | Self::Limits(..)
            | Self::Unconfined(_)
            | Self::Shell(_)
            | Self::Program(_)
            | Self::Unwritten(_) => Effect::None,
            Self::Directory(failure) => failure.effect,
            // Which error the system gave says nothing of when it gave it.
            Self::Uncertain | Self::System(_) => Effect::Unknown,
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
            Self::Leftovers(own) if own.is_empty() => {
                "Processes that ended commands of other conversations left behind fill the worker. The owner must end them."
            }
            Self::Leftovers(_) => {
                "Processes that ended commands left behind fill the worker. Stop such commands, as those in commandIds, with workspace_stop."
            }
            Self::TooManyInputs => {
                "The command has taken 65536 inputs and takes no more. Stop it and start another."
            }
            Self::Moved => {
                "The directory is elsewhere than a moment ago: a link on its path was changed. Nothing was run; try again."
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
            Self::Process(_) if self.code() == ErrorCode::DiskFull => {
                "The disk that keeps the commands' output and temporary files is full. The owner must free space first."
            }
            Self::Process(_) => {
                "The command could not be started now. Send the call again with the same id."
            }
            Self::Limits(..) => {
                "The owner's limits could not be set up, so the command was not run. The owner's log tells more."
            }
            Self::Sandbox(_) | Self::Unconfined(_) => {
                "The owner's sandbox could not be set up, so the command was not run. The owner's log and `postern doctor` tell more."
            }
            Self::Shell(_) => "The owner's shell could not be started. The owner's log tells more.",
            Self::Program(error) => no_program(error),
            Self::Unwritten(_) | Self::System(_) if self.code() == ErrorCode::DiskFull => {
                "The disk that keeps the commands' output is full. The owner must free space first."
            }
            Self::Unwritten(_) | Self::System(_) => {
                "The worker failed. The owner's log tells more."
            }
        }
    }
}

/// Why a program with pipes did not start.
fn no_program(error: &io::Error) -> &'static str {
    match Errno::from_io_error(error) {
        Some(Errno::NOENT) => {
            "There is no such program. Give its whole path, or put its folder into PATH."
        }
        Some(Errno::ACCESS | Errno::PERM | Errno::NOEXEC) => {
            "The program may not be run: it is not executable, or the sandbox hides it."
        }
        _ => "The program could not be started. The worker's log tells more.",
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::NOSPC | Errno::DQUOT)
    )
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        if matches!(
            error,
            Error::System(_)
                | Error::Unwritten(_)
                | Error::Process(_)
                | Error::Shell(_)
                | Error::Program(_)
                | Error::Sandbox(_)
                | Error::Limits(..)
                | Error::Unconfined(_)
        ) {
            tracing::error!(%error, "a request failed");
        }
        let failure = Self {
            effect: error.effect(),
            ..Self::new(error.code(), error.message())
        };
        if let Error::Directory(failure) = error {
            failure
        } else if let Error::Invalid { pointer, rule, .. } = error {
            failure.with("pointer", pointer).with("rule", rule)
        } else if let Error::Leftovers(own) = error {
            let own: Vec<String> = own.iter().map(ReceiptId::to_string).collect();
            failure.with("commandIds", own)
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

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    #[test]
    fn a_full_disk_alone_does_not_say_that_nothing_happened() {
        let full = || io::Error::from(Errno::NOSPC);
        let told = |error: Error| (error.code(), error.effect());
        assert_eq!(
            told(Error::System(full())),
            (ErrorCode::DiskFull, Effect::Unknown)
        );
        assert_eq!(
            told(Error::Unwritten(full())),
            (ErrorCode::DiskFull, Effect::None)
        );
        assert_eq!(
            told(Error::no_wrapper(full())),
            (ErrorCode::DiskFull, Effect::None)
        );
    }
}
