//! What the file system's errors are called towards callers.

use std::borrow::Cow;

use postern_types::ErrorCode;
use rustix::{fs::FileType, io::Errno};

use crate::Failure;

const LONGEST: &str = "A path has at most 4095 bytes, each name in it at most 255.";
/// Characters of a path that a message repeats. Failures travel in headers, which are bounded.
const SHOWN_CHARS: usize = 300;

/// A path as a message repeats it: a long one without its middle.
#[must_use]
pub fn brief(shown: &str) -> Cow<'_, str> {
    let count = shown.chars().count();
    if count <= SHOWN_CHARS {
        return Cow::Borrowed(shown);
    }
    let part = SHOWN_CHARS / 2;
    let (start, end): (String, String) = (
        shown.chars().take(part).collect(),
        shown.chars().skip(count - part).collect(),
    );
    Cow::Owned(format!("{start}…{end}"))
}

/// A file system error on a path as a failure of the public contract. `shown` is the path relative to the root.
#[must_use]
pub fn refusal(errno: Errno, shown: &str) -> Failure {
    let shown = brief(shown);
    let (code, message) = match errno {
        Errno::NOENT => (
            ErrorCode::NotFound,
            format!("'{shown}' does not exist. List its directory to see what does."),
        ),
        Errno::NOTDIR => (
            ErrorCode::NotADirectory,
            format!("'{shown}' is not a directory, or leads through something that is none."),
        ),
        Errno::ISDIR => (ErrorCode::NotAFile, format!("'{shown}' is a directory.")),
        // Nothing of the path is repeated: it may be one of the owner's machine.
        Errno::XDEV => (
            ErrorCode::PathEscapesProject,
            "The path leads out of the project. Use a path inside it, relative to its root."
                .to_owned(),
        ),
        Errno::LOOP => (
            ErrorCode::NotFound,
            format!("'{shown}' leads through links that never end."),
        ),
        Errno::NAMETOOLONG => {
            return invalid("maxLength", LONGEST);
        }
        Errno::ACCESS | Errno::PERM => (
            ErrorCode::PermissionDenied,
            format!("The file system does not permit this on '{shown}'."),
        ),
        Errno::ROFS => (
            ErrorCode::PermissionDenied,
            format!("'{shown}' is on a file system that is mounted read-only."),
        ),
        Errno::NOSPC | Errno::DQUOT => (
            ErrorCode::DiskFull,
            "The disk or quota is full and nothing was changed. Make room and try again."
                .to_owned(),
        ),
        Errno::FBIG => (
            ErrorCode::DiskFull,
            format!(
                "'{shown}' would be larger than the system's limit on files allows, and nothing was changed."
            ),
        ),
        Errno::AGAIN | Errno::BUSY => (
            ErrorCode::Busy,
            format!("'{shown}' is being changed by others. Try again."),
        ),
        Errno::MFILE | Errno::NFILE | Errno::NOMEM => (
            ErrorCode::Busy,
            "The machine is short of memory or open files. Try again.".to_owned(),
        ),
        errno => {
            tracing::warn!(error = %errno, "unexpected file system error");
            (
                ErrorCode::Internal,
                format!("The file system failed on '{shown}'. The owner's log tells more."),
            )
        }
    };
    Failure::new(code, message)
}

/// A path that cannot be one; `rule` is a keyword.
pub(super) fn invalid(rule: &str, message: &str) -> Failure {
    Failure::new(ErrorCode::InvalidArguments, message)
        .with("pointer", "/path")
        .with("rule", rule)
}

/// A link that leads to nothing.
pub(super) fn dangling(shown: &str) -> Failure {
    let shown = brief(shown);
    let message = format!(
        "'{shown}' is or leads through a link to something that does not exist. Use the path that it should lead to."
    );
    Failure::new(ErrorCode::NotFound, message)
}

/// A new file cannot be named like a directory.
pub(super) fn file_with_slash(shown: &str) -> Failure {
    let shown = brief(shown);
    let message =
        format!("'{shown}' does not exist, and a file's path does not end with a slash or dot.");
    invalid("path", &message)
}

/// Something that is no regular file.
pub(super) fn not_a_file(shown: &str, file_type: FileType) -> Failure {
    let shown = brief(shown);
    let kind = match file_type {
        FileType::Directory => "a directory",
        FileType::Symlink => "a symbolic link",
        FileType::Fifo => "a named pipe",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        FileType::RegularFile | FileType::Unknown => "not a regular file",
    };
    Failure::new(ErrorCode::NotAFile, format!("'{shown}' is {kind}."))
}
