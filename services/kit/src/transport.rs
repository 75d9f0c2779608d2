//! How a client reaches its server: in the same process, by Unix socket or by TCP.

mod dial;
mod line;

use std::{convert::Infallible, fmt, path::PathBuf, str::FromStr, time::Duration};

use tonic::{TimeoutExpired, body::Body, codegen::Service, transport::Endpoint};
use tower::{ServiceExt as _, util::BoxCloneSyncService};

use self::{dial::Dial, line::Line};
use crate::{
    Key,
    tls::{Expected, Role, Tls},
    trace::{Side, Traced},
};

/// What every generated client stands on.
pub type Transport = BoxCloneSyncService<http::Request<Body>, http::Response<Body>, HopError>;

/// Why a request did not reach its server, or an answer did not come back. A type of its own rather than a boxed error,
/// because the compiler cannot see that futures over a client with a boxed one may move between threads.
#[derive(Debug, thiserror::Error)]
pub enum HopError {
    /// The connection could not be made, or broke.
    #[error("{0}")]
    Transport(#[from] tonic::transport::Error),
    /// Nothing was answered within the call's deadline.
    #[error("the service did not answer in time")]
    Late(#[source] TimeoutExpired),
}

/// Largest message of a service, in bytes: above the largest legal payload (a frame of 2 MiB), and a bound all the same.
pub const MESSAGE_LIMIT: usize = 8 * 1024 * 1024;
/// Largest headers of an answer, in bytes. A failure travels in them, written twice and escaped.
const HEADER_LIMIT: u32 = 64 * 1024;
/// Time within which a service answers, or the caller gives up (CONTRACT.md, section 8), unless the call has a [`Deadline`] of
/// its own.
pub const DEADLINE: Duration = Duration::from_secs(10);

/// Deadline of a call that works on many files, each of which is synced: what takes changes back, and tells the bytes before them.
pub const LONG_DEADLINE: Duration = Duration::from_secs(60);

/// Silence after which a server is asked whether it is still there, and time that it has to say so. Together they are a
/// deadline: after the first call that a dead connection swallowed, the next goes over a new one.
const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// Time within which one call is answered, in place of [`DEADLINE`]: an extension of its request. Nothing of it is sent.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(Duration);

/// A request with a deadline of its own.
pub fn within<T>(deadline: Duration, message: T) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    request.extensions_mut().insert(Deadline(deadline));
    request
}

/// Where a service listens.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Address {
    /// `host:port`.
    Tcp(String),
    /// `unix:/path`.
    Unix(PathBuf),
}

/// The text is no address.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("'{0}' is no address; write host:port or unix:/path")]
pub struct InvalidAddress(String);

impl FromStr for Address {
    type Err = InvalidAddress;

    fn from_str(text: &str) -> Result<Self, InvalidAddress> {
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.starts_with('/') {
                Ok(Self::Unix(path.into()))
            } else {
                Err(InvalidAddress(text.to_owned()))
            };
        }
        match text.rsplit_once(':') {
            Some((host, port))
                if !host.is_empty() && !host.contains('/') && port.parse::<u16>().is_ok() =>
            {
                Ok(Self::Tcp(text.to_owned()))
            }
            _ => Err(InvalidAddress(text.to_owned())),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => formatter.write_str(address),
            Self::Unix(path) => write!(formatter, "unix:{}", path.display()),
        }
    }
}

/// Stands a client directly on a server of the same process: same codec, no network.
pub fn local<S>(server: S) -> Transport
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>
        + Clone
        + Send
        + Sync
        + 'static,
    S::Future: Send + 'static,
{
    let server = server.map_err(|never: Infallible| match never {});
    BoxCloneSyncService::new(Traced::new(server, Side::Both))
}

/// Reaches a server at an address in plaintext, which is for Unix sockets and loopback. Connects when first used and again
/// whenever needed, so a server may start later.
///
/// # Errors
/// When the address cannot be written as a URI.
pub fn connect(address: &Address) -> Result<Transport, tonic::transport::Error> {
    reach(address, None, DEADLINE)
}

/// As [`connect`], by mutual TLS if the address is one of TCP. Whoever answers must show a certificate of that role.
///
/// # Errors
/// When the address cannot be written as a URI.
pub fn connect_secured(
    address: &Address,
    tls: &Tls,
    role: Role,
) -> Result<Transport, tonic::transport::Error> {
    reach(address, Some((tls.clone(), Expected::One(role))), DEADLINE)
}

/// As [`connect`] or [`connect_secured`], for one look at a service whose role does not matter, with a deadline of its own.
///
/// # Errors
/// When the address cannot be written as a URI.
pub fn probe(
    address: &Address,
    tls: Option<&Tls>,
    deadline: Duration,
) -> Result<Transport, tonic::transport::Error> {
    let tls = tls.map(|tls| (tls.clone(), Expected::Any));
    reach(address, tls, deadline)
}

/// The one place where clients are made, with all that goes around them.
fn reach(
    address: &Address,
    tls: Option<(Tls, Expected)>,
    deadline: Duration,
) -> Result<Transport, tonic::transport::Error> {
    let is_secured = tls.is_some();
    let (authority, dial) = match address {
        Address::Tcp(authority) => (authority.as_str(), Dial::tcp(authority, tls)),
        Address::Unix(path) => ("unix.invalid", Dial::unix(path)),
    };
    let line = Line::new(endpoint(authority, is_secured)?, dial, deadline);
    Ok(BoxCloneSyncService::new(Traced::new(line, Side::Caller)))
}

/// Shows a key with every request.
#[must_use]
pub fn with_key(transport: Transport, key: &Key) -> Transport {
    let key = key.clone();
    BoxCloneSyncService::new(transport.map_request(move |request| key.show(request)))
}

fn endpoint(authority: &str, is_secured: bool) -> Result<Endpoint, tonic::transport::Error> {
    // The connector makes the connection, whatever the scheme; the origin is what the server is told.
    let endpoint = Endpoint::from_shared(format!("http://{authority}"))?
        .http2_max_header_list_size(HEADER_LIMIT)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE)
        .keep_alive_while_idle(true);
    if !is_secured {
        return Ok(endpoint);
    }
    let origin = Endpoint::from_shared(format!("https://{authority}"))?;
    Ok(endpoint.origin(origin.uri().clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_written_as_read() {
        for text in [
            "127.0.0.1:7303",
            "ledger:0",
            "[::1]:80",
            "unix:/run/postern/exec.sock",
        ] {
            assert_eq!(text.parse::<Address>().expect(text).to_string(), text);
        }
        for bad in [
            "",
            "7303",
            ":80",
            "unix:",
            "unix:relative",
            "host:port",
            "http://host:80",
            "host:70000",
        ] {
            assert!(bad.parse::<Address>().is_err(), "{bad}");
        }
    }

    #[tokio::test]
    async fn a_long_failure_survives_a_socket() {
        use postern_proto::ledger::v1::{AbandonRequest, ledger_client::LedgerClient};
        use postern_types::ErrorCode;
        use tonic::Status;

        #[derive(Clone)]
        struct Refusing;

        impl tonic::server::NamedService for Refusing {
            const NAME: &'static str = "postern.ledger.v1.Ledger";
        }

        impl Service<http::Request<Body>> for Refusing {
            type Response = http::Response<Body>;
            type Error = Infallible;
            type Future = std::future::Ready<Result<Self::Response, Infallible>>;

            fn poll_ready(
                &mut self,
                _: &mut std::task::Context<'_>,
            ) -> std::task::Poll<Result<(), Infallible>> {
                std::task::Poll::Ready(Ok(()))
            }

            fn call(&mut self, _: http::Request<Body>) -> Self::Future {
                let failure = crate::Failure::new(ErrorCode::NoMatch, "é".repeat(3000));
                std::future::ready(Ok(Status::from(failure).into_http()))
            }
        }

        let directory = tempfile::tempdir().expect("directory");
        let address = Address::Unix(directory.path().join("socket"));
        let listener = crate::serve::Listener::bind(&address).await.expect("bound");
        let (tasks, mut routes) = (crate::task::Tasks::new(), crate::serve::Services::new());
        routes.add(Refusing);
        tasks.spawn(
            "server",
            crate::serve::serve(listener, routes, tasks.stopping()),
        );
        let mut client = LedgerClient::new(connect(&address).expect("transport"));
        let status = client.abandon(AbandonRequest::default()).await;
        let failure = crate::Failure::from(status.expect_err("refused"));
        assert_eq!(failure.code, ErrorCode::NoMatch);
    }
}
