//! Strangers at the door of a real host: handshakes that never end hold nobody up (B38), nor do they cost much.
#![expect(clippy::expect_used, reason = "tests fail by panicking")]

use std::time::{Duration, Instant};

use postern_tests::RealHost;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

/// For an attack to be over.
const LIMIT: Duration = Duration::from_secs(60);
/// For an honest edge to connect.
const PROMPT: Duration = Duration::from_secs(1);
/// Attempts of the honest edge, of which most must be prompt: the machine has its own bad moments.
const ATTEMPTS: usize = 5;

async fn connect(host: &RealHost) -> TcpStream {
    let address = host.url.trim_start_matches("http://");
    TcpStream::connect(address).await.expect("a connection")
}

fn cpu(host: &RealHost) -> Duration {
    let processes = host.world.processes();
    let process = processes
        .iter()
        .find(|process| process.pid == host.program.pid());
    process.expect("the host lives").cpu
}

async fn assert_prompt(host: &RealHost) {
    let mut taken = Vec::new();
    for _ in 0..ATTEMPTS {
        let began = Instant::now();
        drop(host.edge().await);
        taken.push(began.elapsed());
    }
    taken.sort_unstable();
    assert!(taken[ATTEMPTS / 2] < PROMPT, "{taken:?}");
}

#[tokio::test]
async fn a_header_without_end_is_refused_while_it_arrives() {
    const ALL: usize = 20 << 20;
    const PIECE: [u8; 4096] = [b'x'; 4096];
    let host = RealHost::start().await;
    let before = cpu(&host);
    let mut stream = connect(&host).await;
    let head = format!(
        "GET /api/ai-gateway/v1/workspaces/{}/channel HTTP/1.1\r\nHost: localhost\r\nX-Long: ",
        host.workspace
    );
    let attack = async {
        stream.write_all(head.as_bytes()).await.expect("taken");
        let mut sent = 0;
        while sent < ALL && stream.write_all(&PIECE).await.is_ok() {
            sent += PIECE.len();
        }
        sent
    };
    let (sent, ()) = tokio::join!(timeout(LIMIT, attack), assert_prompt(&host));
    let sent = sent.expect("refused in time");
    assert!(sent < ALL, "all of it was taken");
    let spent = cpu(&host) - before;
    assert!(spent < Duration::from_secs(1), "{spent:?}");
}

#[tokio::test]
async fn stalled_handshakes_hold_nobody_up() {
    let host = RealHost::start().await;
    let halves = [
        String::new(),
        format!(
            "GET /api/ai-gateway/v1/workspaces/{}/channel HTTP/1.1\r\nUpgrade: websocket\r\n",
            host.workspace
        ),
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Le".to_owned(),
    ];
    let mut stalled = Vec::new();
    for number in 0..300 {
        let mut stream = connect(&host).await;
        let half = &halves[number % halves.len()];
        stream.write_all(half.as_bytes()).await.expect("taken");
        stalled.push(stream);
    }
    assert_prompt(&host).await;
    // Each is hung up on within the time for a head, without an answer that could be mistaken for one.
    let mut first = stalled.swap_remove(0);
    let mut rest = Vec::new();
    let ended = timeout(LIMIT, first.read_to_end(&mut rest)).await;
    assert!(ended.is_ok(), "still open");
    assert!(!rest.starts_with(b"HTTP/1.1 101") && !rest.starts_with(b"HTTP/1.1 2"));
    assert_prompt(&host).await;
}
