//! Why something is not taken back, and what to do then.

use postern_kit::{Failure, Problem};
use postern_proto::ledger::v1::{Receipt, State};
use postern_types::ErrorCode;
use serde_json::Value;
use tonic::Code;

use crate::clients::is_passing;

/// How a refusal begins that leaves all as it was.
const NOTHING_CHANGED: &str = "Nothing was changed: ";

/// An undo that is refused: nothing was changed.
#[derive(Debug)]
pub(crate) struct Refused {
    /// Why, and what to do.
    pub(crate) problem: Problem,
    /// For each file that is in the way: its `path`, the `reason`, and what is known.
    pub(crate) files: Vec<Value>,
}

impl Refused {
    /// As the receipt of an undo that was begun keeps it.
    pub(super) fn as_failure(&self) -> Failure {
        let code = if self.problem.code == "stale" {
            ErrorCode::StaleRevision
        } else {
            ErrorCode::NotApplied
        };
        Failure::new(code, &*self.problem.message).with("files", self.files.clone())
    }
}

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Self {
        if is_passing(failure.code) {
            return refused(Code::Unavailable, "unavailable", failure.message);
        }
        refused(Code::Internal, "failed", failure.message)
    }
}

fn refused(kind: Code, code: &'static str, message: impl Into<String>) -> Refused {
    Refused {
        problem: Problem::new(kind, code, message),
        files: Vec::new(),
    }
}

fn conflict(code: &'static str, message: impl Into<String>) -> Refused {
    refused(Code::FailedPrecondition, code, message)
}

pub(super) fn not_a_file_change(receipt: &Receipt) -> Refused {
    let message = match receipt.tool.as_str() {
        "workspace_exec" | "workspace_input" | "workspace_stop" => {
            "What a command did cannot be taken back: only changes that were made with the file tools are kept. Look at its output for what it did."
        }
        "workspace_tool" => {
            "What one of your own tools did cannot be taken back from here; ask the tool for it."
        }
        _ => "This receipt changed no file, so there is nothing to take back.",
    };
    conflict("not_a_file_change", message)
}

pub(super) fn not_completed(receipt: &Receipt) -> Refused {
    let message = match receipt.state() {
        State::Uncertain => {
            "Whether this change happened is not known, so it is not taken back. Look at the file; the receipt's plan tells its revisions before and after."
        }
        State::Executing => {
            "This change is still under way, or was interrupted and not looked into yet. Try again when its receipt has ended."
        }
        State::AwaitingOwner => "This call waits for you: deny it, and nothing happens.",
        State::Refused => {
            "This call was refused and did nothing, so there is nothing to take back."
        }
        State::Completed | State::Unspecified => {
            "This call changed nothing, so there is nothing to take back."
        }
    };
    conflict("not_completed", message)
}

pub(super) fn not_recorded(receipt: &Receipt) -> Refused {
    let id = &receipt.id;
    let message =
        format!("What receipt {id} changed is not recorded in a form that can be taken back.");
    conflict("not_recorded", message)
}

pub(super) fn already_undone(receipt: &Receipt, by: &str) -> Refused {
    let id = &receipt.id;
    let message = format!(
        "Receipt {id} is undone already, by receipt {by}. To do again what it did, undo {by}."
    );
    conflict("already_undone", message)
}

pub(super) fn nothing_to_undo(no_receipts: bool) -> Refused {
    let message = if no_receipts {
        "This session has no changes of files that are not undone already."
    } else {
        "All in all this session left every file as it was."
    };
    conflict("nothing_to_undo", message)
}

pub(super) fn changed_between(files: Vec<Value>) -> Refused {
    let message = "Nothing was changed: somebody else changed some of these files between two changes of the session. Undo the receipts after that one by one.";
    Refused {
        files,
        ..conflict("changed_between", message)
    }
}

/// Not every file can be taken back now.
pub(super) fn hindered(files: Vec<Value>) -> Refused {
    let is = |reason: &str| files.iter().all(|file| file["reason"] == reason);
    let (code, message) = if is("stale") {
        (
            "stale",
            "Nothing was changed: a file is not at the revision that was left. Undo first what changed it since, or put it right by hand.",
        )
    } else if is("not_kept") {
        (
            "not_kept",
            "Nothing was changed: what a file was before is not kept, or not any more. How much is kept is said by --keep-before.",
        )
    } else {
        (
            "cannot_be_undone",
            "Nothing was changed: not every file can be taken back. Each one that cannot is told of.",
        )
    };
    Refused {
        files,
        ..conflict(code, message)
    }
}

/// What an interrupted undo had changed is as it was again.
pub(super) fn gone_back(files: Vec<Value>) -> Refused {
    let hindered = hindered(files);
    let why = &hindered.problem.message;
    let why = why.strip_prefix(NOTHING_CHANGED).unwrap_or(why);
    let message = format!(
        "The undo was interrupted and could not be gone on with; what it had changed is put back, and what somebody changed since is left alone: {why}"
    );
    Refused {
        problem: Problem {
            message,
            ..hindered.problem
        },
        files: hindered.files,
    }
}

pub(super) fn no_such_session() -> Refused {
    let message = "There is no such session. `postern session list` tells those that there are.";
    refused(Code::NotFound, "no_such_session", message)
}

pub(super) fn too_many(limit: usize) -> Refused {
    let message = format!(
        "The session has more than {limit} changes of one kind, which are not taken back at once. Undo receipts one by one."
    );
    conflict("too_many_changes", message)
}

pub(super) fn too_many_files() -> Refused {
    let message =
        "The session changed more files than one receipt can name. Undo receipts one by one.";
    conflict("too_many_files", message)
}

/// Some of it may have happened.
pub(super) fn uncertain(receipt_id: &str, failure: &Failure) -> Refused {
    let told = &failure.message;
    let message =
        format!("The undo was interrupted, and receipt {receipt_id} is uncertain: {told}");
    refused(Code::Internal, "uncertain", message)
}

/// Another undo takes long.
pub(super) fn not_its_turn() -> Refused {
    let message = "Another undo is still under way, or waits for a service that is away. Nothing was done; try again once its receipt has ended.";
    refused(Code::Unavailable, "unavailable", message)
}

/// The edge ends, or another has taken over.
pub(super) fn interrupted() -> Refused {
    let message = "The edge ends. If the undo was begun it is gone on with at the next start; its receipt tells.";
    refused(Code::Unavailable, "unavailable", message)
}
