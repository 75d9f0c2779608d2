//! Connections that have shown their certificates.

use std::{
    collections::BTreeMap,
    future::Future,
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use futures_util::stream::{FuturesUnordered, Stream, StreamExt as _, unfold};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_util::sync::CancellationToken;
use tonic::transport::server::Connected;

use super::{Peer, Tls};

/// Time for a handshake.
pub(super) const HANDSHAKE_LIMIT: Duration = Duration::from_secs(5);
/// Handshakes at once. For one more, the one that has lasted longest is given up, so that whoever opens connections and says
/// nothing keeps no one else out.
const MAX_HANDSHAKES: usize = 256;
/// Pause after the system refuses a connection, such as for want of file descriptors.
const REFUSED: Duration = Duration::from_millis(50);

type Handshake = Pin<Box<dyn Future<Output = (u64, Option<Secured>)> + Send>>;

/// The connections of a listener as they come out of their handshakes.
pub(crate) struct Handshakes {
    listener: TcpListener,
    tls: Tls,
    running: FuturesUnordered<Handshake>,
    /// What gives a running handshake up, by the order in which they began.
    ends: BTreeMap<u64, CancellationToken>,
    begun: u64,
}

impl Handshakes {
    pub(crate) fn new(listener: TcpListener, tls: Tls) -> Self {
        Self {
            listener,
            tls,
            running: FuturesUnordered::new(),
            ends: BTreeMap::new(),
            begun: 0,
        }
    }

    pub(crate) fn into_stream(self) -> impl Stream<Item = io::Result<Secured>> {
        unfold(self, async |mut handshakes| {
            let secured = handshakes.next().await;
            Some((Ok(secured), handshakes))
        })
    }

    async fn next(&mut self) -> Secured {
        loop {
            tokio::select! {
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, _)) => self.begin(stream),
                    Err(problem) => {
                        tracing::warn!(%problem, "a connection could not be accepted");
                        tokio::time::sleep(REFUSED).await;
                    }
                },
                Some((number, secured)) = self.running.next(), if !self.running.is_empty() => {
                    self.ends.remove(&number);
                    if let Some(secured) = secured {
                        return secured;
                    }
                }
            }
        }
    }

    fn begin(&mut self, stream: TcpStream) {
        if self.ends.len() >= MAX_HANDSHAKES
            && let Some((_, end)) = self.ends.pop_first()
        {
            end.cancel();
        }
        let (number, end) = (self.begun, CancellationToken::new());
        self.begun += 1;
        self.ends.insert(number, end.clone());
        // What the files are now: a connection that begins after they were replaced goes by the new ones.
        let acceptor = TlsAcceptor::from(self.tls.server());
        self.running.push(Box::pin(async move {
            let shaken = tokio::time::timeout(HANDSHAKE_LIMIT, secure(acceptor, stream));
            let secured = match end.run_until_cancelled(shaken).await {
                Some(Ok(Ok(secured))) => Some(secured),
                Some(Ok(Err(problem))) => {
                    tracing::warn!(%problem, "a connection was refused: its certificate is missing or not trusted");
                    None
                }
                Some(Err(_)) | None => None,
            };
            (number, secured)
        }));
    }
}

async fn secure(acceptor: TlsAcceptor, stream: TcpStream) -> io::Result<Secured> {
    stream.set_nodelay(true)?;
    let stream = acceptor.accept(stream).await?;
    let shown = stream.get_ref().1.peer_certificates();
    let certificate = shown
        .and_then(|chain| chain.first())
        .ok_or(io::ErrorKind::PermissionDenied)?;
    let peer = Peer::of(certificate).map_err(io::Error::other)?;
    Ok(Secured { stream, peer })
}

/// A connection with a peer that is known.
pub(crate) struct Secured {
    stream: TlsStream<TcpStream>,
    peer: Peer,
}

impl Connected for Secured {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl AsyncRead for Secured {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Secured {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
