//! What a connection may hold, and for how long.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use pretty_assertions::assert_eq;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::{World, edge::Edge, http_client::Answer, soon};

#[tokio::test]
async fn a_head_without_end_is_refused() {
    let world = World::new().await;
    let mut stream = TcpStream::connect(&world.address)
        .await
        .expect("connection");
    let start = Instant::now();
    let mut sent = 0;
    let _early = stream
        .write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Large: ")
        .await;
    while sent < 20 * 1024 * 1024 && stream.write_all(&[b'x'; 4096]).await.is_ok() {
        sent += 4096;
    }
    assert!(sent < 20 * 1024 * 1024, "all of it was taken");
    assert!(start.elapsed() < Duration::from_secs(5));
    let many: String = (0..100)
        .map(|number| format!("x-{number}: 1\r\n"))
        .collect();
    let answer = world
        .raw(format!("GET / HTTP/1.1\r\nHost: localhost\r\n{many}\r\n").as_bytes())
        .await;
    assert_eq!(Answer::parse(&answer).status, 431);
}

#[tokio::test]
async fn half_requests_are_hung_up_on_and_others_are_served_meanwhile() {
    let world = World::with(|limits| limits.request_timeout = Duration::from_millis(1500)).await;
    let secret = world.identity.channel_token("channel", &["w"]);
    let halves = [
        "",
        "GET /api/ai-gateway/v1/workspaces/w/channel HTTP/1.1\r\nUpgrade: websocket\r\n",
        "POST /identity-api/workspace/list HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer secret-of-channel\r\nContent-Length: 9\r\n\r\n{",
    ];
    let mut stalled = Vec::new();
    for number in 0..300 {
        let mut stream = TcpStream::connect(&world.address)
            .await
            .expect("connection");
        stream
            .write_all(halves[number % halves.len()].as_bytes())
            .await
            .expect("half");
        stalled.push(stream);
    }
    let start = Instant::now();
    Edge::open(&world, "w", &secret).await.expect("channel");
    assert_eq!(world.http("GET", "/healthz", &[], "").await.status, 200);
    assert!(start.elapsed() < Duration::from_secs(1));
    let ends = stalled.into_iter().map(|mut stream| async move {
        let mut rest = Vec::new();
        let _reset = stream.read_to_end(&mut rest).await;
    });
    soon(join_all(ends)).await;
}

#[tokio::test]
async fn connections_over_the_bound_wait_for_room() {
    let world = World::with(|limits| {
        limits.connections = 2;
        limits.request_timeout = Duration::from_millis(500);
    })
    .await;
    let mut stalled = Vec::new();
    for _ in 0..4 {
        stalled.push(
            TcpStream::connect(&world.address)
                .await
                .expect("connection"),
        );
    }
    assert_eq!(world.http("GET", "/healthz", &[], "").await.status, 200);
}
