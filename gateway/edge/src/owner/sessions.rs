//! Sessions: what each conversation came to.

use axum::{
    Json,
    extract::{Query, State, rejection::QueryRejection},
};
use postern_proto::ledger::v1::{self as ledger, SessionsRequest, SessionsResponse};
use postern_types::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    receipts::{page_limit, state_name},
    reply::{Refusal, Reply},
};

/// Tools that change files.
pub(super) const CHANGING_TOOLS: [&str; 3] =
    ["workspace_write", "workspace_patch", "workspace_delete"];

/// Which sessions.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Page {
    pub(super) after: String,
    pub(super) limit: Option<u32>,
}

/// `GET /owner/v1/sessions`: those with the newest activity first.
pub(super) async fn list(
    State(state): State<super::State>,
    page: Result<Query<Page>, QueryRejection>,
) -> Reply {
    let Query(page) = page.map_err(|problem| Refusal::bad_request(problem.body_text()))?;
    let page = self::page(&state, page).await?;
    let items: Vec<Value> = page.sessions.iter().map(to_json).collect();
    Ok(Json(
        json!({"items": items, "next": (!page.next.is_empty()).then_some(page.next)}),
    ))
}

/// One page of sessions, those with the newest activity first.
pub(super) async fn page(state: &super::State, page: Page) -> Result<SessionsResponse, Refusal> {
    let request = SessionsRequest {
        workspace_id: state.control.workspace_id().to_string(),
        after: page.after,
        limit: page_limit(page.limit)?,
        changing_tools: CHANGING_TOOLS.map(str::to_owned).to_vec(),
    };
    Ok(state.ledger.clone().sessions(request).await?.into_inner())
}

fn to_json(session: &ledger::Session) -> Value {
    let states: Map<_, _> = session
        .states
        .iter()
        .filter_map(|of| Some((state_name(of.state())?.to_owned(), of.count.into())))
        .collect();
    json!({
        "id": session.session_id,
        "firstAt": Timestamp::from_millis(session.first_at_ms).to_string(),
        "lastAt": Timestamp::from_millis(session.last_at_ms).to_string(),
        "receipts": session.receipts,
        "changes": session.changes,
        "states": states,
    })
}
