//! Commands, through the exec service.

use postern_kit::Failure;
use postern_proto::exec::v1::{
    CommandState, Effect, EffectKind, Finding as Found, InputRequest, InputResponse,
    InspectRequest, PollRequest, StartRequest, StartResponse, Status, StopRequest, StopResponse,
};
use postern_types::{ErrorCode, Timestamp};
use serde::Serialize;

use super::{Finding, Tools};
use crate::{
    args,
    call::Call,
    clients::hop,
    reply::{Answer, Reply},
    stack::Held,
};

/// How long a poll waits for something new (CONTRACT.md, section 3).
const POLL_WAIT_MS: u32 = 2000;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Started {
    command_id: String,
    started_at: Timestamp,
    cwd: String,
    timeout_ms: u32,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Polled {
    command_id: String,
    status: &'static str,
    exit_code: Option<i32>,
    signal: Option<String>,
    output: String,
    offset: u64,
    next_offset: u64,
    total_bytes: u64,
    gap: Option<Gap>,
    survivors: u32,
    started_at: Timestamp,
    finished_at: Option<Timestamp>,
}

#[derive(Serialize)]
struct Gap {
    from: u64,
    to: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Typed {
    command_id: String,
    bytes: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Stopped {
    command_id: String,
    status: &'static str,
    exit_code: Option<i32>,
    signal: Option<String>,
}

/// A status by its name in the contract.
pub(crate) const fn command_status(status: Status) -> &'static str {
    match status {
        Status::Running => "running",
        Status::Exited => "exited",
        Status::Stopped => "stopped",
        Status::TimedOut => "timed_out",
        Status::Lost | Status::Unspecified => "lost",
    }
}

fn started(started: StartResponse) -> Answer {
    Reply::success(&Started {
        command_id: started.command_id,
        started_at: Timestamp::from_millis(started.started_at_ms),
        cwd: started.cwd,
        timeout_ms: started.timeout_ms,
    })
}

/// A command's directory is judged as a path, and is called `cwd` by the agent.
pub(super) fn of_directory(failure: Failure) -> Failure {
    if failure.details.get("pointer").and_then(|it| it.as_str()) == Some("/path") {
        failure.with("pointer", "/cwd")
    } else {
        failure
    }
}

fn typed(typed: InputResponse) -> Answer {
    Reply::success(&Typed {
        command_id: typed.command_id,
        bytes: typed.bytes,
    })
}

fn stopped(stopped: StopResponse) -> Answer {
    let state = stopped.state.ok_or_else(stateless)?;
    Reply::success(&Stopped {
        command_id: stopped.command_id,
        status: command_status(state.status()),
        exit_code: state.exit_code,
        signal: state.signal,
    })
}

fn stateless() -> Failure {
    Failure::new(
        ErrorCode::Internal,
        "The exec service told nothing of the command's state. The owner's log tells more.",
    )
}

fn effect(held: Held) -> Option<Effect> {
    Some(Effect {
        workspace_id: held.workspace_id,
        receipt_id: held.receipt_id,
        incarnation: held.incarnation,
    })
}

impl Tools {
    pub(super) async fn exec(&self, call: &Call, held: Held, place: Option<String>) -> Answer {
        let args: args::Exec = args::read(call)?;
        let request = StartRequest {
            effect: effect(held),
            session_id: call.session_id.clone(),
            command: args.command,
            cwd: args.cwd,
            timeout_ms: u32::try_from(args.timeout_ms).unwrap_or(u32::MAX),
            place,
        };
        let begun = hop(self.0.clients.exec.clone().start(request)).await;
        started(begun.map_err(of_directory)?)
    }

    pub(super) async fn poll(&self, call: &Call) -> Answer {
        let args: args::Poll = args::read(call)?;
        let request = PollRequest {
            session_id: call.session_id.clone(),
            command_id: args.command_id,
            offset: args.offset,
            wait_ms: POLL_WAIT_MS,
        };
        let page = hop(self.0.clients.exec.clone().poll(request)).await?;
        let state: CommandState = page.state.ok_or_else(stateless)?;
        Reply::success(&Polled {
            command_id: page.command_id,
            status: command_status(state.status()),
            exit_code: state.exit_code,
            signal: state.signal,
            output: page.output,
            offset: page.offset,
            next_offset: page.next_offset,
            total_bytes: page.total_bytes,
            gap: page.gap.map(|gap| Gap {
                from: gap.from,
                to: gap.to,
            }),
            survivors: state.survivors,
            started_at: Timestamp::from_millis(state.started_at_ms),
            finished_at: state.finished_at_ms.map(Timestamp::from_millis),
        })
    }

    pub(super) async fn input(&self, call: &Call, held: Held) -> Answer {
        let args: args::Input = args::read(call)?;
        let request = InputRequest {
            effect: effect(held),
            session_id: call.session_id.clone(),
            command_id: args.command_id,
            text: args.text,
        };
        typed(hop(self.0.clients.exec.clone().input(request)).await?)
    }

    pub(super) async fn stop(&self, call: &Call, held: Held) -> Answer {
        let args: args::Stop = args::read(call)?;
        let request = StopRequest {
            effect: effect(held),
            session_id: call.session_id.clone(),
            command_id: args.command_id,
        };
        stopped(hop(self.0.clients.exec.clone().stop(request)).await?)
    }

    /// The worker knows the receipts it acted on.
    pub(super) async fn inspect_command(
        &self,
        call: &Call,
        held: &Held,
    ) -> Result<Finding, Failure> {
        let (kind, command_id) = match call.tool.as_str() {
            "workspace_exec" => (EffectKind::Start, String::new()),
            "workspace_input" => {
                let args: args::Input = args::read(call)?;
                (EffectKind::Input, args.command_id)
            }
            _ => {
                let args: args::Stop = args::read(call)?;
                (EffectKind::Stop, args.command_id)
            }
        };
        let request = InspectRequest {
            effect: effect(held.clone()),
            kind: kind.into(),
            command_id: command_id.clone(),
        };
        let known = hop(self.0.clients.exec.clone().inspect(request)).await?;
        let result = match (known.finding(), known.start, known.input, known.stop) {
            (Found::NotApplied, ..) => return Ok(Finding::NotApplied),
            (Found::Applied, Some(start), ..) => started(start),
            (Found::Applied, _, Some(input), _) => typed(input),
            (Found::Applied, .., Some(stop)) => stopped(stop),
            (Found::Applied | Found::Unknown | Found::Unspecified, ..) => {
                return Ok(Finding::Uncertain(uncertain(kind, held, &command_id)));
            }
        };
        result.map(Finding::Applied)
    }
}

fn uncertain(kind: EffectKind, held: &Held, command_id: &str) -> Failure {
    let message = match kind {
        EffectKind::Start | EffectKind::Unspecified => {
            "Whether this command ran cannot be known. Look at what it would have changed before running it again."
        }
        EffectKind::Input => {
            "Whether this text reached the command cannot be known. Poll the command's output before typing it again."
        }
        EffectKind::Stop => {
            "Whether this command was stopped by this call cannot be known. Poll it; stopping it again does no harm."
        }
    };
    // A command's id is its receipt's.
    let command_id = if command_id.is_empty() {
        held.receipt_id.as_str()
    } else {
        command_id
    };
    Failure::new(ErrorCode::Uncertain, message).with("commandId", command_id)
}
