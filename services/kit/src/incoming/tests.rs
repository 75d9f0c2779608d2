//! Whoever holds connections, and whoever is refused them.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::StreamExt as _;
use pretty_assertions::assert_eq;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::Instant,
};

use super::*;

const PREFACE: &[u8; PREFACE_BYTES] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Gives the near ends of connections whose far ends the test holds.
struct Made(tokio::sync::mpsc::Receiver<tokio::io::DuplexStream>);

impl Accept for Made {
    type Connection = tokio::io::DuplexStream;

    async fn accept(&mut self) -> io::Result<Self::Connection> {
        match self.0.recv().await {
            Some(near) => Ok(near),
            None => std::future::pending().await,
        }
    }
}

/// The far ends of so many connections, and the listener to which they came.
async fn made(count: usize) -> (Vec<tokio::io::DuplexStream>, Made) {
    let (sender, made) = tokio::sync::mpsc::channel(count);
    let mut far_ends = Vec::new();
    for _ in 0..count {
        let (far, near) = tokio::io::duplex(64);
        far_ends.push(far);
        sender.send(near).await.expect("taken");
    }
    (far_ends, Made(made))
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_does_not_begin_is_hung_up_on() {
    let (mut far, listener) = made(2).await;
    let mut incoming = std::pin::pin!(connections(listener));
    let mut silent = incoming.next().await.expect("one").expect("accepted");
    let mut begun = incoming.next().await.expect("one").expect("accepted");
    // All but the last byte is as good as nothing.
    far[0].write_all(&PREFACE[1..]).await.expect("sent");
    far[1].write_all(PREFACE).await.expect("sent");
    let started = Instant::now();
    let mut read = [0; 64];
    silent
        .read_exact(&mut read[1..PREFACE_BYTES])
        .await
        .expect("read");
    let told = silent.read(&mut read).await.expect_err("hung up on");
    assert_eq!(told.kind(), io::ErrorKind::TimedOut);
    assert_eq!(started.elapsed(), BEGIN_LIMIT);
    begun
        .read_exact(&mut read[..PREFACE_BYTES])
        .await
        .expect("read");
    let later = timeout(BEGIN_LIMIT * 10, begun.read(&mut read)).await;
    assert!(later.is_err(), "it may be silent from now on");
}

#[tokio::test(start_paused = true)]
async fn the_longest_silence_makes_room_and_no_connection_that_has_begun() {
    let (mut far, listener) = made(3).await;
    let mut incoming = std::pin::pin!(at_most(2, listener));
    let mut begun = incoming.next().await.expect("one").expect("accepted");
    far[0].write_all(PREFACE).await.expect("sent");
    begun
        .read_exact(&mut [0; PREFACE_BYTES])
        .await
        .expect("read");
    let mut silent = incoming.next().await.expect("one").expect("accepted");
    let started = Instant::now();
    // As the server would: it reads, and lets go of what it cannot read.
    let reading = async {
        let told = silent.read_u8().await.expect_err("hung up on");
        drop(silent);
        told.kind()
    };
    let (next, told) = tokio::join!(incoming.next(), reading);
    next.expect("a place").expect("accepted");
    assert_eq!(told, io::ErrorKind::TimedOut);
    assert!(started.elapsed() < BEGIN_LIMIT, "it is not waited for");
    let still = timeout(BEGIN_LIMIT * 10, begun.read_u8()).await;
    assert!(still.is_err(), "one that has begun stays");
}

/// A system without descriptors.
struct Refusing(Arc<AtomicUsize>);

impl Accept for Refusing {
    type Connection = tokio::io::DuplexStream;

    async fn accept(&mut self) -> io::Result<Self::Connection> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Err(io::Error::from_raw_os_error(
            rustix::io::Errno::MFILE.raw_os_error(),
        ))
    }
}

#[tokio::test(start_paused = true)]
async fn a_system_that_refuses_connections_is_not_asked_without_a_pause() {
    let asked = Arc::new(AtomicUsize::new(0));
    let mut incoming = std::pin::pin!(connections(Refusing(Arc::clone(&asked))));
    let second = Duration::from_secs(1);
    assert!(timeout(second, incoming.next()).await.is_err());
    let asked = asked.load(Ordering::Relaxed);
    let most = usize::try_from(second.as_millis() / REFUSED.as_millis()).expect("few");
    assert!((2..=most + 1).contains(&asked), "{asked} times");
}
