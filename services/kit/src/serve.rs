//! Services on a listener, with health and reflection.
//!
//! Invariant: a server that is told to end says so first (health is `NOT_SERVING`), then takes no further call, then lets
//! those that run end.

mod gate;
mod services;
mod unix;

use std::{io, net::SocketAddr, time::Duration};

use tokio::net::{TcpListener, UnixListener};
use tokio_util::sync::CancellationToken;
use tonic::{service::Routes, transport::Server};

pub use self::services::Services;
use self::{
    gate::{Drain, Gate},
    services::Health,
    unix::{Admission, Admitted},
};
use crate::{
    incoming::connections,
    key::Key,
    tls::{Handshakes, Tls},
    trace::Traced,
    transport::Address,
};

/// Time that running calls have to end, unless a service has longer ones ([`Services::calls_last`]): as long as any of them may take.
const DRAIN_LIMIT: Duration = crate::transport::DEADLINE;
/// Time that clients have to hang up, once no call runs.
const CLOSE_LIMIT: Duration = Duration::from_secs(1);
/// Calls at once on one connection. A process that calls another has one connection to it, and few calls at once.
const MAX_STREAMS: u32 = 200;
/// Calls on one connection that this side broke off for what came of them, before it is hung up on (CVE-2023-44487 and its
/// like).
const MAX_RESETS: usize = 1024;
/// Silence after which a client is asked whether it is still there, and time that it has to say so.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// A bound listener, and who it lets in.
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
    admits: Admission,
    key: Option<Key>,
    tls: Option<Tls>,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener, Address),
}

/// Why a service could not listen or stopped listening.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address cannot be bound.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// The address.
        address: String,
        /// Why.
        source: io::Error,
    },
    /// Others than this machine would be answered in plaintext.
    #[error("{0}")]
    Exposed(io::Error),
    /// The server failed.
    #[error("the server failed: {0}")]
    Server(#[from] tonic::transport::Error),
    /// Reflection could not be set up.
    #[error("the service descriptors cannot be read: {0}")]
    Reflection(#[from] tonic_reflection::server::Error),
}

impl Listener {
    /// Binds an address. A socket file that nobody listens on any more is replaced; anything else of that name is left alone.
    ///
    /// # Errors
    /// [`ServeError::Bind`].
    pub async fn bind(address: &Address) -> Result<Self, ServeError> {
        let bound = match address {
            Address::Tcp(text) => TcpListener::bind(text).await.map(Socket::Tcp),
            Address::Unix(path) => unix::bind(path)
                .await
                .map(|listener| Socket::Unix(listener, address.clone())),
        };
        let socket = bound.map_err(|source| ServeError::Bind {
            address: address.to_string(),
            source,
        })?;
        Ok(Self {
            socket,
            admits: None,
            key: None,
            tls: None,
        })
    }

    /// Where it listens, with the real port.
    ///
    /// # Errors
    /// When the system does not tell, and when others than this machine would be answered in plaintext.
    pub fn address(&self) -> io::Result<Address> {
        let address = match &self.socket {
            Socket::Unix(_, address) => return Ok(address.clone()),
            Socket::Tcp(listener) if self.tls.is_some() => listener.local_addr()?,
            Socket::Tcp(listener) => private(listener)?,
        };
        Ok(Address::Tcp(address.to_string()))
    }

    /// Lets in only those that `admits` agrees to, if it is a Unix socket; who connects by TCP is not known.
    #[must_use]
    pub fn admitting(self, admits: fn(i32) -> bool) -> Self {
        Self {
            admits: Some(admits),
            ..self
        }
    }

    /// Speaks TLS alone, if it listens by TCP, with those that show a certificate of a role that may call
    /// (`callers`). Whose Unix socket it is, is said by the mode of its folder.
    #[must_use]
    pub fn secured(self, tls: Tls) -> Self {
        Self {
            tls: Some(tls),
            ..self
        }
    }

    /// Answers only calls that show this key ([`crate::transport::with_key`]): all others, for health and reflection too,
    /// are `UNAUTHENTICATED` before anything of them is read.
    #[must_use]
    pub fn demanding(self, key: Key) -> Self {
        Self {
            key: Some(key),
            ..self
        }
    }
}

/// Serves until `stop`, then drains: says so by health, takes no further call, and lets those that run end for
/// as long as any may take. Streams that have nothing to say are ended.
///
/// # Errors
/// When the server fails.
pub async fn serve(
    listener: Listener,
    services: Services,
    stop: CancellationToken,
) -> Result<(), ServeError> {
    let drain_limit = services.longest();
    let (routes, health) = services.into_parts().await?;
    let (drain, closed) = (Drain::default(), CancellationToken::new());
    // On the heap, because it is large and stands in the futures of everybody who serves.
    let mut serving = Box::pin(accept(listener, routes, drain.clone(), closed.clone()));
    tokio::select! {
        failed = &mut serving => return failed,
        never = health.follow() => match never {},
        () = stop.cancelled() => {}
    }
    tokio::select! {
        failed = &mut serving => return failed,
        drained = end(&health, &drain, drain_limit) => {
            if !drained {
                tracing::warn!("calls were still running when the time to drain was over");
            }
        }
    }
    closed.cancel();
    tokio::time::timeout(CLOSE_LIMIT, serving)
        .await
        .unwrap_or(Ok(()))
}

async fn end(health: &Health, drain: &Drain, limit: Duration) -> bool {
    health.end().await;
    drain.run(limit).await
}

/// Answers until `closed`.
async fn accept(
    listener: Listener,
    routes: Routes,
    drain: Drain,
    closed: CancellationToken,
) -> Result<(), ServeError> {
    let Listener {
        socket,
        admits,
        key,
        tls,
    } = listener;
    let is_secured = tls.is_some() && matches!(socket, Socket::Tcp(_));
    // Without these two there would be no bound: tonic sets aside those that hyper comes with.
    let server = Server::builder()
        .max_concurrent_streams(Some(MAX_STREAMS))
        .http2_max_local_error_reset_streams(Some(MAX_RESETS))
        .http2_keepalive_interval(Some(KEEP_ALIVE))
        .http2_keepalive_timeout(Some(KEEP_ALIVE))
        .layer(Gate::new(key, is_secured, drain))
        .layer(Traced::SERVER)
        .add_routes(routes);
    let closed = closed.cancelled_owned();
    match (socket, tls) {
        (Socket::Tcp(listener), Some(tls)) => {
            let incoming = connections(Handshakes::new(listener, tls));
            server
                .serve_with_incoming_shutdown(incoming, closed)
                .await?;
        }
        (Socket::Tcp(listener), None) => {
            private(&listener).map_err(ServeError::Exposed)?;
            server
                .serve_with_incoming_shutdown(connections(listener), closed)
                .await?;
        }
        (Socket::Unix(listener, _), _) => {
            let incoming = connections(Admitted { listener, admits });
            server
                .serve_with_incoming_shutdown(incoming, closed)
                .await?;
        }
    }
    Ok(())
}

/// The address of a listener without certificates. One that others reach is refused, whatever a name such as `localhost` led to.
fn private(listener: &TcpListener) -> io::Result<SocketAddr> {
    let address = listener.local_addr()?;
    if address.ip().to_canonical().is_loopback() {
        return Ok(address);
    }
    let told = format!(
        "without certificates a service answers this machine alone, and {address} is reached by others"
    );
    Err(io::Error::new(io::ErrorKind::PermissionDenied, told))
}

#[cfg(test)]
mod tests;
