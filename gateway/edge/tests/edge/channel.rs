//! The channel: handshake, frames, liveness, reconnecting and the end (CONTRACT.md, section 1).

use std::time::Duration;

use bytes::Bytes;
use futures_util::SinkExt as _;
use postern_edge::{ChannelState, End, Error, Event};
use postern_types::Mode;
use pretty_assertions::assert_eq;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_tungstenite::tungstenite::{
    Message,
    protocol::frame::{
        Frame,
        coding::{Data, OpCode},
    },
};

use crate::{
    host::{call, code},
    rig::{Rig, TOKEN, ask},
    services::Fault,
};

#[tokio::test]
async fn the_token_travels_in_the_header_alone() {
    let rig = Rig::new().await;
    let _run = rig.start_with(rig.config(Mode::Full)).await;
    let (_channel, asked) = rig.host.accept().await;
    assert_eq!(asked.path, "/api/ai-gateway/v1/workspaces/work/channel");
    assert_eq!(asked.authorization, Some(format!("Bearer {TOKEN}")));
}

#[tokio::test]
async fn nothing_is_served_before_ready() {
    let rig = Rig::new().await;
    let _run = rig.start_with(rig.config(Mode::Full)).await;
    let (mut channel, _) = rig.host.accept().await;
    channel
        .call(&call(
            "1",
            "workspace_write",
            json!({"path": "a", "content": "x", "expectedSha256": null}),
        ))
        .await;
    let (code, _) = channel.closed().await.expect("close");
    assert_eq!(code, 1008);
    assert_eq!(rig.world.get("a"), None);
}

#[tokio::test]
async fn a_host_that_never_says_ready_is_given_up() {
    let rig = Rig::new().await;
    let mut config = rig.config(Mode::Full);
    config.ready_timeout = Duration::from_millis(50);
    let mut run = rig.start_with(config).await;
    let (mut channel, _) = rig.host.accept().await;
    assert_eq!(channel.closed().await.expect("close").0, 1002);
    assert!(matches!(run.event().await, Event::Disconnected { .. }));
    rig.host.accept().await;
}

#[tokio::test]
async fn another_protocol_number_is_1002() {
    for frame in [
        r#"{"type":"ready","protocol":2}"#,
        r#"{"type":"call","protocol":2,"id":"1","workspaceId":"work","sessionId":"s","intention":"i","tool":"t","args":{}}"#,
    ] {
        let rig = Rig::new().await;
        let _run = rig.start_with(rig.config(Mode::Full)).await;
        let (mut channel, _) = rig.host.accept().await;
        if frame.contains("call") {
            channel.send(r#"{"type":"ready","protocol":1}"#).await;
        }
        channel.send(frame).await;
        assert_eq!(channel.closed().await.expect("close").0, 1002, "{frame}");
    }
}

#[tokio::test]
async fn what_is_no_frame_closes_the_channel() {
    let deep = format!(
        r#"{{"type":"call","x":{}1{}}}"#,
        "[".repeat(200),
        "]".repeat(200)
    );
    let ping = |opcode| {
        Message::Frame(Frame::message(
            Bytes::from_static(b"\xff\xfe"),
            opcode,
            true,
        ))
    };
    let cases = [
        (Message::Text("nonsense".into()), 1008),
        (Message::Text("[]".into()), 1008),
        (Message::Text(r#"{"type":"other"}"#.into()), 1008),
        (
            Message::Text(r#"{"type":"ready","protocol":1,"protocol":1}"#.into()),
            1008,
        ),
        (
            Message::Text(r#"{"type":"call","protocol":1,"id":"1"}"#.into()),
            1008,
        ),
        (Message::Text(deep.into()), 1008),
        (Message::Binary(Bytes::from_static(b"{}")), 1003),
        (ping(OpCode::Data(Data::Text)), 1007),
        (Message::Text(" ".repeat(2_097_153).into()), 1009),
    ];
    for (message, expected) in cases {
        let rig = Rig::new().await;
        let (_run, mut channel) = rig.start(Mode::Full).await;
        channel.0.send(message).await.expect("send");
        let (code, reason) = channel.closed().await.expect("close");
        assert_eq!(code, expected, "{reason}");
        assert!(reason.len() <= 123);
        // And a new channel serves again.
        let mut channel = rig.host.ready().await;
        assert_eq!(
            ask(&mut channel, "1", "workspace_tools", json!({})).await,
            json!({"tools": []})
        );
    }
}

#[tokio::test]
async fn a_message_of_endless_fragments_is_1009_before_it_is_kept() {
    let rig = Rig::new().await;
    let (_run, mut channel) = rig.start(Mode::Full).await;
    let fragment = Bytes::from(vec![b' '; 64 * 1024]);
    for index in 0..40 {
        let opcode = if index == 0 {
            Data::Text
        } else {
            Data::Continue
        };
        let frame = Frame::message(fragment.clone(), OpCode::Data(opcode), false);
        if channel.0.send(Message::Frame(frame)).await.is_err() {
            break;
        }
    }
    assert_eq!(channel.closed().await.expect("close").0, 1009);
}

#[tokio::test]
async fn a_frame_of_exactly_the_limit_is_served() {
    let rig = Rig::new().await;
    let (_run, mut channel) = rig.start(Mode::Full).await;
    let mut frame = call("1", "workspace_tools", json!({})).to_string();
    frame.push_str(&" ".repeat(2_097_152 - frame.len()));
    channel.send(&frame).await;
    assert_eq!(channel.content().await, json!({"tools": []}));
}

#[tokio::test]
async fn unknown_fields_are_ignored_and_ready_may_be_said_again() {
    let rig = Rig::new().await;
    let (_run, mut channel) = rig.start(Mode::Full).await;
    channel
        .send(r#"{"type":"ready","protocol":1,"more":{}}"#)
        .await;
    let mut call = call("1", "workspace_tools", json!({}));
    call["later"] = json!(["x"]);
    channel.call(&call).await;
    assert_eq!(channel.content().await, json!({"tools": []}));
}

#[tokio::test]
async fn refusals_that_cannot_pass_end_the_edge() {
    for status in [
        "301 Moved Permanently\r\nLocation: http://127.0.0.1:1/",
        "307 Temporary Redirect\r\nLocation: http://evil.example/",
        "401 Unauthorized",
        "403 Forbidden",
        "404 Not Found",
    ] {
        let rig = Rig::new().await;
        let run = rig.start_with(rig.config(Mode::Full)).await;
        let response = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
        rig.host.refuse(&response).await;
        let End::Unauthorized(reason) = run.end().await else {
            panic!("{status} must end the edge as unauthorized");
        };
        assert!(
            !reason.contains('\n') && !reason.contains(TOKEN),
            "{reason}"
        );
        assert!(rig.host.is_left_alone(Duration::from_millis(20)).await);
    }
}

#[tokio::test]
async fn refusals_that_may_pass_are_tried_again_no_sooner_than_asked() {
    let rig = Rig::new().await;
    let mut run = rig.start_with(rig.config(Mode::Full)).await;
    rig.host
        .refuse("HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n")
        .await;
    assert!(matches!(run.event().await, Event::Disconnected { .. }));
    let refused = tokio::time::Instant::now();
    assert_eq!(run.control.status().channel, ChannelState::Waiting);
    rig.host.ready().await;
    assert!(refused.elapsed() >= Duration::from_millis(900));
    assert_eq!(run.event().await, Event::Connected);
}

#[tokio::test]
async fn a_host_that_stops_in_the_handshake_is_given_up() {
    let rig = Rig::new().await;
    let mut config = rig.config(Mode::Full);
    config.connect_timeout = Duration::from_millis(50);
    let mut run = rig.start_with(config).await;
    let mut stuck = rig.host.socket().await;
    stuck.write_all(b"HTTP/1.1 101 Swit").await.expect("write");
    assert!(matches!(run.event().await, Event::Disconnected { .. }));
    rig.host.socket().await;
}

#[tokio::test]
async fn a_newer_channel_and_a_revoked_token_end_the_edge() {
    let rig = Rig::new().await;
    let (run, mut channel) = rig.start(Mode::Full).await;
    channel.close(4409).await;
    assert!(matches!(run.end().await, End::Superseded(reason) if reason.contains("superseded")));

    let rig = Rig::new().await;
    let (run, mut channel) = rig.start(Mode::Full).await;
    channel.close(4401).await;
    assert!(matches!(run.end().await, End::Unauthorized(_)));
    assert!(rig.host.is_left_alone(Duration::from_millis(20)).await);
}

#[tokio::test]
async fn any_other_close_is_followed_by_a_new_channel() {
    let rig = Rig::new().await;
    let (mut run, mut channel) = rig.start(Mode::Full).await;
    channel.close(1001).await;
    assert!(matches!(run.event().await, Event::Disconnected { .. }));
    let _channel = rig.host.ready().await;
    assert_eq!(run.event().await, Event::Connected);
}

#[tokio::test]
async fn a_silent_host_is_gone() {
    let rig = Rig::new().await;
    let mut config = rig.config(Mode::Full);
    config.silence_limit = Duration::from_millis(80);
    config.ping_interval = Duration::from_secs(60);
    let mut run = rig.start_with(config).await;
    let _channel = rig.host.ready().await;
    assert_eq!(run.event().await, Event::Connected);
    assert!(matches!(run.event().await, Event::Disconnected { .. }));
}

#[tokio::test]
async fn pings_keep_an_idle_channel_and_a_slow_message_is_not_cut() {
    let rig = Rig::new().await;
    let mut config = rig.config(Mode::Full);
    config.silence_limit = Duration::from_millis(400);
    config.ping_interval = Duration::from_millis(50);
    let mut run = rig.start_with(config).await;
    let mut channel = rig.host.ready().await;
    assert_eq!(run.event().await, Event::Connected);

    // One frame, a byte group at a time, over more than twice the silence limit: the host answers no ping meanwhile.
    let mut text = call("1", "workspace_tools", json!({})).to_string();
    text.push_str(&" ".repeat(1000 - text.len()));
    let mut frame = vec![0x81, 126];
    frame.extend_from_slice(&1000_u16.to_be_bytes());
    frame.extend_from_slice(text.as_bytes());
    for piece in frame.chunks(100) {
        let socket = channel.0.get_mut();
        socket.write_all(piece).await.expect("write");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(channel.content().await, json!({"tools": []}));
    assert!(run.events.try_recv().is_err(), "the channel was cut");
}

#[tokio::test]
async fn the_owner_closes_and_opens_the_channel() {
    let rig = Rig::new().await;
    let (mut run, mut channel) = rig.start(Mode::Full).await;
    run.control.set_open(false);
    assert_eq!(
        channel.closed().await,
        Some((1001, "closed by the owner".to_owned()))
    );
    assert!(matches!(run.event().await, Event::Disconnected { .. }));
    assert!(rig.host.is_left_alone(Duration::from_millis(50)).await);
    assert!(!run.control.status().connected);
    run.control.set_open(true);
    let _channel = rig.host.ready().await;
    assert_eq!(run.event().await, Event::Connected);
    assert!(run.control.status().connected);
}

#[tokio::test]
async fn shutdown_lets_running_effects_end_and_takes_no_new_call() {
    let rig = Rig::new().await;
    let (run, mut channel) = rig.start(Mode::Full).await;
    rig.world.next_effect(Fault::Held);
    channel
        .call(&call(
            "1",
            "workspace_write",
            json!({"path": "a", "content": "x", "expectedSha256": null}),
        ))
        .await;
    rig.world.until("held", 1).await;
    run.stop.cancel();
    channel
        .call(&call(
            "2",
            "workspace_write",
            json!({"path": "b", "content": "x", "expectedSha256": null}),
        ))
        .await;
    rig.world.release();
    assert_eq!(channel.content().await["path"], "a");
    assert_eq!(
        channel.closed().await,
        Some((1001, "shutting down".to_owned()))
    );
    assert_eq!(run.end().await, End::Stopped);
    assert_eq!(rig.world.get("b"), None);
    assert_eq!(rig.world.count("complete ok"), 1);
}

#[tokio::test]
async fn shutdown_does_not_wait_longer_than_its_limit() {
    let rig = Rig::new().await;
    let mut config = rig.config(Mode::Full);
    config.drain_limit = Duration::from_millis(50);
    let run = rig.start_with(config).await;
    let mut channel = rig.host.ready().await;
    rig.world.next_effect(Fault::HangBefore);
    channel
        .call(&call(
            "1",
            "workspace_write",
            json!({"path": "a", "content": "x", "expectedSha256": null}),
        ))
        .await;
    rig.world.until("hanging", 1).await;
    run.stop.cancel();
    assert_eq!(channel.closed().await.expect("close").0, 1001);
    assert_eq!(run.end().await, End::Stopped);
}

#[tokio::test]
async fn a_shutdown_during_the_backoff_is_at_once() {
    let rig = Rig::new().await;
    let mut run = rig.start_with(rig.config(Mode::Full)).await;
    rig.host
        .refuse("HTTP/1.1 429 Too Many Requests\r\nRetry-After: 3000\r\nContent-Length: 0\r\n\r\n")
        .await;
    run.event().await;
    run.stop.cancel();
    assert_eq!(run.end().await, End::Stopped);
}

#[tokio::test]
async fn plaintext_to_another_machine_is_refused_before_anything_is_sent() {
    let rig = Rig::new().await;
    let mut config = rig.config(Mode::Full);
    config.host_url = "http://host.example:7300".to_owned();
    assert!(matches!(
        rig.try_start(config).await,
        Err(Error::HostUrl(reason)) if reason.contains("plaintext")
    ));
}

#[tokio::test]
async fn another_project_than_the_pinned_one_does_not_start() {
    let rig = Rig::new().await;
    let mut config = rig.config(Mode::Full);
    config.project_path = "/elsewhere".into();
    assert!(matches!(rig.try_start(config).await, Err(Error::Pin(_))));
    assert_eq!(rig.world.book().incarnation, 0);
}

#[tokio::test]
async fn a_second_edge_on_the_same_ledger_ends_the_first() {
    let rig = Rig::new().await;
    let (run, mut channel) = rig.start(Mode::Full).await;
    let other = rig.next_life().await;
    let (_other_run, _other_channel) = other.start(Mode::Full).await;
    let content = ask(
        &mut channel,
        "1",
        "workspace_write",
        json!({"path": "a", "content": "x", "expectedSha256": null}),
    )
    .await;
    assert_eq!(code(&content), "UNAVAILABLE");
    assert!(matches!(run.end().await, End::Failed(_)));
    assert_eq!(rig.world.get("a"), None);
}

#[tokio::test]
async fn a_plain_web_server_is_no_host() {
    let rig = Rig::new().await;
    let mut run = rig.start_with(rig.config(Mode::Full)).await;
    let mut socket = rig.host.socket().await;
    let _ = socket.read(&mut [0; 4096]).await;
    socket
        .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
        .await
        .expect("write");
    assert!(matches!(run.event().await, Event::Disconnected { .. }));
}
