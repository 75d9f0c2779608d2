//! The owner's API on loopback (CONTRACT.md, section 6): status, inbox, receipts, mode and the channel's switch.
//!
//! Invariant: nothing answers but `/healthz` without the owner's token, and nothing at all under a foreign `Host` or `Origin`,
//! so neither another user of the machine, an agent's or a channel's token nor a web page gets anything here. Nor can one keep
//! the owner out: without the token a connection ends with its first answer, and before that it makes room for others.

mod access;
mod events;
mod inbox;
mod receipts;
mod reply;
mod sessions;
mod status;

use std::{io, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::DefaultBodyLimit,
    middleware,
    routing::{get, post, put},
};
use postern_kit::{Clock, http, task::Tasks, transport::Transport};
use postern_proto::ledger::v1::ledger_client::LedgerClient;
use tokio::{net::TcpListener, sync::Semaphore};
use tokio_util::sync::CancellationToken;

use crate::{Control, Services, clients::Clients};

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

/// The owner's API of one edge.
#[derive(Debug)]
pub struct Api(State);

/// What every request works with.
#[derive(Clone, Debug)]
struct State {
    control: Control,
    ledger: LedgerClient<Transport>,
    token: Arc<str>,
    clock: Clock,
    /// Places of event streams.
    streams: Arc<Semaphore>,
    /// Ends what would never end by itself.
    stop: CancellationToken,
}

impl Api {
    /// The API over an edge and its services, opened by `token`.
    #[must_use]
    pub fn new(control: Control, services: Services, token: String, clock: Clock) -> Self {
        let clients = Clients::from(services);
        Self(State {
            control,
            ledger: clients.ledger,
            token: token.into(),
            clock,
            streams: Arc::new(Semaphore::new(EVENT_STREAMS)),
            stop: CancellationToken::new(),
        })
    }

    /// Serves until `stop`: event streams end then, and running requests have some seconds to end. No connection is open any
    /// more when this returns.
    ///
    /// # Errors
    /// When the system does not tell the listener's port.
    pub async fn serve(mut self, listener: TcpListener, stop: CancellationToken) -> io::Result<()> {
        let port = listener.local_addr()?.port();
        self.0.stop = stop.clone();
        http::serve(listener, self.router(port), LIMITS, Tasks::new(), stop).await;
        Ok(())
    }

    fn router(self, port: u16) -> Router {
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
            .route_layer(middleware::from_fn_with_state(
                state.clone(),
                access::demand_token,
            ));
        Router::new()
            .merge(guarded)
            .route("/", get(status::page))
            .route("/healthz", get(status::healthz))
            .fallback(reply::not_found)
            .method_not_allowed_fallback(reply::method_not_allowed)
            .layer(DefaultBodyLimit::max(BODY_LIMIT))
            .layer(middleware::from_fn(move |request, next| {
                access::demand_here(port, request, next)
            }))
            .with_state(state)
    }
}

#[cfg(test)]
mod tests;
