//! Receipts as the owner sees them.

use axum::{
    Json,
    extract::{Path, Query, State},
};
use postern_kit::Problem;
use postern_proto::ledger::v1::{
    self as ledger, GetRequest, GetResponse, ListRequest, ListResponse,
};
use postern_types::{ReceiptId, Timestamp};
use serde::Deserialize;
use serde_json::{Value, json};
use tonic::Code;

use super::reply::{Refusal, Reply};
use crate::undo::undone_receipts;

/// Items a page when nothing is said.
const PAGE: u32 = 100;
/// Items a page at most.
const PAGE_LIMIT: u32 = 1000;

/// Which receipts.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Filter {
    pub(super) after: String,
    pub(super) limit: Option<u32>,
    pub(super) session: String,
    pub(super) tool: String,
    pub(super) state: Option<String>,
    pub(super) since: Option<String>,
    pub(super) until: Option<String>,
}

/// `GET /owner/v1/receipts`
pub(super) async fn list(
    State(state): State<super::State>,
    filter: Result<Query<Filter>, axum::extract::rejection::QueryRejection>,
) -> Reply {
    let Query(filter) = filter.map_err(|problem| Refusal::bad_request(problem.body_text()))?;
    let page = page(&state, filter).await?;
    let items: Vec<Value> = page.receipts.iter().map(to_json).collect();
    Ok(Json(
        json!({"items": items, "next": (!page.next.is_empty()).then_some(page.next)}),
    ))
}

/// One page of receipts, newest first.
pub(super) async fn page(state: &super::State, filter: Filter) -> Result<ListResponse, Refusal> {
    let limit = page_limit(filter.limit)?;
    let wanted = filter
        .state
        .as_deref()
        .map_or(Ok(ledger::State::Unspecified), parse_state)?;
    let request = ListRequest {
        workspace_id: state.control.workspace_id().to_string(),
        session_id: filter.session,
        tool: filter.tool,
        state: wanted.into(),
        after: filter.after,
        limit,
        since_ms: time("since", filter.since.as_deref())?,
        until_ms: time("until", filter.until.as_deref())?,
    };
    Ok(state.ledger.clone().list(request).await?.into_inner())
}

/// How many items a page has.
pub(super) fn page_limit(asked: Option<u32>) -> Result<u32, Refusal> {
    let limit = asked.unwrap_or(PAGE);
    if (1..=PAGE_LIMIT).contains(&limit) {
        Ok(limit)
    } else {
        Err(Refusal::bad_request(format!(
            "`limit` is 1 to {PAGE_LIMIT}."
        )))
    }
}

fn time(field: &str, text: Option<&str>) -> Result<Option<i64>, Refusal> {
    let parse = |text| {
        Timestamp::parse(text)
            .map(Timestamp::as_millis)
            .map_err(|form| Refusal::bad_request(format!("`{field}`: {form}.")))
    };
    text.map(parse).transpose()
}

/// `GET /owner/v1/receipts/{id}`
pub(super) async fn show(State(state): State<super::State>, Path(receipt): Path<String>) -> Reply {
    let found = find(&state, &receipt).await?;
    let receipt = found.receipt.unwrap_or_default();
    let undone_by = state.undo.undone_by(&receipt).await?;
    let mut value = to_json(&receipt);
    value["undoneBy"] = json!(undone_by);
    value["result"] = serde_json::from_slice(&found.result).unwrap_or(Value::Null);
    Ok(Json(value))
}

/// A receipt of this edge's workspace. A ledger may hold those of others too, which are other owners' to see.
pub(super) async fn find(state: &super::State, text: &str) -> Result<GetResponse, Refusal> {
    let receipt_id = id(text)?;
    let asked = state.ledger.clone().get(GetRequest { receipt_id }).await;
    let found = asked?.into_inner();
    let workspace = found.receipt.as_ref().map(|it| it.workspace_id.as_str());
    if workspace != Some(state.control.workspace_id().as_str()) {
        return Err(unknown());
    }
    Ok(found)
}

/// A receipt's id as given in an address.
pub(super) fn id(text: &str) -> Result<String, Refusal> {
    let id: ReceiptId = text.parse().map_err(|_| unknown())?;
    Ok(id.to_string())
}

/// There is no such receipt.
pub(super) fn unknown() -> Refusal {
    let problem = Problem::new(
        Code::NotFound,
        "no_such_receipt",
        "There is no such receipt.",
    );
    problem.into()
}

/// A receipt, by the names of the contract.
pub(super) fn to_json(receipt: &ledger::Receipt) -> Value {
    let undoes = undone_receipts(receipt);
    let time = |millis: i64| Timestamp::from_millis(millis).to_string();
    json!({
        "id": receipt.id,
        "workspaceId": receipt.workspace_id,
        "sessionId": receipt.session_id,
        "callId": receipt.call_id,
        "intention": receipt.intention,
        "tool": receipt.tool,
        "argsSha256": receipt.args_sha256,
        "summary": (!receipt.summary.is_empty()).then_some(&receipt.summary),
        "state": state_name(receipt.state()),
        "outcome": (!receipt.outcome.is_empty()).then_some(&receipt.outcome),
        "createdAt": time(receipt.created_at_ms),
        "startedAt": receipt.started_at_ms.map(time),
        "finishedAt": receipt.finished_at_ms.map(time),
        "traceId": receipt.trace_id,
        "previousHash": receipt.previous_hash,
        "hash": receipt.hash,
        "policyId": (!receipt.policy_id.is_empty()).then_some(&receipt.policy_id),
        "decision": decision_name(receipt.decision()),
        "decidedBy": (!receipt.decided_by.is_empty()).then_some(&receipt.decided_by),
        "decidedAt": receipt.decided_at_ms.map(time),
        "undoes": (!undoes.is_empty()).then_some(undoes),
    })
}

const STATES: [(ledger::State, &str); 5] = [
    (ledger::State::AwaitingOwner, "awaiting_owner"),
    (ledger::State::Executing, "executing"),
    (ledger::State::Completed, "completed"),
    (ledger::State::Refused, "refused"),
    (ledger::State::Uncertain, "uncertain"),
];

/// A state by its name in the contract.
pub(super) fn state_name(state: ledger::State) -> Option<&'static str> {
    STATES
        .iter()
        .find(|(known, _)| *known == state)
        .map(|(_, name)| *name)
}

fn parse_state(text: &str) -> Result<ledger::State, Refusal> {
    let known = STATES
        .iter()
        .find(|(_, name)| *name == text)
        .map(|(state, _)| *state);
    known.ok_or_else(|| {
        Refusal::bad_request(
            "`state` is awaiting_owner, executing, completed, refused or uncertain.",
        )
    })
}

/// A decision by its name in the contract; `None` while there is none.
pub(super) const fn decision_name(decision: ledger::Decision) -> Option<&'static str> {
    match decision {
        ledger::Decision::Unspecified => None,
        ledger::Decision::Approve => Some("approve"),
        ledger::Decision::ApproveSession => Some("approve_session"),
        ledger::Decision::Deny => Some("deny"),
        ledger::Decision::Answer => Some("answer"),
        ledger::Decision::Expire => Some("expire"),
    }
}
