//! One call of an owner's tool, and what comes of it.

use std::time::Duration;

use postern_kit::{Effect, Failure};
use postern_types::ErrorCode;
use rmcp::{
    ServiceError,
    model::{
        CallToolRequest, CallToolRequestParams, CancelledNotification, CancelledNotificationParam,
        ClientRequest, JsonObject, RequestId,
    },
    service::PeerRequestOptions,
};
use serde_json::value::RawValue;

use super::{
    listing::parts,
    server::{Connection, Phase, Server},
    text,
};
use crate::{
    control::Control,
    reply::{Answer, Reply},
};

/// Longest that a call may take, however much progress it tells of.
const TOTAL_LIMIT: Duration = Duration::from_secs(3600);
/// What a call has of the time that running effects have at the end of the edge; the rest is for telling the server and for
/// recording what came of it.
const LEAVING_SHARE: Duration = Duration::from_secs(7);
/// JSON-RPC's code for arguments that a server refuses.
const INVALID_PARAMS: i32 = -32602;

/// An offered tool of a server that is ready.
#[derive(Debug)]
pub(super) struct Target<'a> {
    server: &'a Server,
    connection: Connection,
    own_name: String,
}

impl<'a> Target<'a> {
    /// The tool of an offered name.
    pub(super) fn find(
        servers: impl Iterator<Item = &'a Server>,
        name: &str,
    ) -> Result<Self, Failure> {
        let Some((server, own_name)) = parts(name).and_then(|(server, own_name)| {
            let mut named = servers.filter(|one| one.config.name == server);
            Some((named.next()?, own_name))
        }) else {
            return Err(unknown());
        };
        let state = server.state.borrow().clone();
        match (state.phase, state.connection) {
            (Phase::Ready, Some(connection)) => {
                if !state.tools.iter().any(|tool| tool.name == name) {
                    return Err(unknown());
                }
                Ok(Self {
                    server,
                    connection,
                    own_name: own_name.to_owned(),
                })
            }
            (Phase::Disabled, _) => Err(unknown()),
            (Phase::Starting | Phase::Waiting | Phase::Ready, _) => Err(away()),
        }
    }

    /// Calls it, once.
    pub(super) async fn call(self, arguments: JsonObject, control: &Control) -> Answer {
        let params = CallToolRequestParams::new(self.own_name.clone()).with_arguments(arguments);
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        let options = PeerRequestOptions::with_timeout(self.server.config.call_timeout())
            .reset_timeout_on_progress()
            .with_max_total_timeout(TOTAL_LIMIT);
        let peer = &self.connection.peer;
        let sent = peer.send_cancellable_request(request, options).await;
        // It was not even taken: the connection is gone.
        let handle = sent.map_err(|_| away())?;
        let id = handle.id.clone();
        let ear = &self.connection.ear;
        let _told = ear.listen(handle.progress_token.clone(), &self.own_name);
        let answered = tokio::select! {
            answered = handle.await_response() => answered.map(drop),
            () = leaving(control) => {
                self.cancel(&id).await;
                Err(ServiceError::Cancelled { reason: None })
            }
        };
        if matches!(answered, Err(ServiceError::Timeout { .. })) {
            ear.suspect.notify_one();
        }
        let tap = &self.connection.tap;
        let reached = tap.may_have_reached(&id);
        let result = tap.result(&id);
        match (answered, result) {
            (Ok(()), Some(result)) => returned(&result),
            (Err(ServiceError::McpError(error)), _) => Err(refused(error.code.0, &error.message)),
            (Err(_), _) if !reached => Err(away()),
            (Ok(()) | Err(_), _) => Err(unanswered()),
        }
    }

    async fn cancel(&self, id: &RequestId) {
        let reason = "the owner's side ends".to_owned();
        let params = CancelledNotificationParam::new(Some(id.clone()), Some(reason));
        let notification = CancelledNotification::new(params);
        // A server that is gone needs no word.
        let _gone = self
            .connection
            .peer
            .send_notification(notification.into())
            .await;
    }
}

/// Waits until a call has had its time at the edge's end.
async fn leaving(control: &Control) {
    control.leaving().cancelled().await;
    tokio::time::sleep(LEAVING_SHARE).await;
}

/// What a tool returned, as it is. The effect stands, whatever becomes of the answer.
fn returned(result: &RawValue) -> Answer {
    Reply::returned(result)
}

fn unknown() -> Failure {
    Failure::new(
        ErrorCode::UnknownTool,
        "The owner offers no tool of this name. workspace_tools lists what there is.",
    )
}

fn away() -> Failure {
    Failure::new(
        ErrorCode::Unavailable,
        "The server of this tool is away, and the call was not made. Send the call again with the same id.",
    )
}

/// The server answered with an error of the protocol in place of a result.
fn refused(code: i32, message: &str) -> Failure {
    let message = text::shown(message.as_bytes(), text::TOLD);
    let (kind, told) = if code == INVALID_PARAMS {
        (
            ErrorCode::InvalidArguments,
            format!(
                "The tool's server refused the call: {message}. workspace_tools tells the tool's input schema."
            ),
        )
    } else {
        (
            ErrorCode::Internal,
            format!(
                "The tool's server failed: {message}. Look at what the tool may have done before you call it again."
            ),
        )
    };
    let failure = Failure::new(kind, told).with("serverCode", code);
    if kind == ErrorCode::InvalidArguments {
        failure.with("pointer", "/arguments").with("rule", "server")
    } else {
        failure
    }
}

/// Nobody knows what became of it; [`unknown_effect`] is what the agent is told.
fn unanswered() -> Failure {
    Failure {
        effect: Effect::Unknown,
        ..unknown_effect()
    }
}

/// What is told of a call whose answer never came. It is never made again.
pub(crate) fn unknown_effect() -> Failure {
    Failure::new(
        ErrorCode::Uncertain,
        "The tool was called, and its answer did not come: it took too long, its server ended, or the owner's side was restarted. It is not called again. Look at what it would have done before you call it with a new id.",
    )
    .with("lookAt", "what the tool acts on")
}
