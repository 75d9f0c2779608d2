//! How a client reaches its server: in the same process, by Unix socket or by TCP.

use std::{convert::Infallible, fmt, path::PathBuf, str::FromStr, time::Duration};

use tonic::{body::Body, codegen::Service, transport::Endpoint};
use tower::{ServiceExt as _, util::BoxCloneSyncService};

use crate::{
    Key,
    trace::{Side, Traced},
};

/// What every generated client stands on.
pub type Transport = BoxCloneSyncService<http::Request<Body>, http::Response<Body>, HopError>;

/// Why a request did not reach its server, or an answer did not come back. A type of its own rather than a boxed error,
/// because the compiler cannot see that futures over a client with a boxed one may move between threads.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct HopError(#[source] tonic::transport::Error);

/// Largest message of a service, in bytes: above the largest legal payload (a frame of 2 MiB), and a bound all the same.
pub const MESSAGE_LIMIT: usize = 8 * 1024 * 1024;
/// Largest headers of an answer, in bytes. A failure travels in them, written twice and escaped.
const HEADER_LIMIT: u32 = 64 * 1024;
/// Time within which a service answers, or the caller gives up (CONTRACT.md, section 8).
pub const DEADLINE: Duration = Duration::from_secs(10);

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

/// Reaches a server at an address. Connects when first used and again whenever needed, so a server may start later.
///
/// # Errors
/// When the address cannot be written as a URI.
pub fn connect(address: &Address) -> Result<Transport, tonic::transport::Error> {
    let channel = match address {
        Address::Tcp(authority) => endpoint(format!("http://{authority}"))?.connect_lazy(),
        Address::Unix(path) => {
            let path = path.clone();
            endpoint("http://unix.invalid".to_owned())?.connect_with_connector_lazy(
                tower::service_fn(move |_| {
                    let path = path.clone();
                    async move {
                        tokio::net::UnixStream::connect(path)
                            .await
                            .map(hyper_util::rt::TokioIo::new)
                    }
                }),
            )
        }
    };
    let channel = channel.map_err(HopError);
    Ok(BoxCloneSyncService::new(Traced::new(channel, Side::Caller)))
}

/// Shows a key with every request.
#[must_use]
pub fn with_key(transport: Transport, key: &Key) -> Transport {
    let key = key.clone();
    BoxCloneSyncService::new(transport.map_request(move |request| key.show(request)))
}

fn endpoint(uri: String) -> Result<Endpoint, tonic::transport::Error> {
    Ok(Endpoint::from_shared(uri)?
        .connect_timeout(DEADLINE)
        .timeout(DEADLINE)
        .tcp_nodelay(true)
        .http2_max_header_list_size(HEADER_LIMIT)
        .http2_keep_alive_interval(DEADLINE)
        .keep_alive_while_idle(true))
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
        use tonic::{Status, service::RoutesBuilder};

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
        let (tasks, mut routes) = (crate::task::Tasks::new(), RoutesBuilder::default());
        routes.add_service(Refusing);
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
