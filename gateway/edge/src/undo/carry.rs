//! An undo under its receipt: looked at, begun durably, carried out, recorded.

use std::time::Duration;

use bytes::Bytes;
use postern_kit::{Effect, Failure};
use postern_proto::{
    filesystem::v1::{self as filesystem, Hindrance, HindranceKind, RestoreRequest, RestoreStep},
    ledger::v1::{GetRequest, ListRequest, Receipt, State, begin_response::Outcome},
};
use postern_types::ErrorCode;
use serde::Serialize;
use serde_json::{Value, json};

use super::{FileChange, Refused, TOOL, Undo, Undone, plan, refused};
use crate::{
    call::Call,
    clients::{hop, is_passing},
    reply::Reply,
};

/// Rule by which an undo goes ahead.
const POLICY: &str = "owner";
/// Largest plan that a receipt keeps, in bytes.
const PLAN_BYTES: usize = 2 * 1024 * 1024;
/// Wait between two attempts at what was interrupted.
const PAUSE: Duration = Duration::from_millis(250);
/// Attempts of which a service said that they failed, after which it is left uncertain.
pub(super) const FAILURES: u32 = 3;
/// Receipts that are searched for who changed a file since.
const SEARCHED: u32 = 1000;

/// What an undo's own call was about. The keys are in order, as canonical JSON has them.
#[derive(Serialize)]
struct Args<'a> {
    /// The file, or how many there are, for people.
    path: &'a str,
    undoes: &'a [String],
}

/// The result of an undo, as its receipt keeps it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Told<'a> {
    undone: Vec<&'a str>,
    kept_directories: &'a [String],
}

/// How carrying it out ended.
pub(super) enum Ended {
    Done {
        kept_directories: Vec<String>,
    },
    /// Nothing was changed.
    Refused(Refused),
    /// Some of it may have happened, and the receipt says so.
    Uncertain(Failure),
}

impl Undo {
    /// Takes files back, under a receipt of its own.
    pub(super) async fn carry_out(
        &self,
        session_id: &str,
        undoes: Vec<String>,
        mut files: Vec<FileChange>,
    ) -> Result<Undone, Refused> {
        let checked = self.check(&files).await?;
        for (file, found) in files.iter_mut().zip(checked.found) {
            file.mode = found.mode;
        }
        // Strings always have a JSON form.
        let path = match files.as_slice() {
            [file] => file.path.clone(),
            files => format!("{} files", files.len()),
        };
        let args = Args {
            path: &path,
            undoes: &undoes,
        };
        let args = serde_json::to_vec(&args).unwrap_or_default();
        let call = Call::of_owner(&self.0.control, session_id, TOOL, args.into());
        let plan = plan::to_bytes(undoes, files.clone());
        if plan.len() > PLAN_BYTES {
            return Err(refused::too_many_files());
        }
        postern_kit::fault_point!(crate::fault_points::UNDO_BEFORE);
        let receipt = self.begin(&call, plan).await?;
        postern_kit::fault_point!(crate::fault_points::UNDO_BEGUN);
        let ended = self
            .finish(&receipt.id, &files, RestoreStep::Apply)
            .await
            .ok_or_else(refused::interrupted)?;
        match ended {
            Ended::Done { kept_directories } => Ok(Undone {
                receipt: self.receipt_now(receipt).await,
                files,
                kept_directories,
            }),
            Ended::Refused(refused) => Err(refused),
            Ended::Uncertain(failure) => Err(refused::uncertain(&receipt.id, &failure)),
        }
    }

    /// Refuses what cannot be taken back now, before there is a receipt of it.
    async fn check(&self, files: &[FileChange]) -> Result<filesystem::RestoreResponse, Refused> {
        let request = RestoreRequest {
            effect: None,
            step: RestoreStep::Check.into(),
            files: files.iter().map(FileChange::to_request).collect(),
        };
        let checked = self.ask_to_restore(request).await?;
        if checked.hindrances.is_empty() {
            return Ok(checked);
        }
        Err(self.hindered(&checked.hindrances).await)
    }

    async fn begin(&self, call: &Call, plan: Bytes) -> Result<Receipt, Refused> {
        let begun = self.0.ledger.begin(call, plan, None, POLICY.to_owned());
        match begun.await? {
            Outcome::Started(receipt) => Ok(receipt),
            Outcome::Replay(_)
            | Outcome::Running(_)
            | Outcome::Orphaned(_)
            | Outcome::Conflict(_)
            | Outcome::Awaiting(_)
            | Outcome::Unknown(_) => Err(Failure::new(
                ErrorCode::Internal,
                "The ledger knows this undo already. The owner's log tells more.",
            )
            .into()),
        }
    }

    /// Carries it out and records its end. None when the edge ends or was replaced before that: then the next start goes on.
    pub(super) async fn finish(
        &self,
        receipt_id: &str,
        files: &[FileChange],
        mut step: RestoreStep,
    ) -> Option<Ended> {
        let mut failures = 0;
        loop {
            let ended = match self.restore(receipt_id, files, step).await {
                Ok(answer) if answer.hindrances.is_empty() => Ended::Done {
                    kept_directories: answer.kept_directories,
                },
                Ok(answer) if step == RestoreStep::Apply => {
                    Ended::Refused(self.hindered(&answer.hindrances).await)
                }
                Ok(answer) => self.go_back(receipt_id, files, answer.hindrances).await?,
                // Nothing has happened, and nothing will.
                Err(failure) if step == RestoreStep::Apply && failure.effect == Effect::None => {
                    return self.give_up(receipt_id, failure).await;
                }
                Err(failure) => {
                    step = RestoreStep::Resume;
                    failures += u32::from(!is_passing(failure.code));
                    if failures < FAILURES {
                        self.pause().await?;
                        continue;
                    }
                    Ended::Uncertain(self.with_states(failure, files).await)
                }
            };
            postern_kit::fault_point!(crate::fault_points::UNDO_DONE);
            return self.record(receipt_id, files, ended).await;
        }
    }

    pub(super) async fn restore(
        &self,
        receipt_id: &str,
        files: &[FileChange],
        step: RestoreStep,
    ) -> Result<filesystem::RestoreResponse, Failure> {
        let request = RestoreRequest {
            effect: Some(filesystem::Effect {
                workspace_id: self.0.control.workspace_id().to_string(),
                receipt_id: receipt_id.to_owned(),
                incarnation: self.0.control.incarnation(),
            }),
            step: step.into(),
            files: files.iter().map(FileChange::to_request).collect(),
        };
        self.ask_to_restore(request).await
    }

    /// Records how it ended, as often as it takes.
    async fn record(&self, receipt_id: &str, files: &[FileChange], ended: Ended) -> Option<Ended> {
        let (state, reply) = match &ended {
            Ended::Done { kept_directories } => {
                let told = Told {
                    undone: files.iter().map(|file| file.path.as_str()).collect(),
                    kept_directories,
                };
                let reply = Reply::success(&told).or_else(|_| Reply::success(&json!({})));
                (State::Completed, reply.ok()?)
            }
            Ended::Refused(refused) => (State::Completed, Reply::failure(&refused.as_failure())),
            Ended::Uncertain(failure) => (State::Uncertain, Reply::failure(failure)),
        };
        loop {
            let recorded = self.0.ledger.complete(receipt_id, state, &reply).await;
            if recorded.is_ok() {
                return Some(ended);
            }
            self.pause().await?;
        }
    }

    /// The receipt of something that did not happen.
    async fn give_up(&self, receipt_id: &str, failure: Failure) -> Option<Ended> {
        if is_passing(failure.code) {
            let abandoned = self.0.ledger.abandon(receipt_id).await;
            if let Err(failure) = abandoned {
                tracing::warn!(%failure, "an undo that did nothing could not be given up; the next start goes on with it");
            }
        } else {
            let reply = Reply::failure(&failure);
            while self
                .0
                .ledger
                .complete(receipt_id, State::Completed, &reply)
                .await
                .is_err()
            {
                self.pause().await?;
            }
        }
        Some(Ended::Refused(failure.into()))
    }

    /// Waits a little. None when there is nothing to wait for any more.
    pub(super) async fn pause(&self) -> Option<()> {
        let stopping = self.0.tasks.stopping();
        tokio::select! {
            () = stopping.cancelled() => None,
            () = self.0.control.fenced().cancelled() => None,
            () = tokio::time::sleep(PAUSE) => Some(()),
        }
    }

    /// The receipt as it stands now; as it was, when the ledger does not tell.
    async fn receipt_now(&self, receipt: Receipt) -> Receipt {
        let receipt_id = receipt.id.clone();
        let asked = hop(self.0.receipts.clone().get(GetRequest { receipt_id })).await;
        asked
            .ok()
            .and_then(|found| found.receipt)
            .unwrap_or(receipt)
    }

    /// What is in the way, with who it was where that is known.
    pub(super) async fn hindered(&self, hindrances: &[Hindrance]) -> Refused {
        let is_stale = |one: &Hindrance| one.kind() == HindranceKind::Stale;
        let receipts = if hindrances.iter().any(is_stale) {
            self.newest_receipts().await
        } else {
            Vec::new()
        };
        let files = hindrances.iter().map(|one| told(one, &receipts));
        refused::hindered(files.collect())
    }

    async fn newest_receipts(&self) -> Vec<Receipt> {
        let request = ListRequest {
            workspace_id: self.0.control.workspace_id().to_string(),
            limit: SEARCHED,
            ..ListRequest::default()
        };
        let page = hop(self.0.receipts.clone().list(request)).await;
        page.map(|page| page.receipts).unwrap_or_default()
    }
}

/// One thing that is in the way, with the newest receipt that left the file as it is.
fn told(hindrance: &Hindrance, receipts: &[Receipt]) -> Value {
    let reason = match hindrance.kind() {
        HindranceKind::Stale => "stale",
        HindranceKind::NotKept => "not_kept",
        HindranceKind::Refused | HindranceKind::Unspecified => "refused",
    };
    let mut value = json!({
        "path": hindrance.path,
        "reason": reason,
        "currentSha256": hindrance.current_sha256,
        "message": hindrance.message,
    });
    if hindrance.kind() == HindranceKind::Stale {
        let left_so = |receipt: &&Receipt| {
            plan::has_happened(receipt)
                && plan::planned_changes(receipt).is_some_and(|changes| {
                    changes.iter().any(|change| {
                        change.path == hindrance.path && change.after == hindrance.current_sha256
                    })
                })
        };
        match receipts.iter().find(left_so) {
            Some(receipt) => {
                value["receipt"] = receipt.id.clone().into();
                value["message"] = format!("Receipt {} changed it since.", receipt.id).into();
            }
            None => {
                value["message"] = "It was changed since by something that has no receipt: you, another program, or a command.".into();
            }
        }
    }
    value
}
