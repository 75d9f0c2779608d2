//! Tool calls.
//!
//! They do not go through the protocol library: its types would make trees of arguments and results, forget what they do not
//! know and write numbers anew, and a session's results would all travel as events. Here arguments and result pass through
//! as the bytes they came as, in both lifecycles.
//!
//! An answer is one JSON message. Only a call that may have to wait for the owner, and has waited for [`STREAM_AFTER`],
//! becomes a stream of events, so that clients and proxies see that it is alive. The long answers are those of reading
//! tools, so none of them is ever an event (CONTRACT.md, section 5).

use std::{convert::Infallible, pin::Pin, sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes},
    response::Response,
};
use futures_util::{Stream, StreamExt as _, stream};
use http::{HeaderMap, StatusCode, header, request::Parts};
use postern_kit::trace;
use postern_proto::catalogue;
use rmcp::model::ErrorData;
use serde_json::value::RawValue;
use tokio::time::{Instant, Interval, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::{
    Arrived, Backend, Server, TokenEnds,
    answer::{self, Form},
    era::{self, Era, Refusal},
    identity::IdentityTool,
    listing::Front,
    message::{self, CallParams},
    sessions::{Visit, Wait},
    unescape,
};
use crate::{
    access::AgentToken,
    calls::{AgentCall, Came},
    problem::Problem,
};

/// A call with an effect that is not answered by then is answered by a stream of events.
const STREAM_AFTER: Duration = Duration::from_secs(5);
/// Time between two signs of life on such a stream.
const SIGN_OF_LIFE: Duration = Duration::from_secs(5);

/// The future that ends in a call's whole answer.
type Answer = Pin<Box<dyn Future<Output = String> + Send>>;

/// A call that is under way.
struct Started {
    answer: Answer,
    /// Inside a session: by this the client can end the wait.
    wait: Option<Wait>,
    /// Under this token the client wants to hear of progress.
    progress: Option<Box<RawValue>>,
    /// Whether the call may have to wait for long, and has a short answer.
    may_stream: bool,
}

/// Why a call is refused before any tool is asked.
enum Refused {
    Http(Problem),
    Protocol(StatusCode, ErrorData),
}

impl From<Problem> for Refused {
    fn from(problem: Problem) -> Self {
        Self::Http(problem)
    }
}

impl From<Refusal> for Refused {
    fn from((status, error): Refusal) -> Self {
        Self::Protocol(status, error)
    }
}

impl From<ErrorData> for Refused {
    fn from(error: ErrorData) -> Self {
        Self::Protocol(StatusCode::OK, error)
    }
}

/// Who answers a tool.
#[derive(Clone, Copy)]
enum Answers {
    Workspace,
    Host(IdentityTool),
}

impl Answers {
    fn to(tool: &str, front: &impl Front) -> Result<Self, ErrorData> {
        if catalogue::workspace_tool(tool).is_some() || front.offers(tool) {
            return Ok(Self::Workspace);
        }
        IdentityTool::named(tool)
            .map(Self::Host)
            .ok_or_else(|| invalid(format!("Unknown tool: {tool}")))
    }
}

impl<B: Backend, F: Front> Server<B, F> {
    /// Answers `tools/call`.
    pub(super) async fn call(
        self: &Arc<Self>,
        token: Arc<AgentToken>,
        parts: &Parts,
        id: &RawValue,
        params: Option<&RawValue>,
    ) -> Result<Response, Problem> {
        let token_ends = self.backend.token_ends(&token);
        match self.start(token, parts, id, params) {
            Ok(started) => started.response(token_ends).await,
            Err(Refused::Http(problem)) => Err(problem),
            Err(Refused::Protocol(status, error)) => {
                let message = answer::error_message(Some(id), &error);
                Ok(answer::json_response(status, message))
            }
        }
    }

    fn start(
        self: &Arc<Self>,
        token: Arc<AgentToken>,
        parts: &Parts,
        id: &RawValue,
        params: Option<&RawValue>,
    ) -> Result<Started, Refused> {
        let headers = &parts.headers;
        check_media_types(headers)?;
        let params = CallParams::read(params)
            .map_err(|error| invalid(format!("the parameters cannot be read: {error}")))?;
        let era = era::of_call(headers, &params)?;
        let visit = match era {
            Era::Session => Some(self.enter(&token, headers)?),
            Era::Request => None,
        };
        let answers = Answers::to(&params.name, &self.front)?;
        let call = agent_call(token, parts, &params, visit.as_ref())?;
        let form = Form {
            id: id.to_owned(),
            era,
            output_schemas: self.output_schemas,
            content_only: params.name == "workspace_image",
        };
        let progress = params.meta.as_ref().and_then(|meta| meta.progress_token());
        Ok(Started {
            answer: self.answer(answers, call, form),
            wait: visit.map(|visit| visit.wait(id.get())),
            progress: progress.map(ToOwned::to_owned),
            may_stream: catalogue::has_effect(&params.name),
        })
    }

    fn answer(self: &Arc<Self>, answers: Answers, call: AgentCall, form: Form) -> Answer {
        let server = Arc::clone(self);
        match answers {
            Answers::Workspace => Box::pin(async move {
                match server.backend.call(call).await {
                    Ok(outcome) => form.result(outcome.result.get(), &outcome.call_id),
                    Err(failure) => form.failure(&failure),
                }
            }),
            Answers::Host(tool) => Box::pin(async move {
                let answer = server.backend.identity_tool(&call.token, tool, &call.args);
                match answer.await {
                    Ok(structured) => form.success(&structured),
                    Err(failure) => form.failure(&failure),
                }
            }),
        }
    }
}

fn agent_call(
    token: Arc<AgentToken>,
    parts: &Parts,
    params: &CallParams<'_>,
    visit: Option<&Visit>,
) -> Result<AgentCall, ErrorData> {
    let headers = &parts.headers;
    let args = unescape::when_long(params.arguments());
    if !args.get().starts_with('{') {
        return Err(invalid("arguments must be an object"));
    }
    let (key, call_id) = match &params.meta {
        Some(meta) => (
            meta.conversation().map_err(invalid)?,
            meta.call_id().map_err(invalid)?,
        ),
        None => (None, None),
    };
    let meta = params.meta.as_ref();
    let sender = meta.and_then(|meta| trace::Agent::read(&meta.traceparent()?));
    let bridged = message::conversation_of(headers).map_err(invalid)?;
    let session = visit.map(|visit| visit.id().to_owned());
    Ok(AgentCall {
        token,
        conversation: bridged.or(session).or(key).unwrap_or_default(),
        call_id,
        tool: params.name.clone().into_owned(),
        args,
        request: Came {
            since: Arrived::of(parts),
            agent: sender.or_else(|| trace::Agent::of(headers)),
        },
    })
}

fn invalid(message: impl Into<std::borrow::Cow<'static, str>>) -> ErrorData {
    ErrorData::invalid_params(message, None)
}

impl Started {
    /// Waits for the answer, or for the moment from which it will be an event. A token that ends meanwhile is told nothing
    /// of it.
    async fn response(mut self, mut token_ends: TokenEnds) -> Result<Response, Problem> {
        let cancelled = self.cancelled();
        tokio::select! {
            biased;
            refusal = &mut token_ends => return Err(refusal),
            // A cancelled request has no answer; the call's outcome can still be asked for by its id.
            () = cancelled.cancelled() => return Ok(answer::event_response(Body::empty())),
            message = &mut self.answer => {
                return Ok(answer::json_response(StatusCode::OK, message));
            }
            () = tokio::time::sleep(STREAM_AFTER), if self.may_stream => {}
        }
        let events = self.events(cancelled).take_until(token_ends);
        Ok(answer::event_response(Body::from_stream(events)))
    }

    fn cancelled(&self) -> CancellationToken {
        self.wait
            .as_ref()
            .map_or_else(CancellationToken::new, Wait::cancelled)
    }

    /// Signs of life, then the answer. Dropping the stream, as when the client goes away, ends the wait.
    fn events(
        self,
        cancelled: CancellationToken,
    ) -> impl Stream<Item = Result<Bytes, Infallible>> + Send {
        let mut signs = tokio::time::interval(SIGN_OF_LIFE);
        signs.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let open = Open {
            call: self,
            cancelled,
            signs,
            since: Instant::now() - STREAM_AFTER,
        };
        stream::unfold(Some(open), |open| async move {
            let (event, open) = open?.next().await?;
            Some((Ok(event), open))
        })
    }
}

/// A stream of events that has not come to its answer.
struct Open {
    call: Started,
    cancelled: CancellationToken,
    signs: Interval,
    since: Instant,
}

impl Open {
    /// The next event, and the stream unless that was the last one; nothing when the wait was ended.
    async fn next(mut self) -> Option<(Bytes, Option<Self>)> {
        tokio::select! {
            message = &mut self.call.answer => Some((answer::event(&message), None)),
            () = self.cancelled.cancelled() => None,
            _ = self.signs.tick() => {
                let sign = match &self.call.progress {
                    Some(token) => {
                        let seconds = self.since.elapsed().as_secs();
                        answer::event(&answer::progress_message(token, seconds))
                    }
                    None => Bytes::from_static(b": waiting\n\n"),
                };
                Some((sign, Some(self)))
            }
        }
    }
}

/// The client must be ready for both forms of an answer, and send JSON; so it is for every other method.
fn check_media_types(headers: &HeaderMap) -> Result<(), Problem> {
    let accepts = |wanted: &str| {
        let values = headers.get_all(header::ACCEPT).iter();
        values
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .any(|range| essence(range).eq_ignore_ascii_case(wanted))
    };
    if !accepts("application/json") || !accepts("text/event-stream") {
        return Err(Problem::new(
            StatusCode::NOT_ACCEPTABLE,
            "not_acceptable",
            "Accept both application/json and text/event-stream.",
        ));
    }
    let kind = headers.get(header::CONTENT_TYPE);
    let json = kind
        .and_then(|value| value.to_str().ok())
        .is_some_and(|value| essence(value).eq_ignore_ascii_case("application/json"));
    if json {
        Ok(())
    } else {
        Err(Problem::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "unsupported_media_type",
            "Send application/json.",
        ))
    }
}

fn essence(media_type: &str) -> &str {
    media_type.split(';').next().unwrap_or_default().trim()
}
