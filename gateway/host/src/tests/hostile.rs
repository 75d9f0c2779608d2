//! Requests that mean no good, or are made by a fuzzer: each is answered with a clear problem, and nothing is asked of identity.

use std::time::{Duration, Instant};

use postern_proto::identity::v1::TokenKind;
use pretty_assertions::assert_eq;
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::{World, http_client::Answer, soon};
use crate::{host::described_routes, openapi};

const WORKSPACE: &str = "33333333-3333-4333-8333-333333333333";

/// A body of the identity API in which `$W` stands for a workspace.
fn body(text: &str) -> String {
    text.replace("$W", WORKSPACE)
}

/// Bodies that mean nothing; `$W` stands for a workspace.
const NONSENSE: &[(&str, &str)] = &[
    ("workspace/create", ""),
    ("workspace/create", "null"),
    ("workspace/create", r#"{"name":"a\u0000b"}"#),
    ("workspace/create", r#"{"name":"\ud800"}"#),
    ("workspace/create", r#"{"name":"n"} {}"#),
    ("workspace/create", r#"{"name":"n","name":"n"}"#),
    (
        "launch/create",
        r#"{"workspace_id":"$W","intention":"a\u0000b"}"#,
    ),
    (
        "launch/create",
        r#"{"workspace_id":"$W","intention":"i","expires_in":1e400}"#,
    ),
    (
        "launch/create",
        r#"{"workspace_id":"$W","intention":"i","expires_in":1e300}"#,
    ),
    (
        "launch/create",
        r#"{"workspace_id":"$W","intention":"i","expires_in":1.5}"#,
    ),
    (
        "launch/create",
        r#"{"workspace_id":"$W","intention":"i","expires_in":316224001}"#,
    ),
    (
        "launch/create",
        r#"{"workspace_id":"$W","intention":"i","expires_in":null}"#,
    ),
    (
        "launch/create",
        r#"{"workspace_id":"{$W}","intention":"i"}"#,
    ),
    ("token/create", r#"{"workspace_id":"$W","role":"Owner"}"#),
    ("token/create", r#"{"workspace_id":"$W","role":null}"#),
    ("token/revoke", r#"{"id":""}"#),
    ("token/revoke", r#"{"id":"a\u0000b"}"#),
];

#[tokio::test]
async fn bodies_of_no_sense_are_told_so() {
    let world = World::new().await;
    let admin = world.identity.token("admin", TokenKind::Admin, |_| {});
    let deep = format!(
        r#"{{"name":{}1{}}}"#,
        "[".repeat(20_000),
        "]".repeat(20_000)
    );
    let long_field = format!(r#"{{"{}":1}}"#, "f".repeat(60_000));
    let long = [
        ("workspace/create", deep.as_str()),
        ("workspace/create", long_field.as_str()),
    ];
    for (path, text) in NONSENSE.iter().copied().chain(long) {
        let answer = world
            .post(&format!("/identity-api/{path}"), &admin, &body(text))
            .await;
        assert_eq!(
            answer.problem(),
            (400, "invalid_request".to_owned()),
            "{path} {text:.200}"
        );
        assert!(answer.body.len() < 1000, "it repeats what was sent");
    }
    assert_eq!(world.identity.asked(), Vec::<String>::new());
    // To JSON these are whole numbers.
    for life in ["60", "60.0", "6e1"] {
        let text = body(r#"{"workspace_id":"$W","role":"viewer","expires_in":LIFE}"#);
        let answer = world
            .post(
                "/identity-api/token/create",
                &admin,
                &text.replace("LIFE", life),
            )
            .await;
        assert_eq!(answer.status, 200, "{life}: {answer:?}");
    }
}

#[tokio::test]
async fn other_methods_and_paths_are_problems_too() {
    let world = World::new().await;
    let document = openapi::document(&described_routes(), "");
    let paths = document["paths"].as_object().expect("paths");
    for (path, methods) in paths {
        let path = path.replace("{workspaceId}", WORKSPACE);
        for method in [
            "GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "NONSENSE",
        ] {
            let answer = world.http(method, &path, &[], "").await;
            if methods.get(method.to_ascii_lowercase()).is_some() {
                assert!(!matches!(answer.status, 404 | 405), "{method} {path}");
                continue;
            }
            assert_eq!(
                answer.problem(),
                (405, "method_not_allowed".to_owned()),
                "{method} {path}"
            );
            let allowed = &answer.headers["allow"];
            for method in methods.as_object().expect("methods").keys() {
                assert!(
                    allowed
                        .split(',')
                        .any(|name| name.trim().eq_ignore_ascii_case(method)),
                    "{path}: {allowed}"
                );
            }
        }
    }
    for path in [
        "/identity-api/",
        "/identity-api/workspace/list/",
        "/identity-api/workspace%2Flist",
        "/identity-api/../healthz",
        "/api/ai-gateway/v1/workspaces/%FF/channel",
        "//healthz",
        "/%00",
    ] {
        assert_eq!(
            world.http("GET", path, &[], "").await.problem(),
            (404, "not_found".to_owned()),
            "{path}"
        );
    }
}

#[tokio::test]
async fn a_token_that_ends_before_the_work_is_told_as_one_that_has_ended() {
    let world = World::new().await;
    let agent = world.identity.token("agent", TokenKind::Agent, |_| {});
    let answer = world
        .post(
            "/identity-api/workspace/create",
            &agent,
            r#"{"name":"revoked meanwhile"}"#,
        )
        .await;
    assert_eq!(answer.problem(), (401, "unauthorized".to_owned()));
    assert!(answer.headers["www-authenticate"].starts_with("Bearer resource_metadata="));
}

/// Sends a head, then what is given, and reads what comes.
async fn half(world: &World, secret: &str, head: &str, sent: &str) -> Answer {
    let mut stream = TcpStream::connect(&world.address)
        .await
        .expect("connection");
    let head = format!(
        "POST /identity-api/workspace/list HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {secret}\r\n\
         Content-Type: application/json\r\n{head}\r\n\r\n{sent}"
    );
    stream.write_all(head.as_bytes()).await.expect("half");
    let mut answer = Vec::new();
    let _reset = soon(stream.read_to_end(&mut answer)).await;
    Answer::parse(&answer)
}

#[tokio::test]
async fn bodies_that_stand_still_or_break_off_are_told_so() {
    let limit = Duration::from_millis(400);
    let world = World::with(|limits| limits.request_timeout = limit).await;
    let admin = world.identity.token("admin", TokenKind::Admin, |_| {});
    let start = Instant::now();
    for (head, sent) in [
        ("Content-Length: 9", ""),
        ("Content-Length: 9", "{"),
        ("Transfer-Encoding: chunked", "1\r\n{\r\n"),
        ("Content-Length: 999999999", "{"),
    ] {
        assert_eq!(
            half(&world, &admin, head, sent).await.problem(),
            (408, "body_too_slow".to_owned()),
            "{head}"
        );
    }
    assert!(start.elapsed() < 4 * limit + Duration::from_secs(5));
    let broken = half(
        &world,
        &admin,
        "Transfer-Encoding: chunked",
        "nonsense\r\n{}",
    )
    .await;
    assert_eq!(broken.problem(), (400, "invalid_request".to_owned()));
}

#[tokio::test]
async fn what_is_refused_repeats_no_token() {
    let world = World::new().await;
    let agent = world.identity.token("agent", TokenKind::Agent, |_| {});
    for (path, secret) in [
        ("/identity-api/token/list", agent.as_str()),
        ("/identity-api/token/list", "canary-of-nobody"),
        ("/identity-api/nothing", agent.as_str()),
    ] {
        let answer = world.post(path, secret, "{}").await;
        assert!(matches!(answer.status, 401 | 403 | 404), "{answer:?}");
        let told: Value = answer.json();
        assert!(!format!("{told} {:?}", answer.headers).contains(secret));
    }
}
