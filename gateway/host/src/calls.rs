//! Calls of agents on their way to a workspace and back.
//!
//! A call is led by a task of its own, so that it goes on when the agent that asked hangs up: those who wait for it, and
//! whoever asks again by its id, get the one answer.

use std::{
    pin::pin,
    sync::{Arc, Mutex},
    task::Poll,
};

use futures_util::poll;
use postern_kit::{
    Clock, Failure, metrics,
    task::Tasks,
    trace::{self, Place},
};
use postern_proto::{
    catalogue::{self, Tool},
    channel::{self, CallParts, ResultFrame},
    identity::v1::Role,
};
use postern_types::{ErrorCode, Sha256};
use serde_json::value::RawValue;
use tokio::{
    sync::{OwnedSemaphorePermit, watch},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::{
    access::AgentToken,
    config::{Config, Limits},
    conversations::Conversations,
    identity::Identity,
    journal::{Failed, Journal, Key, Known, Sending},
    lane::{Attachment, Flight, Lane, Lanes, Presence},
    pending::{Answer, Pending, PendingCall, id_reused},
    tokens::Tokens,
};

mod arguments;
mod count;
mod outcome;
mod traced;

use arguments::{demand_size, inspect};
use count::Counted;
use outcome::is_no_outcome;
pub(crate) use traced::Came;
use traced::Rooted;

/// One tool call of an agent that has shown its token.
#[derive(Debug)]
pub(crate) struct AgentCall {
    /// Who calls.
    pub(crate) token: Arc<AgentToken>,
    /// Key of the conversation, 1 to 200 visible ASCII characters; empty means the token itself.
    pub(crate) conversation: String,
    /// Id given by the client, to ask again for a lost answer; a fresh one otherwise.
    pub(crate) call_id: Option<String>,
    /// A `workspace_*` tool.
    pub(crate) tool: String,
    /// Its arguments: one JSON object.
    pub(crate) args: Box<RawValue>,
    /// By what request it came.
    pub(crate) request: Came,
}

/// What came back.
#[derive(Clone, Debug)]
pub(crate) struct CallOutcome {
    /// Id of the call, by which its answer can be asked for again.
    pub(crate) call_id: String,
    /// MCP `CallToolResult`, as it came.
    pub(crate) result: Arc<RawValue>,
}

/// The way to the workspaces. Clones stand for the same.
#[derive(Clone)]
pub(crate) struct Calls(Arc<Inner>);

struct Inner {
    lanes: Lanes,
    pending: Pending,
    journal: Journal,
    identity: Identity,
    tokens: Tokens,
    conversations: Conversations,
    limits: Limits,
    clock: Clock,
    tasks: Tasks,
    stopping: CancellationToken,
    /// Whether no edge of this process counts the calls.
    alone: bool,
    /// Calls that clients named and whose traces have their roots.
    rooted: Mutex<Rooted>,
}

/// What a call still needs to be sent.
struct Request {
    lane: Arc<Lane>,
    token: Arc<AgentToken>,
    conversation: String,
    /// Whether the client gave the id, so that the journal may know it.
    given: bool,
    tool: &'static Tool,
    args: Box<RawValue>,
}

/// A call before it is sent.
enum Prepared {
    /// The journal kept its answer.
    Answered(Arc<RawValue>),
    /// It may go.
    Ready {
        sending: Sending,
        frame: String,
        turn: OwnedSemaphorePermit,
    },
}

impl Calls {
    pub(crate) fn new(
        journal: Journal,
        identity: Identity,
        tokens: Tokens,
        config: &Config,
        clock: Clock,
        tasks: Tasks,
        stopping: CancellationToken,
    ) -> Self {
        let limits = config.limits;
        Self(Arc::new(Inner {
            alone: !config.beside_edge,
            rooted: Mutex::default(),
            lanes: Lanes::new(limits),
            pending: Pending::default(),
            conversations: Conversations::new(identity.clone()),
            journal,
            identity,
            tokens,
            limits,
            clock,
            tasks,
            stopping,
        }))
    }

    /// Whether calls can be recorded, and so be made.
    pub(crate) fn can_record(&self) -> bool {
        self.0.journal.is_open()
    }

    /// The lane of a workspace.
    pub(crate) fn lane(&self, workspace_id: &str) -> Arc<Lane> {
        self.0.lanes.of(workspace_id)
    }

    /// Makes a call, or joins the one of the same id. Dropping the future ends the waiting; a call that was sent goes on,
    /// and its answer can be asked for by its id.
    ///
    /// # Errors
    /// What the host itself refuses. Its details hold `callId`.
    pub(crate) async fn call(&self, call: AgentCall) -> Result<CallOutcome, Failure> {
        let counted = Counted::begin(&call.tool, self.0.alone);
        let answer = self.traced(call, counted.tool()).await;
        counted.end(&answer);
        answer
    }

    async fn make(&self, call: AgentCall, key: Key, given: bool) -> Result<CallOutcome, Failure> {
        let call_id = key.call_id.clone();
        let named = |failure: Failure| failure.with("callId", call_id.as_str());
        let tool = permitted(&call.tool, call.token.role).map_err(named)?;
        let (args, fingerprint) = inspect(tool, call.args, self.0.limits.frame_bytes)
            .await
            .map_err(named)?;
        if given {
            // Before it is held against calls on their way: of two under one id the recorded one is the right one.
            let known = self.0.recorded(&key, fingerprint).await;
            known.map_err(named)?;
        }
        let lane = self.lane(call.token.workspace_id());
        let keep = catalogue::has_effect(&tool.name);
        let entered = self
            .0
            .pending
            .enter(key, fingerprint, keep)
            .map_err(named)?;
        if let Some(first) = entered.first {
            let request = Request {
                lane: Arc::clone(&lane),
                token: call.token,
                conversation: call.conversation,
                given,
                tool,
                args,
            };
            let (inner, place) = (Arc::clone(&self.0), Place::here());
            let leading = async move { inner.lead(first, request).await };
            self.0.tasks.spawn("call", place.run(leading));
        }
        let result = self.0.wait(entered.answer, &lane).await.map_err(named)?;
        Ok(CallOutcome { call_id, result })
    }

    /// Opens the lane to a new channel. What was not answered is sent again on it, unless the token that asked for it has
    /// ended meanwhile or cannot be asked after: it may not have reached the edge yet.
    pub(crate) async fn attach(&self, lane: &Arc<Lane>, number: u64) -> Attachment {
        for token in lane.tokens() {
            let failure = match self.0.tokens.are_valid(&token.credentials).await {
                Ok(true) => continue,
                Ok(false) => token_ended(),
                Err(_) => unanswered(),
            };
            for flight in lane.give_up(token.id()) {
                self.0.pending.finish(&flight.call, Err(failure.clone()));
            }
        }
        lane.attach(number)
    }

    /// A result has come: everybody who waits gets it, and the journal keeps what is an outcome. A result that answers
    /// nothing is the second one of a call that was sent twice. Nothing is lost when this future is dropped: it waits only
    /// before it takes the call.
    pub(crate) async fn answered(&self, lane: &Lane, frame: &ResultFrame<'_>) {
        let inner = &self.0;
        let room = inner.journal.room().await;
        let Some(Flight { call, turn, .. }) = lane.take(&frame.session_id, &frame.id) else {
            return;
        };
        drop(turn);
        let result = frame.result;
        match room {
            Ok(room) if is_no_outcome(result.get()) => room.free(call.key.clone()),
            Ok(room) => {
                let kept = call.keep.then(|| result.get().to_owned());
                room.answer(call.key.clone(), kept, inner.clock.now());
            }
            Err(Failed) => tracing::error!("the call journal has ended"),
        }
        postern_kit::fault_point!(crate::fault_points::ANSWER_BEFORE);
        inner.pending.finish(&call, Ok(result.to_owned().into()));
    }
}

impl Inner {
    /// Leads a call until it is sent. Until then it ends when nobody waits for it any more.
    async fn lead(self: Arc<Self>, call: Arc<PendingCall>, request: Request) {
        let Some(prepared) = self.prepare_for_somebody(&call, &request).await else {
            return;
        };
        match prepared {
            Ok(Prepared::Answered(result)) => self.pending.finish(&call, Ok(result)),
            Ok(Prepared::Ready {
                sending,
                frame,
                turn,
            }) => {
                let session_id = sending.session_id.clone();
                postern_kit::fault_point!(crate::fault_points::JOURNAL_BEFORE);
                let (key, now) = (call.key.clone(), self.clock.now());
                let recorded = if call.keep {
                    let span = trace::database("sqlite", "journal", "INSERT");
                    span.run(self.journal.open_call(key, sending, now)).await
                } else {
                    self.journal.note_call(key, sending, now).await
                };
                if let Err(Failed) = recorded {
                    return self.pending.finish(&call, Err(unrecorded()));
                }
                postern_kit::fault_point!(crate::fault_points::JOURNAL_AFTER);
                request.lane.submit(Flight {
                    session_id,
                    frame: frame.into(),
                    call,
                    token: request.token,
                    turn,
                });
            }
            Err(failure) => self.pending.finish(&call, Err(failure)),
        }
    }

    /// Nothing, when nobody waits for the call any more.
    async fn prepare_for_somebody(
        &self,
        call: &PendingCall,
        request: &Request,
    ) -> Option<Result<Prepared, Failure>> {
        let mut preparing = std::pin::pin!(self.prepare(call, request));
        loop {
            tokio::select! {
                biased;
                prepared = &mut preparing => return Some(prepared),
                () = call.nobody_waits() => {
                    if self.pending.abandon(call) {
                        return None;
                    }
                }
            }
        }
    }

    async fn prepare(&self, call: &PendingCall, request: &Request) -> Result<Prepared, Failure> {
        let known = if request.given {
            self.recorded(&call.key, call.fingerprint).await?
        } else {
            None
        };
        if let Some(answer) = known.as_ref().and_then(|known| known.answer.clone()) {
            return kept(answer).map(Prepared::Answered);
        }
        let since = Instant::now();
        let mut place = pin!(place(&request.lane));
        let (turn, waited) = match poll!(place.as_mut()) {
            Poll::Ready(turn) => (turn?, false),
            Poll::Pending => (place.await?, true),
        };
        metrics::CALL_QUEUE_SECONDS.time([], since.elapsed());
        let sending = match known {
            Some(known) => known.sending,
            None => self.first_sending(call, request).await?,
        };
        if waited && !self.tokens.are_valid(&request.token.credentials).await? {
            return Err(token_ended());
        }
        let frame = self.frame(call, request, &sending)?;
        Ok(Prepared::Ready {
            sending,
            frame,
            turn,
        })
    }

    /// What the journal knows of a call, if it does.
    async fn recorded(&self, key: &Key, fingerprint: Sha256) -> Result<Option<Known>, Failure> {
        let found = self.journal.find(key.clone()).await;
        let known = found.map_err(|Failed| unrecorded())?;
        match known {
            Some(known) if known.sending.fingerprint != fingerprint => Err(id_reused()),
            known => Ok(known),
        }
    }

    async fn first_sending(
        &self,
        call: &PendingCall,
        request: &Request,
    ) -> Result<Sending, Failure> {
        let (intention, session_id) = tokio::try_join!(
            self.identity.intention(&call.key.workspace_id),
            self.conversations
                .session(request.token.id(), &request.conversation),
        )?;
        let intention = intention.ok_or_else(|| {
            Failure::new(
                ErrorCode::Unavailable,
                "The workspace has no launch that is still valid. Its owner can make one.",
            )
        })?;
        Ok(Sending {
            fingerprint: call.fingerprint,
            session_id,
            intention,
        })
    }

    fn frame(
        &self,
        call: &PendingCall,
        request: &Request,
        sending: &Sending,
    ) -> Result<String, Failure> {
        let written = channel::call_frame(CallParts {
            id: &call.key.call_id,
            workspace_id: &call.key.workspace_id,
            session_id: &sending.session_id,
            intention: &sending.intention,
            tool: &request.tool.name,
            args: &request.args,
        });
        let frame = written.map_err(|error| {
            tracing::error!(%error, "a call cannot be written");
            Failure::new(ErrorCode::Internal, "The call could not be written.")
        })?;
        demand_size(frame.len(), self.limits.frame_bytes)?;
        Ok(frame)
    }

    /// Waits for an answer, for as long as the workspace is in reach or may come back.
    async fn wait(&self, mut answer: watch::Receiver<Option<Answer>>, lane: &Lane) -> Answer {
        let mut presence = lane.presence();
        loop {
            let until = match *presence.borrow_and_update() {
                Presence::Open => None,
                Presence::Lost(since) => Some(since + self.limits.channel_wait),
            };
            tokio::select! {
                biased;
                come = answer.wait_for(Option::is_some) => {
                    return match come.as_deref() {
                        Ok(Some(answer)) => answer.clone(),
                        Ok(None) | Err(_) => Err(unanswered()),
                    };
                }
                () = self.stopping.cancelled() => return Err(unanswered()),
                _ = presence.changed() => {}
                () = sleep_until(until) => return Err(unanswered()),
            }
        }
    }
}

/// Waits for a channel and a turn on it. The channel may go while a call waits for its turn.
async fn place(lane: &Lane) -> Result<OwnedSemaphorePermit, Failure> {
    lane.reach().await?;
    let turn = lane.turn().await?;
    lane.reach().await?;
    Ok(turn)
}

async fn sleep_until(until: Option<Instant>) {
    match until {
        Some(instant) => tokio::time::sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

/// The tool, when the role may use it: owner and editor use all, the others those that only read, and not stop.
fn permitted(name: &str, role: Role) -> Result<&'static Tool, Failure> {
    let tool = catalogue::workspace_tool(name)
        .ok_or_else(|| Failure::new(ErrorCode::UnknownTool, "There is no such tool."))?;
    let may = match role {
        Role::Owner | Role::Editor => true,
        Role::Reviewer | Role::Viewer => {
            tool.annotations.read_only_hint && !catalogue::has_effect(name)
        }
        Role::Unspecified => false,
    };
    if may {
        return Ok(tool);
    }
    Err(Failure::new(
        ErrorCode::PermissionDenied,
        "Your role in this workspace may only use the reading tools.",
    )
    .with("policy", "role"))
}

fn invalid(message: impl Into<String>) -> Failure {
    Failure::new(ErrorCode::InvalidArguments, message)
}

fn unrecorded() -> Failure {
    Failure::new(
        ErrorCode::Unavailable,
        "The host cannot record calls at the moment, and nothing was sent. Try again.",
    )
}

fn token_ended() -> Failure {
    Failure::new(
        ErrorCode::PermissionDenied,
        "The token of this call has expired or was revoked meanwhile.",
    )
    .with("policy", "token")
}

fn unanswered() -> Failure {
    Failure::new(
        ErrorCode::Unavailable,
        "No answer came. The call may have been done: ask for its answer with the same call id and arguments.",
    )
}

fn kept(answer: String) -> Result<Arc<RawValue>, Failure> {
    RawValue::from_string(answer)
        .map(Arc::from)
        .map_err(|error| {
            tracing::error!(%error, "a kept answer cannot be read");
            Failure::new(ErrorCode::Internal, "The kept answer cannot be read.")
        })
}
