//! One service on a listener, with health and reflection.

use std::{convert::Infallible, fs, io, os::unix::fs::PermissionsExt as _, path::Path};

use tokio::{
    net::{TcpListener, UnixListener, UnixStream},
    sync::watch,
};
use tokio_stream::{
    StreamExt as _,
    wrappers::{TcpListenerStream, UnixListenerStream},
};
use tokio_util::sync::CancellationToken;
use tonic::{
    body::Body,
    codegen::Service,
    server::NamedService,
    service::{InterceptorLayer, Routes, RoutesBuilder},
    transport::Server,
};
use tonic_health::ServingStatus;

use crate::{
    key::{Key, Lock},
    task::Tasks,
    trace::Traced,
    transport::Address,
};

/// A bound listener, and who it lets in.
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
    admits: Admission,
    key: Option<Key>,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener, Address),
}

/// Which processes a Unix socket lets in, by the id that the kernel noted when they connected; all without one. It is asked
/// on the runtime and must not take long.
type Admission = Option<fn(i32) -> bool>;

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
    /// The server failed.
    #[error("the server failed: {0}")]
    Server(#[from] tonic::transport::Error),
    /// Reflection could not be set up.
    #[error("the service descriptors cannot be read: {0}")]
    Reflection(#[from] tonic_reflection::server::Error),
}

impl Listener {
    /// Binds an address. A socket file that nobody listens on any more is replaced.
    ///
    /// # Errors
    /// [`ServeError::Bind`].
    pub async fn bind(address: &Address) -> Result<Self, ServeError> {
        let bound = match address {
            Address::Tcp(text) => TcpListener::bind(text).await.map(Socket::Tcp),
            Address::Unix(path) => bind_unix(path)
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
        })
    }

    /// Where it listens, with the real port.
    ///
    /// # Errors
    /// When the system does not tell.
    pub fn address(&self) -> io::Result<Address> {
        match &self.socket {
            Socket::Tcp(listener) => Ok(Address::Tcp(listener.local_addr()?.to_string())),
            Socket::Unix(_, address) => Ok(address.clone()),
        }
    }

    /// Lets in only those that `admits` agrees to, if it is a Unix socket; who connects by TCP is not known.
    #[must_use]
    pub fn admitting(self, admits: fn(i32) -> bool) -> Self {
        Self {
            admits: Some(admits),
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

async fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    if let Some(directory) = path.parent()
        && !directory.exists()
    {
        fs::create_dir_all(directory)?;
        fs::set_permissions(directory, fs::Permissions::from_mode(0o700))?;
    }
    // Only a socket that nobody listens on is taken away; one whose owner is busy is not.
    if let Err(problem) = tokio::net::UnixStream::connect(path).await
        && problem.kind() == io::ErrorKind::ConnectionRefused
    {
        fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Serves until `stop`, then lets running calls end.
///
/// # Errors
/// When the server fails.
pub async fn serve(
    listener: Listener,
    services: RoutesBuilder,
    stop: CancellationToken,
) -> Result<(), ServeError> {
    let server = Server::builder()
        .tcp_nodelay(true)
        .layer(InterceptorLayer::new(Lock(listener.key)))
        .layer(Traced::SERVER)
        .add_routes(with_reflection(services)?);
    let stopped = stop.cancelled_owned();
    let admission = listener.admits;
    match listener.socket {
        Socket::Tcp(listener) => {
            server
                .serve_with_incoming_shutdown(TcpListenerStream::new(listener), stopped)
                .await?;
        }
        Socket::Unix(listener, _) => {
            let incoming = UnixListenerStream::new(listener).filter(move |peer| match peer {
                Ok(stream) => is_admitted(stream, admission),
                Err(_) => true,
            });
            server
                .serve_with_incoming_shutdown(incoming, stopped)
                .await?;
        }
    }
    Ok(())
}

fn is_admitted(stream: &UnixStream, admission: Admission) -> bool {
    let Some(admits) = admission else {
        return true;
    };
    let peer = stream.peer_cred().ok().and_then(|peer| peer.pid());
    let admitted = peer.is_some_and(admits);
    if !admitted {
        tracing::warn!("a process that may not speak to this service was hung up on");
    }
    admitted
}

/// Adds a service to those of a listener and says through `grpc.health.v1` that it serves.
pub async fn add<S>(routes: &mut RoutesBuilder, service: S)
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>
        + NamedService
        + Clone
        + Send
        + Sync
        + 'static,
    S::Future: Send + 'static,
{
    let (reporter, health) = tonic_health::server::health_reporter();
    reporter.set_serving::<S>().await;
    routes.add_service(health).add_service(service);
}

/// Adds a service that is not always ready, such as one whose database can be away, and says through `grpc.health.v1` whether
/// it serves, of itself and of the whole server.
pub async fn add_when_ready<S>(
    routes: &mut RoutesBuilder,
    service: S,
    mut ready: watch::Receiver<bool>,
    tasks: &Tasks,
) where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>
        + NamedService
        + Clone
        + Send
        + Sync
        + 'static,
    S::Future: Send + 'static,
{
    let (reporter, health) = tonic_health::server::health_reporter();
    let show = async move |is_ready: bool| {
        let status = if is_ready {
            ServingStatus::Serving
        } else {
            ServingStatus::NotServing
        };
        for name in [S::NAME, ""] {
            reporter.set_service_status(name, status).await;
        }
    };
    let now = *ready.borrow_and_update();
    show(now).await;
    let stopping = tasks.stopping();
    tasks.spawn("health", async move {
        let following = async {
            while ready.changed().await.is_ok() {
                let now = *ready.borrow_and_update();
                show(now).await;
            }
        };
        stopping.run_until_cancelled(following).await;
    });
    routes.add_service(health).add_service(service);
}

fn with_reflection(mut services: RoutesBuilder) -> Result<Routes, ServeError> {
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(postern_proto::DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1()?;
    services.add_service(reflection);
    Ok(services.routes())
}

#[cfg(test)]
mod tests {
    use postern_proto::ledger::v1::{AbandonRequest, ledger_client::LedgerClient};
    use pretty_assertions::assert_eq;
    use tonic::Code;
    use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};

    use super::*;
    use crate::{
        task::Tasks,
        transport::{Transport, connect, with_key},
    };

    /// What a caller is told by health and by a service that is not there: only who gets past the lock learns that.
    async fn told(transport: Transport) -> (Code, Code) {
        let mut health = HealthClient::new(transport.clone());
        let mut service = LedgerClient::new(transport);
        let health = health.check(HealthCheckRequest::default()).await;
        let service = service.abandon(AbandonRequest::default()).await;
        (
            health.map_or_else(|status| status.code(), |_| Code::Ok),
            service.map_or_else(|status| status.code(), |_| Code::Ok),
        )
    }

    #[tokio::test]
    async fn nothing_answers_without_the_key() {
        let directory = tempfile::tempdir().expect("directory");
        let address = Address::Unix(directory.path().join("socket"));
        let key = Key::generate().expect("random bytes");
        let other = Key::generate().expect("random bytes");
        let listener = Listener::bind(&address).await.expect("bound");
        let (tasks, mut routes) = (Tasks::new(), RoutesBuilder::default());
        let (_reporter, health) = tonic_health::server::health_reporter();
        routes.add_service(health);
        let serving = serve(listener.demanding(key.clone()), routes, tasks.stopping());
        tasks.spawn("server", serving);
        let open = connect(&address).expect("transport");
        let refused = (Code::Unauthenticated, Code::Unauthenticated);
        assert_eq!(told(open.clone()).await, refused);
        assert_eq!(told(with_key(open.clone(), &other)).await, refused);
        let known = (Code::Ok, Code::Unimplemented);
        assert_eq!(told(with_key(open, &key)).await, known);
    }
}
