//! Waiting for the owner: approvals and questions are receipts that await him (DESIGN.md, the inbox is the ledger).

use std::sync::Arc;

use bytes::Bytes;
use postern_kit::Failure;
use postern_proto::ledger::v1::{Decision, InboxKind, Question, Receipt, State};
use postern_types::{ErrorCode, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{json, value::RawValue};

use super::{Intent, Permission, Permit, Receipts, Step, channel_closed, linked};
use crate::{
    args,
    call::Call,
    clients::is_passing,
    reply::Reply,
    stack::{judge::Verdict, layer::Inner},
    tools::Location,
};

/// A question of `workspace_ask`.
pub(super) fn question(call: &Call) -> Result<Question, Failure> {
    let asked: args::Ask = args::read(call)?;
    Ok(Question {
        kind: InboxKind::Question.into(),
        proposal_json: json!({"question": asked.question}).to_string().into(),
        expires_at_ms: 0,
    })
}

#[derive(Serialize)]
struct Proposal<'a> {
    tool: &'a str,
    arguments: Option<&'a RawValue>,
    effect: Option<&'a RawValue>,
}

/// What the owner is asked to approve: the call as it stands, and what is known of its effect.
pub(super) fn proposal(call: &Call, plan: &Bytes) -> Question {
    let proposal = Proposal {
        tool: &call.tool,
        arguments: serde_json::from_str(call.args()).ok(),
        effect: serde_json::from_slice(plan).ok(),
    };
    Question {
        kind: InboxKind::Approval.into(),
        proposal_json: serde_json::to_vec(&proposal).unwrap_or_default().into(),
        expires_at_ms: 0,
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Answered<'a> {
    answer: &'a str,
    answered_at: Timestamp,
}

impl Receipts {
    /// Waits for the decision, and does what it says.
    pub(super) async fn ask_owner<I: Inner<Permit>>(
        &self,
        call: &Arc<Call>,
        receipt: Receipt,
        inner: &I,
    ) -> Result<Step, Failure> {
        postern_kit::fault_point!(crate::fault_points::OWNER_ASKED);
        self.control.note_receipt(call, &receipt.id, true);
        let decided = self.inbox.decision(receipt).await?;
        self.control.note_receipt(call, &decided.id, false);
        postern_kit::fault_point!(crate::fault_points::OWNER_DECIDED);
        if let Some(failure) = refusal(&decided) {
            return self.refuse_awaiting(&decided.id, &failure).await;
        }
        let is_question = decided.inbox_kind() == InboxKind::Question;
        match decided.decision() {
            Decision::Answer | Decision::Approve | Decision::ApproveSession if is_question => {
                let answered_at = decided.decided_at_ms.unwrap_or_default();
                let reply = Reply::success(&Answered {
                    answer: &decided.answer,
                    answered_at: Timestamp::from_millis(answered_at),
                })
                .unwrap_or_else(|failure| Reply::failure(&failure));
                self.complete(&decided.id, &reply).await
            }
            Decision::Approve | Decision::ApproveSession | Decision::Answer => {
                self.go_ahead(call, &decided, inner).await
            }
            // It left the inbox without a decision: somebody else holds it now.
            Decision::Deny | Decision::Expire | Decision::Unspecified => Ok(Step::Again),
        }
    }

    /// The owner approved. Whether the call is permitted at all, and what it would do, is looked at again: both may have
    /// changed while he was thinking.
    async fn go_ahead<I: Inner<Permit>>(
        &self,
        call: &Arc<Call>,
        receipt: &Receipt,
        inner: &I,
    ) -> Result<Step, Failure> {
        if !self.control.wish().open {
            return Err(channel_closed());
        }
        let plan = match self.tools.plan(call).await {
            Err(failure) if is_passing(failure.code) || failure.code == ErrorCode::Internal => {
                return Err(failure);
            }
            plan => plan,
        };
        if let Ok(plan) = &plan
            && Location::of(plan).place != asked_about(receipt)
        {
            return self.refuse_awaiting(&receipt.id, &moved()).await;
        }
        let place = linked(&plan);
        let asker = match self.judge.judge(call, place.as_deref()).await {
            Verdict::Allow { .. } => None,
            Verdict::Ask { policy_id } => Some(policy_id),
            Verdict::Refuse { failure, .. } => {
                return self.refuse_awaiting(&receipt.id, &failure).await;
            }
            Verdict::Away(failure) => return Err(failure),
        };
        // For the like he is asked no more, as long as it is by the rule that he was asked by.
        if receipt.decision() == Decision::ApproveSession
            && let Some(asker) = asker
            && asker == receipt.policy_id
        {
            self.judge.grant(call, place.as_deref(), &asker).await;
        }
        let planned = plan.clone().unwrap_or_default();
        self.ledger.start(&receipt.id, planned).await?;
        let intent = Intent {
            plan,
            permission: Permission::Owner,
        };
        Box::pin(self.execute(call, &receipt.id, intent, inner)).await
    }

    async fn refuse_awaiting(&self, receipt_id: &str, failure: &Failure) -> Result<Step, Failure> {
        let reply = Reply::failure(failure);
        self.ledger
            .complete(receipt_id, State::Refused, &reply)
            .await?;
        Ok(Step::Answered(reply))
    }
}

/// What the call is told when the owner's decision, or that there was none in time, is no.
pub(in crate::stack) fn refusal(decided: &Receipt) -> Option<Failure> {
    match decided.decision() {
        Decision::Deny => Some(denied(&decided.answer)),
        Decision::Expire => Some(Failure::new(
            ErrorCode::ApprovalTimeout,
            "The owner did not decide in time. Nothing was done; ask again with a new id when he is there.",
        )),
        Decision::Unspecified | Decision::Approve | Decision::ApproveSession | Decision::Answer => {
            None
        }
    }
}

/// The place of which the owner was told when he was asked.
fn asked_about(receipt: &Receipt) -> Option<String> {
    #[derive(Deserialize)]
    struct Asked {
        effect: Option<Location>,
    }
    let asked: Asked = serde_json::from_slice(&receipt.proposal_json).ok()?;
    asked.effect?.place
}

fn moved() -> Failure {
    Failure::new(
        ErrorCode::StaleRevision,
        "While the owner was asked, the path came to lead to another place: a link on it was changed. Nothing was done; look at it and send the call with a new id.",
    )
}

fn denied(words: &str) -> Failure {
    let failure = Failure::new(
        ErrorCode::ApprovalDenied,
        "The owner said no to this call. Nothing was done; do not repeat it without talking to him.",
    );
    if words.is_empty() {
        failure
    } else {
        failure.with("answer", words)
    }
}
