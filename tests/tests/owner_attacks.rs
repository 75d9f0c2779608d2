//! What others get from the owner's API: nothing; and what it says to requests that are none.

use http::{Method, StatusCode};
use postern_tests::{Agent, Http, World};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

#[tokio::test]
async fn agent_and_channel_tokens_open_nothing_of_the_owners() {
    let world = World::new();
    let door = world.up("full").await;
    let channel =
        std::fs::read_to_string(world.data().join("channel-token")).expect("a channel token");
    let admin = std::fs::read_to_string(world.data().join("admin-token")).expect("an admin token");
    for token in [
        "",
        "x",
        &door.ready.agent_token,
        channel.trim(),
        admin.trim(),
    ] {
        let stranger = postern_tests::Owner::new(&door.ready.console_url, token);
        for path in ["status", "inbox", "receipts", "sessions", "events"] {
            let reply = stranger
                .send(Method::GET, &format!("/owner/v1/{path}"), None)
                .await;
            assert_eq!(
                reply.status,
                StatusCode::UNAUTHORIZED,
                "{path} by '{token}'"
            );
            assert!(token.is_empty() || !reply.json.to_string().contains(token) || token == "x");
        }
        let reply = stranger
            .send(
                Method::PUT,
                "/owner/v1/mode",
                Some(&json!({"mode": "full"})),
            )
            .await;
        assert_eq!(reply.status, StatusCode::UNAUTHORIZED);
    }
    let owner_at_the_host = Agent::modern(&door.ready.mcp_url, &door.ready.owner_token);
    assert!(
        owner_at_the_host
            .request("tools/list", json!({}))
            .await
            .is_err(),
        "the owner's token opens no agent's door"
    );
}

#[tokio::test]
async fn foreign_pages_and_rebound_names_get_nothing_even_with_the_token() {
    let world = World::new();
    let door = world.up("full").await;
    let url = format!(
        "{}/owner/v1/status",
        door.ready.console_url.trim_end_matches('/')
    );
    let bearer = format!("Bearer {}", door.ready.owner_token);
    for (name, value) in [
        ("origin", "https://evil.example"),
        ("origin", "null"),
        ("origin", "http://127.0.0.1:1"),
        ("host", "evil.example"),
    ] {
        let headers = [("authorization", bearer.as_str()), (name, value)];
        let reply = Http::default()
            .send(Method::GET, &url, &headers, Vec::new(), |_| true)
            .await;
        let status = reply.map(|reply| reply.status).expect("an answer");
        assert_eq!(status, StatusCode::FORBIDDEN, "{name}: {value}");
    }
}

/// Requests that are refused, each with its status.
fn bad_requests() -> Vec<(Method, &'static str, Value, StatusCode)> {
    const UNKNOWN: &str = "/owner/v1/inbox/01a22d30-5440-702e-8bf5-d6c7c97b658e/decision";
    let approve = json!({"decision": "approve"});
    let bad = StatusCode::BAD_REQUEST;
    let absent = StatusCode::NOT_FOUND;
    vec![
        (
            Method::PUT,
            "/owner/v1/mode",
            json!({"mode": "everything"}),
            bad,
        ),
        (
            Method::PUT,
            "/owner/v1/mode",
            json!({"mode": "full", "more": 1}),
            bad,
        ),
        (
            Method::POST,
            "/owner/v1/channel",
            json!({"open": "no"}),
            bad,
        ),
        (
            Method::POST,
            "/owner/v1/inbox/nothing/decision",
            approve.clone(),
            absent,
        ),
        (Method::POST, UNKNOWN, approve, absent),
        (Method::GET, "/owner/v1/receipts?limit=0", Value::Null, bad),
        (
            Method::GET,
            "/owner/v1/receipts?state=odd",
            Value::Null,
            bad,
        ),
        (Method::GET, "/owner/v1/receipts?odd=1", Value::Null, bad),
        (
            Method::GET,
            "/owner/v1/receipts?since=yesterday",
            Value::Null,
            bad,
        ),
        (Method::GET, "/owner/v1/sessions?limit=0", Value::Null, bad),
        (Method::GET, "/owner/v1/sessions?after=x", Value::Null, bad),
        (
            Method::GET,
            "/owner/v1/receipts/01a22d30-5440-702e-8bf5-d6c7c97b658e",
            Value::Null,
            absent,
        ),
        (Method::GET, "/owner/v1/nothing", Value::Null, absent),
        (
            Method::DELETE,
            "/owner/v1/mode",
            Value::Null,
            StatusCode::METHOD_NOT_ALLOWED,
        ),
    ]
}

/// Requests that are refused before anything looks at what they ask for.
fn unreadable_requests() -> Vec<(Method, &'static str, Value, StatusCode)> {
    vec![
        (
            Method::GET,
            "/owner/v1/sessions/%ff/diff",
            Value::Null,
            StatusCode::BAD_REQUEST,
        ),
        (
            Method::GET,
            "/owner/v1/sessions//diff",
            Value::Null,
            StatusCode::NOT_FOUND,
        ),
        (
            Method::PUT,
            "/owner/v1/mode",
            json!({"mode": "x".repeat(300_000)}),
            StatusCode::PAYLOAD_TOO_LARGE,
        ),
    ]
}

#[tokio::test]
async fn bad_requests_get_a_problem_and_change_nothing() {
    let world = World::new();
    let door = world.up("ask").await;
    let owner = door.owner();
    for (method, path, body, status) in bad_requests().into_iter().chain(unreadable_requests()) {
        let body = (!body.is_null()).then_some(&body);
        let reply = owner.send(method.clone(), path, body).await;
        assert_eq!(reply.status, status, "{method} {path}: {}", reply.json);
        let told = reply.json["code"].is_string() && reply.json["detail"].is_string();
        assert!(told, "{}", reply.json);
    }
    assert_eq!(owner.get("/owner/v1/status").await["mode"], "ask");
}
