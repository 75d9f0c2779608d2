//! Commands in memory.

use postern_kit::{Effect as Had, Failure};
use postern_proto::exec::v1::{self as exec, exec_server::Exec};
use postern_types::ErrorCode;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming, async_trait};

use super::World;
use crate::tool_servers;

fn running(command_id: &str) -> exec::CommandState {
    assert!(!command_id.is_empty());
    exec::CommandState {
        status: exec::Status::Running.into(),
        started_at_ms: 1000,
        ..exec::CommandState::default()
    }
}

impl World {
    fn act_once(&self, effect: Option<exec::Effect>, what: &str) -> Result<String, Failure> {
        let receipt_id = effect.expect("effect").receipt_id;
        let mut acted = self.acted.lock().expect("acted");
        if acted.contains(&receipt_id) {
            let twice = Failure::new(ErrorCode::Internal, "acted on before");
            return Err(Failure {
                effect: Had::None,
                ..twice
            });
        }
        acted.push(receipt_id.clone());
        self.note(what.to_owned());
        Ok(receipt_id)
    }

    /// A receipt under which something has happened already.
    pub(crate) fn has_acted(&self, receipt_id: &str) {
        self.acted
            .lock()
            .expect("acted")
            .push(receipt_id.to_owned());
    }

    fn start_response(request: &exec::StartRequest, command_id: String) -> exec::StartResponse {
        exec::StartResponse {
            command_id,
            started_at_ms: 1000,
            cwd: ".".to_owned(),
            timeout_ms: request.timeout_ms,
        }
    }
}

#[async_trait]
impl Exec for World {
    async fn start(
        &self,
        request: Request<exec::StartRequest>,
    ) -> Result<Response<exec::StartResponse>, Status> {
        let request = request.into_inner();
        let act = || {
            if request.cwd.contains("//") {
                let invalid = Failure::new(ErrorCode::InvalidArguments, "no path");
                return Err(invalid.with("pointer", "/path").with("rule", "path"));
            }
            let id = self.act_once(request.effect.clone(), "exec")?;
            self.commands
                .lock()
                .expect("commands")
                .push(request.clone());
            Ok(Self::start_response(&request, id))
        };
        Ok(Response::new(self.effect(act).await?))
    }

    async fn poll(
        &self,
        request: Request<exec::PollRequest>,
    ) -> Result<Response<exec::PollResponse>, Status> {
        let request = request.into_inner();
        Ok(Response::new(exec::PollResponse {
            state: Some(exec::CommandState {
                status: exec::Status::Exited.into(),
                exit_code: Some(7),
                survivors: 1,
                started_at_ms: 1000,
                finished_at_ms: Some(2000),
                ..exec::CommandState::default()
            }),
            command_id: request.command_id,
            output: "out\u{fffd}".to_owned(),
            offset: request.offset,
            next_offset: request.offset + 4,
            total_bytes: 100,
            gap: Some(exec::Gap { from: 10, to: 20 }),
        }))
    }

    async fn input(
        &self,
        request: Request<exec::InputRequest>,
    ) -> Result<Response<exec::InputResponse>, Status> {
        let request = request.into_inner();
        let act = || {
            self.act_once(request.effect.clone(), "input")?;
            Ok(exec::InputResponse {
                command_id: request.command_id.clone(),
                bytes: request.text.len() as u64,
            })
        };
        Ok(Response::new(self.effect(act).await?))
    }

    async fn stop(
        &self,
        request: Request<exec::StopRequest>,
    ) -> Result<Response<exec::StopResponse>, Status> {
        let request = request.into_inner();
        let act = || {
            self.act_once(request.effect.clone(), "stop")?;
            Ok(stop_response(&request.command_id))
        };
        Ok(Response::new(self.effect(act).await?))
    }

    type PipeStream = ReceiverStream<Result<exec::PipeResponse, Status>>;

    async fn pipe(
        &self,
        request: Request<Streaming<exec::PipeRequest>>,
    ) -> Result<Response<Self::PipeStream>, Status> {
        let answers = tool_servers::start(request.into_inner(), &self.tools).await?;
        Ok(Response::new(answers))
    }

    async fn inspect(
        &self,
        request: Request<exec::InspectRequest>,
    ) -> Result<Response<exec::InspectResponse>, Status> {
        self.reachable()?;
        let request = request.into_inner();
        self.note("inspect command".to_owned());
        let receipt_id = request.effect.as_ref().expect("effect").receipt_id.clone();
        let acted = self.acted.lock().expect("acted").contains(&receipt_id);
        let mut response = exec::InspectResponse::default();
        response.set_finding(if *self.exec_unknown.lock().expect("flag") {
            exec::Finding::Unknown
        } else if acted {
            exec::Finding::Applied
        } else {
            // Never again, either.
            self.acted.lock().expect("acted").push(receipt_id.clone());
            exec::Finding::NotApplied
        });
        if response.finding() == exec::Finding::Applied {
            match request.kind() {
                exec::EffectKind::Start => {
                    let commands = self.commands.lock().expect("commands");
                    let start = commands.iter().find(|start| {
                        start
                            .effect
                            .as_ref()
                            .is_some_and(|effect| effect.receipt_id == receipt_id)
                    });
                    response.start = start.map(|start| Self::start_response(start, receipt_id));
                }
                exec::EffectKind::Input => {
                    response.input = Some(exec::InputResponse {
                        command_id: request.command_id,
                        bytes: 3,
                    });
                }
                exec::EffectKind::Stop => response.stop = Some(stop_response(&request.command_id)),
                exec::EffectKind::Unspecified => {}
            }
        }
        Ok(Response::new(response))
    }

    async fn list(
        &self,
        request: Request<exec::ListRequest>,
    ) -> Result<Response<exec::ListResponse>, Status> {
        let wanted = request.into_inner().command_id;
        let started = self.commands.lock().expect("commands");
        let listed = started.iter().filter_map(|start| {
            let command_id = start.effect.clone()?.receipt_id;
            (command_id == wanted).then(|| exec::ListedCommand {
                session_id: start.session_id.clone(),
                command: start.command.clone(),
                state: Some(running(&command_id)),
                command_id,
                ..exec::ListedCommand::default()
            })
        });
        Ok(Response::new(exec::ListResponse {
            commands: listed.collect(),
            ..exec::ListResponse::default()
        }))
    }

    async fn heartbeat(
        &self,
        _: Request<exec::HeartbeatRequest>,
    ) -> Result<Response<exec::HeartbeatResponse>, Status> {
        Ok(Response::new(exec::HeartbeatResponse {
            running: 0,
            capacity: 16,
            sandbox: "off".to_owned(),
            ..exec::HeartbeatResponse::default()
        }))
    }

    async fn figures(
        &self,
        _: Request<exec::FiguresRequest>,
    ) -> Result<Response<exec::FiguresResponse>, Status> {
        Ok(Response::new(exec::FiguresResponse::default()))
    }

    async fn shutdown(
        &self,
        _: Request<exec::ShutdownRequest>,
    ) -> Result<Response<exec::ShutdownResponse>, Status> {
        Err(Status::unimplemented("not asked for by an edge"))
    }
}

fn stop_response(command_id: &str) -> exec::StopResponse {
    exec::StopResponse {
        command_id: command_id.to_owned(),
        state: Some(exec::CommandState {
            status: exec::Status::Stopped.into(),
            signal: Some("SIGTERM".to_owned()),
            ..running(command_id)
        }),
    }
}
