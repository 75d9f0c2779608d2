//! What callers are told when a file is not decoded.

use std::time::Duration;

use postern_kit::{Failure, root::brief};
use postern_types::ErrorCode;

use super::{
    Task, answer::Refusal, confine::memory_bytes, document::TEXT_LIMIT, picture::PIXEL_LIMIT,
    process::Error,
};

/// The service was started without a program that decodes.
pub(super) fn no_decoder() -> Failure {
    Failure::new(
        ErrorCode::Unavailable,
        "This filesystem service was started without a program that decodes images and documents.",
    )
}

/// The file is larger than files that are decoded.
pub(super) fn too_many_bytes(task: Task, shown: &str) -> Failure {
    let shown = brief(shown);
    let limit = task.file_limit();
    let advice = match task {
        Task::Picture => "Make a smaller copy of it and look at that.",
        Task::Document { .. } => "Extract the text or split the file with a command.",
    };
    let message = format!(
        "'{shown}' is larger, or grows larger when it is decoded, than the {limit} bytes that are decoded. {advice}"
    );
    Failure::new(ErrorCode::TooLarge, message).with("limit", limit)
}

/// The decoding process looked at the file and says no.
pub(super) fn of_refusal(refusal: Refusal, task: Task, shown: &str) -> Failure {
    let unsupported = |what: &str| {
        let message = format!("'{}' {what}", brief(shown));
        Failure::new(ErrorCode::UnsupportedFormat, message)
    };
    match refusal {
        Refusal::Empty => unsupported("is empty, so it is neither an image nor a document."),
        Refusal::OtherFormat => unsupported(match task {
            Task::Picture => {
                "is not an image of a format that is shown: PNG, JPEG, GIF, WebP, BMP or TIFF, by its content. Read a text file with workspace_read."
            }
            Task::Document { .. } => {
                "is not a PDF by its content. Read a text file with workspace_read."
            }
        }),
        Refusal::IsDocument => unsupported(
            "is a PDF, not an image. Read its text with workspace_document, page by page.",
        ),
        Refusal::IsPicture => {
            unsupported("is an image, not a PDF. Look at it with workspace_image.")
        }
        Refusal::Damaged => unsupported(
            "begins like a file of its format and is damaged, or of a kind of it that is not known here. Get it anew, or convert it with a command.",
        ),
        Refusal::Truncated => {
            unsupported("ends before it is complete. Get it anew, or wait until it is written.")
        }
        Refusal::Locked => unsupported(
            "opens only with a password. Ask the owner for a copy without one; a password is not taken here.",
        ),
        Refusal::Encrypted => unsupported(
            "is encrypted in a way that is not known here. Ask the owner for a copy that is not.",
        ),
        Refusal::TooManyBytes => too_many_bytes(task, shown),
        Refusal::TooManyPixels { width, height } => {
            let shown = brief(shown);
            let message = format!(
                "'{shown}' has {width} by {height} pixels, and at most {PIXEL_LIMIT} are decoded. Make a smaller copy of it and look at that."
            );
            Failure::new(ErrorCode::TooLarge, message)
                .with("limit", PIXEL_LIMIT)
                .with("width", width)
                .with("height", height)
        }
        Refusal::TooMuchText => {
            let shown = brief(shown);
            let message = format!(
                "This page of '{shown}' has more than {TEXT_LIMIT} bytes of text. Extract it into a file with a command and read that page by page."
            );
            Failure::new(ErrorCode::TooLarge, message).with("limit", TEXT_LIMIT)
        }
        Refusal::NoSuchPage { page_count } => no_such_page(task, page_count, shown),
    }
}

/// The decoding process gave no answer.
pub(super) fn of_process(error: &Error, task: Task, time: Duration, shown: &str) -> Failure {
    tracing::warn!(%error, "a file was not decoded");
    let shown = brief(shown);
    match error {
        Error::Start(_) => Failure::new(
            ErrorCode::Unavailable,
            "The program that decodes images and documents cannot be run now. Try again; the owner's log tells more.",
        ),
        Error::Exhausted => {
            let advice = match task {
                Task::Picture => "Make a smaller copy of it and look at that.",
                Task::Document { .. } => "Extract the text with a command, or split the file.",
            };
            let message = format!(
                "'{shown}' takes more time, memory or nesting to decode than one file may. {advice}"
            );
            let time_ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
            Failure::new(ErrorCode::TooLarge, message)
                .with("memoryBytes", memory_bytes(task))
                .with("timeMs", time_ms)
        }
        Error::Broken(_) => {
            let message = format!(
                "'{shown}' made the program fail that decodes it. Get the file anew, or convert it with a command."
            );
            Failure::new(ErrorCode::UnsupportedFormat, message)
        }
    }
}

fn no_such_page(task: Task, page_count: u32, shown: &str) -> Failure {
    let shown = brief(shown);
    let page = match task {
        Task::Document { page } => page,
        Task::Picture => 0,
    };
    let pages = match page_count {
        0 => "has no pages".to_owned(),
        1 => "has one page, page 1".to_owned(),
        count => format!("has pages 1 to {count}"),
    };
    let message = format!("'{shown}' {pages}; there is no page {page}.");
    Failure::new(ErrorCode::NoSuchPage, message).with("pageCount", page_count)
}
