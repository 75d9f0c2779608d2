//! Error codes of the public contract (CONTRACT.md, section 4).

use std::{fmt, str::FromStr};

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $retryable:literal;)*) => {
        /// Why a call failed, as told to the agent.
        #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
        pub enum ErrorCode {
            $($(#[$doc])* $name,)*
        }

        impl ErrorCode {
            /// Every code.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The code as it stands in an answer.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// Whether the same call may succeed later without a change.
            #[must_use]
            pub const fn retryable(self) -> bool {
                match self { $(Self::$name => $retryable,)* }
            }
        }

        impl FromStr for ErrorCode {
            type Err = ();

            fn from_str(text: &str) -> Result<Self, ()> {
                match text { $($text => Ok(Self::$name),)* _ => Err(()) }
            }
        }
    };
}

codes! {
    /// The arguments do not meet the tool's schema.
    InvalidArguments = "INVALID_ARGUMENTS", false;
    /// There is no such tool.
    UnknownTool = "UNKNOWN_TOOL", false;
    /// The call names another workspace than the pinned one.
    WrongWorkspace = "WRONG_WORKSPACE", false;
    /// The call names another intention than the pinned one.
    WrongIntention = "WRONG_INTENTION", false;
    /// The session is not admitted.
    UnknownSession = "UNKNOWN_SESSION", false;
    /// The mode or a rule forbids the call.
    PermissionDenied = "PERMISSION_DENIED", false;
    /// The owner said no.
    ApprovalDenied = "APPROVAL_DENIED", false;
    /// The owner did not decide in time.
    ApprovalTimeout = "APPROVAL_TIMEOUT", false;
    /// There is no such file or directory.
    NotFound = "NOT_FOUND", false;
    /// The path is not a regular file.
    NotAFile = "NOT_A_FILE", false;
    /// The path is not a directory.
    NotADirectory = "NOT_A_DIRECTORY", false;
    /// The path leads out of the project.
    PathEscapesProject = "PATH_ESCAPES_PROJECT", false;
    /// The file is not UTF-8.
    NotUtf8 = "NOT_UTF8", false;
    /// Something is over its limit.
    TooLarge = "TOO_LARGE", false;
    /// The file is at another revision than expected.
    StaleRevision = "STALE_REVISION", false;
    /// The file exists and was expected not to.
    AlreadyExists = "ALREADY_EXISTS", false;
    /// The text to replace does not occur.
    NoMatch = "NO_MATCH", false;
    /// The text to replace occurs more than once.
    AmbiguousMatch = "AMBIGUOUS_MATCH", false;
    /// The file is of a kind that cannot be shown.
    UnsupportedFormat = "UNSUPPORTED_FORMAT", false;
    /// The document has no such page.
    NoSuchPage = "NO_SUCH_PAGE", false;
    /// There is no such command in this session.
    UnknownCommand = "UNKNOWN_COMMAND", false;
    /// The command has ended.
    CommandEnded = "COMMAND_ENDED", false;
    /// The session runs as many commands as it may.
    TooManyCommands = "TOO_MANY_COMMANDS", true;
    /// The call id was used for another tool or other arguments.
    IdReused = "ID_REUSED", false;
    /// Whether the effect happened cannot be known.
    Uncertain = "UNCERTAIN", false;
    /// The effect did not happen, and will not under this id.
    NotApplied = "NOT_APPLIED", false;
    /// Too many calls at once.
    Busy = "BUSY", true;
    /// The disk is full.
    DiskFull = "DISK_FULL", true;
    /// A part that the call needs does not answer.
    Unavailable = "UNAVAILABLE", true;
    /// A fault of Postern itself.
    Internal = "INTERNAL", false;
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_survive_their_text() {
        for code in ErrorCode::ALL {
            assert_eq!(code.as_str().parse(), Ok(*code));
        }
        assert_eq!(ErrorCode::ALL.len(), 30);
    }
}
