//! What a connection may hold, and for how long.

use std::{
    convert::Infallible,
    io,
    sync::atomic::{AtomicUsize, Ordering},
    time::Instant,
};

use pretty_assertions::assert_eq;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    sync::Notify,
};

use super::*;

/// Longest that a test waits for something that must come.
const SOON: Duration = Duration::from_secs(10);
/// Less than any timeout that is not what the test is about.
const AT_ONCE: Duration = Duration::from_secs(2);

const LIMITS: Limits = Limits {
    connections: 2,
    request_timeout: Duration::from_secs(30),
    drain: Duration::from_secs(30),
};
const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n";
/// The service keeps this one waiting until the test lets it go.
const WAIT: &[u8] = b"GET /wait HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n";

struct World {
    address: std::net::SocketAddr,
    tasks: Tasks,
    begun: Arc<AtomicUsize>,
    release: Arc<Notify>,
}

impl World {
    async fn new(limits: Limits) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("listener");
        let address = listener.local_addr().expect("address");
        let (tasks, begun, release) = (Tasks::new(), Arc::default(), Arc::new(Notify::new()));
        let service = {
            let (begun, release) = (Arc::clone(&begun), Arc::clone(&release));
            tower::service_fn(move |request: Request<TimeoutBody<Incoming>>| {
                let (begun, release) = (Arc::clone(&begun), Arc::clone(&release));
                async move {
                    AtomicUsize::fetch_add(&begun, 1, Ordering::Relaxed);
                    if request.uri().path() == "/wait" {
                        release.notified().await;
                    }
                    Ok::<_, Infallible>(Response::new("done".to_owned()))
                }
            })
        };
        let serving = serve(listener, service, limits, tasks.clone(), tasks.stopping());
        tasks.spawn("listener", serving);
        Self {
            address,
            tasks,
            begun,
            release,
        }
    }

    async fn send(&self, bytes: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.expect("connection");
        stream.write_all(bytes).await.expect("sent");
        stream
    }

    /// Sends a request that the service keeps waiting, and waits until it has it.
    async fn busy(&self) -> TcpStream {
        let before = self.begun.load(Ordering::Relaxed);
        let stream = self.send(WAIT).await;
        soon(async {
            while self.begun.load(Ordering::Relaxed) == before {
                tokio::task::yield_now().await;
            }
        })
        .await;
        stream
    }
}

async fn soon<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(SOON, future).await.expect("in time")
}

/// What still comes until the other side ends the connection.
async fn rest(stream: &mut TcpStream) -> io::Result<String> {
    let mut text = String::new();
    soon(stream.read_to_string(&mut text)).await?;
    Ok(text)
}

fn assert_hung_up(end: io::Result<String>) {
    assert_eq!(end.unwrap_or_default(), "");
}

async fn assert_answers(mut stream: TcpStream) {
    let mut start = [0; 15];
    soon(stream.read_exact(&mut start)).await.expect("answer");
    assert_eq!(&start, b"HTTP/1.1 200 OK");
}

#[tokio::test]
async fn half_open_connections_do_not_keep_others_out() {
    let world = World::new(LIMITS).await;
    let mut silent = Vec::new();
    for bytes in [
        &b""[..],
        b"GET / HTT",
        b"",
        b"GET / HTTP/1.1\r\nHost: here\r\n",
    ] {
        silent.push(world.send(bytes).await);
    }
    let start = Instant::now();
    assert_answers(world.send(GET).await).await;
    assert!(start.elapsed() < AT_ONCE, "{:?}", start.elapsed());
    // Of the four and one there were never more than two, and the oldest went first.
    for stream in &mut silent[..3] {
        assert_hung_up(rest(stream).await);
    }
    silent[3]
        .write_all(b"\r\n")
        .await
        .expect("the newest lives");
    assert_answers(silent.remove(3)).await;
}

#[tokio::test]
async fn a_connection_at_work_is_not_hung_up_on_for_another() {
    let world = World::new(LIMITS).await;
    let mut working = [world.busy().await, world.busy().await];
    let next = world.send(GET).await;
    tokio::time::timeout(Duration::from_millis(500), next.readable())
        .await
        .expect_err("there is no room");
    world.release.notify_one();
    assert_answers(next).await;
    world.release.notify_one();
    for stream in &mut working {
        assert!(rest(stream).await.expect("whole").ends_with("done"));
    }
}

#[tokio::test]
async fn a_burst_of_honest_clients_is_served_whole() {
    let world = World::new(LIMITS).await;
    let mut burst = Vec::new();
    for _ in 0..50 {
        burst.push(
            world
                .send(b"GET / HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n")
                .await,
        );
    }
    for stream in burst {
        assert_answers(stream).await;
    }
}

#[tokio::test]
async fn a_head_that_does_not_end_is_hung_up_on() {
    let limits = Limits {
        request_timeout: Duration::from_millis(300),
        ..LIMITS
    };
    let world = World::new(limits).await;
    let mut stream = world.send(b"GET / HTTP/1.1\r\nHost: he").await;
    assert_hung_up(rest(&mut stream).await);
}

#[tokio::test]
async fn a_stop_ends_silent_connections_at_once_and_lets_work_end() {
    let world = World::new(LIMITS).await;
    let mut working = world.busy().await;
    let mut silent = world.send(b"GET / HTT").await;
    world.tasks.stopping().cancel();
    assert_hung_up(rest(&mut silent).await);
    world.release.notify_one();
    assert!(rest(&mut working).await.expect("whole").ends_with("done"));
    assert!(world.tasks.shutdown(AT_ONCE).await, "every task ends");
}

#[tokio::test]
async fn work_that_does_not_end_is_cut_off_after_the_drain() {
    let limits = Limits {
        drain: Duration::from_millis(100),
        ..LIMITS
    };
    let world = World::new(limits).await;
    let mut working = world.busy().await;
    assert!(world.tasks.shutdown(AT_ONCE).await, "every task ends");
    assert_hung_up(rest(&mut working).await);
}
