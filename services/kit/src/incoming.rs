//! Connections as they come to a listener of gRPC: no more than there is room for, and none that does not begin.
//!
//! Invariant: whoever opens connections and says nothing keeps no one else out, nor does a system that has no descriptor left
//! for the next one. The connection that has been silent longest makes room, and none stays silent for long.

use std::{
    future::Future,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use futures_util::stream::{Stream, unfold};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};
use tonic::transport::server::Connected;

use crate::unheard::{Entry, Unheard};

/// Connections of a listener at once: every caller has one or two, and a worker is a caller.
const MAX_CONNECTIONS: usize = 1024;
/// Time for the first bytes, which a client of HTTP/2 sends unasked. From then on it is asked whether it is still there.
const BEGIN_LIMIT: Duration = Duration::from_secs(5);
/// The first bytes: the preface of RFC 9113, section 3.4.
const PREFACE_BYTES: usize = 24;
/// Longest pause after the system refuses a connection, such as for want of file descriptors.
const REFUSED: Duration = Duration::from_millis(50);

/// Where connections come from.
pub(crate) trait Accept: Send {
    /// What they are.
    type Connection: Send;

    /// The next one, or why there is none just now.
    fn accept(&mut self) -> impl Future<Output = io::Result<Self::Connection>> + Send;
}

impl Accept for TcpListener {
    type Connection = TcpStream;

    async fn accept(&mut self) -> io::Result<TcpStream> {
        let (stream, _) = TcpListener::accept(self).await?;
        // Small answers do not wait for one another. One that cannot be told so is gone already, which reading from it tells.
        let _ = stream.set_nodelay(true);
        Ok(stream)
    }
}

/// The connections of a listener, without an end.
pub(crate) fn connections<L: Accept>(
    listener: L,
) -> impl Stream<Item = io::Result<Connection<L::Connection>>> + Send {
    at_most(MAX_CONNECTIONS, listener)
}

fn at_most<L: Accept>(
    places: usize,
    listener: L,
) -> impl Stream<Item = io::Result<Connection<L::Connection>>> + Send {
    let incoming = Incoming {
        listener,
        places: Arc::new(Semaphore::new(places)),
        silent: Arc::default(),
        is_refused: false,
    };
    unfold(incoming, async |mut incoming| {
        let connection = incoming.next().await?;
        Some((Ok(connection), incoming))
    })
}

struct Incoming<L> {
    listener: L,
    places: Arc<Semaphore>,
    silent: Arc<Unheard>,
    /// Whether the system refused the last one; it is told once.
    is_refused: bool,
}

impl<L: Accept> Incoming<L> {
    async fn next(&mut self) -> Option<Connection<L::Connection>> {
        let place = room(&self.places, &self.silent).await?;
        loop {
            match self.listener.accept().await {
                Ok(inner) => {
                    self.is_refused = false;
                    let silence = Silence::new(self.silent.enter());
                    return Some(Connection {
                        inner,
                        silence: Some(silence),
                        _place: place,
                    });
                }
                Err(problem) => {
                    if !std::mem::replace(&mut self.is_refused, true) {
                        tracing::warn!(%problem, "connections cannot be accepted for now");
                    }
                    self.silent.make_room(REFUSED).await;
                }
            }
        }
    }
}

/// A place for one more, made by hanging up on a silent one if there is no other.
async fn room(places: &Arc<Semaphore>, silent: &Unheard) -> Option<OwnedSemaphorePermit> {
    let mut place = std::pin::pin!(Arc::clone(places).acquire_owned());
    let place = tokio::select! {
        biased;
        place = &mut place => place,
        () = silent.hang_up_on_oldest() => place.await,
    };
    // Nobody closes the semaphore.
    place.ok()
}

/// A connection that holds its place until it is dropped.
pub(crate) struct Connection<C> {
    inner: C,
    /// While it has not begun.
    silence: Option<Silence>,
    _place: OwnedSemaphorePermit,
}

/// What a connection is before it has begun.
struct Silence {
    entry: Entry,
    missing: usize,
    /// Its time is over, or another needs its place.
    over: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl Silence {
    fn new(entry: Entry) -> Self {
        let hung_up = entry.hung_up();
        Self {
            entry,
            missing: PREFACE_BYTES,
            over: Box::pin(async move {
                // Either is its end.
                let _ = timeout(BEGIN_LIMIT, hung_up).await;
            }),
        }
    }
}

impl<C> Connection<C> {
    /// Notes what was read, and ends the silence with the last of the first bytes.
    fn heard(&mut self, bytes: usize) -> io::Result<()> {
        let Some(silence) = &mut self.silence else {
            return Ok(());
        };
        silence.missing = silence.missing.saturating_sub(bytes);
        if silence.missing > 0 {
            return Ok(());
        }
        silence.entry.leave();
        let is_hung_up = silence.entry.is_hung_up();
        self.silence = None;
        if is_hung_up {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(())
    }
}

impl<C: Connected> Connected for Connection<C> {
    type ConnectInfo = C::ConnectInfo;

    fn connect_info(&self) -> C::ConnectInfo {
        self.inner.connect_info()
    }
}

impl<C: AsyncRead + Unpin> AsyncRead for Connection<C> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        if let Poll::Ready(read) = Pin::new(&mut self.inner).poll_read(context, buffer) {
            let bytes = buffer.filled().len() - before;
            return Poll::Ready(read.and_then(|()| self.heard(bytes)));
        }
        match &mut self.silence {
            Some(silence) => {
                ready!(silence.over.as_mut().poll(context));
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
            None => Poll::Pending,
        }
    }
}

impl<C: AsyncWrite + Unpin> AsyncWrite for Connection<C> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests;
