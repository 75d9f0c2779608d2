//! The connection below a client.

use std::{
    future::Future,
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use http::Uri;
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
    time::{Instant, timeout_at},
};
use tokio_rustls::TlsConnector;
use tower::Service;

use crate::tls::{Expected, Role, Tls};

/// Time in which a connection is made, handshake and all. It is a part of a call's deadline only, so that the next call
/// begins anew when packets vanish, rather than waiting for the system's patience.
const CONNECT_LIMIT: Duration = Duration::from_secs(3);
/// Time within which a refused connection is tried again: a service that restarts is away for about as long. Nothing has been
/// sent, so nothing can happen twice. Not on Unix sockets: who is behind one is on this machine, and starts it again itself.
const PATIENCE: Duration = Duration::from_millis(1500);
/// First pause between two attempts, and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_millis(25), Duration::from_millis(250));

/// Makes the connections to one address.
#[derive(Clone)]
pub(super) struct Dial {
    target: Target,
}

#[derive(Clone)]
enum Target {
    Unix(PathBuf),
    Tcp(String, Option<(Tls, Expected)>),
}

/// A connection, whatever it is.
pub(super) trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Wire for S {}

impl Dial {
    pub(super) fn unix(path: &Path) -> Self {
        Self {
            target: Target::Unix(path.to_owned()),
        }
    }

    pub(super) fn tcp(authority: &str, tls: Option<(Tls, Expected)>) -> Self {
        Self {
            target: Target::Tcp(authority.to_owned(), tls),
        }
    }

    async fn connect(self) -> io::Result<TokioIo<Box<dyn Wire>>> {
        let started = Instant::now();
        let mut pause = PAUSE.0;
        loop {
            let attempt = timeout_at(started + CONNECT_LIMIT, self.target.connect());
            let problem = match attempt.await {
                Ok(Ok(wire)) => return Ok(TokioIo::new(wire)),
                Ok(Err(problem)) => problem,
                Err(_) => return Err(io::ErrorKind::TimedOut.into()),
            };
            let is_absent = problem.kind() == io::ErrorKind::ConnectionRefused
                && matches!(self.target, Target::Tcp(..));
            if !is_absent || started.elapsed() + pause > PATIENCE {
                return Err(problem);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE.1);
        }
    }
}

impl Target {
    async fn connect(&self) -> io::Result<Box<dyn Wire>> {
        match self {
            Self::Unix(path) => {
                let stream = UnixStream::connect(path).await?;
                demand_trusted(stream.peer_cred()?.uid())?;
                Ok(Box::new(stream))
            }
            Self::Tcp(authority, tls) => {
                let stream = TcpStream::connect(authority).await?;
                stream.set_nodelay(true)?;
                match tls {
                    Some((tls, expected)) => secure(stream, tls, *expected).await,
                    None => {
                        demand_loopback(stream.peer_addr()?)?;
                        Ok(Box::new(stream))
                    }
                }
            }
        }
    }
}

/// Refuses plaintext with another machine, whatever a name such as `localhost` leads to.
fn demand_loopback(peer: SocketAddr) -> io::Result<()> {
    if peer.ip().to_canonical().is_loopback() {
        return Ok(());
    }
    let told = "it is not on this machine, and without certificates nothing is said to it";
    Err(io::Error::new(io::ErrorKind::PermissionDenied, told))
}

/// Refuses a Unix socket on which another user listens: in a folder that he can write to, he could have put his own there.
fn demand_trusted(listens: u32) -> io::Result<()> {
    if is_trusted(rustix::process::geteuid().as_raw(), listens) {
        return Ok(());
    }
    let told = "another user listens on that socket";
    Err(io::Error::new(io::ErrorKind::PermissionDenied, told))
}

/// Whether one user may take what another listens on for a service of his. Root could be that user as well.
const fn is_trusted(own: u32, listens: u32) -> bool {
    own == 0 || listens == own || listens == 0
}

async fn secure(stream: TcpStream, tls: &Tls, expected: Expected) -> io::Result<Box<dyn Wire>> {
    // A probe's verifier does not go by the name.
    let role = match expected {
        Expected::One(role) => role,
        Expected::Any => Role::Operator,
    };
    let name = role.server_name().map_err(io::Error::other)?;
    let connector = TlsConnector::from(tls.client(expected));
    let connected = connector.connect(name, stream).await;
    let stream = connected.inspect_err(|problem| {
        tracing::warn!(%problem, %role, "no trusted connection to a service");
    })?;
    Ok(Box::new(stream))
}

impl Service<Uri> for Dial {
    type Response = TokioIo<Box<dyn Wire>>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        Box::pin(self.clone().connect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plaintext_is_for_this_machine_alone() {
        for (peer, good) in [
            ("127.0.0.1:1", true),
            ("127.8.8.8:1", true),
            ("[::1]:1", true),
            ("[::ffff:127.0.0.1]:1", true),
            ("10.0.0.1:1", false),
            ("0.0.0.0:1", false),
            ("[::ffff:10.0.0.1]:1", false),
            ("[fe80::1]:1", false),
        ] {
            let refused = demand_loopback(peer.parse().expect(peer));
            assert_eq!(refused.is_ok(), good, "{peer}");
        }
    }

    #[test]
    fn a_service_is_its_own_users_or_roots() {
        for (own, listens, good) in [
            (1000, 1000, true),
            (1000, 0, true),
            (0, 1000, true),
            (1000, 1001, false),
        ] {
            assert_eq!(is_trusted(own, listens), good, "{own} {listens}");
        }
    }
}
