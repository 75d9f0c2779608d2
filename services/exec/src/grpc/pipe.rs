//! The stream of a program with pipes: what of it is the program, its input, its output and its end.

use std::{pin::Pin, process::ExitStatus, time::Duration};

use postern_kit::Failure;
use postern_proto::exec::v1::{
    PipeEnd, PipeRequest, PipeResponse, PipeStart, pipe_request, pipe_response,
};
use tokio::sync::mpsc;
use tokio_stream::{Stream, StreamExt as _, wrappers::ReceiverStream};
use tonic::{Status, Streaming};

use super::{invalid, signal_name};
use crate::{
    Service,
    service::{CHUNKS_AHEAD, HungUp, Pipe, Said},
};

/// Time in which the caller says what it wants.
const FIRST_LIMIT: Duration = Duration::from_secs(10);

/// What the caller is told.
pub(super) type Answers = Pin<Box<dyn Stream<Item = Result<PipeResponse, Status>> + Send>>;

/// Starts the program that comes first, and carries it.
pub(super) async fn open(
    service: &Service,
    mut requests: Streaming<PipeRequest>,
) -> Result<Answers, Status> {
    let first = tokio::time::timeout(FIRST_LIMIT, requests.message()).await;
    let first = first.map_err(|_| Status::deadline_exceeded("no program was named in time"))??;
    let Some(pipe_request::Part::Start(start)) = first.and_then(|first| first.part) else {
        return Err(invalid("/start", "required", "The program comes first."));
    };
    let opened = service.open_pipe(pipe(start)).await;
    let carriage = opened.map_err(Failure::from)?;
    let input = requests.map(|request| match request.map(|request| request.part) {
        Ok(Some(pipe_request::Part::Input(bytes))) => Ok(bytes),
        Ok(Some(pipe_request::Part::Start(_)) | None) | Err(_) => Err(HungUp),
    });
    let (said, told) = mpsc::channel(CHUNKS_AHEAD);
    service.carry(carriage, input, said);
    let answers = ReceiverStream::new(told).map(|said| Ok(response(said)));
    Ok(Box::pin(answers))
}

fn pipe(start: PipeStart) -> Pipe {
    Pipe {
        argv: start.argv,
        cwd: start.cwd,
        env: start.env.into_iter().collect(),
        pass: start.pass,
        write: start.write,
    }
}

fn response(said: Said) -> PipeResponse {
    let part = match said {
        Said::Output(bytes) => pipe_response::Part::Output(bytes),
        Said::Errors(bytes) => pipe_response::Part::Errors(bytes),
        Said::End(status) => pipe_response::Part::End(end(status)),
    };
    PipeResponse { part: Some(part) }
}

fn end(status: Option<ExitStatus>) -> PipeEnd {
    use std::os::unix::process::ExitStatusExt as _;
    PipeEnd {
        exit_code: status.and_then(|status| status.code()),
        signal: status.and_then(|status| status.signal()).map(signal_name),
    }
}
