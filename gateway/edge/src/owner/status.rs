//! Status, mode, the channel's switch, and events.

use std::{convert::Infallible, time::Duration};

use axum::{
    Json,
    body::Bytes,
    extract::State,
    response::{
        Html,
        sse::{Event, KeepAlive, Sse},
    },
};
use futures_util::{Stream, StreamExt as _};
use postern_proto::ledger::v1::WatchRequest;
use postern_types::Mode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    receipts,
    reply::{Refusal, Reply, body},
};

/// Time between two signs of life on an event stream.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// `GET /owner/v1/status`
pub(super) async fn status(State(state): State<super::State>) -> Reply {
    Ok(Json(describe(&state)))
}

fn describe(state: &super::State) -> Value {
    let status = state.control.status();
    json!({
        "workspaceId": state.control.workspace_id(),
        "intention": state.control.intention(),
        "mode": state.control.mode(),
        "channel": {"open": status.open, "connected": status.connected},
        "inFlight": status.in_flight,
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

/// `GET /owner/v1/events`: each change of a receipt, as it happens.
pub(super) async fn events(
    State(state): State<super::State>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Refusal> {
    let workspace_id = state.control.workspace_id().to_string();
    let changes = state
        .ledger
        .clone()
        .watch(WatchRequest { workspace_id })
        .await?
        .into_inner();
    // A watcher that the ledger lets go ends its stream; the client comes back and reads what it missed.
    let events = changes
        .take_while(|change| std::future::ready(change.is_ok()))
        .filter_map(|change| async move {
            let receipt = change.ok()?.receipt?;
            Some(Ok(Event::default()
                .event("receipt")
                .data(receipts::to_json(&receipt).to_string())))
        });
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)))
}

/// `GET /healthz`
pub(super) async fn healthz() -> &'static str {
    "ok\n"
}

/// `GET /`: tells a person where the owner's side is.
pub(super) async fn page() -> Html<&'static str> {
    Html(include_str!("page.html"))
}
