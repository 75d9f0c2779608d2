//! Refusals of this service (CONTRACT.md, section 4).

use postern_kit::{Effect, Failure, root::brief};
use postern_types::{ErrorCode, Sha256};
use serde_json::Value;

/// An argument breaks a rule: a short keyword, of JSON Schema where it has one.
pub(crate) fn invalid(pointer: &str, rule: &str, message: impl Into<String>) -> Failure {
    Failure::new(ErrorCode::InvalidArguments, message)
        .with("pointer", pointer)
        .with("rule", rule)
}

/// The file is at another revision than expected; `current` is none when there is no file.
pub(crate) fn stale(shown: &str, current: Option<Sha256>) -> Failure {
    let shown = brief(shown);
    let message = match current {
        Some(_) => format!(
            "'{shown}' is at another revision than expected and was not changed. Read it again and use its present sha256."
        ),
        None => format!(
            "'{shown}' does not exist any more, so it is at no revision. Write it with expectedSha256 null to create it."
        ),
    };
    let current = current.map_or(Value::Null, |sha256| sha256.to_string().into());
    Failure::new(ErrorCode::StaleRevision, message).with("currentSha256", current)
}

/// The file was expected not to exist.
pub(crate) fn already_exists(shown: &str) -> Failure {
    let shown = brief(shown);
    let message = format!(
        "'{shown}' exists and was not changed. Read it and pass its sha256 as expectedSha256 to replace it."
    );
    Failure::new(ErrorCode::AlreadyExists, message)
}

/// There is no such file.
pub(crate) fn not_found(shown: &str) -> Failure {
    postern_kit::root::refusal(rustix::io::Errno::NOENT, shown)
}

/// A link where only a file itself will do.
pub(crate) fn is_link(shown: &str) -> Failure {
    let shown = brief(shown);
    let message = format!(
        "'{shown}' is a symbolic link, and links are not deleted. Delete the file it leads to by its own path."
    );
    Failure::new(ErrorCode::NotAFile, message)
}

/// Something is over its limit.
pub(crate) fn too_large(message: impl Into<String>, limit: u64, size: u64) -> Failure {
    Failure::new(ErrorCode::TooLarge, message)
        .with("limit", limit)
        .with("size", size)
}

/// The bytes at `offset` are not UTF-8.
pub(crate) fn not_utf8(shown: &str, offset: u64) -> Failure {
    let shown = brief(shown);
    let message = format!(
        "'{shown}' is not UTF-8 text: byte {offset} begins no character. Parts before it can be read with a smaller limit."
    );
    Failure::new(ErrorCode::NotUtf8, message).with("firstBadOffset", offset)
}

/// Too much is going on, or the file will not hold still.
pub(crate) fn busy(message: &str) -> Failure {
    Failure::new(ErrorCode::Busy, message)
}

/// The path does not lead where it did when the call was looked at.
pub(crate) fn elsewhere() -> Failure {
    busy(
        "The path leads elsewhere than a moment ago: a link on it was changed. Nothing was done; try again.",
    )
}

/// A name that this service keeps for itself.
pub(crate) fn reserved() -> Failure {
    invalid(
        "/path",
        "path",
        "Names like '.postern-<receipt>.tmp' are kept for changes under way.",
    )
}

/// A later incarnation of the edge holds the workspace.
pub(crate) fn fenced() -> Failure {
    Failure::new(
        ErrorCode::NotApplied,
        "A newer connection of this workspace has taken over. Nothing was done.",
    )
}

/// The receipt was acted on before.
pub(crate) fn acted_before() -> Failure {
    Failure {
        effect: Effect::Unknown,
        ..Failure::new(
            ErrorCode::Uncertain,
            "This change was begun before and is not done a second time. Read the file to see whether it happened.",
        )
    }
}

/// The change was made, but the file system failed to say that it will last.
pub(crate) fn not_durable(shown: &str) -> Failure {
    let shown = brief(shown);
    Failure {
        effect: Effect::Unknown,
        ..Failure::new(
            ErrorCode::Uncertain,
            format!(
                "'{shown}' was changed, but the file system failed to make that durable. Read it to see its present state."
            ),
        )
    }
}

/// What stands under a path cannot be made durable, so what is there now may not be there tomorrow.
pub(crate) fn not_lasting(shown: &str) -> Failure {
    let shown = brief(shown);
    Failure {
        effect: Effect::Unknown,
        ..Failure::new(
            ErrorCode::Uncertain,
            format!(
                "The file system fails to make '{shown}' durable, so whether this change lasts cannot be told. Read it to see its present state."
            ),
        )
    }
}

/// The bytes before a change cannot be kept, so it could not be taken back.
pub(crate) fn not_kept(shown: &str, full: bool) -> Failure {
    let shown = brief(shown);
    let code = if full {
        ErrorCode::DiskFull
    } else {
        ErrorCode::Unavailable
    };
    Failure::new(
        code,
        format!(
            "'{shown}' was not changed, because what it holds now could not be kept for the owner to take the change back."
        ),
    )
}

/// The file system can do it only at the risk of losing what somebody else puts there.
pub(crate) fn renames_plainly(shown: &str) -> Failure {
    let shown = brief(shown);
    Failure::new(
        ErrorCode::PermissionDenied,
        format!(
            "The file system of '{shown}' neither renames without replacing nor links files, so what somebody else puts there at the same time could be lost. Nothing was changed; work in a directory of another file system."
        ),
    )
}

/// A fault of this service.
pub(crate) fn internal() -> Failure {
    Failure {
        effect: Effect::Unknown,
        ..Failure::new(
            ErrorCode::Internal,
            "The filesystem service failed. The owner's log tells more.",
        )
    }
}

/// A system call's failure on a path.
pub(crate) fn system(error: &std::io::Error, shown: &str) -> Failure {
    let errno = rustix::io::Errno::from_io_error(error).unwrap_or(rustix::io::Errno::IO);
    postern_kit::root::refusal(errno, shown)
}
