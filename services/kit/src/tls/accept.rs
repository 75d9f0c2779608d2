//! Connections that have shown their certificates.

use std::{
    collections::BTreeMap,
    future::Future,
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    time::Instant,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_util::sync::CancellationToken;
use tonic::transport::server::Connected;

use super::{Peer, Tls};
use crate::{incoming::Accept, unheard::PATIENCE};

/// Time for a handshake.
pub(super) const HANDSHAKE_LIMIT: Duration = Duration::from_secs(5);
/// Handshakes at once. For one more, the one that has lasted longest is given up, so that whoever opens connections and says
/// nothing keeps no one else out.
const MAX_HANDSHAKES: usize = 256;
/// Time between two words of the log on those who were refused: strangers do not fill it.
const NOTICE_INTERVAL: Duration = Duration::from_secs(1);

/// What came of a handshake; nothing when it was given up.
type Shaken = Option<io::Result<Secured>>;
type Handshake = Pin<Box<dyn Future<Output = (u64, Shaken)> + Send>>;

/// The connections of a listener as they come out of their handshakes.
pub(crate) struct Handshakes {
    listener: TcpListener,
    tls: Tls,
    running: FuturesUnordered<Handshake>,
    /// When each running handshake began and what gives it up, in the order in which they began.
    ends: BTreeMap<u64, (Instant, CancellationToken)>,
    begun: u64,
    refusals: Refusals,
}

impl Accept for Handshakes {
    type Connection = Secured;

    async fn accept(&mut self) -> io::Result<Secured> {
        loop {
            tokio::select! {
                // What was given up is closed before the next one is asked for.
                biased;
                Some((number, shaken)) = self.running.next(), if !self.running.is_empty() => {
                    self.ends.remove(&number);
                    match shaken {
                        Some(Ok(secured)) => return Ok(secured),
                        Some(Err(problem)) => self.refusals.tell(&problem),
                        None => {}
                    }
                }
                accepted = Accept::accept(&mut self.listener) => match accepted {
                    Ok(stream) => self.begin(stream),
                    // Most often descriptors are short, and a handshake that lasts holds one.
                    Err(problem) => self.give_up_oldest(PATIENCE).ok_or(problem)?,
                },
            }
        }
    }
}

impl Handshakes {
    pub(crate) fn new(listener: TcpListener, tls: Tls) -> Self {
        Self {
            listener,
            tls,
            running: FuturesUnordered::new(),
            ends: BTreeMap::new(),
            begun: 0,
            refusals: Refusals::default(),
        }
    }

    fn begin(&mut self, stream: TcpStream) {
        if self.ends.len() >= MAX_HANDSHAKES {
            self.give_up_oldest(Duration::ZERO);
        }
        let (number, end) = (self.begun, CancellationToken::new());
        self.begun += 1;
        self.ends.insert(number, (Instant::now(), end.clone()));
        // What the files are now: a connection that begins after they were replaced goes by the new ones.
        let acceptor = TlsAcceptor::from(self.tls.server());
        self.running.push(Box::pin(async move {
            let shaken = tokio::time::timeout(HANDSHAKE_LIMIT, secure(acceptor, stream));
            let shaken = end.run_until_cancelled(shaken).await;
            (number, shaken.and_then(Result::ok))
        }));
    }

    /// Gives up the handshake that has lasted longest, if it has lasted so long; else nothing.
    fn give_up_oldest(&mut self, patience: Duration) -> Option<()> {
        let oldest = self.ends.first_entry()?;
        if oldest.get().0.elapsed() < patience {
            return None;
        }
        let (_, end) = oldest.remove();
        end.cancel();
        Some(())
    }
}

/// What the log says of those who were refused.
#[derive(Default)]
struct Refusals {
    told: Option<Instant>,
    /// Those that nothing was said of since.
    others: u64,
}

impl Refusals {
    fn tell(&mut self, problem: &io::Error) {
        if has_left(problem) {
            tracing::debug!(%problem, "a connection was left before it was secured");
            return;
        }
        let is_soon = |told: Instant| told.elapsed() < NOTICE_INTERVAL;
        if self.told.is_some_and(is_soon) {
            self.others += 1;
            return;
        }
        self.told = Some(Instant::now());
        let others = std::mem::take(&mut self.others);
        tracing::warn!(%problem, others, "a connection was refused: its certificate is missing or not trusted");
    }
}

/// Whether the other side went away without a reason: a probe that looks whether somebody listens does.
fn has_left(problem: &io::Error) -> bool {
    [
        io::ErrorKind::UnexpectedEof,
        io::ErrorKind::ConnectionReset,
        io::ErrorKind::ConnectionAborted,
        io::ErrorKind::BrokenPipe,
        io::ErrorKind::NotConnected,
    ]
    .contains(&problem.kind())
}

async fn secure(acceptor: TlsAcceptor, stream: TcpStream) -> io::Result<Secured> {
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

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
