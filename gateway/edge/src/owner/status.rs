//! Status, mode and the channel's switch.

use axum::{Json, body::Bytes, extract::State, response::IntoResponse};
use http::header;
use postern_kit::metrics;
use postern_types::Mode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    inbox,
    reply::{Reply, body},
};
use crate::CallInFlight;

/// `GET /owner/v1/status`
pub(super) async fn status(State(state): State<super::State>) -> Reply {
    Ok(Json(describe(&state).await))
}

/// The edge as it is told. `waiting` is null while the ledger does not say.
pub(super) async fn describe(state: &super::State) -> Value {
    let status = state.control.status();
    let sandbox = status
        .sandbox
        .map(|sandbox| json!({"level": sandbox.level, "missing": sandbox.missing}));
    json!({
        "workspaceId": state.control.workspace_id(),
        "intention": state.control.intention(),
        "mode": state.control.mode(),
        "channel": {"open": status.open, "connected": status.connected, "host": state.control.host()},
        "inFlight": status.in_flight,
        "calls": state.control.calls().iter().map(call).collect::<Vec<_>>(),
        "waiting": inbox::count(state).await.ok(),
        "sandbox": sandbox,
        "tools": state.control.tools(),
        "warnings": status.warnings,
        "version": env!("CARGO_PKG_VERSION"),
    })
}

fn call(call: &CallInFlight) -> Value {
    json!({
        "sessionId": call.session_id,
        "callId": call.call_id,
        "tool": call.tool,
        "summary": (!call.summary.is_empty()).then_some(&call.summary),
        "receiptId": call.receipt_id,
        "startedAt": call.started_at,
        "waiting": call.waiting,
    })
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ModeBody {
    mode: Mode,
}

/// `PUT /owner/v1/mode`
pub(super) async fn set_mode(State(state): State<super::State>, bytes: Bytes) -> Reply {
    let wish: ModeBody = body(&bytes)?;
    state.control.set_mode(wish.mode);
    Ok(Json(describe(&state).await))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ChannelBody {
    open: bool,
}

/// `POST /owner/v1/channel`
pub(super) async fn set_channel(State(state): State<super::State>, bytes: Bytes) -> Reply {
    let wish: ChannelBody = body(&bytes)?;
    state.control.set_open(wish.open);
    Ok(Json(describe(&state).await))
}

/// `GET /metrics`
pub(super) async fn metrics() -> impl IntoResponse {
    let kind = [(header::CONTENT_TYPE, metrics::CONTENT_TYPE)];
    (kind, metrics::render().await)
}

/// `GET /healthz`
pub(super) async fn healthz() -> &'static str {
    "ok\n"
}
