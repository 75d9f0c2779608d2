//! What became of a change that an edge which is gone began: the file tells.

use bytes::Bytes;
use postern_kit::Failure;
use postern_proto::filesystem::v1::{InspectRequest, InspectResponse};
use postern_types::ErrorCode;

use super::{Deleted, Patched, Plan, Written, effect};
use crate::{
    call::Call,
    clients::{hop, is_passing},
    reply::{Answer, Reply},
    stack::Held,
    tools::{Finding, Tools},
};

impl Tools {
    /// The file tells: at the new revision the change happened, at the old one it did not, anything else is somebody's.
    pub(in crate::tools) async fn inspect_file(
        &self,
        call: &Call,
        held: &Held,
        plan_json: &Bytes,
    ) -> Result<Finding, Failure> {
        if plan_json.is_empty() {
            // The plan itself was refused, and without one no effect starts.
            return Ok(Finding::NotApplied);
        }
        let Ok(plan) = serde_json::from_slice::<Plan>(plan_json) else {
            return Ok(Finding::Uncertain(uncertain(
                "What this change was to do is not recorded. Look at the file before changing it again.",
            )));
        };
        let request = InspectRequest {
            effect: effect(held.clone()),
            path: plan.path.clone(),
        };
        let mut filesystem = self.0.clients.filesystem.clone();
        let now = match hop(filesystem.inspect(request)).await {
            Ok(now) => now,
            Err(failure) if is_passing(failure.code) || failure.code == ErrorCode::Internal => {
                return Err(failure);
            }
            // It has looked, and cannot tell either.
            Err(failure) if failure.code == ErrorCode::Uncertain => {
                return Ok(Finding::Uncertain(failure.with("path", plan.path)));
            }
            Err(failure) => {
                let told = uncertain(
                    "Whether this change happened cannot be seen any more. Look at the path before changing it again.",
                );
                return Ok(Finding::Uncertain(
                    told.with("path", plan.path)
                        .with("reason", failure.code.as_str()),
                ));
            }
        };
        Ok(found(&call.tool, plan, now))
    }
}

/// Compares a plan with the file. The new revision is looked at first: a write of what was there already, by an agent that
/// knew so, has left the file as wanted either way. Nothing that becomes nothing is no change.
fn found(tool: &str, plan: Plan, now: InspectResponse) -> Finding {
    let changes_nothing = plan.before.is_none() && plan.after.is_none();
    if now.sha256 == plan.after && !changes_nothing {
        return match rebuilt(tool, plan, now) {
            Ok(reply) => Finding::Applied(reply),
            Err(failure) => Finding::Uncertain(failure),
        };
    }
    if now.sha256 == plan.before {
        return Finding::NotApplied;
    }
    let told = uncertain(
        "The owner's side was interrupted during this change, and the file is at neither its old nor its new revision. Read it before changing it again.",
    );
    Finding::Uncertain(
        told.with("path", plan.path)
            .with("previousSha256", plan.before)
            .with("intendedSha256", plan.after)
            .with("currentSha256", now.sha256),
    )
}

fn rebuilt(tool: &str, plan: Plan, now: InspectResponse) -> Answer {
    match tool {
        "workspace_write" => Reply::success(&Written {
            path: now.path,
            sha256: now.sha256.unwrap_or_default(),
            bytes: now.size.unwrap_or_default(),
            created: plan.before.is_none(),
            previous_sha256: plan.before,
            resolved_path: now.resolved_path,
        }),
        "workspace_patch" => Reply::success(&Patched {
            path: now.path,
            sha256: now.sha256.unwrap_or_default(),
            bytes: now.size.unwrap_or_default(),
            previous_sha256: plan.before.unwrap_or_default(),
            spot: plan.spot.unwrap_or_default(),
            resolved_path: now.resolved_path,
        }),
        _ => Reply::success(&Deleted {
            path: now.path,
            deleted: true,
            previous_sha256: plan.before.unwrap_or_default(),
        }),
    }
}

fn uncertain(message: &str) -> Failure {
    Failure::new(ErrorCode::Uncertain, message)
}
