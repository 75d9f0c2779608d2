//! Status, mode and the channel's switch.

use axum::{Json, body::Bytes, extract::State, response::Html};
use postern_types::Mode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::reply::{Reply, body};

/// `GET /owner/v1/status`
pub(super) async fn status(State(state): State<super::State>) -> Reply {
    Ok(Json(describe(&state)))
}

fn describe(state: &super::State) -> Value {
    let status = state.control.status();
    let sandbox = status
        .sandbox
        .map(|sandbox| json!({"level": sandbox.level, "missing": sandbox.missing}));
    json!({
        "workspaceId": state.control.workspace_id(),
        "intention": state.control.intention(),
        "mode": state.control.mode(),
        "channel": {"open": status.open, "connected": status.connected},
        "inFlight": status.in_flight,
        "sandbox": sandbox,
        "version": env!("CARGO_PKG_VERSION"),
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
    Ok(Json(describe(&state)))
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
    Ok(Json(describe(&state)))
}

/// `GET /healthz`
pub(super) async fn healthz() -> &'static str {
    "ok\n"
}

/// `GET /`: tells a person where the owner's side is.
pub(super) async fn page() -> Html<&'static str> {
    Html(include_str!("page.html"))
}
