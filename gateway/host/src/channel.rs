//! The channel endpoint: who may open a channel, and how many there are (CONTRACT.md, section 1).
//!
//! The WebSocket is spoken by tungstenite on the upgraded connection itself rather than through axum's wrapper, because the
//! host counts bytes as they arrive and reads an oversized message to its end before it hangs up, so that the close frame
//! is not lost to a reset.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::{
    body::Body,
    extract::{Path, Request, State, rejection::PathRejection},
    response::{IntoResponse as _, Response},
    routing::get,
};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use hyper::upgrade::OnUpgrade;
use postern_proto::identity::v1::TokenKind;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use crate::{
    access::wrong_kind,
    config::Limits,
    facts,
    host::Shared,
    openapi::{Access, Content, Method, Operation, Refusal, Route},
    problem::Problem,
    tokens::Credentials,
};

mod socket;

use socket::Socket;

/// When an edge that found no room may try again.
const RETRY: Duration = Duration::from_secs(5);
/// Channels of one workspace that are opening or closing beside the one in use.
const MAX_TAKEOVERS: usize = 3;
/// Version of RFC 6455.
const WEBSOCKET_VERSION: &str = "13";

const OPEN: Operation = Operation {
    id: "openChannel",
    method: Method::Get,
    path: "/api/ai-gateway/v1/workspaces/{workspaceId}/channel",
    summary: "Open the channel of a workspace, as its owner's edge",
    access: Access::Channel,
    takes: None,
    gives: Content::of::<()>(
        "The channel is open: WebSocket (RFC 6455), with the frames of the channel's description.",
        "",
    ),
    refusals: &[
        Refusal::new(400, "query_not_allowed", "The endpoint takes no query."),
        Refusal::new(
            403,
            "wrong_token",
            "The token is of another kind than a channel's.",
        ),
        Refusal::new(
            403,
            "wrong_workspace",
            "The token does not open the channel of this workspace.",
        ),
        Refusal::new(404, "not_found", "The path is not UTF-8."),
        Refusal::new(
            426,
            "upgrade_required",
            "The request does not ask for WebSocket, version 13.",
        )
        .with(&["Upgrade", "Connection", "Sec-WebSocket-Version"]),
        Refusal::new(
            429,
            "too_many_channels",
            "The token has as many channels open as it may, or the workspace has too many that are being taken over.",
        )
        .with(&["Retry-After"]),
        Refusal::new(
            503,
            "host_full",
            "The host has as many channels open as it may.",
        )
        .with(&["Retry-After"]),
    ],
    links: &[],
};

/// The route of the channel.
pub(crate) fn routes() -> Vec<Route> {
    vec![(OPEN, get(open))]
}

async fn open(
    State(shared): State<Arc<Shared>>,
    workspace_id: Result<Path<String>, PathRejection>,
    mut request: Request,
) -> Response {
    let Ok(Path(workspace_id)) = workspace_id else {
        return facts::not_found().await.into_response();
    };
    match accept(&shared, workspace_id, &mut request).await {
        Ok(response) => response,
        Err(problem) => problem.into_response(),
    }
}

async fn accept(
    shared: &Arc<Shared>,
    workspace_id: String,
    request: &mut Request,
) -> Result<Response, Problem> {
    if request.uri().query().is_some() {
        return Err(Problem::new(
            StatusCode::BAD_REQUEST,
            "query_not_allowed",
            "The endpoint takes no query; the token goes into the Authorization header.",
        ));
    }
    let credentials = authorize(shared, &workspace_id, request.headers()).await?;
    let key = websocket_key(request.headers())?;
    let upgrade = request
        .extensions_mut()
        .remove::<OnUpgrade>()
        .ok_or_else(upgrade_required)?;
    let seat = shared
        .seats
        .take(&workspace_id, &credentials.token_id, &shared.config.limits)?;
    let socket = Socket {
        shared: Arc::clone(shared),
        credentials,
        seat,
    };
    shared.tasks.spawn("channel", socket.run(upgrade));
    Ok(switching_protocols(&key))
}

/// A channel token of that workspace, and nothing else.
async fn authorize(
    shared: &Shared,
    workspace_id: &str,
    headers: &HeaderMap,
) -> Result<Credentials, Problem> {
    let shown = shared.access.shown(headers).await.map_err(|problem| {
        // Channels are no OAuth resource, so their challenge names no metadata.
        if problem.status == StatusCode::UNAUTHORIZED {
            Problem::unauthorized(HeaderValue::from_static("Bearer"))
        } else {
            problem
        }
    })?;
    if shown.token.kind() != TokenKind::Channel {
        return Err(wrong_kind("a channel token"));
    }
    shown.opens(workspace_id).ok_or_else(|| {
        Problem::new(
            StatusCode::FORBIDDEN,
            "wrong_workspace",
            "The token does not open the channel of this workspace.",
        )
    })
}

/// The key of a WebSocket handshake.
fn websocket_key(headers: &HeaderMap) -> Result<HeaderValue, Problem> {
    let has = |name, wanted: &str| {
        let listed = |value: &HeaderValue| {
            value.to_str().is_ok_and(|text| {
                text.split(',')
                    .any(|part| part.trim().eq_ignore_ascii_case(wanted))
            })
        };
        headers.get_all(name).iter().any(listed)
    };
    let version = headers
        .get(header::SEC_WEBSOCKET_VERSION)
        .is_some_and(|version| version == WEBSOCKET_VERSION);
    match headers.get(header::SEC_WEBSOCKET_KEY) {
        Some(key)
            if version
                && has(header::CONNECTION, "upgrade")
                && has(header::UPGRADE, "websocket") =>
        {
            Ok(key.clone())
        }
        _ => Err(upgrade_required()),
    }
}

fn upgrade_required() -> Problem {
    Problem::new(
        StatusCode::UPGRADE_REQUIRED,
        "upgrade_required",
        "The endpoint speaks WebSocket, version 13, over HTTP/1.1.",
    )
    .with(header::UPGRADE, HeaderValue::from_static("websocket"))
    .with(header::CONNECTION, HeaderValue::from_static("upgrade"))
    .with(
        header::SEC_WEBSOCKET_VERSION,
        HeaderValue::from_static(WEBSOCKET_VERSION),
    )
}

fn switching_protocols(key: &HeaderValue) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    if let Ok(accept) = HeaderValue::try_from(derive_accept_key(key.as_bytes())) {
        headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
    }
    response
}

/// Channels that are open, opening or closing.
#[derive(Clone, Default)]
pub(crate) struct Seats {
    taken: Arc<Mutex<Vec<Taken>>>,
    /// Seats that were taken so far.
    count: Arc<AtomicU64>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
struct Taken {
    workspace_id: String,
    token_id: String,
}

/// One of them, given back when it is dropped.
pub(crate) struct Seat {
    seats: Seats,
    taken: Taken,
    /// Its place in the order in which channels were let in.
    number: u64,
}

impl Seats {
    /// Takes a seat. A workspace has one channel, so one that takes over counts no second time.
    fn take(&self, workspace_id: &str, token_id: &str, limits: &Limits) -> Result<Seat, Problem> {
        let mut seats = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let same = seats
            .iter()
            .filter(|seat| seat.workspace_id == workspace_id)
            .count();
        let others = |of_token: Option<&str>| {
            let mut workspaces: Vec<_> = seats
                .iter()
                .filter(|seat| of_token.is_none_or(|token| seat.token_id == token))
                .map(|seat| seat.workspace_id.as_str())
                .filter(|id| *id != workspace_id)
                .collect();
            workspaces.sort_unstable();
            workspaces.dedup();
            workspaces.len()
        };
        if same > MAX_TAKEOVERS || others(Some(token_id)) >= limits.channels_per_token {
            return Err(no_room(
                StatusCode::TOO_MANY_REQUESTS,
                "too_many_channels",
                format!(
                    "A token opens {} channels at most.",
                    limits.channels_per_token
                ),
            ));
        }
        if others(None) >= limits.channels {
            return Err(no_room(
                StatusCode::SERVICE_UNAVAILABLE,
                "host_full",
                format!("The host keeps {} channels at most.", limits.channels),
            ));
        }
        let taken = Taken {
            workspace_id: workspace_id.to_owned(),
            token_id: token_id.to_owned(),
        };
        seats.push(taken.clone());
        Ok(Seat {
            seats: self.clone(),
            taken,
            number: self.count.fetch_add(1, Ordering::Relaxed),
        })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut seats = self
            .seats
            .taken
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(index) = seats.iter().position(|seat| *seat == self.taken) {
            seats.swap_remove(index);
        }
    }
}

fn no_room(status: StatusCode, code: &'static str, detail: String) -> Problem {
    Problem::new(status, code, detail).retry_after(RETRY)
}
