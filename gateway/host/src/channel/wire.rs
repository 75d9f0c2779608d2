//! The connection below the WebSocket: tells when something was last heard, however slowly it comes.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::Instant,
};

/// When the peer was last heard.
#[derive(Clone)]
pub(super) struct Heard {
    start: Instant,
    millis: Arc<AtomicU64>,
}

impl Heard {
    fn now() -> Self {
        Self {
            start: Instant::now(),
            millis: Arc::default(),
        }
    }

    fn touch(&self) {
        let millis = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.millis.store(millis, Ordering::Relaxed);
    }

    /// Ends when nothing was heard for `silence`. A large message that comes slowly is heard all the time.
    pub(super) async fn silence(&self, silence: Duration) {
        loop {
            let last = self.start + Duration::from_millis(self.millis.load(Ordering::Relaxed));
            if last.elapsed() >= silence {
                return;
            }
            tokio::time::sleep_until(last + silence).await;
        }
    }
}

/// A connection that notes when it is read from.
pub(super) struct Wire<S> {
    stream: S,
    heard: Heard,
}

impl<S> Wire<S> {
    pub(super) fn new(stream: S) -> Self {
        Self {
            stream,
            heard: Heard::now(),
        }
    }

    pub(super) fn heard(&self) -> Heard {
        self.heard.clone()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Wire<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.heard.touch();
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Wire<S> {
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
