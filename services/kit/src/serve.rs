//! One service on a listener, with health and reflection.

use std::{convert::Infallible, fs, io, os::unix::fs::PermissionsExt as _, path::Path};

use tokio::net::{TcpListener, UnixListener};
use tokio_stream::wrappers::{TcpListenerStream, UnixListenerStream};
use tokio_util::sync::CancellationToken;
use tonic::{
    body::Body,
    codegen::Service,
    server::NamedService,
    service::{Routes, RoutesBuilder},
    transport::Server,
};

use crate::transport::Address;

/// A bound listener.
#[derive(Debug)]
pub enum Listener {
    /// By TCP.
    Tcp(TcpListener),
    /// By Unix socket.
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
            Address::Tcp(text) => TcpListener::bind(text).await.map(Self::Tcp),
            Address::Unix(path) => bind_unix(path)
                .await
                .map(|listener| Self::Unix(listener, address.clone())),
        };
        bound.map_err(|source| ServeError::Bind {
            address: address.to_string(),
            source,
        })
    }

    /// Where it listens, with the real port.
    ///
    /// # Errors
    /// When the system does not tell.
    pub fn address(&self) -> io::Result<Address> {
        match self {
            Self::Tcp(listener) => Ok(Address::Tcp(listener.local_addr()?.to_string())),
            Self::Unix(_, address) => Ok(address.clone()),
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
    if path.exists() && tokio::net::UnixStream::connect(path).await.is_err() {
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
        .add_routes(with_reflection(services)?);
    let stopped = stop.cancelled_owned();
    match listener {
        Listener::Tcp(listener) => {
            server
                .serve_with_incoming_shutdown(TcpListenerStream::new(listener), stopped)
                .await?;
        }
        Listener::Unix(listener, _) => {
            server
                .serve_with_incoming_shutdown(UnixListenerStream::new(listener), stopped)
                .await?;
        }
    }
    Ok(())
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

fn with_reflection(mut services: RoutesBuilder) -> Result<Routes, ServeError> {
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(postern_proto::DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1()?;
    services.add_service(reflection);
    Ok(services.routes())
}
