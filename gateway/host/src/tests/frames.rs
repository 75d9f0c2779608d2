//! What is no frame, and what is too large for one (CONTRACT.md, section 1).

use futures_util::{SinkExt as _, StreamExt as _};
use postern_proto::catalogue::MAX_FRAME_BYTES;
use postern_proto::channel::result_frame;
use pretty_assertions::assert_eq;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};

use super::edge::Edge;
use super::{World, result, soon};

#[tokio::test]
async fn what_is_no_frame_ends_the_channel_with_its_code() {
    let world = World::new().await;
    world.identity.channel_token("channel", &["w"]);
    let bad_text = Message::Frame(Frame::message(
        vec![0xff, 0xfe],
        OpCode::Data(Data::Text),
        true,
    ));
    let cases = [
        (Message::binary(vec![1, 2, 3]), 1003),
        (bad_text, 1007),
        (Message::text("no JSON"), 1008),
        (Message::text("[]"), 1008),
        (
            Message::text(r#"{"type":"result","id":"a","id":"b","sessionId":"s","result":{}}"#),
            1008,
        ),
        (
            Message::text(r#"{"type":"result","id":"a","sessionId":"s","result":{"x":1,"x":2}}"#),
            1008,
        ),
        (Message::text(r#"{"type":"call"}"#), 1008),
        (
            Message::text(r#"{"type":"result","id":"a","result":{}}"#),
            1008,
        ),
        (
            Message::text(r#"{"type":"result","id":7,"sessionId":"s","result":{}}"#),
            1008,
        ),
        (
            Message::text(r#"{"type":"result","id":"a","sessionId":"s","result":[]}"#),
            1008,
        ),
    ];
    for (message, code) in cases {
        let mut edge = Edge::open(&world, "w", "secret-of-channel")
            .await
            .expect("channel");
        let told = format!("{message:?}");
        edge.send(message).await;
        let (closed, reason) = edge.closed().await;
        assert_eq!(closed, code, "{told}");
        assert!(!reason.is_empty() && reason.len() <= 123, "{reason}");
    }
    // Extra fields and results that answer nothing are ignored.
    let mut edge = Edge::open(&world, "w", "secret-of-channel")
        .await
        .expect("channel");
    edge.send(Message::text(
        r#"{"type":"result","id":"a","sessionId":"s","result":{},"more":1}"#,
    ))
    .await;
    assert!(edge.is_quiet().await);
}

#[tokio::test]
async fn a_message_over_the_limit_is_refused_while_it_arrives() {
    let world = World::new().await;
    let (mut edge, agent) = world.workspace("w").await;
    // Exactly the limit passes.
    let call = agent.start("workspace_info", "{}", None);
    let sent = edge.call().await;
    let (id, session) = (
        sent["id"].as_str().expect("id"),
        sent["sessionId"].as_str().expect("session"),
    );
    let around = result_frame(id, session, r#"{"content":[],"x":""}"#)
        .expect("frame")
        .len();
    let largest = format!(
        r#"{{"content":[],"x":"{}"}}"#,
        "y".repeat(MAX_FRAME_BYTES - around)
    );
    let frame = result_frame(id, session, &largest).expect("frame");
    assert_eq!(frame.len(), MAX_FRAME_BYTES);
    edge.send(Message::text(frame)).await;
    assert_eq!(
        result(call).await["x"].as_str().expect("text").len(),
        MAX_FRAME_BYTES - around
    );
    // One frame too large: the rest of it is read, so the reason reaches the edge.
    let _sent = edge
        .socket
        .send(Message::text("x".repeat(MAX_FRAME_BYTES + 1)))
        .await;
    assert_eq!(edge.closed().await.0, 1009);
}

#[tokio::test]
async fn a_message_of_fragments_without_end_is_refused_at_the_limit() {
    let world = World::new().await;
    world.identity.channel_token("channel-of-w", &["w"]);
    let edge = Edge::open(&world, "w", "secret-of-channel-of-w")
        .await
        .expect("channel");
    let piece = vec![b'x'; 64 * 1024];
    let (mut sink, stream) = edge.socket.split();
    let flood = async {
        let mut kind = Data::Text;
        let mut sent = 0;
        while sink
            .send(Message::Frame(Frame::message(
                piece.clone(),
                OpCode::Data(kind),
                false,
            )))
            .await
            .is_ok()
        {
            kind = Data::Continue;
            sent += piece.len();
        }
        sent
    };
    let close = stream.filter_map(|message| async move {
        match message.expect("a message") {
            Message::Close(Some(close)) => Some(u16::from(close.code)),
            Message::Close(None)
            | Message::Text(_)
            | Message::Binary(_)
            | Message::Ping(_)
            | Message::Pong(_)
            | Message::Frame(_) => None,
        }
    });
    let mut close = std::pin::pin!(close);
    tokio::select! {
        code = soon(close.next()) => assert_eq!(code, Some(1009)),
        sent = flood => panic!("the connection broke after {sent} bytes without a reason"),
    }
}
