//! The rules of frames against a real edge, byte by byte (CONTRACT.md, section 1, and RFC 6455): what is let through, what
//! closes the channel with which code, and what an endless message costs.
#![expect(clippy::expect_used, reason = "tests fail by panicking")]

use std::time::{Duration, Instant};

use postern_tests::{
    FakeHost, Program, World, call,
    process::resident_bytes,
    raw::{BINARY, CLOSE, CONTINUATION, FIN, PING, PONG, RawHost, TEXT, frame_bytes},
    start_edge,
};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

/// For a program to be ready.
const READY_LIMIT: Duration = Duration::from_secs(60);
/// Largest message of the protocol in bytes.
const LIMIT: usize = 2_097_152;
/// Longest reason of a close frame in bytes.
const MAX_REASON: usize = 123;
/// First bit that only extensions may set.
const RSV1: u8 = 0x40;

struct Edge {
    _world: World,
    host: FakeHost,
    program: Program,
}

impl Edge {
    async fn start() -> Self {
        let world = World::new();
        let host = FakeHost::listen().await;
        let program = start_edge(&world, host.url(), &["--listen-none"]);
        Self {
            _world: world,
            host,
            program,
        }
    }

    async fn channel(&mut self) -> RawHost {
        let channel = self.host.accept_raw().await;
        self.program.event("connected", READY_LIMIT).await;
        channel
    }

    fn resident_bytes(&self) -> u64 {
        resident_bytes(self.program.pid())
    }
}

fn tools_call() -> String {
    call("call-1", "workspace_tools", &json!({})).to_string()
}

/// The call's frame, padded with white space to `length`.
fn padded(length: usize) -> Vec<u8> {
    let mut text = tools_call().into_bytes();
    text.resize(length, b' ');
    text
}

fn text(payload: &[u8]) -> Vec<u8> {
    frame_bytes(FIN | TEXT, None, payload)
}

/// A call without a field, or with another value in it.
fn call_with(field: &str, value: Option<Value>) -> Vec<u8> {
    let mut frame = call("call-1", "workspace_tools", &json!({}));
    match value {
        Some(value) => frame[field] = value,
        None => {
            frame.as_object_mut().expect("an object").remove(field);
        }
    }
    text(frame.to_string().as_bytes())
}

/// Each case gets a channel of its own; after the close the edge comes again. Each edge takes a few of them: it comes again
/// ever later.
async fn each_closes(cases: Vec<(&str, Vec<u8>, u16)>) {
    for few in cases.chunks(4) {
        let mut edge = Edge::start().await;
        for (what, bytes, expected) in few {
            let mut channel = edge.channel().await;
            channel.bytes(bytes).await;
            let closed = channel.closed().await;
            let (code, reason) = closed.unwrap_or_else(|| panic!("{what}: no close frame"));
            assert_eq!(code, *expected, "{what}: {reason}");
            assert!((1..=MAX_REASON).contains(&reason.len()), "{what}: {reason}");
        }
        let mut channel = edge.channel().await;
        assert_served(&mut channel).await;
    }
}

async fn assert_served(channel: &mut RawHost) {
    channel.frame(FIN | TEXT, tools_call().as_bytes()).await;
    assert_answered(channel).await;
}

async fn assert_answered(channel: &mut RawHost) {
    let frame = channel.next_but_ping().await.expect("a result");
    assert!(frame.masked, "a client masks what it sends");
    assert_eq!(frame.first, FIN | TEXT);
    let result: Value = serde_json::from_slice(&frame.payload).expect("JSON");
    assert_eq!(result["result"]["structuredContent"], json!({"tools": []}));
}

#[tokio::test]
async fn what_is_no_message_of_the_protocol_closes_it() {
    let deep = format!(
        r#"{{"type":"ready","protocol":1,"x":{}1{}}}"#,
        "[".repeat(200),
        "]".repeat(200)
    );
    let doubled = tools_call().replace("\"args\":{}", r#""args":{"a":[{"b":1,"\u0062":2}]}"#);
    each_closes(vec![
        (
            "a binary message",
            frame_bytes(FIN | BINARY, None, b"{}"),
            1003,
        ),
        ("no JSON", text(b"nonsense"), 1008),
        ("an empty message", text(b""), 1008),
        ("an array", text(b"[]"), 1008),
        (
            "two objects",
            text(br#"{"type":"ready","protocol":1} {}"#),
            1008,
        ),
        (
            "a key twice",
            text(br#"{"type":"ready","protocol":1,"type":"ready"}"#),
            1008,
        ),
        (
            "a key twice far below, once escaped",
            text(doubled.as_bytes()),
            1008,
        ),
        ("endless nesting", text(deep.as_bytes()), 1008),
        ("an unknown type", text(br#"{"type":"greeting"}"#), 1008),
        (
            "a result",
            text(br#"{"type":"result","id":"1","sessionId":"s","result":{}}"#),
            1008,
        ),
    ])
    .await;
}

#[tokio::test]
async fn a_missing_or_ill_typed_field_closes_it() {
    let mut cases = Vec::new();
    for field in [
        "type",
        "protocol",
        "id",
        "workspaceId",
        "sessionId",
        "intention",
        "tool",
        "args",
    ] {
        cases.push((field, call_with(field, None), 1008));
        cases.push((field, call_with(field, Some(json!([1]))), 1008));
    }
    cases.push((
        "an id with a space",
        call_with("id", Some(json!("a b"))),
        1008,
    ));
    cases.push((
        "a long id",
        call_with("id", Some(json!("x".repeat(201)))),
        1008,
    ));
    cases.push((
        "no intention",
        call_with("intention", Some(json!(""))),
        1008,
    ));
    cases.push((
        "another protocol",
        call_with("protocol", Some(json!(2))),
        1002,
    ));
    each_closes(cases).await;
}

#[tokio::test]
async fn text_that_is_not_utf_8_closes_it() {
    let split = [
        frame_bytes(TEXT, None, b"{\"\xc3"),
        frame_bytes(FIN | CONTINUATION, None, b"(\":1}"),
    ];
    let unfinished = [
        frame_bytes(TEXT, None, b"{\"\xe2\x82"),
        frame_bytes(FIN | CONTINUATION, None, b""),
    ];
    each_closes(vec![
        ("in one frame", text(b"{\"\xff\xfe\":1}"), 1007),
        ("a surrogate", text(b"{\"\xed\xa0\x80\":1}"), 1007),
        ("split over fragments", split.concat(), 1007),
        ("cut at the end", unfinished.concat(), 1007),
        (
            "in a close reason",
            frame_bytes(FIN | CLOSE, None, b"\x03\xe8\xff\xfe"),
            1007,
        ),
    ])
    .await;
}

#[tokio::test]
async fn what_is_no_websocket_closes_it() {
    let started = |then: Vec<u8>| [frame_bytes(TEXT, None, b"{"), then].concat();
    each_closes(vec![
        (
            "a masked frame",
            frame_bytes(FIN | TEXT, Some([1, 2, 3, 4]), b"{}"),
            1002,
        ),
        (
            "a reserved bit",
            frame_bytes(FIN | RSV1 | TEXT, None, b"{}"),
            1002,
        ),
        (
            "a reserved data opcode",
            frame_bytes(FIN | 3, None, b"{}"),
            1002,
        ),
        (
            "a reserved control opcode",
            frame_bytes(FIN | 11, None, b""),
            1002,
        ),
        (
            "a long ping",
            frame_bytes(FIN | PING, None, &[b'x'; 126]),
            1002,
        ),
        ("a ping in pieces", frame_bytes(PING, None, b"x"), 1002),
        (
            "a continuation of nothing",
            frame_bytes(FIN | CONTINUATION, None, b"{}"),
            1002,
        ),
        ("a message in a message", started(text(b"{}")), 1002),
        (
            "a close of one byte",
            frame_bytes(FIN | CLOSE, None, b"\x03"),
            1002,
        ),
        (
            "a close code that nobody may send",
            frame_bytes(FIN | CLOSE, None, &1005_u16.to_be_bytes()),
            1002,
        ),
    ])
    .await;
}

#[tokio::test]
async fn messages_over_the_limit_close_it() {
    let mut claimed = vec![FIN | TEXT, 127];
    claimed.extend_from_slice(&(1_u64 << 62).to_be_bytes());
    let half = vec![b' '; LIMIT / 2];
    let mut pieces = frame_bytes(TEXT, None, &half);
    pieces.extend(frame_bytes(CONTINUATION, None, &half));
    pieces.extend(frame_bytes(FIN | CONTINUATION, None, b" "));
    each_closes(vec![
        ("one byte too many", text(&padded(LIMIT + 1)), 1009),
        ("one byte too many, in pieces", pieces, 1009),
        ("a length that nobody could keep", claimed, 1009),
    ])
    .await;
}

#[tokio::test]
async fn messages_up_to_the_limit_are_served_also_in_pieces() {
    let mut edge = Edge::start().await;
    let mut channel = edge.channel().await;
    let largest = padded(LIMIT);
    channel.frame(FIN | TEXT, &largest).await;
    assert_answered(&mut channel).await;

    // In pieces of every kind, with control frames between them; one cuts a character.
    let mut call = call("call-1", "workspace_tools", &json!({}));
    call["later"] = json!("é");
    let mut message = call.to_string().into_bytes();
    message.resize(LIMIT, b' ');
    let cut = message
        .iter()
        .position(|byte| *byte == 0xc3)
        .expect("a long character")
        + 1;
    channel.frame(TEXT, &message[..cut]).await;
    channel.frame(FIN | PING, b"still there?").await;
    let pong = channel.next_but_ping().await.expect("a pong");
    assert_eq!(
        (pong.first, &*pong.payload),
        (FIN | PONG, &b"still there?"[..])
    );
    channel.frame(CONTINUATION, b"").await;
    channel.frame(CONTINUATION, &message[cut..LIMIT / 2]).await;
    channel.frame(FIN | PONG, b"unasked").await;
    channel
        .frame(FIN | CONTINUATION, &message[LIMIT / 2..])
        .await;
    assert_answered(&mut channel).await;
    // And said once more it is ready as before.
    channel
        .frame(FIN | TEXT, br#"{"type":"ready","protocol":1,"more":{}}"#)
        .await;
    assert_served(&mut channel).await;
}

/// B36: the limit is one of messages, not of frames, and holds while they arrive.
#[tokio::test]
async fn an_endless_message_is_not_kept() {
    const FRAGMENT: usize = 64 * 1024;
    const ENOUGH: usize = 64 << 20;
    const ROOM: u64 = 16 << 20;
    let mut edge = Edge::start().await;
    let mut channel = edge.channel().await;
    assert_served(&mut channel).await;
    let before = edge.resident_bytes();
    let fragment = frame_bytes(CONTINUATION, None, &[b' '; FRAGMENT]);
    channel.frame(TEXT, b"{").await;
    let began = Instant::now();
    let (mut sent, mut most) = (0, 0);
    // Goes on whether it is told to stop or not, until nobody takes any more.
    while sent < ENOUGH && channel.bytes(&fragment).await {
        sent += FRAGMENT;
        if sent % (16 * FRAGMENT) == 0 {
            most = most.max(edge.resident_bytes());
        }
    }
    assert!(sent > LIMIT, "only {sent} bytes went out");
    assert!(
        most < before + ROOM,
        "{before} bytes before, {most} while it came"
    );
    let (code, reason) = channel.closed().await.expect("closed in order");
    assert_eq!(code, 1009, "{reason}");
    assert!(began.elapsed() < READY_LIMIT);
    let mut channel = edge.channel().await;
    assert_served(&mut channel).await;
}
