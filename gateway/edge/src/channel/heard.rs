//! Notes when bytes arrive. Silence is measured here, below the frames, so that a large message on a slow line counts
//! as a sign of life while it is still coming.

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

/// When the last byte arrived.
#[derive(Clone, Debug)]
pub(crate) struct Heard {
    start: Instant,
    last_ms: Arc<AtomicU64>,
}

impl Heard {
    pub(super) fn now() -> Self {
        Self {
            start: Instant::now(),
            last_ms: Arc::default(),
        }
    }

    fn note(&self) {
        let elapsed = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_ms.store(elapsed, Ordering::Relaxed);
    }

    /// Waits until nothing has arrived for `limit`.
    pub(super) async fn silent_for(&self, limit: Duration) {
        loop {
            let last = Duration::from_millis(self.last_ms.load(Ordering::Relaxed));
            let deadline = self.start + last + limit;
            if Instant::now() >= deadline {
                return;
            }
            tokio::time::sleep_until(deadline).await;
        }
    }
}

/// A stream whose arriving bytes are noted.
#[derive(Debug)]
pub(crate) struct Listened<S> {
    inner: S,
    heard: Heard,
}

impl<S> Listened<S> {
    pub(super) const fn new(inner: S, heard: Heard) -> Self {
        Self { inner, heard }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Listened<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.heard.note();
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Listened<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_byte_ends_the_silence() {
        let limit = Duration::from_secs(60);
        let heard = Heard::now();
        let (mut far, near) = tokio::io::duplex(8);
        let mut near = Listened::new(near, heard.clone());
        tokio::time::sleep(limit - Duration::from_secs(1)).await;
        far.write_all(b"x").await.expect("write");
        near.read_u8().await.expect("read");
        let before = Instant::now();
        heard.silent_for(limit).await;
        assert_eq!(before.elapsed(), limit);
    }
}
