//! The owner's API on loopback (CONTRACT.md, section 6): status, inbox, receipts, mode and the channel's switch.
//!
//! Invariant: nothing answers without the owner's token or the cookie of his browser but `/healthz`, the console's style sheet and
//! script, and one-time links; and nothing at all under a foreign `Host` or `Origin`. So neither another user of the machine,
//! an agent's or a channel's token nor a web page gets anything here. Nor can one keep the owner out: whoever does not show
//! that he is him has his connection ended with its first answer, and before that it makes room for others.

mod access;
mod commands;
mod console;
mod events;
mod inbox;
mod links;
mod logins;
mod receipts;
mod reply;
mod sessions;
mod status;
mod undo;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::DefaultBodyLimit,
    middleware,
    routing::{get, post, put},
};
use postern_kit::{Clock, http, task::Tasks, transport::Transport};
use postern_proto::{
    exec::v1::exec_client::ExecClient, filesystem::v1::filesystem_client::FilesystemClient,
    ledger::v1::ledger_client::LedgerClient,
};
use tokio::{net::TcpListener, sync::Semaphore};
use tokio_util::sync::CancellationToken;

use crate::{Control, Services, clients::Clients, stops::Stops, undo::Undo};
use logins::{Logins, Place};

pub use logins::Link;

/// Longest body of a request, in bytes: an answer to a question, and room.
const BODY_LIMIT: usize = 256 * 1024;
/// What connections may hold. Anything on this machine can open some, commands of the agent included, and each is a descriptor
/// of the process that also holds the channel.
const LIMITS: http::Limits = http::Limits {
    // Every event stream, and as much again several times for what a person and his programs ask for at once.
    connections: 64,
    request_timeout: Duration::from_secs(10),
    // A request is a look into the ledger or a decision; the rest of the shutdown waits for this.
    drain: Duration::from_secs(5),
};
/// Event streams at once: the pages and programs through which an owner looks on. Each is a watch of the ledger.
const EVENT_STREAMS: usize = 16;

/// The owner's API of one edge. Clones stand for the same.
#[derive(Clone, Debug)]
pub struct Api(State);

/// What the API is told at its start.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The owner's token.
    pub token: String,
    /// Where it listens.
    pub address: SocketAddr,
    /// The first part of the name `….localhost` that the console has to itself; absent when others on this machine may be
    /// asked under such a name on the same port.
    pub label: Option<String>,
    /// Where traces are shown, with `{traceId}` for the id.
    pub trace_url: Option<String>,
}

/// What every request works with.
#[derive(Clone, Debug)]
struct State {
    control: Control,
    ledger: LedgerClient<Transport>,
    filesystem: FilesystemClient<Transport>,
    exec: ExecClient<Transport>,
    token: Arc<str>,
    address: SocketAddr,
    trace_url: Option<Arc<str>>,
    logins: Arc<Logins>,
    clock: Clock,
    undo: Undo,
    stops: Stops,
    /// Tasks that go on when who asked for them goes away.
    tasks: Tasks,
    /// Places of event streams.
    streams: Arc<Semaphore>,
    /// Ends what would never end by itself.
    stop: CancellationToken,
}

impl Api {
    /// The API over an edge and its services.
    #[must_use]
    pub fn new(control: Control, services: Services, settings: Settings, clock: Clock) -> Self {
        let (clients, tasks) = (Clients::from(services), Tasks::new());
        let place = Place::new(settings.address, settings.label.as_deref());
        Self(State {
            undo: Undo::new(&clients, control.clone(), tasks.clone()),
            stops: Stops::new(&clients, control.clone(), tasks.clone()),
            tasks,
            control,
            ledger: clients.ledger,
            filesystem: clients.filesystem,
            exec: clients.exec,
            token: settings.token.into(),
            address: settings.address,
            trace_url: settings.trace_url.map(Into::into),
            logins: Arc::new(Logins::new(clock.clone(), place)),
            clock,
            streams: Arc::new(Semaphore::new(EVENT_STREAMS)),
            stop: CancellationToken::new(),
        })
    }

    /// A one-time link to the console.
    ///
    /// # Errors
    /// When the system gives no random bytes.
    pub fn link(&self) -> Result<Link, getrandom::Error> {
        self.0.logins.link(false)
    }

    /// Serves until `stop`: event streams end then, and running requests have some seconds to end. No connection is open any
    /// more when this returns.
    pub async fn serve(mut self, listener: TcpListener, stop: CancellationToken) {
        self.0.stop = stop.clone();
        let tasks = self.0.tasks.clone();
        http::serve(listener, self.router(), LIMITS, Tasks::new(), stop).await;
        tasks.shutdown(LIMITS.drain).await;
    }

    fn router(self) -> Router {
        let state = self.0;
        let guarded = Router::new()
            .route("/owner/v1/status", get(status::status))
            .route("/owner/v1/mode", put(status::set_mode))
            .route("/owner/v1/channel", post(status::set_channel))
            .route("/owner/v1/events", get(events::events))
            .route("/owner/v1/inbox", get(inbox::list))
            .route("/owner/v1/inbox/{receipt}", get(inbox::show))
            .route("/owner/v1/inbox/{receipt}/decision", post(inbox::decide))
            .route("/owner/v1/receipts", get(receipts::list))
            .route("/owner/v1/receipts/{receipt}", get(receipts::show))
            .route("/owner/v1/sessions", get(sessions::list))
            .route("/owner/v1/commands", get(commands::list))
            .route("/owner/v1/commands/{command}/output", get(commands::output))
            .route("/owner/v1/commands/{command}/stop", post(commands::stop))
            .route("/owner/v1/links", post(links::create))
            .route("/owner/v1/receipts/{receipt}/diff", get(undo::receipt_diff))
            .route("/owner/v1/sessions/{session}/diff", get(undo::session_diff))
            .route("/owner/v1/receipts/{receipt}/undo", post(undo::receipt))
            .route("/owner/v1/sessions/{session}/undo", post(undo::session))
            .route("/metrics", get(status::metrics))
            .route_layer(middleware::from_fn_with_state(
                state.clone(),
                access::demand_owner,
            ));
        Router::new()
            .merge(guarded)
            .merge(console::router(&state))
            .route("/healthz", get(status::healthz))
            .fallback(reply::not_found)
            .method_not_allowed_fallback(reply::method_not_allowed)
            .layer(DefaultBodyLimit::max(BODY_LIMIT))
            .layer(middleware::from_fn_with_state(
                state.clone(),
                access::demand_here,
            ))
            .with_state(state)
    }
}

#[cfg(test)]
mod tests;
