//! The host put together.

use std::sync::Arc;

use axum::{Router, middleware};
use postern_kit::{Clock, task::Tasks, transport::Transport};

use crate::{
    access::{self, Access},
    calls::Calls,
    config::Config,
    error::Error,
    identity::Identity,
    identity_api, mcp,
};

/// What the routes share.
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) access: Access,
    pub(crate) identity: Identity,
    pub(crate) calls: Calls,
    pub(crate) clock: Clock,
    pub(crate) tasks: Tasks,
}

/// The agent host.
#[derive(Clone)]
pub struct Host {
    shared: Arc<Shared>,
}

impl Host {
    /// A host over an identity service.
    ///
    /// # Errors
    /// When the journal or the public URL cannot be used.
    pub async fn new(
        config: Config,
        identity: Transport,
        clock: Clock,
        tasks: Tasks,
    ) -> Result<Self, Error> {
        let identity = Identity::new(identity);
        let access = Access::new(&config, identity.clone())?;
        let calls = Calls {};
        Ok(Self {
            shared: Arc::new(Shared {
                config,
                access,
                identity,
                calls,
                clock,
                tasks,
            }),
        })
    }

    /// Everything the host answers over HTTP.
    #[must_use]
    pub fn router(&self) -> Router {
        Router::new()
            .merge(identity_api::router(Arc::clone(&self.shared)))
            .merge(mcp::router(Arc::clone(&self.shared)))
            .layer(middleware::from_fn_with_state(
                self.shared.access.clone(),
                access::guard,
            ))
    }
}

impl std::fmt::Debug for Host {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Host")
    }
}
