//! The owner's API on loopback (CONTRACT.md, section 6): status, inbox, receipts, mode and the channel's switch.
//!
//! Invariant: nothing answers but `/healthz` without the owner's token, and nothing at all under a foreign `Host` or `Origin`,
//! so neither another user of the machine, an agent's or a channel's token nor a web page gets anything here.

mod access;
mod inbox;
mod receipts;
mod reply;
mod status;

use std::{io, sync::Arc};

use axum::{
    Router,
    extract::DefaultBodyLimit,
    middleware,
    routing::{get, post, put},
};
use postern_kit::{
    Clock,
    transport::{MESSAGE_LIMIT, Transport},
};
use postern_proto::ledger::v1::ledger_client::LedgerClient;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::Control;

/// Longest body of a request, in bytes: an answer to a question, and room.
const BODY_LIMIT: usize = 256 * 1024;

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
}

impl Api {
    /// The API over an edge and its ledger, opened by `token`.
    #[must_use]
    pub fn new(control: Control, ledger: Transport, token: String, clock: Clock) -> Self {
        let ledger = LedgerClient::new(ledger)
            .max_decoding_message_size(MESSAGE_LIMIT)
            .max_encoding_message_size(MESSAGE_LIMIT);
        Self(State {
            control,
            ledger,
            token: token.into(),
            clock,
        })
    }

    /// Serves until `stop`.
    ///
    /// # Errors
    /// When the listener fails.
    pub async fn serve(self, listener: TcpListener, stop: CancellationToken) -> io::Result<()> {
        let port = listener.local_addr()?.port();
        axum::serve(listener, self.router(port))
            .with_graceful_shutdown(stop.cancelled_owned())
            .await
    }

    fn router(self, port: u16) -> Router {
        let state = self.0;
        let guarded = Router::new()
            .route("/owner/v1/status", get(status::status))
            .route("/owner/v1/mode", put(status::set_mode))
            .route("/owner/v1/channel", post(status::set_channel))
            .route("/owner/v1/events", get(status::events))
            .route("/owner/v1/inbox", get(inbox::list))
            .route("/owner/v1/inbox/{receipt}/decision", post(inbox::decide))
            .route("/owner/v1/receipts", get(receipts::list))
            .route("/owner/v1/receipts/{receipt}", get(receipts::show))
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
