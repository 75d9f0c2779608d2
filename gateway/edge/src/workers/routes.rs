//! Which worker is asked what.

use std::{future::Future, pin::Pin, time::Duration};

use futures_util::future::join_all;
use postern_kit::{Effect as Had, Failure, metrics, transport::Transport};
use postern_proto::exec::v1::{
    FiguresRequest, FiguresResponse, HeartbeatRequest, HeartbeatResponse, InputRequest,
    InputResponse, InspectRequest, InspectResponse, ListRequest, ListResponse, PipeRequest,
    PipeResponse, PollRequest, PollResponse, ShutdownRequest, ShutdownResponse, StartRequest,
    StartResponse, StopRequest, StopResponse, exec_client::ExecClient, exec_server::Exec,
};
use postern_types::ErrorCode;
use tokio::time::{Instant, sleep};
use tokio_stream::{Stream, StreamExt as _};
use tonic::{Request, Response, Status, Streaming};

use super::{Routes, registry::Candidate};
use crate::clients::{hop_within, is_passing};

/// Time that one worker has for what another can tell as well: a poll waits up to 2 s by itself.
const ONE_OF_MANY: Duration = Duration::from_secs(4);
/// Time that a worker has for a sign of life.
const BEAT_LIMIT: Duration = Duration::from_secs(2);
/// Time that a worker has for what only it can do: a little less than the caller's own patience.
const ONLY_ONE: Duration = Duration::from_millis(9500);
/// Time in which a worker is looked for that takes a command, when those that are there are just starting, draining or going.
const PLACE_LIMIT: Duration = Duration::from_secs(3);
/// Time between two rounds over the workers.
const PLACE_AGAIN: Duration = Duration::from_millis(200);
/// Workers asked to take one command, in one round.
const TRIED: usize = 64;

/// One worker's client.
type Client = ExecClient<Transport>;

/// What one worker answered to a start.
enum Tried {
    Answered(Result<StartResponse, Failure>),
    /// It did not start, for certain, and another may take it.
    Next(Failure),
}

impl Routes {
    /// Starts a command on the least loaded worker that takes it.
    async fn place(&self, request: StartRequest) -> Result<StartResponse, Failure> {
        let until = Instant::now() + PLACE_LIMIT;
        loop {
            let mut refused = self.registry.no_worker();
            for candidate in self.candidates(&request).await?.into_iter().take(TRIED) {
                match self.try_start(candidate, &request).await {
                    Tried::Answered(answer) => return answer,
                    // That there is no room says more than that somebody was away.
                    Tried::Next(failure) if refused.code != ErrorCode::Busy => refused = failure,
                    Tried::Next(_) => {}
                }
            }
            if refused.code == ErrorCode::Busy || Instant::now() >= until {
                return Err(refused);
            }
            sleep(PLACE_AGAIN).await;
        }
    }

    /// The workers that may start a command, in the order in which they are asked. One that was asked before comes first: it may
    /// have started it.
    async fn candidates(&self, request: &StartRequest) -> Result<Vec<Candidate>, Failure> {
        let mut candidates = self.registry.by_load().await?;
        if let Some(asked) = self.owners.of(receipt(request)) {
            candidates.sort_by_key(|candidate| candidate.id != asked);
        }
        Ok(candidates)
    }

    async fn try_start(&self, candidate: Candidate, request: &StartRequest) -> Tried {
        let Candidate { id, mut client, .. } = candidate;
        // Before it is asked: should the answer be lost, it is the one to ask what became of it.
        self.owners.note(receipt(request), &id);
        self.registry.place(&id);
        let answer = hop_within(ONLY_ONE, client.start(request.clone())).await;
        metrics::EXEC_OFFERS.add([outcome(&answer)], 1);
        match answer {
            Err(failure) if failure.effect == Had::None && is_passing(failure.code) => {
                self.registry.take_back(&id);
                if failure.code == ErrorCode::Unavailable {
                    self.registry.doubt(&id);
                }
                Tried::Next(failure)
            }
            answer => {
                if answer.is_err() {
                    self.registry.take_back(&id);
                }
                Tried::Answered(answer)
            }
        }
    }

    /// Who has a command: as remembered, or as any worker reads in the spool. `None` when there is no such command.
    async fn owner(&self, command: &str) -> Result<Option<String>, Failure> {
        if let Some(owner) = self.owners.of(command) {
            return Ok(Some(owner));
        }
        let request = ListRequest {
            command_id: command.to_owned(),
            ..ListRequest::default()
        };
        let listed = self.any(request, |mut client, request| async move {
            client.list(request).await
        });
        let owner = listed.await?.commands.into_iter().next();
        Ok(owner.map(|command| command.worker_id).inspect(|worker| {
            self.owners.note(command, worker);
        }))
    }

    /// Every worker, the owner of a command first.
    async fn owner_first(&self, command: &str) -> Result<(Vec<Candidate>, bool), Failure> {
        let owner = self.owner(command).await?;
        let mut candidates = self.registry.all().await?;
        let is_owner = |candidate: &Candidate| owner.as_ref() == Some(&candidate.id);
        let is_there = candidates.iter().any(is_owner);
        candidates.sort_by_key(|candidate| !is_owner(candidate));
        Ok((candidates, is_there))
    }

    /// Asks the owner of a command, and any other worker when it does not answer or did not lately.
    async fn owner_or_any<Q: Clone, A, F>(
        &self,
        command: &str,
        request: Q,
        ask: impl Fn(Client, Q) -> F,
    ) -> Result<A, Failure>
    where
        F: Future<Output = Result<Response<A>, Status>>,
    {
        let (mut candidates, _) = self.owner_first(command).await?;
        candidates.sort_by_key(|candidate| candidate.is_doubted);
        self.first_answer(candidates, request, ask).await
    }

    /// Asks the owner of a command, since only it can do something to it. When it is certain that it is not there, any other tells
    /// how the command ended; one whose command still runs for all they know, they refuse to touch.
    async fn owner_only<Q: Clone, A, F>(
        &self,
        command: &str,
        request: Q,
        ask: impl Fn(Client, Q) -> F,
    ) -> Result<A, Failure>
    where
        F: Future<Output = Result<Response<A>, Status>>,
    {
        let (mut candidates, is_there) = self.owner_first(command).await?;
        if !is_there {
            return self.first_answer(candidates, request, ask).await;
        }
        let owner = candidates.remove(0);
        let asked = ask(owner.client, request.clone());
        match hop_within(ONLY_ONE, asked).await {
            Err(away) if away.code == ErrorCode::Unavailable => {
                self.registry.doubt(&owner.id);
                if away.effect == Had::Unknown {
                    return Err(away);
                }
                // It heard nothing. If it is dead, another may know already.
                match self.first_answer(candidates, request, ask).await {
                    Err(failure) if failure.code == ErrorCode::Unavailable => Err(away),
                    answer => answer,
                }
            }
            answer => answer,
        }
    }

    /// Asks one worker after the other until one answers.
    async fn any<Q: Clone, A, F>(
        &self,
        request: Q,
        ask: impl Fn(Client, Q) -> F,
    ) -> Result<A, Failure>
    where
        F: Future<Output = Result<Response<A>, Status>>,
    {
        let candidates = self.registry.all().await?;
        self.first_answer(candidates, request, ask).await
    }

    async fn first_answer<Q: Clone, A, F>(
        &self,
        candidates: Vec<Candidate>,
        request: Q,
        ask: impl Fn(Client, Q) -> F,
    ) -> Result<A, Failure>
    where
        F: Future<Output = Result<Response<A>, Status>>,
    {
        let until = Instant::now() + ONLY_ONE;
        let mut away = self.registry.no_worker();
        for candidate in candidates.into_iter().take(TRIED) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let asked = ask(candidate.client, request.clone());
            match hop_within(ONE_OF_MANY.min(left), asked).await {
                Err(failure) if failure.code == ErrorCode::Unavailable => {
                    self.registry.doubt(&candidate.id);
                    away = failure;
                }
                answer => return answer,
            }
        }
        Err(away)
    }
}

/// What became of an offer, as the figures have it.
const fn outcome(answer: &Result<StartResponse, Failure>) -> &'static str {
    match answer {
        Ok(_) => "started",
        Err(failure) => match (failure.effect, failure.code) {
            (Had::Unknown, _) => "unknown",
            (Had::None, ErrorCode::Busy) => "full",
            (Had::None, ErrorCode::Unavailable) => "away",
            (Had::None, _) => "refused",
        },
    }
}

fn receipt(request: &StartRequest) -> &str {
    let effect = request.effect.as_ref();
    effect.map_or("", |effect| effect.receipt_id.as_str())
}

/// Of several workers, what holds for all: the weakest sandbox, and every protection that one of them lacks.
fn weakest(beats: Vec<HeartbeatResponse>) -> Option<HeartbeatResponse> {
    let rank = |beat: &HeartbeatResponse| match beat.sandbox.as_str() {
        "required" => 2,
        "project" => 1,
        _ => 0,
    };
    let (running, capacity) = beats
        .iter()
        .fold((0_u32, 0_u32), |(running, capacity), beat| {
            (
                running.saturating_add(beat.running),
                capacity.saturating_add(beat.capacity),
            )
        });
    let mut missing: Vec<_> = beats
        .iter()
        .flat_map(|beat| beat.sandbox_missing.iter().cloned())
        .collect();
    missing.sort_unstable();
    missing.dedup();
    let weakest = beats.into_iter().min_by_key(rank)?;
    Some(HeartbeatResponse {
        running,
        capacity,
        sandbox_missing: missing,
        ..weakest
    })
}

#[tonic::async_trait]
impl Exec for Routes {
    async fn start(
        &self,
        request: Request<StartRequest>,
    ) -> Result<Response<StartResponse>, Status> {
        Ok(Response::new(self.place(request.into_inner()).await?))
    }

    async fn poll(&self, request: Request<PollRequest>) -> Result<Response<PollResponse>, Status> {
        let request = request.into_inner();
        let command = request.command_id.clone();
        let asked = self.owner_or_any(&command, request, |mut client, request| async move {
            client.poll(request).await
        });
        Ok(Response::new(asked.await?))
    }

    async fn input(
        &self,
        request: Request<InputRequest>,
    ) -> Result<Response<InputResponse>, Status> {
        let request = request.into_inner();
        let command = request.command_id.clone();
        let asked = self.owner_only(&command, request, |mut client, request| async move {
            client.input(request).await
        });
        Ok(Response::new(asked.await?))
    }

    async fn stop(&self, request: Request<StopRequest>) -> Result<Response<StopResponse>, Status> {
        let request = request.into_inner();
        let command = request.command_id.clone();
        let asked = self.owner_only(&command, request, |mut client, request| async move {
            client.stop(request).await
        });
        Ok(Response::new(asked.await?))
    }

    async fn inspect(
        &self,
        request: Request<InspectRequest>,
    ) -> Result<Response<InspectResponse>, Status> {
        let request = request.into_inner();
        // A command's id is the receipt of its start.
        let command = match request.command_id.as_str() {
            "" => request.effect.clone().unwrap_or_default().receipt_id,
            command => command.to_owned(),
        };
        let asked = self.owner_or_any(&command, request, |mut client, request| async move {
            client.inspect(request).await
        });
        Ok(Response::new(asked.await?))
    }

    type PipeStream = Pin<Box<dyn Stream<Item = Result<PipeResponse, Status>> + Send>>;

    /// A program of the owner's runs on one worker, the least loaded one, and ends with it.
    async fn pipe(
        &self,
        request: Request<Streaming<PipeRequest>>,
    ) -> Result<Response<Self::PipeStream>, Status> {
        let candidates = self.registry.by_load().await?;
        let Some(Candidate { id, mut client, .. }) = candidates.into_iter().next() else {
            return Err(self.registry.no_worker().into());
        };
        let requests = request.into_inner().map_while(Result::ok);
        match hop_within(ONLY_ONE, client.pipe(requests)).await {
            Ok(answers) => Ok(Response::new(Box::pin(answers))),
            Err(failure) => {
                if failure.code == ErrorCode::Unavailable {
                    self.registry.doubt(&id);
                }
                Err(failure.into())
            }
        }
    }

    async fn list(&self, request: Request<ListRequest>) -> Result<Response<ListResponse>, Status> {
        let listed = self.any(request.into_inner(), |mut client, request| async move {
            client.list(request).await
        });
        Ok(Response::new(listed.await?))
    }

    /// Every worker hears of the edge's life.
    async fn heartbeat(
        &self,
        request: Request<HeartbeatRequest>,
    ) -> Result<Response<HeartbeatResponse>, Status> {
        let request = request.into_inner();
        let beats = self.registry.all().await?.into_iter().map(|candidate| {
            let (mut client, request) = (candidate.client, request.clone());
            async move { hop_within(BEAT_LIMIT, client.heartbeat(request)).await }
        });
        let answered = join_all(beats).await.into_iter().filter_map(Result::ok);
        let beat = weakest(answered.collect()).ok_or_else(|| self.registry.no_worker())?;
        Ok(Response::new(beat))
    }

    async fn figures(
        &self,
        _request: Request<FiguresRequest>,
    ) -> Result<Response<FiguresResponse>, Status> {
        Err(Status::unimplemented(
            "workers that are registered with a ledger have pages of their own",
        ))
    }

    async fn shutdown(
        &self,
        _request: Request<ShutdownRequest>,
    ) -> Result<Response<ShutdownResponse>, Status> {
        // They run on their own, and other edges may use them.
        Err(Status::unimplemented(
            "workers that are registered with a ledger are not ended by an edge",
        ))
    }
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    #[test]
    fn what_is_told_of_several_workers_holds_for_all() {
        let beat = |sandbox: &str, missing: &[&str]| HeartbeatResponse {
            running: 1,
            capacity: 4,
            sandbox: sandbox.to_owned(),
            sandbox_missing: missing.iter().map(|name| (*name).to_owned()).collect(),
            ..HeartbeatResponse::default()
        };
        let told = weakest(vec![
            beat("required", &["signals"]),
            beat("project", &["files", "signals"]),
        ]);
        let expected = HeartbeatResponse {
            running: 2,
            capacity: 8,
            ..beat("project", &["files", "signals"])
        };
        assert_eq!(told, Some(expected));
        assert_eq!(weakest(Vec::new()), None);
    }
}
