//! The connection of a client, for as long as it answers.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use tokio::time::timeout;
use tonic::{
    TimeoutExpired,
    body::Body,
    transport::{Channel, Endpoint},
};
use tower::{Service, ServiceExt as _};

use super::{Deadline, HopError, dial::Dial};

/// Calls to one address, each with a deadline. A call that was not answered by then leaves the connection to those that are
/// under way on it: whatever swallowed the call, the next one begins with a new connection, and not only once keep-alive has
/// found the old one dead. Clones share the connection.
#[derive(Clone)]
pub(super) struct Line(Arc<Shared>);

struct Shared {
    endpoint: Endpoint,
    dial: Dial,
    deadline: Duration,
    current: Mutex<Current>,
}

#[derive(Clone)]
struct Current {
    channel: Channel,
    /// Tells it from those before.
    number: u64,
}

impl Line {
    /// Connects when first used, and again whenever needed. `deadline` is for calls without one of their own.
    pub(super) fn new(endpoint: Endpoint, dial: Dial, deadline: Duration) -> Self {
        let channel = endpoint.connect_with_connector_lazy(dial.clone());
        Self(Arc::new(Shared {
            endpoint,
            dial,
            deadline,
            current: Mutex::new(Current { channel, number: 0 }),
        }))
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        self.0
            .current
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes another connection in place of that one, unless somebody has already.
    fn leave(&self, number: u64) {
        let mut current = self.current();
        if current.number == number {
            let Shared { endpoint, dial, .. } = &*self.0;
            current.channel = endpoint.connect_with_connector_lazy(dial.clone());
            current.number += 1;
        }
    }
}

impl Service<http::Request<Body>> for Line {
    type Response = http::Response<Body>;
    type Error = HopError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, HopError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), HopError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let own = request.extensions().get::<Deadline>();
        let deadline = own.map_or(self.0.deadline, |own| own.0);
        let Current { channel, number } = self.current().clone();
        let line = self.clone();
        Box::pin(async move {
            // Around the wait for a connection as well: whoever asks is answered in time, however many wait for it.
            match timeout(deadline, channel.oneshot(request)).await {
                Ok(answer) => Ok(answer?),
                Err(_) => {
                    line.leave(number);
                    Err(HopError::Late(TimeoutExpired(())))
                }
            }
        })
    }
}
