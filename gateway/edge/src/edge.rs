//! The edge as a whole: its start, its channel and its end.

use postern_kit::{Clock, Failure, listened::Heard, task::Tasks};
use postern_proto::{
    exec::v1::HeartbeatRequest, identity::v1::PinRequest, ledger::v1::OpenIncarnationRequest,
};
use postern_types::ErrorCode;
use tokio::{sync::mpsc, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    channel::{self, Backoff, Ended, Endpoint, Refusal, Serving},
    clients::{Clients, Services, hop},
    config::Config,
    control::{ChannelState, Control, Sandbox},
    stack::Stack,
    stops, undo,
};

/// Time between two signs of life for the exec worker, which ends its commands after ten minutes without one.
const HEARTBEAT_INTERVAL: std::time::Duration = std::time::Duration::from_secs(10);

/// Time from the edge's start to its first sign of life.
const FIRST_HEARTBEAT: std::time::Duration = std::time::Duration::from_secs(1);

/// Why an edge does not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The host's URL cannot be used.
    #[error("{0}")]
    HostUrl(String),
    /// The workspace is pinned to another project or intention, or the pin cannot be read.
    #[error("{}", .0.message)]
    Pin(Failure),
    /// The ledger refused the new incarnation.
    #[error("the ledger does not let this edge start: {}", .0.message)]
    Ledger(Failure),
    /// The edge was stopped while it waited for a service.
    #[error("stopped before the services were there")]
    Stopped,
}

/// What an edge has to tell while it runs.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Event {
    /// The host has said ready.
    Connected,
    /// The channel is gone; the edge tries again by itself, or the owner closed it.
    Disconnected {
        /// One line for the owner.
        reason: String,
    },
}

/// How an edge ended. Each text is one line for the owner.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum End {
    /// It was told to stop.
    Stopped,
    /// The host does not accept it (exit code 3).
    Unauthorized(String),
    /// A newer channel of the workspace took over (exit code 4).
    Superseded(String),
    /// It cannot go on (exit code 1).
    Failed(String),
}

/// An edge that is ready to open its channel.
#[derive(Debug)]
pub struct Edge {
    config: Config,
    endpoint: Endpoint,
    control: Control,
    stack: Stack,
    clock: Clock,
    tasks: Tasks,
}

impl Edge {
    /// Checks the pin, takes the next incarnation and builds the stack of layers. While a service is away it waits for it,
    /// until `tasks` are told to stop.
    ///
    /// # Errors
    /// [`Error`]; each text is one line for the owner.
    pub async fn start(
        config: Config,
        services: Services,
        clock: Clock,
        tasks: &Tasks,
    ) -> Result<Self, Error> {
        let endpoint = Endpoint::new(
            &config.host_url,
            &config.workspace_id,
            config.allow_plaintext,
        )
        .map_err(|invalid| Error::HostUrl(invalid.to_string()))?;
        let clients = Clients::from(services);
        pin(&config, &clients, tasks).await?;
        let incarnation = open_incarnation(&config, &clients, tasks).await?;
        let control = Control::new(
            config.workspace_id.clone(),
            config.intention.clone(),
            endpoint.authority(),
            incarnation,
            config.mode,
        );
        tasks.spawn(
            "heartbeat",
            heartbeat(clients.clone(), control.clone(), tasks.stopping()),
        );
        undo::resume(&clients, control.clone(), tasks);
        stops::resume(&clients, control.clone(), tasks);
        let stack = Stack::new(&config, clients, control.clone(), clock.clone(), tasks);
        Ok(Self {
            config,
            endpoint,
            control,
            stack,
            clock,
            tasks: tasks.clone(),
        })
    }

    /// The owner's hold on this edge.
    #[must_use]
    pub fn handle(&self) -> Control {
        self.control.clone()
    }

    /// Opens the channel, serves it, and opens it again when it is lost, until `stop` or until the host refuses it.
    /// Running effects then have their time to end; the services must outlive it. Events that nobody takes are dropped.
    pub async fn run(self, events: mpsc::Sender<Event>, stop: CancellationToken) -> End {
        let end = Box::pin(self.keep_open(&events, &stop)).await;
        if let End::Unauthorized(reason) | End::Superseded(reason) = &end {
            let reason = reason.clone();
            tell(&events, Event::Disconnected { reason });
        }
        let deadline = self.control.leave(self.config.drain_limit);
        self.control.set_channel(ChannelState::Closed);
        // Calls of channels that are gone may still have their effect under way. Their time began with the shutdown.
        let idle = tokio::time::timeout_at(deadline, self.control.idle());
        if idle.await.is_err() {
            tracing::warn!(
                "calls were still running at the end; their receipts tell what is known"
            );
        }
        end
    }

    async fn keep_open(&self, events: &mpsc::Sender<Event>, stop: &CancellationToken) -> End {
        let mut backoff = Backoff::default();
        loop {
            if !self.control.wish().open {
                self.control.set_channel(ChannelState::Closed);
                tokio::select! {
                    () = stop.cancelled() => return End::Stopped,
                    () = self.control.wait_open(true) => backoff.reset(),
                }
            }
            self.control.set_channel(ChannelState::Connecting);
            let fenced = self.control.fenced();
            let opening = channel::connect(&self.config, &self.endpoint, self.clock.now());
            let opened = tokio::select! {
                () = stop.cancelled() => return End::Stopped,
                () = fenced.cancelled() => return fenced_out(),
                () = self.control.wait_open(false) => continue,
                opened = opening => opened,
            };
            let (reason, retry_after) = match opened {
                Err(Refusal::Fatal(reason)) => return End::Unauthorized(reason),
                Err(Refusal::Passing {
                    reason,
                    retry_after,
                }) => (reason, retry_after),
                Ok((socket, heard)) => {
                    let since = Instant::now();
                    let reason = match self.serve(socket, heard, events, stop).await {
                        Ok(reason) => reason,
                        Err(end) => return end,
                    };
                    if since.elapsed() >= channel::STEADY {
                        backoff.reset();
                    }
                    (reason, None)
                }
            };
            self.control.set_channel(ChannelState::Waiting);
            tell(events, Event::Disconnected { reason });
            let wait = backoff.next(channel::chance(), retry_after);
            tokio::select! {
                () = stop.cancelled() => return End::Stopped,
                () = fenced.cancelled() => return fenced_out(),
                () = self.control.wait_open(false) => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    async fn serve(
        &self,
        socket: channel::Socket,
        heard: Heard,
        events: &mpsc::Sender<Event>,
        stop: &CancellationToken,
    ) -> Result<String, End> {
        let on_ready = || {
            let since = self.clock.now();
            self.control.set_channel(ChannelState::Connected { since });
            tell(events, Event::Connected);
        };
        let serving = Serving {
            config: &self.config,
            control: &self.control,
            stack: &self.stack,
            tasks: &self.tasks,
            stop,
            on_ready: &on_ready,
        };
        match channel::serve(socket, heard, serving).await {
            Ended::Stopped => Err(End::Stopped),
            Ended::Fenced => Err(fenced_out()),
            Ended::Superseded => Err(End::Superseded(
                "a newer channel of this workspace took over (superseded)".to_owned(),
            )),
            Ended::Unauthorized => Err(End::Unauthorized(
                "the channel token was revoked or has expired; create a launch for a new one"
                    .to_owned(),
            )),
            Ended::ClosedByOwner => Ok("closed by the owner".to_owned()),
            Ended::Lost(reason) => Ok(reason),
        }
    }
}

fn fenced_out() -> End {
    End::Failed(
        "another edge has taken this workspace over; only one may run on a data directory"
            .to_owned(),
    )
}

fn tell(events: &mpsc::Sender<Event>, event: Event) {
    if events.try_send(event).is_err() {
        tracing::debug!("nobody takes the events of the channel");
    }
}

async fn pin(config: &Config, clients: &Clients, tasks: &Tasks) -> Result<(), Error> {
    let request = PinRequest {
        workspace_id: config.workspace_id.to_string(),
        intention: config.intention.to_string(),
        // Told for people; device and inode tell projects apart, whatever bytes a path is made of.
        project_path: config.project_path.to_string_lossy().into_owned(),
        device: config.device,
        inode: config.inode,
        repin: config.repin,
    };
    let pinned = until_there(tasks, || {
        let (mut identity, request) = (clients.identity.clone(), request.clone());
        async move { hop(identity.pin(request)).await }
    })
    .await?;
    pinned.map(drop).map_err(Error::Pin)
}

async fn open_incarnation(config: &Config, clients: &Clients, tasks: &Tasks) -> Result<u64, Error> {
    let opened = until_there(tasks, || {
        let mut ledger = clients.ledger.clone();
        let workspace_id = config.workspace_id.to_string();
        async move { hop(ledger.open_incarnation(OpenIncarnationRequest { workspace_id })).await }
    })
    .await?
    .map_err(Error::Ledger)?;
    if opened.orphans > 0 {
        tracing::info!(
            orphans = opened.orphans,
            "an earlier run left calls unfinished; they are looked into when they are asked for"
        );
    }
    Ok(opened.incarnation)
}

/// Asks until the service is there, or the edge is stopped. An answer of the service itself counts, whatever it is.
async fn until_there<T, F>(
    tasks: &Tasks,
    mut ask: impl FnMut() -> F,
) -> Result<Result<T, Failure>, Error>
where
    F: Future<Output = Result<T, Failure>>,
{
    let mut backoff = Backoff::default();
    loop {
        let answer = ask().await;
        match answer {
            Err(failure) if failure.code == ErrorCode::Unavailable => {
                tracing::warn!(%failure, "waiting for a service");
            }
            answer => return Ok(answer),
        }
        let wait = backoff.next(channel::chance(), None);
        tokio::select! {
            () = tasks.stopping().cancelled_owned() => return Err(Error::Stopped),
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// Tells the exec worker that its edge lives.
async fn heartbeat(clients: Clients, control: Control, stopping: CancellationToken) {
    // Not at once: a worker that the edge's owner starts beside it has the time to be there.
    let mut beats = tokio::time::interval_at(Instant::now() + FIRST_HEARTBEAT, HEARTBEAT_INTERVAL);
    loop {
        tokio::select! {
            () = stopping.cancelled() => return,
            () = control.leaving().cancelled() => return,
            _ = beats.tick() => {}
        }
        let request = HeartbeatRequest {
            workspace_id: control.workspace_id().to_string(),
            incarnation: control.incarnation(),
        };
        let mut exec = clients.exec.clone();
        let told = match hop(exec.heartbeat(request)).await {
            Ok(beat) => Some(Sandbox {
                level: beat.sandbox,
                missing: beat.sandbox_missing,
            }),
            Err(failure) => {
                tracing::debug!(%failure, "the exec worker does not answer");
                None
            }
        };
        control.set_sandbox(told);
    }
}
