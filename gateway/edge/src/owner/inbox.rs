//! What waits for the owner, and his decisions.

use axum::{
    Extension, Json,
    body::Bytes,
    extract::{Path, Query, State, rejection::QueryRejection},
};
use postern_kit::Problem;
use postern_proto::{
    catalogue::{MAX_FRAME_BYTES, MAX_IN_FLIGHT},
    ledger::v1::{self as ledger, DecideRequest, Decision, InboxKind, ListRequest, Receipt},
};
use postern_types::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use tonic::Code;

use super::{
    access::Caller,
    receipts,
    reply::{Refusal, Reply, body},
};

/// Items after which an answer ends with a cursor: more than the calls that can wait at once.
const LIMIT: u32 = 1000;
/// Pages of the ledger that one answer is made of at most; a page has at least one item.
const PAGES: usize = 1000;
/// Bytes of proposals that one answer tells whole: as much as all calls in flight can bring.
const WHOLE_BYTES: usize = MAX_IN_FLIGHT * MAX_FRAME_BYTES;
/// Characters that are shown of a proposal beyond that.
const CUT_CHARS: usize = 2000;
/// Longest answer or reason, in characters.
const ANSWER_LIMIT: usize = 16_384;

/// A decision as it is sent.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Sent {
    pub(super) decision: Choice,
    #[serde(default)]
    pub(super) answer: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "snake_case")]
pub(super) enum Choice {
    Approve,
    ApproveSession,
    Deny,
    Answer,
}

/// Which part of the inbox.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Part {
    after: String,
}

/// `GET /owner/v1/inbox`: everything that waits, in one answer as far as it has room. The ledger's own pages end by size, and
/// what a page leaves out waits all the same. Proposals beyond [`WHOLE_BYTES`] are cut and marked so; each can be had whole.
pub(super) async fn list(
    State(state): State<super::State>,
    part: Result<Query<Part>, QueryRejection>,
) -> Reply {
    let Query(part) = part.map_err(|problem| Refusal::bad_request(problem.body_text()))?;
    let (mut items, mut room) = (Vec::new(), WHOLE_BYTES);
    let (receipts, next) = waiting(&state, part.after).await?;
    for receipt in &receipts {
        let size = receipt.proposal_json.len();
        if size <= room {
            room -= size;
            items.push(item(receipt));
        } else {
            items.push(cut_item(receipt));
        }
    }
    Ok(Json(json!({"items": items, "next": next})))
}

/// What waits, newest first, up to [`LIMIT`]; beyond it there is a cursor.
pub(super) async fn waiting(
    state: &super::State,
    mut after: String,
) -> Result<(Vec<Receipt>, Option<String>), Refusal> {
    let now = state.clock.now().as_millis();
    let mut items = Vec::new();
    for _ in 0..PAGES {
        let request = ListRequest {
            workspace_id: state.control.workspace_id().to_string(),
            state: ledger::State::AwaitingOwner.into(),
            limit: LIMIT,
            after,
            ..ListRequest::default()
        };
        let page = state.ledger.clone().list(request).await?.into_inner();
        let waits = page.receipts.into_iter().filter(|it| waits(it, now));
        items.extend(waits);
        after = page.next;
        if after.is_empty() || items.len() >= LIMIT as usize {
            break;
        }
    }
    let next = (!after.is_empty()).then_some(after);
    Ok((items, next))
}

/// How many items wait, up to [`LIMIT`].
pub(super) async fn count(state: &super::State) -> Result<usize, Refusal> {
    Ok(waiting(state, String::new()).await?.0.len())
}

/// `GET /owner/v1/inbox/{receiptId}`: one item, whole.
pub(super) async fn show(State(state): State<super::State>, Path(receipt): Path<String>) -> Reply {
    let found = receipts::find(&state, &receipt).await?;
    let receipt = found.receipt.unwrap_or_default();
    if receipt.inbox_kind() == InboxKind::Unspecified {
        return Err(receipts::unknown());
    }
    Ok(Json(item(&receipt)))
}

/// Whether an item can still be decided.
pub(super) fn waits(receipt: &Receipt, now: i64) -> bool {
    receipt.decision() == Decision::Unspecified && receipt.expires_at_ms.is_none_or(|end| end > now)
}

fn item(receipt: &Receipt) -> Value {
    let asked: Value = serde_json::from_slice(&receipt.proposal_json).unwrap_or(Value::Null);
    let asked = match receipt.inbox_kind() {
        InboxKind::Question => asked.get("question").cloned().unwrap_or(asked),
        InboxKind::Approval | InboxKind::Unspecified => asked,
    };
    item_asking(receipt, asked)
}

/// An item of which only the beginning is shown, as text, and which says so.
fn cut_item(receipt: &Receipt) -> Value {
    let text = String::from_utf8_lossy(&receipt.proposal_json);
    let shown: String = text.chars().take(CUT_CHARS).collect();
    let mut value = item_asking(receipt, shown.into());
    value["cut"] = true.into();
    value
}

fn item_asking(receipt: &Receipt, asked: Value) -> Value {
    let mut value = receipts::to_json(receipt);
    let (kind, field) = match receipt.inbox_kind() {
        InboxKind::Question => ("question", "question"),
        InboxKind::Approval | InboxKind::Unspecified => ("approval", "proposal"),
    };
    value["kind"] = kind.into();
    value[field] = asked;
    value["expiresAt"] = receipt
        .expires_at_ms
        .map(|end| Timestamp::from_millis(end).to_string())
        .into();
    value
}

/// `POST /owner/v1/inbox/{receiptId}/decision`
pub(super) async fn decide(
    State(state): State<super::State>,
    Extension(caller): Extension<Caller>,
    Path(receipt): Path<String>,
    bytes: Bytes,
) -> Reply {
    let sent: Sent = body(&bytes)?;
    let decided = settle(&state, &caller, &receipt, sent).await?;
    Ok(Json(receipts::to_json(&decided)))
}

/// Records a decision, if it is the first.
pub(super) async fn settle(
    state: &super::State,
    caller: &Caller,
    receipt: &str,
    sent: Sent,
) -> Result<Receipt, Refusal> {
    let receipt_id = receipts::id(receipt)?;
    let answer = sent.answer.unwrap_or_default();
    if answer.chars().count() > ANSWER_LIMIT {
        return Err(Refusal::bad_request(format!(
            "`answer` has at most {ANSWER_LIMIT} characters."
        )));
    }
    let mut ledger = state.ledger.clone();
    let waiting = receipts::find(state, receipt).await?;
    let waiting = waiting.receipt.unwrap_or_default();
    let decision = fitting(sent.decision, waiting.inbox_kind())?;
    if decision == Decision::Answer && answer.is_empty() {
        return Err(Refusal::bad_request("An answer needs `answer`."));
    }
    let request = DecideRequest {
        receipt_id,
        decision: decision.into(),
        answer,
        decided_by: caller.name().to_owned(),
    };
    let outcome = ledger.decide(request).await?.into_inner();
    let decided = outcome.receipt.unwrap_or_default();
    if outcome.counted {
        return Ok(decided);
    }
    let told = receipts::to_json(&decided);
    let was = told["decision"].as_str().unwrap_or("over");
    let words = match decided.answer.as_str() {
        "" => String::new(),
        answer => format!(", in the words: {answer}"),
    };
    Err(Problem::new(
        Code::AlreadyExists,
        "already_decided",
        format!("This was decided before, and that decision counts: {was}{words}"),
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

#[cfg(test)]
mod tests;
