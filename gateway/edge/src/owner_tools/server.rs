//! The life of one server: connected, listed, listened to, and started again when it is gone.

use std::{sync::Arc, time::Duration};

use postern_proto::exec::v1::ListRequest;
use rmcp::{
    Peer, RoleClient, ServiceError,
    model::{
        ClientRequest, ListToolsRequest, PaginatedRequestParams, PingRequest, ProtocolVersion,
        SubscriptionFilter,
    },
    service::{
        ClientInitializeError, ClientLifecycleMode, ClientServiceExt as _, PeerRequestOptions,
        RunningService, Subscription,
    },
};
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;
use tonic::Code;

use super::{
    away::Away,
    config::ToolServer,
    ear::Ear,
    http::HttpClient,
    listing::{Offered, Page, Selection},
    stdio::{LastWords, Stdio},
    tap::Tap,
    text,
};
use crate::{channel, clients::Clients};

/// Time that a server has to be started, to say what it speaks and to list its tools. A program may fetch itself first.
const START_LIMIT: Duration = Duration::from_secs(60);
/// Time for one page of a listing.
const PAGE_LIMIT: Duration = Duration::from_secs(15);
/// Time for a sign of life, when a call ran out of time.
const PING_LIMIT: Duration = Duration::from_secs(5);
/// Time that the exec worker has to be there at the start, which starts beside this; and between two looks.
const WORKER_LIMIT: Duration = Duration::from_secs(10);
const WORKER_LOOK: Duration = Duration::from_millis(50);
/// Pages of a listing.
const MAX_PAGES: usize = 64;
/// Time in which further changes of a listing are waited for, before it is asked for again.
const SETTLE: Duration = Duration::from_millis(200);
/// Time that a server has to go.
const CLOSE_LIMIT: Duration = Duration::from_secs(3);
/// Life of a server after which its death is no sign that the next one dies as well.
const STEADY: Duration = Duration::from_secs(30);
/// Longest waits before each attempt after the first; the last one for all that follow.
const WAITS: [Duration; 7] = [
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(10),
    Duration::from_secs(30),
    Duration::from_secs(60),
];

/// Where a server stands.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Phase {
    /// It is being started for the first time.
    #[default]
    Starting,
    /// Its tools can be called.
    Ready,
    /// It is away, and is tried again.
    Waiting,
    /// The owner has turned it off.
    Disabled,
}

impl Phase {
    /// The word of the owner's status.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Waiting => "waiting",
            Self::Disabled => "disabled",
        }
    }
}

/// A server at one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    pub(super) phase: Phase,
    /// What its tools are called through; there while it is ready.
    pub(super) connection: Option<Connection>,
    pub(super) tools: Arc<[Offered]>,
    /// What the owner is told: why it is away, or which tools are left out.
    pub(super) problem: Option<String>,
}

/// The way to a server.
#[derive(Clone, Debug)]
pub(super) struct Connection {
    pub(super) peer: Peer<RoleClient>,
    pub(super) tap: Tap,
    pub(super) ear: Ear,
}

/// One server, and who keeps it.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) config: ToolServer,
    pub(super) state: watch::Sender<State>,
}

/// The edge's end: first it leaves, and what runs may end, then everything stops.
#[derive(Clone, Debug)]
pub(super) struct Ending {
    /// A server that goes from now on goes with the edge.
    pub(super) leaving: CancellationToken,
    pub(super) stopping: CancellationToken,
}

/// A connection that lives.
struct Live {
    running: RunningService<RoleClient, Ear>,
    connection: Connection,
    words: LastWords,
}

impl Server {
    pub(super) fn new(config: ToolServer) -> Self {
        let phase = if config.enabled {
            Phase::Starting
        } else {
            Phase::Disabled
        };
        Self {
            config,
            state: watch::Sender::new(State {
                phase,
                ..State::default()
            }),
        }
    }

    /// Keeps it connected until `stopping`.
    pub(super) async fn keep(
        self: Arc<Self>,
        clients: Clients,
        tls: Option<Arc<rustls::ClientConfig>>,
        ending: Ending,
    ) {
        let stopping = ending.stopping.clone();
        if self.config.url.is_none() {
            tokio::select! {
                () = stopping.cancelled() => return,
                _there_or_not = tokio::time::timeout(WORKER_LIMIT, worker(&clients)) => {}
            }
        }
        let mut attempts = 0;
        loop {
            let lived = self.live(&clients, tls.clone(), &ending).await;
            if stopping.is_cancelled() {
                return;
            }
            if lived >= STEADY {
                attempts = 0;
            }
            let longest = WAITS[attempts.min(WAITS.len() - 1)];
            attempts += 1;
            // Never at once: a server that dies at its start must not keep the machine busy.
            let wait = longest.mul_f64(0.5 + channel::chance() / 2.0);
            tokio::select! {
                () = stopping.cancelled() => return,
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// One life; tells how long it was ready.
    async fn live(
        &self,
        clients: &Clients,
        tls: Option<Arc<rustls::ClientConfig>>,
        ending: &Ending,
    ) -> Duration {
        let stopping = &ending.stopping;
        let opening = tokio::time::timeout(START_LIMIT, Box::pin(self.open(clients, tls)));
        let opened = tokio::select! {
            () = stopping.cancelled() => return Duration::ZERO,
            opened = opening => opened,
        };
        let problem = match opened {
            Ok(Ok((live, selection))) => {
                let since = Instant::now();
                self.tell_ready(&live, selection);
                let problem = self.listen(live, stopping).await;
                if !stopping.is_cancelled() && !ending.leaving.is_cancelled() {
                    self.tell_away(&problem);
                }
                return since.elapsed();
            }
            Ok(Err(problem)) => problem,
            Err(_elapsed) => format!("it was not ready within {} s", START_LIMIT.as_secs()).into(),
        };
        self.tell_away(&problem);
        Duration::ZERO
    }

    async fn open(
        &self,
        clients: &Clients,
        tls: Option<Arc<rustls::ClientConfig>>,
    ) -> Result<(Live, Selection), Away> {
        let (tap, ear, words) = (Tap::default(), Ear::default(), LastWords::default());
        let lifecycle = ClientLifecycleMode::Auto {
            preferred_versions: vec![ProtocolVersion::V_2026_07_28],
            legacy_version: Some(ProtocolVersion::LATEST_WITH_INITIALIZE),
        };
        let served = if self.config.url.is_some() {
            let transport = HttpClient::transport(
                &self.config,
                tap.clone(),
                Arc::clone(&ear.session_over),
                tls,
            )
            .await?;
            ear.clone().serve_with_lifecycle(transport, lifecycle).await
        } else {
            let stdio = Stdio::start(&self.config, clients, tap.clone(), words.clone()).await;
            let stdio = stdio.map_err(|failure| failure.message)?;
            ear.clone().serve_with_lifecycle(stdio, lifecycle).await
        };
        let running = served.map_err(|error| {
            let error = unopened(&error);
            match self.config.url {
                Some(_) => error.into(),
                None => Away {
                    failed: Some(error),
                    ..words.tell()
                },
            }
        })?;
        let connection = Connection {
            peer: running.peer().clone(),
            tap,
            ear,
        };
        let selection = self.list(&connection).await?;
        let live = Live {
            running,
            connection,
            words,
        };
        Ok((live, selection))
    }

    /// All pages of its listing.
    async fn list(&self, connection: &Connection) -> Result<Selection, String> {
        let mut selection = Selection::default();
        let mut cursor = None;
        for _ in 0..MAX_PAGES {
            let next = PaginatedRequestParams::default();
            let request = ListToolsRequest {
                params: cursor.take().map(|cursor| next.with_cursor(Some(cursor))),
                ..ListToolsRequest::default()
            };
            let request = ClientRequest::ListToolsRequest(request);
            let options = PeerRequestOptions::with_timeout(PAGE_LIMIT);
            let sent = connection.peer.send_cancellable_request(request, options);
            let handle = sent.await.map_err(|error| unlisted(&error))?;
            let id = handle.id.clone();
            let answered = handle.await_response().await;
            let raw = connection.tap.result(&id);
            answered.map_err(|error| unlisted(&error))?;
            let raw = raw.ok_or("its listing of tools holds nothing")?;
            let page: Page<'_> = serde_json::from_str(raw.get())
                .map_err(|_| "its listing of tools cannot be read".to_owned())?;
            for tool in page.tools {
                if !selection.take(&self.config, tool) {
                    return Ok(selection);
                }
            }
            match page.next_cursor {
                Some(next) => cursor = Some(next),
                None => return Ok(selection),
            }
        }
        selection.leave_out(format!("its listing goes on after {MAX_PAGES} pages"));
        Ok(selection)
    }

    /// Listens until it is gone; tells why.
    async fn listen(&self, live: Live, stopping: &CancellationToken) -> Away {
        let Live {
            running,
            connection,
            words,
        } = live;
        let ending = running.cancellation_token();
        let mut subscription = subscribe(&connection.peer).await;
        let ear = connection.ear.clone();
        let gone = running.waiting();
        tokio::pin!(gone);
        let why = loop {
            tokio::select! {
                _ = &mut gone => return words.tell(),
                () = stopping.cancelled() => break "the edge ends",
                () = ear.session_over.notified() => break "it knows the session no more",
                () = ear.suspect.notified() => {
                    if lives(&connection.peer).await {
                        continue;
                    }
                    break "it hangs: a call ran out of time, and it gave no sign of life";
                }
                () = ear.list_changed.notified() => {}
                alive = next(&mut subscription) => {
                    if !alive {
                        subscription = None;
                        continue;
                    }
                }
            }
            tokio::select! {
                _ = &mut gone => return words.tell(),
                () = stopping.cancelled() => break "the edge ends",
                () = tokio::time::sleep(SETTLE) => {}
            }
            match self.list(&connection).await {
                Ok(selection) => self.tell_listed(selection),
                // What was listed before may still be there.
                Err(problem) => self
                    .state
                    .send_modify(|state| state.problem = Some(problem)),
            }
        };
        ending.cancel();
        let closed = tokio::time::timeout(CLOSE_LIMIT, gone).await;
        if closed.is_err() {
            tracing::warn!(server = self.config.name, "a tool server is slow to go");
        }
        why.to_owned().into()
    }

    fn tell_ready(&self, live: &Live, selection: Selection) {
        tracing::info!(
            server = self.config.name,
            tools = selection.tools.len(),
            problem = selection.problem(),
            "an owner's tool server is ready"
        );
        let connection = Some(live.connection.clone());
        let problem = selection.problem();
        self.state.send_replace(State {
            phase: Phase::Ready,
            connection,
            tools: selection.tools.into(),
            problem,
        });
    }

    fn tell_listed(&self, selection: Selection) {
        tracing::info!(
            server = self.config.name,
            tools = selection.tools.len(),
            problem = selection.problem(),
            "an owner's tool server has other tools"
        );
        self.state.send_modify(|state| {
            state.problem = selection.problem();
            state.tools = selection.tools.into();
        });
    }

    fn tell_away(&self, away: &Away) {
        tracing::warn!(
            server = self.config.name,
            problem = away.how,
            failed = away.failed,
            "an owner's tool server is away"
        );
        if let Some(last_words) = &away.last_words {
            tracing::debug!(
                server = self.config.name,
                last_words,
                "an owner's tool server has said"
            );
        }
        self.state.send_replace(State {
            phase: Phase::Waiting,
            connection: None,
            tools: Arc::default(),
            problem: Some(away.to_string()),
        });
    }
}

/// Waits until the exec worker answers.
async fn worker(clients: &Clients) {
    loop {
        let request = ListRequest {
            limit: 1,
            ..ListRequest::default()
        };
        // Not as a hop: that it is not there yet is nothing to be warned of.
        match clients.exec.clone().list(request).await {
            Err(status) if status.code() == Code::Unavailable => {
                tokio::time::sleep(WORKER_LOOK).await;
            }
            Ok(_) | Err(_) => return,
        }
    }
}

/// Whether a server gives a sign of life. That it knows no such request is one, too.
async fn lives(peer: &Peer<RoleClient>) -> bool {
    let request = ClientRequest::PingRequest(PingRequest::default());
    let options = PeerRequestOptions::with_timeout(PING_LIMIT);
    match peer.send_cancellable_request(request, options).await {
        Ok(asked) => matches!(
            asked.await_response().await,
            Ok(_) | Err(ServiceError::McpError(_) | ServiceError::UnexpectedResponse)
        ),
        Err(_) => false,
    }
}

/// In the protocol without a handshake, changes are told to those who asked.
async fn subscribe(peer: &Peer<RoleClient>) -> Option<Subscription> {
    let info = peer.peer_info()?;
    let tells = info
        .capabilities
        .tools
        .as_ref()
        .is_some_and(|tools| tools.list_changed == Some(true));
    if !tells || info.protocol_version < ProtocolVersion::V_2026_07_28 {
        return None;
    }
    let mut filter = SubscriptionFilter::default();
    filter.tools_list_changed = Some(true);
    let asked = tokio::time::timeout(PAGE_LIMIT, peer.listen(filter)).await;
    asked.ok()?.ok()
}

/// The next word of a subscription; false when there is none any more.
async fn next(subscription: &mut Option<Subscription>) -> bool {
    match subscription {
        Some(subscription) => matches!(subscription.next().await, Ok(Some(_))),
        None => std::future::pending().await,
    }
}

fn unopened(error: &ClientInitializeError) -> String {
    if let ClientInitializeError::TransportError { error, .. } = error {
        return innermost(error.error.as_ref());
    }
    innermost(error)
}

/// What an error comes down to: what is around it names types of the library.
fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut inner = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    text::shown(inner.to_string().as_bytes(), text::TOLD)
}

fn unlisted(error: &ServiceError) -> String {
    let error = innermost(error);
    format!("it does not list its tools: {error}")
}
