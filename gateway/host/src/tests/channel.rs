//! Opening, using and losing a channel (CONTRACT.md, section 1).

use std::time::{Duration, Instant};

use postern_proto::identity::v1::TokenKind;
use postern_types::Timestamp;
use pretty_assertions::assert_eq;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_tungstenite::tungstenite::protocol::frame::{
    Frame,
    coding::{Data, OpCode},
};

use super::{
    World,
    edge::{Edge, success},
    http_client::Answer,
    result, soon,
};

const PATH: &str = "/api/ai-gateway/v1/workspaces/w/channel";

/// Status, code and challenge of a refused handshake.
async fn refused(world: &World, path: &str, headers: &[(&'static str, &str)]) -> (u16, String) {
    let response = Edge::connect(world, path, headers)
        .await
        .err()
        .expect("a refusal");
    let body = response.body().as_deref().expect("a body");
    assert_eq!(
        response.headers()["content-type"],
        "application/problem+json"
    );
    let problem: serde_json::Value = serde_json::from_slice(body).expect("JSON");
    assert_eq!(problem["status"], response.status().as_u16());
    for (_, value) in headers {
        let secret = value.trim_start_matches("Bearer ");
        assert!(
            !String::from_utf8_lossy(body).contains(secret),
            "an echo of what was sent"
        );
    }
    assert_eq!(
        response.status() == 401,
        response
            .headers()
            .get("www-authenticate")
            .is_some_and(|v| v == "Bearer")
    );
    (
        response.status().as_u16(),
        problem["code"].as_str().expect("code").to_owned(),
    )
}

#[tokio::test]
async fn only_the_channel_token_of_the_workspace_opens_a_channel() {
    let world = World::new().await;
    let channel = format!("Bearer {}", world.identity.channel_token("channel", &["w"]));
    let other = format!("Bearer {}", world.identity.channel_token("other", &["v"]));
    let of_kind = |kind| {
        format!(
            "Bearer {}",
            world
                .identity
                .token(&format!("{kind:?}"), kind, |token| token.workspace_ids =
                    vec!["w".to_owned()])
        )
    };
    let cases = [
        (PATH, vec![], (401, "unauthorized")),
        (
            PATH,
            vec![("authorization", "Bearer unknown")],
            (401, "unauthorized"),
        ),
        (
            PATH,
            vec![("authorization", "Basic dTpw")],
            (401, "unauthorized"),
        ),
        (
            PATH,
            vec![("cookie", channel.as_str())],
            (401, "unauthorized"),
        ),
        (
            PATH,
            vec![("sec-websocket-protocol", "secret-of-channel")],
            (401, "unauthorized"),
        ),
        (
            PATH,
            vec![("authorization", other.as_str())],
            (403, "wrong_workspace"),
        ),
        (
            "/api/ai-gateway/v1/workspaces/W/channel",
            vec![("authorization", channel.as_str())],
            (403, "wrong_workspace"),
        ),
    ];
    for (path, headers, expected) in cases {
        let (status, code) = refused(&world, path, &headers).await;
        assert_eq!((status, code.as_str()), expected, "{path} {headers:?}");
    }
    for kind in [TokenKind::Admin, TokenKind::Agent, TokenKind::Owner] {
        assert_eq!(
            refused(&world, PATH, &[("authorization", &of_kind(kind))]).await,
            (403, "wrong_token".to_owned())
        );
    }
    assert!(Edge::open(&world, "w", "secret-of-channel").await.is_ok());
}

#[tokio::test]
async fn a_token_in_the_query_is_refused_and_not_repeated() {
    let world = World::new().await;
    let bearer = format!("Bearer {}", world.identity.channel_token("channel", &["w"]));
    for query in [
        "?",
        "?token=secret-of-channel",
        "?access_token=secret-of-channel&x=1",
    ] {
        let response = Edge::connect(
            &world,
            &format!("{PATH}{query}"),
            &[("authorization", &bearer)],
        )
        .await
        .err()
        .expect("a refusal");
        assert_eq!(response.status(), 400);
        let body = String::from_utf8_lossy(response.body().as_deref().expect("body")).into_owned();
        assert!(body.contains("query_not_allowed") && !body.contains("secret-of-channel"));
    }
}

#[tokio::test]
async fn foreign_web_pages_reach_nothing() {
    let world = World::new().await;
    let bearer = format!("Bearer {}", world.identity.channel_token("channel", &["w"]));
    let foreign = [
        ("origin", "https://evil.example", "origin_not_allowed"),
        ("origin", "null", "origin_not_allowed"),
        (
            "origin",
            "http://localhost.evil.example",
            "origin_not_allowed",
        ),
        ("origin", "file://127.0.0.1", "origin_not_allowed"),
        ("host", "evil.example", "host_not_allowed"),
        ("host", "127.0.0.1.evil.example:80", "host_not_allowed"),
    ];
    for (name, value, code) in foreign {
        let refusal = refused(&world, PATH, &[(name, value), ("authorization", &bearer)]).await;
        assert_eq!(refusal, (403, code.to_owned()), "{name}: {value}");
        for path in ["/mcp", "/identity-api/workspace/list"] {
            let answer = world
                .http(
                    "POST",
                    path,
                    &[(name, value), ("Authorization", &bearer)],
                    "{}",
                )
                .await;
            assert_eq!(
                answer.problem(),
                (403, code.to_owned()),
                "{path} {name}: {value}"
            );
        }
    }
    for origin in [
        format!("http://{}", world.address),
        "http://localhost:6274".to_owned(),
    ] {
        let headers: [(&'static str, &str); 2] = [("origin", &origin), ("authorization", &bearer)];
        assert!(
            Edge::connect(&world, PATH, &headers).await.is_ok(),
            "{origin}"
        );
        assert_eq!(
            refused(&world, PATH, &[("origin", &origin)]).await.0,
            401,
            "{origin} without a token"
        );
    }
}

#[tokio::test]
async fn without_an_upgrade_there_is_no_channel() {
    let world = World::new().await;
    let bearer = format!("Bearer {}", world.identity.channel_token("channel", &["w"]));
    let plain = world
        .http("GET", PATH, &[("Authorization", &bearer)], "")
        .await;
    assert_eq!(plain.problem(), (426, "upgrade_required".to_owned()));
    assert_eq!(plain.headers["sec-websocket-version"], "13");
    assert_eq!(
        world
            .http("POST", PATH, &[("Authorization", &bearer)], "")
            .await
            .problem()
            .0,
        405
    );
}

#[tokio::test]
async fn a_token_opens_four_channels_and_a_host_twenty() {
    let world = World::new().await;
    let workspaces: Vec<_> = (0..22).map(|number| format!("w{number}")).collect();
    let mut open = Vec::new();
    for (group, names) in workspaces.chunks(5).take(4).enumerate() {
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let secret = world.identity.channel_token(&format!("t{group}"), &names);
        for name in &names[..4] {
            open.push((
                *name,
                secret.clone(),
                Edge::open(&world, name, &secret).await.expect("room"),
            ));
        }
        let fifth = Edge::open(&world, names[4], &secret)
            .await
            .err()
            .expect("no room");
        assert_eq!(
            (
                fifth.status().as_u16(),
                fifth.headers().contains_key("retry-after")
            ),
            (429, true)
        );
    }
    let secret = world
        .identity
        .channel_token("more", &["m0", "m1", "m2", "m3", "m4"]);
    for name in ["m0", "m1", "m2", "m3"] {
        open.push((
            name,
            secret.clone(),
            Edge::open(&world, name, &secret).await.expect("room"),
        ));
    }
    let secret = world.identity.channel_token("last", &["l"]);
    let full = Edge::open(&world, "l", &secret)
        .await
        .err()
        .expect("no room");
    assert_eq!(
        (
            full.status().as_u16(),
            full.headers().contains_key("retry-after")
        ),
        (503, true)
    );
    // One that takes over needs no room of its own.
    let (name, secret, _) = &open[0];
    let newer = Edge::open(&world, name, secret).await.expect("a takeover");
    assert_eq!(open[0].2.closed().await, (4409, "superseded".to_owned()));
    // And room that is given back can be used.
    drop(newer);
    drop(open);
    let again = async {
        while Edge::open(&world, "l", "secret-of-last").await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    soon(again).await;
}

#[tokio::test]
async fn a_revoked_or_expired_token_is_cut_and_others_stay() {
    let world = World::new().await;
    let (mut other, _) = world.workspace("other").await;
    let (mut edge, _) = world.workspace("w").await;
    let start = Instant::now();
    world.identity.revoke("channel-of-w");
    assert_eq!(edge.closed().await.0, 4401);
    assert!(start.elapsed() < Duration::from_secs(2));
    assert_eq!(
        Edge::open(&world, "w", "secret-of-channel-of-w")
            .await
            .err()
            .expect("refused")
            .status(),
        401
    );
    let soon_over = Timestamp::now()
        .after(Duration::from_millis(300))
        .as_millis();
    let secret = world.identity.token("short", TokenKind::Channel, |token| {
        token.workspace_ids = vec!["w".to_owned()];
        token.expires_at_ms = Some(soon_over);
    });
    let mut edge = Edge::open(&world, "w", &secret).await.expect("channel");
    assert_eq!(edge.closed().await.0, 4401);
    assert!(other.is_quiet().await);
}

#[tokio::test]
async fn a_stop_closes_channels_as_going_away_and_ends_the_waiting() {
    let world = World::new().await;
    let (mut edge, agent) = world.workspace("w").await;
    let call = agent.start("workspace_info", "{}", Some("mine"));
    edge.call().await;
    world.stop.cancel();
    assert_eq!(edge.closed().await.0, 1001);
    let failure = super::outcome(call).await.expect_err("no answer");
    assert_eq!(
        (failure.code.as_str(), &failure.details["callId"]),
        ("UNAVAILABLE", &json!("mine"))
    );
    soon(world.serving).await.expect("serving ends");
    assert!(world.tasks.shutdown(Duration::from_secs(5)).await);
}

#[tokio::test]
async fn a_silent_edge_is_gone_and_a_slow_one_is_kept() {
    let world = World::with(|limits| {
        limits.ping_interval = Duration::from_millis(100);
        limits.silence = Duration::from_millis(400);
    })
    .await;
    let (mut edge, agent) = world.workspace("w").await;
    let call = agent.start("workspace_info", "{}", None);
    let sent = edge.call().await;
    // A frame that takes longer than the silence to arrive, byte by byte on the wire.
    let text = json!({"type": "result", "id": sent["id"], "sessionId": sent["sessionId"], "result": success(json!({}))}).to_string();
    let mut wire = Vec::new();
    let mut frame = Frame::message(text.into_bytes(), OpCode::Data(Data::Text), true);
    frame.header_mut().mask = Some([0; 4]);
    frame.format(&mut wire).expect("bytes");
    let start = Instant::now();
    for piece in wire.chunks(wire.len() / 8) {
        edge.socket
            .get_mut()
            .write_all(piece)
            .await
            .expect("written");
        edge.socket.get_mut().flush().await.expect("flushed");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(start.elapsed() > Duration::from_millis(700));
    result(call).await;
    // Now it answers nothing more, pings neither, and the host hangs up.
    let mut rest = vec![0; 1024];
    let wire = edge.socket.get_mut();
    soon(async { while !matches!(wire.read(&mut rest).await, Ok(0) | Err(_)) {} }).await;
}

#[tokio::test]
async fn a_handshake_with_a_body_of_nonsense_after_it_is_closed() {
    let world = World::new().await;
    let secret = world.identity.channel_token("channel", &["w"]);
    let request = format!(
        "GET {PATH} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {secret}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        world.address
    );
    let bytes = [request.as_bytes(), b"\x81\x05hello"].concat();
    let answer = soon(world.raw(&bytes)).await;
    let head = Answer::parse(&answer);
    assert_eq!(
        (head.status, head.headers["sec-websocket-accept"].as_str()),
        (101, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")
    );
    // An unmasked frame: protocol error, 1002.
    assert!(
        answer
            .windows(4)
            .any(|bytes| bytes[0] == 0x88 && bytes[2..] == 1002_u16.to_be_bytes())
    );
}
