//! What waits for the owner, and his decisions.

use axum::{
    Json,
    body::Bytes,
    extract::{Path, State},
};
use postern_kit::Problem;
use postern_proto::ledger::v1::{
    self as ledger, DecideRequest, Decision, GetRequest, InboxKind, ListRequest, Receipt,
};
use postern_types::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use tonic::Code;

use super::{
    receipts,
    reply::{Refusal, Reply, body},
};

/// Items that are shown at most: more than the calls that can wait at once.
const LIMIT: u32 = 1000;
/// Longest answer or reason, in characters.
const ANSWER_LIMIT: usize = 16_384;

/// A decision as it is sent.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sent {
    decision: Choice,
    #[serde(default)]
    answer: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "snake_case")]
enum Choice {
    Approve,
    ApproveSession,
    Deny,
    Answer,
}

/// `GET /owner/v1/inbox`
pub(super) async fn list(State(state): State<super::State>) -> Reply {
    let request = ListRequest {
        workspace_id: state.control.workspace_id().to_string(),
        state: ledger::State::AwaitingOwner.into(),
        limit: LIMIT,
        ..ListRequest::default()
    };
    let page = state.ledger.clone().list(request).await?.into_inner();
    let now = state.clock.now().as_millis();
    let waits = |receipt: &&Receipt| {
        receipt.decision() == Decision::Unspecified
            && receipt.expires_at_ms.is_none_or(|end| end > now)
    };
    let items: Vec<Value> = page.receipts.iter().filter(waits).map(item).collect();
    Ok(Json(json!({"items": items, "next": null})))
}

fn item(receipt: &Receipt) -> Value {
    let mut value = receipts::to_json(receipt);
    let asked: Value = serde_json::from_slice(&receipt.proposal_json).unwrap_or(Value::Null);
    match receipt.inbox_kind() {
        InboxKind::Question => {
            value["kind"] = "question".into();
            value["question"] = asked.get("question").cloned().unwrap_or(asked);
        }
        InboxKind::Approval | InboxKind::Unspecified => {
            value["kind"] = "approval".into();
            value["proposal"] = asked;
        }
    }
    value["expiresAt"] = receipt
        .expires_at_ms
        .map(|end| Timestamp::from_millis(end).to_string())
        .into();
    value
}

/// `POST /owner/v1/inbox/{receiptId}/decision`
pub(super) async fn decide(
    State(state): State<super::State>,
    Path(receipt): Path<String>,
    bytes: Bytes,
) -> Reply {
    let receipt_id = receipts::id(&receipt)?;
    let sent: Sent = body(&bytes)?;
    let answer = sent.answer.unwrap_or_default();
    if answer.chars().count() > ANSWER_LIMIT {
        return Err(Refusal::bad_request(format!(
            "`answer` has at most {ANSWER_LIMIT} characters."
        )));
    }
    let mut ledger = state.ledger.clone();
    let waiting = ledger
        .get(GetRequest {
            receipt_id: receipt_id.clone(),
        })
        .await?
        .into_inner()
        .receipt
        .unwrap_or_default();
    let decision = fitting(sent.decision, waiting.inbox_kind())?;
    if decision == Decision::Answer && answer.is_empty() {
        return Err(Refusal::bad_request("An answer needs `answer`."));
    }
    let request = DecideRequest {
        receipt_id,
        decision: decision.into(),
        answer,
        decided_by: "owner".to_owned(),
    };
    let outcome = ledger.decide(request).await?.into_inner();
    let decided = outcome.receipt.unwrap_or_default();
    if outcome.counted {
        return Ok(Json(receipts::to_json(&decided)));
    }
    let told = receipts::to_json(&decided);
    let was = told["decision"].as_str().unwrap_or("over");
    Err(Problem::new(
        Code::AlreadyExists,
        "already_decided",
        format!("This was decided before: {was}. That decision counts."),
    )
    .into())
}

/// A question is answered or denied, an approval is given or denied.
fn fitting(choice: Choice, kind: InboxKind) -> Result<Decision, Refusal> {
    match (choice, kind) {
        (_, InboxKind::Unspecified) => Err(Problem::new(
            Code::FailedPrecondition,
            "not_waiting",
            "This receipt does not wait for a decision.",
        )
        .into()),
        (Choice::Deny, _) => Ok(Decision::Deny),
        (Choice::Approve, InboxKind::Approval) => Ok(Decision::Approve),
        (Choice::ApproveSession, InboxKind::Approval) => Ok(Decision::ApproveSession),
        (Choice::Answer, InboxKind::Question) => Ok(Decision::Answer),
        (Choice::Answer, InboxKind::Approval) => Err(Refusal::bad_request(
            "This is no question: `decision` is approve, approve_session or deny.",
        )),
        (Choice::Approve | Choice::ApproveSession, InboxKind::Question) => Err(
            Refusal::bad_request("This is a question: `decision` is answer or deny."),
        ),
    }
}
