//! The connection below a protocol: tells when something was last heard, however slowly it comes, and ends so that what was
//! said last still arrives.
//!
//! Silence is measured in bytes, so that a large message on a slow line counts as a sign of life while it is still coming.

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
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf},
    time::Instant,
};

/// Bytes thrown away at once.
const DRAIN_BUFFER_BYTES: usize = 64 * 1024;

/// When the last byte arrived. Clones tell of the same connection.
#[derive(Clone, Debug)]
pub struct Heard {
    start: Instant,
    last_ms: Arc<AtomicU64>,
}

impl Heard {
    fn now() -> Self {
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
    pub async fn silent_for(&self, limit: Duration) {
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
pub struct Listened<S> {
    inner: S,
    heard: Heard,
}

impl<S> Listened<S> {
    /// Listens to `inner` from now on.
    pub fn new(inner: S) -> Self {
        Self {
            inner,
            heard: Heard::now(),
        }
    }

    /// When the last byte arrived.
    pub fn heard(&self) -> Heard {
        self.heard.clone()
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

/// Ends the connection in order: says that nothing more comes, and throws away what still arrives until the peer ends it too.
/// Data left unread would turn the end into a reset, and the peer would never see what was said last. For as long as the peer
/// likes to go on: whoever calls this sets the limit.
pub async fn drain<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S) {
    if stream.shutdown().await.is_ok() {
        let mut rest = vec![0; DRAIN_BUFFER_BYTES];
        while let Ok(1..) = stream.read(&mut rest).await {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_byte_ends_the_silence() {
        let limit = Duration::from_secs(60);
        let (mut far, near) = tokio::io::duplex(8);
        let mut near = Listened::new(near);
        let heard = near.heard();
        tokio::time::sleep(limit - Duration::from_secs(1)).await;
        far.write_all(b"x").await.expect("write");
        near.read_u8().await.expect("read");
        let before = Instant::now();
        heard.silent_for(limit).await;
        assert_eq!(before.elapsed(), limit);
    }

    #[tokio::test]
    async fn what_still_comes_is_thrown_away_until_the_peer_ends() {
        let (mut far, mut near) = tokio::io::duplex(8);
        let talking = async {
            far.write_all(&[b'x'; 100]).await.expect("taken");
            far.shutdown().await.expect("end");
            far
        };
        let ((), mut far) = tokio::join!(drain(&mut near), talking);
        let mut said = Vec::new();
        far.read_to_end(&mut said).await.expect("the end");
        assert!(said.is_empty());
    }
}
