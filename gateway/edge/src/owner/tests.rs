//! What those who hold connections and event streams open can do to the owner: nothing.

use std::{io, time::Instant};

use futures_util::future::join_all;
use postern_types::Mode;
use pretty_assertions::assert_eq;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::*;

/// Longest that a test waits for something that must come.
const SOON: Duration = Duration::from_secs(10);
/// Less than any timeout of the API.
const AT_ONCE: Duration = Duration::from_secs(3);

struct World {
    address: SocketAddr,
    tasks: Tasks,
    /// Of the ledger, which ends after the API.
    _ledger: Tasks,
    _directory: tempfile::TempDir,
}

impl World {
    async fn new() -> Self {
        let directory = tempfile::tempdir().expect("directory");
        let (clock, tasks, ledger_tasks) = (Clock::system(), Tasks::new(), Tasks::new());
        let config = postern_ledger::Config {
            database: postern_ledger::Database::Sqlite(directory.path().join("ledger.db")),
        };
        let ledger = postern_ledger::Service::open(config, clock.clone(), &ledger_tasks)
            .await
            .expect("ledger");
        let ledger = postern_kit::transport::local(ledger.into_server());
        let control = crate::control::test_control(Mode::Full);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("listener");
        let address = listener.local_addr().expect("address");
        let api = Api::new(control, only_ledger(&ledger), settings(address), clock);
        tasks.spawn("owner api", api.serve(listener, tasks.stopping()));
        Self {
            address,
            tasks,
            _ledger: ledger_tasks,
            _directory: directory,
        }
    }

    async fn send(&self, bytes: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.expect("connection");
        stream.write_all(bytes).await.expect("sent");
        stream
    }

    /// Asks as the owner and returns the head of the answer, with the connection.
    async fn get(&self, path: &str) -> (String, TcpStream) {
        let host = self.address;
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer token\r\n\r\n");
        let mut stream = self.send(request.as_bytes()).await;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(soon(stream.read_u8()).await.expect("a head"));
        }
        (String::from_utf8(head).expect("text"), stream)
    }

    async fn events(&self) -> TcpStream {
        let (head, stream) = self.get("/owner/v1/events").await;
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        stream
    }
}

pub(super) fn settings(address: SocketAddr) -> Settings {
    Settings {
        token: "token".to_owned(),
        address,
        label: Some("label".to_owned()),
        trace_url: None,
    }
}

/// Services of an edge of which only the ledger is there.
pub(super) fn only_ledger(ledger: &Transport) -> Services {
    Services {
        identity: ledger.clone(),
        policy: ledger.clone(),
        filesystem: ledger.clone(),
        exec: ledger.clone(),
        ledger: ledger.clone(),
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

#[tokio::test]
async fn half_open_connections_hold_no_descriptors_and_do_not_keep_the_owner_out() {
    let world = World::new().await;
    let halves = ["", "GET /owner/v1/status HTTP/1.1\r\nHost: 127"];
    let mut stalled = Vec::new();
    for number in 0..3 * LIMITS.connections {
        let half = halves[number % halves.len()];
        stalled.push(world.send(half.as_bytes()).await);
    }
    let start = Instant::now();
    let (head, _stream) = world.get("/owner/v1/status").await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    // All but the last places were taken back, long before any head was late.
    let over = stalled.len() + 1 - LIMITS.connections;
    join_all(stalled[..over].iter_mut().map(rest)).await;
    assert!(start.elapsed() < AT_ONCE, "{:?}", start.elapsed());
}

#[tokio::test]
async fn without_the_token_a_connection_ends_with_its_answer() {
    let world = World::new().await;
    let here = world.address;
    for (path, host, status) in [
        ("/healthz", here.to_string(), "200"),
        ("/owner/v1/events", here.to_string(), "401"),
        ("/nowhere", here.to_string(), "404"),
        ("/healthz", "elsewhere.example".to_owned(), "403"),
    ] {
        // A body that never comes holds nothing either.
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 9\r\n\r\n");
        let mut stream = world.send(request.as_bytes()).await;
        let start = Instant::now();
        let answer = rest(&mut stream).await.expect("whole");
        assert_eq!(answer.split(' ').nth(1), Some(status), "{answer}");
        assert!(start.elapsed() < AT_ONCE, "{:?}", start.elapsed());
    }
    let (head, _stream) = world.get("/owner/v1/status").await;
    assert!(!head.contains("connection: close"), "{head}");
}

#[tokio::test]
async fn event_streams_have_a_bound_and_give_their_places_back() {
    let world = World::new().await;
    let mut streams = Vec::new();
    for _ in 0..EVENT_STREAMS {
        streams.push(world.events().await);
    }
    let (head, mut refused) = world.get("/owner/v1/events").await;
    assert!(head.starts_with("HTTP/1.1 503 "), "{head}");
    assert!(head.contains("retry-after: 5\r\n"), "{head}");
    assert!(head.contains("application/problem+json"), "{head}");
    let mut body = [0; 512];
    let read = soon(refused.read(&mut body)).await.expect("a body");
    let problem: serde_json::Value = serde_json::from_slice(&body[..read]).expect("JSON");
    assert_eq!(problem["code"], "too_many_event_streams");

    drop(streams.pop());
    soon(async {
        while !world
            .get("/owner/v1/events")
            .await
            .0
            .starts_with("HTTP/1.1 200 ")
        {}
    })
    .await;
}

#[tokio::test]
async fn a_stop_ends_open_event_streams_at_once() {
    let world = World::new().await;
    let mut streams = [world.events().await, world.events().await];
    let start = Instant::now();
    assert!(world.tasks.shutdown(AT_ONCE).await, "every task ends");
    assert!(start.elapsed() < AT_ONCE, "{:?}", start.elapsed());
    for stream in &mut streams {
        let end = rest(stream).await.expect("ended, not broken");
        assert!(end.ends_with("0\r\n\r\n"), "{end}");
    }
}
