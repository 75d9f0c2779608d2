//! Waiting for the owner: approvals and questions are receipts that await him (DESIGN.md, the inbox is the ledger).

use std::sync::Arc;

use bytes::Bytes;
use postern_kit::Failure;
use postern_proto::ledger::v1::{Decision, InboxKind, Question, Receipt, State};
use postern_types::{ErrorCode, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{json, value::RawValue};

use super::{Intent, Permission, Permit, Receipts, Step, channel_closed};
use crate::{
    args,
    call::Call,
    reply::Reply,
    stack::{
        judge::{Asked, Verdict},
        layer::Inner,
    },
    tools::{Location, Planned},
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
    /// Every rule that asks.
    rules: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<Command<'a>>,
}

/// What the text of a command says of what it does.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Command<'a> {
    programs: &'a [String],
    writes: &'a [String],
    reads: &'a [String],
    understood: bool,
    plain: bool,
}

/// What the owner is asked to approve: the call as it stands, and what is known of its effect.
pub(super) fn proposal(call: &Call, plan: &Bytes, asked: &Asked) -> Question {
    let command = asked.command.as_ref().map(|command| Command {
        programs: &command.programs,
        writes: &command.writes,
        reads: &command.reads,
        understood: command.understood,
        plain: command.plain,
    });
    let proposal = Proposal {
        tool: &call.tool,
        arguments: serde_json::from_str(call.args()).ok(),
        effect: serde_json::from_slice(plan).ok(),
        rules: &asked.rules,
        command,
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
        let Planned {
            json: plan,
            location,
        } = self.tools.plan(call).await?;
        let before = BeforeAsking::of(receipt);
        let asked_about = before.effect.and_then(|effect| effect.place);
        // What leads nowhere any more tells nothing of another place.
        if location.place != asked_about && (plan.is_ok() || location.place.is_some()) {
            return self.refuse_awaiting(&receipt.id, &moved()).await;
        }
        let place = location.resolved_path.as_deref();
        let asked = match self.judge.judge(call, place).await {
            Verdict::Allow { .. } => None,
            Verdict::Ask(asked) => Some(asked),
            Verdict::Refuse { failure, .. } => {
                return self.refuse_awaiting(&receipt.id, &failure).await;
            }
            Verdict::Away(failure) => return Err(failure),
        };
        // For the like he is asked no more, as long as it is by the rules that he was asked by.
        if receipt.decision() == Decision::ApproveSession
            && let Some(asked) = asked
            && asked.rules == before.rules
        {
            self.judge.grant(call, place, &asked).await;
        }
        let planned = plan.clone().unwrap_or_default();
        self.ledger.start(&receipt.id, planned).await?;
        let intent = Intent {
            plan,
            permission: Permission::Given,
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

/// What the owner was told when he was asked.
#[derive(Default, Deserialize)]
struct BeforeAsking {
    #[serde(default)]
    effect: Option<Location>,
    #[serde(default)]
    rules: Vec<String>,
}

impl BeforeAsking {
    fn of(receipt: &Receipt) -> Self {
        serde_json::from_slice(&receipt.proposal_json).unwrap_or_default()
    }
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
