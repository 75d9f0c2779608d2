//! The way back from an undo that was interrupted and that something hinders now: what it has changed is put back.
//!
//! What somebody changed since is his and left alone, so that after it each file is as the undo found it or as he made it. Only
//! when that cannot be either is the undo uncertain, and then every one of its files is told of.

use std::collections::{HashMap, HashSet};

use postern_kit::Failure;
use postern_proto::filesystem::v1::{Hindrance, HindranceKind, RestoreRequest, RestoreStep};
use postern_types::ErrorCode;
use serde_json::{Value, json};

use super::{
    FileChange, Undo,
    carry::{Ended, FAILURES},
    refused,
};
use crate::clients::is_passing;

impl Undo {
    /// Puts back what an undo has changed that cannot be gone on with. None when the edge ends before that is over.
    pub(super) async fn go_back(
        &self,
        receipt_id: &str,
        files: &[FileChange],
        mut hindrances: Vec<Hindrance>,
    ) -> Option<Ended> {
        let reversed: Vec<FileChange> = files.iter().map(FileChange::reversed).collect();
        let mut failures = 0;
        loop {
            let gone_back = self.restore(receipt_id, &reversed, RestoreStep::Revert);
            match gone_back.await {
                Ok(answer) if answer.hindrances.iter().any(is_not_kept) => {
                    return Some(Ended::Uncertain(self.with_states(stuck(), files).await));
                }
                Ok(answer) => {
                    let known: HashSet<String> =
                        hindrances.iter().map(|one| one.path.clone()).collect();
                    let found = answer.hindrances.into_iter();
                    hindrances.extend(found.filter(|one| !known.contains(&one.path)));
                    let told = self.hindered(&hindrances).await;
                    return Some(Ended::Refused(refused::gone_back(told.files)));
                }
                Err(failure) => {
                    failures += u32::from(!is_passing(failure.code));
                    if failures >= FAILURES {
                        return Some(Ended::Uncertain(self.with_states(failure, files).await));
                    }
                    self.pause().await?;
                }
            }
        }
    }

    /// An uncertain end with what each file of the undo is now.
    pub(super) async fn with_states(&self, failure: Failure, files: &[FileChange]) -> Failure {
        let request = RestoreRequest {
            effect: None,
            step: RestoreStep::Check.into(),
            files: files.iter().map(FileChange::to_request).collect(),
        };
        let looked = self.ask_to_restore(request).await;
        let Ok(looked) = looked else {
            let paths: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
            return Failure {
                code: ErrorCode::Uncertain,
                ..failure
            }
            .with("unknown", paths);
        };
        let states = States::of(files, &looked.hindrances);
        Failure {
            code: ErrorCode::Uncertain,
            ..failure
        }
        .with("undone", states.undone)
        .with("notUndone", states.not_undone)
        .with("changedSince", states.changed_since)
    }
}

/// What became of the files of an undo.
#[derive(Debug, Default, Eq, PartialEq)]
struct States {
    /// Paths of those that are as it was to leave them.
    undone: Vec<String>,
    /// Paths of those that are as it found them.
    not_undone: Vec<String>,
    /// The others, each with its present revision where that is known.
    changed_since: Vec<Value>,
}

impl States {
    /// From what hinders the files' way from before to after.
    fn of(files: &[FileChange], hindrances: &[Hindrance]) -> Self {
        let in_the_way: HashMap<&str, &Hindrance> = hindrances
            .iter()
            .filter(|one| !is_not_kept(one))
            .map(|one| (one.path.as_str(), one))
            .collect();
        let mut states = Self::default();
        for file in files {
            match in_the_way.get(file.path.as_str()) {
                None => states.not_undone.push(file.path.clone()),
                Some(one)
                    if one.kind() == HindranceKind::Stale && one.current_sha256 == file.after =>
                {
                    states.undone.push(file.path.clone());
                }
                Some(one) => states.changed_since.push(json!({
                    "path": file.path,
                    "currentSha256": one.current_sha256,
                })),
            }
        }
        states
    }
}

fn is_not_kept(hindrance: &Hindrance) -> bool {
    hindrance.kind() == HindranceKind::NotKept
}

/// There is no way on and none back.
fn stuck() -> Failure {
    Failure::new(
        ErrorCode::Uncertain,
        "The undo was interrupted; it cannot be gone on with, and not be put back, because bytes that are needed for it are not kept any more. Some files are undone, others are not, each is named: put the ones right that are not as you want them.",
    )
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    fn file(path: &str, before: Option<&str>, after: Option<&str>) -> FileChange {
        FileChange {
            path: path.to_owned(),
            before: before.map(str::to_owned),
            after: after.map(str::to_owned),
            mode: None,
            new_mode: None,
            directories: Vec::new(),
        }
    }

    fn found(path: &str, kind: HindranceKind, current: Option<&str>) -> Hindrance {
        Hindrance {
            path: path.to_owned(),
            kind: kind.into(),
            current_sha256: current.map(str::to_owned),
            message: String::new(),
        }
    }

    #[test]
    fn every_file_is_told_by_what_it_is_now() {
        let files = [
            file("done", Some("new"), Some("old")),
            file("gone", Some("new"), None),
            file("open", Some("new"), Some("old")),
            file("lost", Some("new"), Some("old")),
            file("mine", Some("new"), Some("old")),
            file("link", Some("new"), None),
        ];
        let hindrances = [
            found("done", HindranceKind::Stale, Some("old")),
            found("gone", HindranceKind::Stale, None),
            found("lost", HindranceKind::NotKept, None),
            found("mine", HindranceKind::Stale, Some("other")),
            found("link", HindranceKind::Refused, None),
        ];
        let expected = States {
            undone: vec!["done".into(), "gone".into()],
            not_undone: vec!["open".into(), "lost".into()],
            changed_since: vec![
                json!({"path": "mine", "currentSha256": "other"}),
                json!({"path": "link", "currentSha256": null}),
            ],
        };
        assert_eq!(States::of(&files, &hindrances), expected);
    }
}
