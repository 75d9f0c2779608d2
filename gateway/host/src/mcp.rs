//! The MCP server at `/mcp`: streamable HTTP, in the lifecycle of 2026-07-28 (every request stands alone) and in that of
//! the versions before (a handshake opens a session).
//!
//! The protocol library (rmcp) does handshakes, discovery, lists, pings and streams; [`calling`] does tool calls.
//!
//! Invariants:
//! - The token is checked for each request, and a session opens only to the token that opened it.
//! - What a tool was asked and what it said pass through unchanged.
//! - A request that waits holds up no other.
//! - Sessions, bodies and waits have bounds.
//!
//! Deliberately not here: whether a token may use a tool ([`crate::calls`]), and `Host` and `Origin`
//! ([`crate::access::guard`], which stands before every route).

mod answer;
mod calling;
mod era;
mod identity;
mod listing;
mod message;
mod sessions;
#[cfg(test)]
mod tests;
mod unescape;

use std::{
    pin::Pin,
    sync::Arc,
    time::{Duration, SystemTime},
};

use axum::{
    Router,
    body::{self, Body, Bytes},
    extract::{Request, State},
    response::{IntoResponse as _, Response},
    routing::any,
};
use futures_util::StreamExt as _;
use http::{HeaderMap, Method, StatusCode, request::Parts};
use postern_kit::{Failure, task::Tasks, trace};
use rmcp::{
    model::{ErrorData, ProtocolVersion},
    transport::{StreamableHttpServerConfig, StreamableHttpService},
};
use serde_json::{Value, value::RawValue};
use tokio_util::sync::CancellationToken;

use crate::{
    access::AgentToken,
    calls::{AgentCall, CallOutcome},
    host::Shared,
    problem::Problem,
};
use identity::IdentityTool;
use listing::{Front, Listing, Profile};
use message::{CallParams, CancelledParams, Kind, Malformed, Message};
use sessions::{Reservation, Sessions, Visit};

pub use message::CONVERSATION_HEADER;

/// Longest body of a request, in bytes: a legal write of a million characters, each escaped as a pair of surrogates, and
/// what is around it. A call that is too long for the channel is told so by the tool, not by the transport.
const MAX_BODY_BYTES: usize = 16 * 1024 * 1024;
/// Time for a whole body.
const BODY_TIME: Duration = Duration::from_secs(60);
/// Time between two looks at the token of what is open, in case a sign of its end was lost.
const TOKEN_CHECK: Duration = Duration::from_secs(5);
/// When a client that found no room for a session may try again.
const RETRY_SESSION: Duration = Duration::from_secs(60);

/// The future that ends with a token, in the refusal of what is open by it.
pub(crate) type TokenEnds = Pin<Box<dyn Future<Output = Problem> + Send>>;

/// What the MCP server stands on.
pub(crate) trait Backend: Send + Sync + 'static {
    /// The agent that sent a request.
    fn agent(
        &self,
        headers: &HeaderMap,
    ) -> impl Future<Output = Result<Arc<AgentToken>, Problem>> + Send;

    /// Ends when the token opens nothing more.
    fn token_ends(&self, token: &Arc<AgentToken>) -> TokenEnds;

    /// Calls a tool of the workspace.
    fn call(&self, call: AgentCall) -> impl Future<Output = Result<CallOutcome, Failure>> + Send;

    /// Calls a tool of the host itself.
    fn identity_tool(
        &self,
        token: &AgentToken,
        tool: IdentityTool,
        args: &RawValue,
    ) -> impl Future<Output = Result<Value, Failure>> + Send;
}

impl Backend for Shared {
    async fn agent(&self, headers: &HeaderMap) -> Result<Arc<AgentToken>, Problem> {
        self.access.agent(headers).await
    }

    fn token_ends(&self, token: &Arc<AgentToken>) -> TokenEnds {
        let (tokens, access) = (self.tokens.clone(), self.access.clone());
        let token = Arc::clone(token);
        Box::pin(async move {
            tokens.end(&token.credentials, TOKEN_CHECK).await;
            access.unauthorized()
        })
    }

    async fn call(&self, call: AgentCall) -> Result<CallOutcome, Failure> {
        self.calls.call(call).await
    }

    async fn identity_tool(
        &self,
        token: &AgentToken,
        tool: IdentityTool,
        args: &RawValue,
    ) -> Result<Value, Failure> {
        identity::call(&self.identity, token, tool, args.get()).await
    }
}

/// When a request came.
#[derive(Clone, Copy, Debug)]
struct Arrived(SystemTime);

impl Arrived {
    fn of(parts: &Parts) -> SystemTime {
        let arrived = parts.extensions.get::<Self>();
        arrived.map_or_else(SystemTime::now, |Self(arrived)| *arrived)
    }
}

/// The routes of the MCP server.
pub(crate) fn router(shared: Arc<Shared>) -> Router {
    let output_schemas = shared.config.output_schemas;
    let (tasks, stopping) = (shared.tasks.clone(), shared.stopping.clone());
    let listing = Listing::new(output_schemas);
    routes(Server::new(
        shared,
        listing,
        output_schemas,
        &tasks,
        stopping,
    ))
}

fn routes<B: Backend, F: Front>(server: Arc<Server<B, F>>) -> Router {
    Router::new()
        .route("/mcp", any(handle::<B, F>))
        .with_state(server)
}

async fn handle<B: Backend, F: Front>(
    State(server): State<Arc<Server<B, F>>>,
    request: Request,
) -> Response {
    match server.answer_request(request).await {
        Ok(response) => response,
        Err(problem) => problem.into_response(),
    }
}

struct Server<B, F: Front = Listing> {
    backend: Arc<B>,
    front: F,
    sessions: Arc<Sessions>,
    library: StreamableHttpService<F, Sessions>,
    output_schemas: bool,
}

impl<B: Backend, F: Front> Server<B, F> {
    fn new(
        backend: Arc<B>,
        front: F,
        output_schemas: bool,
        tasks: &Tasks,
        stopping: CancellationToken,
    ) -> Arc<Self> {
        let sessions = Arc::new(Sessions::default());
        let answers = front.clone();
        let config = StreamableHttpServerConfig::default()
            .with_json_response(true)
            .with_max_request_body_bytes(MAX_BODY_BYTES)
            // The guard before every route checks both, with the host's own names.
            .disable_allowed_hosts()
            .disable_allowed_origins()
            .with_cancellation_token(stopping.clone());
        let sweeping = Arc::clone(&sessions).keep_swept(stopping);
        tasks.spawn("mcp-sessions", sweeping);
        Arc::new(Self {
            backend,
            front,
            library: StreamableHttpService::new(
                move || Ok(answers.clone()),
                Arc::clone(&sessions),
                config,
            ),
            sessions,
            output_schemas,
        })
    }

    async fn answer_request(self: &Arc<Self>, mut request: Request) -> Result<Response, Problem> {
        request.extensions_mut().insert(Arrived(SystemTime::now()));
        let token = self.backend.agent(request.headers()).await?;
        if Profile::of(request.uri()).is_err() {
            return Err(Problem::new(
                StatusCode::BAD_REQUEST,
                "unknown_profile",
                "The profile is core or full.",
            ));
        }
        let (parts, body) = request.into_parts();
        if parts.method == Method::POST {
            return self.post(token, parts, read(body).await?).await;
        }
        let ends = parts.method == Method::DELETE;
        let visit = self.visit(&token, &parts.headers)?;
        let mut response = self.ask(&token, parts, Bytes::new(), visit, None).await;
        if ends && response.status() == StatusCode::ACCEPTED {
            // The session has ended already; the library's 202 makes some clients warn.
            *response.status_mut() = StatusCode::NO_CONTENT;
        }
        Ok(response)
    }

    async fn post(
        self: &Arc<Self>,
        token: Arc<AgentToken>,
        parts: Parts,
        body: Bytes,
    ) -> Result<Response, Problem> {
        let message = match Message::read(&body) {
            Ok(message) => message,
            Err(malformed) => return Ok(not_a_message(malformed)),
        };
        match message.kind() {
            Kind::Call(id, params) if !self.front_calls(params) => {
                self.call(token, &parts, id, params).await
            }
            Kind::Initialize => {
                let visit = self.visit(&token, &parts.headers)?;
                let reservation = match visit {
                    Some(_) => None,
                    None => Some(self.reserve(&token).await?),
                };
                Ok(self.ask(&token, parts, body, visit, reservation).await)
            }
            Kind::Call(..) | Kind::Cancelled(_) | Kind::Other if stands_alone(&parts.headers) => {
                Ok(self.ask(&token, parts, body, None, None).await)
            }
            Kind::Cancelled(params) => {
                let visit = self.visit(&token, &parts.headers)?;
                if let Some(visit) = &visit {
                    cancel(visit, params);
                }
                Ok(self.ask(&token, parts, body, visit, None).await)
            }
            Kind::Call(..) | Kind::Other => {
                let visit = self.visit(&token, &parts.headers)?;
                Ok(self.ask(&token, parts, body, visit, None).await)
            }
        }
    }

    /// Whether a tool is one of the front's own.
    fn front_calls(&self, params: Option<&RawValue>) -> bool {
        F::CALLS && CallParams::read(params).is_ok_and(|params| self.front.calls(&params.name))
    }

    /// Enters the session that a request names, if it names one.
    fn visit(&self, token: &AgentToken, headers: &HeaderMap) -> Result<Option<Visit>, Problem> {
        let Some(id) = headers.get(era::SESSION_ID) else {
            return Ok(None);
        };
        let visit = id
            .to_str()
            .ok()
            .and_then(|id| self.sessions.enter(id, token.id()));
        match visit {
            Some(visit) => Ok(Some(visit)),
            None => Err(Problem::new(
                StatusCode::NOT_FOUND,
                "session_not_found",
                "There is no such session, or it has ended. Open a new one with initialize.",
            )),
        }
    }

    /// Enters the session that a request must name.
    fn enter(&self, token: &AgentToken, headers: &HeaderMap) -> Result<Visit, Problem> {
        self.visit(token, headers)?.ok_or_else(|| {
            Problem::new(
                StatusCode::BAD_REQUEST,
                "session_required",
                "Send the Mcp-Session-Id that initialize answered with.",
            )
        })
    }

    async fn reserve(&self, token: &AgentToken) -> Result<Reservation, Problem> {
        self.sessions.reserve(token.id()).await.map_err(|_| {
            Problem::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "too_many_sessions",
                "No session can be opened now.",
            )
            .retry_after(RETRY_SESSION)
        })
    }

    /// Lets the protocol library answer.
    async fn ask(
        &self,
        token: &Arc<AgentToken>,
        parts: Parts,
        body: Bytes,
        visit: Option<Visit>,
        reservation: Option<Reservation>,
    ) -> Response {
        let stays_open = parts.method == Method::GET;
        let token_ends = stays_open.then(|| self.backend.token_ends(token));
        let sender = trace::Agent::of(&parts.headers);
        let span = trace::request(method_of(&parts.method), "/mcp", sender.as_ref());
        let request = Request::from_parts(parts, Body::from(body));
        let work = Box::pin(self.library.handle(request));
        let work = sessions::on_behalf_of(token.id().to_owned(), reservation, work);
        let response = span.run(work).await;
        trace::answered(&span, response.status().as_u16());
        response.map(|body| {
            // An open stream keeps its session from being idle.
            let chunks = Body::new(body).into_data_stream().map(move |chunk| {
                let _inside = &visit;
                chunk
            });
            match token_ends {
                Some(ends) => Body::from_stream(chunks.take_until(ends)),
                None => Body::from_stream(chunks),
            }
        })
    }
}

/// The method's name, as spans have it.
fn method_of(method: &Method) -> &'static str {
    let known = ["GET", "POST", "DELETE"];
    let found = known.into_iter().find(|name| *name == method.as_str());
    found.unwrap_or("_OTHER")
}

/// Whether a request is of the lifecycle without sessions. An `initialize` never is.
fn stands_alone(headers: &HeaderMap) -> bool {
    headers
        .get(era::PROTOCOL_VERSION)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|version| version >= ProtocolVersion::V_2026_07_28.as_str())
}

fn cancel(visit: &Visit, params: Option<&RawValue>) {
    let params = params.and_then(|raw| serde_json::from_str::<CancelledParams<'_>>(raw.get()).ok());
    if let Some(params) = params {
        visit.cancel(params.request_id.get());
    }
}

async fn read(body: Body) -> Result<Bytes, Problem> {
    match tokio::time::timeout(BODY_TIME, body::to_bytes(body, MAX_BODY_BYTES)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(_)) => Err(Problem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "body_too_large",
            format!("A body has at most {MAX_BODY_BYTES} bytes."),
        )),
        Err(_) => Err(Problem::new(
            StatusCode::REQUEST_TIMEOUT,
            "body_too_slow",
            "The body did not arrive in time.",
        )),
    }
}

fn not_a_message(malformed: Malformed) -> Response {
    let error = match malformed {
        Malformed::NotJson => ErrorData::parse_error("The body is not JSON.", None),
        Malformed::NotAMessage => ErrorData::invalid_request(
            "The body is one JSON-RPC 2.0 message; batches are not accepted.",
            None,
        ),
    };
    let message = answer::error_message(None, &error);
    answer::json_response(StatusCode::BAD_REQUEST, message)
}
