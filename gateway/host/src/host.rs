//! The host put together.

use std::{fmt, sync::Arc};

use axum::{Router, middleware};
use postern_kit::{Clock, http, metrics, task::Tasks, transport::Transport};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{
    access::{self, Access},
    calls::Calls,
    channel::{self, Seats},
    config::Config,
    error::Error,
    facts,
    identity::Identity,
    identity_api,
    journal::Journal,
    mcp,
    openapi::{self, Route},
    tokens::Tokens,
};

/// Name of the journal's file.
const JOURNAL: &str = "journal.db";

/// What the routes share.
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) access: Access,
    pub(crate) identity: Identity,
    pub(crate) calls: Calls,
    pub(crate) seats: Seats,
    pub(crate) tokens: Tokens,
    pub(crate) tasks: Tasks,
    /// Signalled when the host stops: channels are closed and nobody waits any longer.
    pub(crate) stopping: CancellationToken,
}

/// The agent host. Clones stand for the same one.
#[derive(Clone)]
pub struct Host {
    pub(crate) shared: Arc<Shared>,
}

impl Host {
    /// A host over an identity service. Its tasks end when those of `tasks` are shut down.
    ///
    /// # Errors
    /// When the journal or the public URL cannot be used.
    pub async fn new(
        mut config: Config,
        identity: Transport,
        clock: Clock,
        tasks: Tasks,
    ) -> Result<Self, Error> {
        metrics::CALLS_IN_FLIGHT.show();
        metrics::CHANNELS.show();
        metrics::CALL_QUEUE_SECONDS.show();
        config
            .public_url
            .truncate(config.public_url.trim_end_matches('/').len());
        let identity = Identity::new(identity);
        let tokens = Tokens::new(identity.clone(), clock.clone(), &tasks);
        let access = Access::new(&config, tokens.clone())?;
        let file = config.data_dir.join(JOURNAL);
        let journal = Journal::open(&file, clock.now(), &tasks).await?;
        let stopping = tasks.stopping().child_token();
        let calls = Calls::new(
            journal,
            identity.clone(),
            tokens.clone(),
            &config,
            clock,
            tasks.clone(),
            stopping.clone(),
        );
        Ok(Self {
            shared: Arc::new(Shared {
                config,
                access,
                identity,
                calls,
                seats: Seats::default(),
                tokens,
                tasks,
                stopping,
            }),
        })
    }

    /// Everything the host answers over HTTP.
    pub fn router(&self) -> Router {
        let shared = || Arc::clone(&self.shared);
        Router::new()
            .merge(openapi::router(described_routes(), shared()))
            .merge(mcp::router(shared()))
            .fallback(facts::not_found)
            .method_not_allowed_fallback(facts::method_not_allowed)
            .layer(middleware::from_fn_with_state(
                self.shared.access.clone(),
                access::guard,
            ))
    }

    /// Serves on a listener until `stop`: no new connection then, open channels are closed with 1001, and running requests
    /// have the drain's time to end.
    pub async fn serve(&self, listener: TcpListener, stop: CancellationToken) {
        let limits = self.shared.config.limits;
        let limits = http::Limits {
            connections: limits.connections,
            request_timeout: limits.request_timeout,
            drain: limits.drain,
        };
        let tasks = self.shared.tasks.clone();
        let stopping = self.shared.stopping.clone();
        tokio::join!(
            http::serve(listener, self.router(), limits, tasks, stopping.clone()),
            async {
                tokio::select! {
                    () = stop.cancelled() => stopping.cancel(),
                    () = stopping.cancelled() => {}
                }
            }
        );
    }
}

/// Everything but MCP.
pub(crate) fn described_routes() -> Vec<Route> {
    [
        channel::routes(),
        identity_api::routes(),
        facts::routes(),
        vec![openapi::route()],
    ]
    .concat()
}

impl fmt::Debug for Host {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Host")
    }
}
