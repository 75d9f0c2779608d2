//! A host whose workspace does what the test says.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, atomic::AtomicUsize, atomic::Ordering},
};

use axum::Router;
use http::{HeaderMap, HeaderValue, StatusCode};
use postern_kit::{Failure, task::Tasks};
use postern_proto::identity::v1::{Role, Token};
use serde_json::{Value, json, value::RawValue};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::{
    access::{AgentToken, bearer},
    calls::{AgentCall, CallOutcome},
    mcp::{Backend, IdentityTool, Server, TokenEnds, listing::Listing, routes},
    problem::Problem,
    tokens::Credentials,
};

/// What the workspace does with its next call.
pub(super) enum Turn {
    /// Answers with this result.
    Result(String),
    /// The host refuses.
    Failure(Failure),
    /// Answers once it is told to.
    Wait(Arc<Notify>),
}

/// The far side of the calls.
#[derive(Clone, Default)]
pub(super) struct Workspace(Arc<State>);

#[derive(Default)]
struct State {
    turns: Mutex<VecDeque<Turn>>,
    calls: Mutex<Vec<AgentCall>>,
    waiting: AtomicUsize,
    revoked: Notify,
    output_schemas: bool,
}

struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Workspace {
    pub(super) fn with_output_schemas() -> Self {
        Self(Arc::new(State {
            output_schemas: true,
            ..State::default()
        }))
    }

    pub(super) fn then(&self, turn: Turn) {
        self.0.turns.lock().expect("turns").push_back(turn);
    }

    pub(super) fn calls(&self) -> std::sync::MutexGuard<'_, Vec<AgentCall>> {
        self.0.calls.lock().expect("calls")
    }

    /// Ends the token of one request that is open.
    pub(super) fn revoke(&self) {
        self.0.revoked.notify_one();
    }

    /// Calls that somebody waits for.
    pub(super) fn waiting(&self) -> usize {
        self.0.waiting.load(Ordering::SeqCst)
    }

    /// Lets other tasks run until so many calls are waited for.
    pub(super) async fn until_waiting(&self, count: usize) {
        while self.waiting() != count {
            tokio::task::yield_now().await;
        }
    }
}

impl Backend for Workspace {
    async fn agent(&self, headers: &HeaderMap) -> Result<Arc<AgentToken>, Problem> {
        match bearer(headers) {
            Some(id @ ("agent-a" | "agent-b")) => {
                let token = Token {
                    id: id.to_owned(),
                    ..Token::default()
                };
                Ok(Arc::new(AgentToken {
                    credentials: Credentials::new(&token, "w", id, 0),
                    role: Role::Editor,
                }))
            }
            Some("channel") => Err(Problem::new(StatusCode::FORBIDDEN, "wrong_token", "No.")),
            _ => Err(Problem::unauthorized(HeaderValue::from_static("Bearer"))),
        }
    }

    fn token_ends(&self, _token: &Arc<AgentToken>) -> TokenEnds {
        let state = Arc::clone(&self.0);
        Box::pin(async move {
            state.revoked.notified().await;
            Problem::unauthorized(HeaderValue::from_static("Bearer"))
        })
    }

    async fn call(&self, call: AgentCall) -> Result<CallOutcome, Failure> {
        let call_id = call.call_id.clone().unwrap_or_else(|| "fresh".to_owned());
        self.calls().push(call);
        let turn = self.0.turns.lock().expect("turns").pop_front();
        self.0.waiting.fetch_add(1, Ordering::SeqCst);
        let _waiting = Waiting(&self.0.waiting);
        let result = match turn {
            Some(Turn::Result(result)) => result,
            Some(Turn::Failure(failure)) => return Err(failure),
            Some(Turn::Wait(until)) => {
                until.notified().await;
                text("late")
            }
            None => text("done"),
        };
        let result: Box<RawValue> = serde_json::from_str(&result).expect("JSON");
        Ok(CallOutcome {
            call_id,
            result: result.into(),
        })
    }

    async fn identity_tool(
        &self,
        token: &AgentToken,
        tool: IdentityTool,
        args: &RawValue,
    ) -> Result<Value, Failure> {
        Ok(json!({"token": token.id(), "tool": format!("{tool:?}"), "args": args}))
    }
}

/// A result of one text.
pub(super) fn text(text: &str) -> String {
    let structured = json!({"text": text});
    json!({
        "content": [{"type": "text", "text": structured.to_string()}],
        "structuredContent": structured,
    })
    .to_string()
}

/// An MCP server over the workspace.
pub(super) fn server(workspace: &Workspace) -> Router {
    let backend = Arc::new(workspace.clone());
    routes(Server::new(
        backend,
        Listing::new(workspace.0.output_schemas),
        workspace.0.output_schemas,
        &Tasks::new(),
        CancellationToken::new(),
    ))
}
