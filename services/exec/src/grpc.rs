//! The gRPC face of the worker: decode, ask, encode.

mod listing;
mod pipe;

use std::time::Duration;

use postern_kit::{Failure, metrics, transport::MESSAGE_LIMIT};
use postern_proto::exec::v1::{
    CommandState, Effect, EffectKind, FiguresRequest, FiguresResponse, Finding, Gap,
    HeartbeatRequest, HeartbeatResponse, InputRequest, InputResponse, InspectRequest,
    InspectResponse, ListRequest, ListResponse, PipeRequest, PollRequest, PollResponse,
    ShutdownRequest, ShutdownResponse, StartRequest, StartResponse, Status as CommandStatus,
    StopRequest, StopResponse,
    exec_server::{Exec, ExecServer},
};
use postern_types::{Id, ReceiptId};
use tonic::{Request, Response, Status, Streaming};

use crate::{
    Error, Service,
    service::{Inspected, Kind, Start, Started, Told},
    spool::{End, EndKind},
};

/// The generated service over a [`Service`].
#[derive(Clone, Debug)]
pub struct Adapter(Service);

impl Service {
    /// The gRPC service, for [`postern_kit::serve`] or [`postern_kit::transport::local`].
    #[must_use]
    pub fn into_server(self) -> ExecServer<Adapter> {
        ExecServer::new(Adapter(self))
            .max_decoding_message_size(MESSAGE_LIMIT)
            .max_encoding_message_size(MESSAGE_LIMIT)
    }
}

#[tonic::async_trait]
impl Exec for Adapter {
    async fn start(
        &self,
        request: Request<StartRequest>,
    ) -> Result<Response<StartResponse>, Status> {
        self.0.hear();
        let request = request.into_inner();
        let receipt = receipt(request.effect)?;
        let start = Start {
            receipt,
            session_id: session(request.session_id)?,
            command: request.command,
            cwd: request.cwd,
            place: request.place,
            timeout_ms: request.timeout_ms,
        };
        let started = self.0.start(start).await.map_err(Failure::from)?;
        Ok(Response::new(start_response(receipt, started)))
    }

    async fn poll(&self, request: Request<PollRequest>) -> Result<Response<PollResponse>, Status> {
        self.0.hear();
        let request = request.into_inner();
        let session = session(request.session_id)?;
        let wait = Duration::from_millis(request.wait_ms.into());
        let polled = self
            .0
            .poll(&session, &request.command_id, request.offset, wait);
        let (told, page) = polled.await.map_err(Failure::from)?;
        Ok(Response::new(PollResponse {
            command_id: request.command_id,
            state: Some(state(&told)),
            output: page.text,
            offset: page.offset,
            next_offset: page.next_offset,
            total_bytes: told.total,
            gap: page.gap.map(|(from, to)| Gap { from, to }),
        }))
    }

    async fn input(
        &self,
        request: Request<InputRequest>,
    ) -> Result<Response<InputResponse>, Status> {
        self.0.hear();
        let request = request.into_inner();
        let receipt = receipt(request.effect)?;
        let session = session(request.session_id)?;
        let typed = self
            .0
            .input(receipt, &session, &request.command_id, request.text);
        let bytes = typed.await.map_err(Failure::from)?;
        Ok(Response::new(InputResponse {
            command_id: request.command_id,
            bytes,
        }))
    }

    async fn stop(&self, request: Request<StopRequest>) -> Result<Response<StopResponse>, Status> {
        self.0.hear();
        let request = request.into_inner();
        let receipt = receipt(request.effect)?;
        let session = session(request.session_id)?;
        let stopped = self.0.stop(receipt, &session, &request.command_id);
        let told = stopped.await.map_err(Failure::from)?;
        Ok(Response::new(StopResponse {
            command_id: request.command_id,
            state: Some(state(&told)),
        }))
    }

    async fn inspect(
        &self,
        request: Request<InspectRequest>,
    ) -> Result<Response<InspectResponse>, Status> {
        self.0.hear();
        let request = request.into_inner();
        let kind = match request.kind() {
            EffectKind::Start => Kind::Start,
            EffectKind::Input => Kind::Input,
            EffectKind::Stop => Kind::Stop,
            EffectKind::Unspecified => {
                return Err(invalid(
                    "/kind",
                    "required",
                    "The kind of the effect is missing.",
                ));
            }
        };
        let receipt = receipt(request.effect)?;
        let found = self.0.inspect(kind, receipt, &request.command_id);
        let found = found.await.map_err(Failure::from)?;
        Ok(Response::new(inspected(receipt, request.command_id, found)))
    }

    type PipeStream = pipe::Answers;

    async fn pipe(
        &self,
        request: Request<Streaming<PipeRequest>>,
    ) -> Result<Response<Self::PipeStream>, Status> {
        self.0.hear();
        let answers = pipe::open(&self.0, request.into_inner()).await?;
        Ok(Response::new(answers))
    }

    async fn list(&self, request: Request<ListRequest>) -> Result<Response<ListResponse>, Status> {
        self.0.hear();
        let listed = listing::list(&self.0, request.into_inner()).await?;
        Ok(Response::new(listed))
    }

    async fn heartbeat(
        &self,
        _request: Request<HeartbeatRequest>,
    ) -> Result<Response<HeartbeatResponse>, Status> {
        self.0.hear();
        let load = self.0.load();
        let root = self.0.root();
        let sandbox = self.0.sandbox();
        let missing = sandbox.kernel.missing().into_iter();
        Ok(Response::new(HeartbeatResponse {
            running: load.running,
            capacity: load.capacity,
            sandbox: sandbox.in_force().as_str().to_owned(),
            root_device: root.device,
            root_inode: root.inode,
            sandbox_missing: missing.map(|missing| missing.name.to_owned()).collect(),
            sandbox_wishes: sandbox.fingerprint(),
        }))
    }

    // No sign of life: whoever looks at figures is not the edge that commands run for.
    async fn figures(
        &self,
        _request: Request<FiguresRequest>,
    ) -> Result<Response<FiguresResponse>, Status> {
        let text = metrics::render().await;
        Ok(Response::new(FiguresResponse { text }))
    }

    async fn shutdown(
        &self,
        request: Request<ShutdownRequest>,
    ) -> Result<Response<ShutdownResponse>, Status> {
        let stopped = self.0.shut_down(&request.into_inner().reason).await;
        Ok(Response::new(ShutdownResponse { stopped }))
    }
}

fn receipt(effect: Option<Effect>) -> Result<ReceiptId, Status> {
    let id = effect.unwrap_or_default().receipt_id;
    id.parse().map_err(|_| {
        invalid(
            "/effect/receiptId",
            "format",
            "A receipt's id is a UUID in lower case.",
        )
    })
}

fn session(id: String) -> Result<String, Status> {
    match id.parse::<Id>() {
        Ok(_) => Ok(id),
        Err(_) => Err(invalid(
            "/sessionId",
            "format",
            "A session's id is 1 to 200 visible ASCII characters.",
        )),
    }
}

fn invalid(pointer: &'static str, rule: &'static str, message: &str) -> Status {
    let message = message.to_owned();
    Failure::from(Error::Invalid {
        pointer,
        rule,
        message,
    })
    .into()
}

fn start_response(receipt: ReceiptId, started: Started) -> StartResponse {
    StartResponse {
        command_id: receipt.to_string(),
        started_at_ms: started.started_at_ms,
        cwd: started.cwd,
        timeout_ms: started.timeout_ms,
    }
}

fn inspected(receipt: ReceiptId, command_id: String, found: Inspected) -> InspectResponse {
    let mut response = InspectResponse::default();
    let finding = match found {
        Inspected::NotApplied => Finding::NotApplied,
        Inspected::Unknown => Finding::Unknown,
        Inspected::Started(started) => {
            response.start = Some(start_response(receipt, started));
            Finding::Applied
        }
        Inspected::Typed(bytes) => {
            response.input = Some(InputResponse { command_id, bytes });
            Finding::Applied
        }
        Inspected::Stopped(told) => {
            response.stop = Some(StopResponse {
                command_id,
                state: Some(state(&told)),
            });
            Finding::Applied
        }
    };
    response.set_finding(finding);
    response
}

fn state(told: &Told) -> CommandState {
    let mut state = CommandState {
        started_at_ms: told.meta.started_at_ms,
        ..CommandState::default()
    };
    match &told.end {
        None => state.set_status(CommandStatus::Running),
        Some(end) => {
            state.set_status(status(end.kind));
            state.exit_code = end.exit_code;
            state.signal = end.signal.map(signal_name);
            state.survivors = end.survivors;
            state.finished_at_ms = Some(end.finished_at_ms);
        }
    }
    state
}

fn status(kind: EndKind) -> CommandStatus {
    match kind {
        EndKind::Exited => CommandStatus::Exited,
        EndKind::Stopped => CommandStatus::Stopped,
        EndKind::TimedOut => CommandStatus::TimedOut,
        // A command that was never started has no state that anybody could ask for.
        EndKind::Lost | EndKind::NeverStarted => CommandStatus::Lost,
    }
}

/// An end in the words of the tools' results.
pub(crate) struct StateWords {
    pub(crate) status: &'static str,
    pub(crate) exit_code: Option<i32>,
    pub(crate) signal: Option<String>,
}

pub(crate) fn state_words(end: &End) -> StateWords {
    StateWords {
        status: match end.kind {
            EndKind::Exited => "exited",
            EndKind::Stopped => "stopped",
            EndKind::TimedOut => "timed_out",
            EndKind::Lost | EndKind::NeverStarted => "lost",
        },
        exit_code: end.exit_code,
        signal: end.signal.map(signal_name),
    }
}

/// The names of Linux on the usual architectures, from 1.
const SIGNALS: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2",
    "PIPE", "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG",
    "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
];

fn signal_name(number: i32) -> String {
    let name = usize::try_from(number - 1)
        .ok()
        .and_then(|index| SIGNALS.get(index));
    match name {
        Some(name) => format!("SIG{name}"),
        None => format!("SIGRTMIN+{}", number - 34),
    }
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    #[test]
    fn signals_have_their_names() {
        let names = [1, 9, 11, 15, 31, 34, 36].map(signal_name);
        let expected = [
            "SIGHUP",
            "SIGKILL",
            "SIGSEGV",
            "SIGTERM",
            "SIGSYS",
            "SIGRTMIN+0",
            "SIGRTMIN+2",
        ];
        assert_eq!(names, expected);
    }
}
