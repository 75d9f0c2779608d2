//! Who may use a session, and when it ends.

use std::{sync::Arc, time::Duration};

use pretty_assertions::assert_eq;
use tokio::sync::Notify;

use super::{fake::Turn, *};
use crate::mcp::sessions::{MAX_SESSIONS_PER_TOKEN, SESSION_IDLE};

async fn status(client: &Client, method: Method) -> StatusCode {
    client
        .respond(client.request(method, Body::empty()))
        .await
        .status()
}

/// Nothing of the session answers: no tool, no list, no stream, no end, no second handshake.
async fn assert_gone(client: &Client, workspace: &Workspace) {
    let before = workspace.calls().len();
    for answer in [
        client.call("workspace_write", json!({})).await,
        client.ask("tools/list", json!({})).await,
        client.send(json!({"jsonrpc":"2.0","method":"notifications/initialized"})).await,
        client
            .send(json!({"jsonrpc":"2.0","id":0,"method":"initialize","params":{
                "protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}))
            .await,
    ] {
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "{}", answer.body);
        assert_eq!(answer.kind, "application/problem+json");
    }
    assert_eq!(status(client, Method::GET).await, StatusCode::NOT_FOUND);
    assert_eq!(status(client, Method::DELETE).await, StatusCode::NOT_FOUND);
    assert_eq!(workspace.calls().len(), before);
}

#[tokio::test]
async fn an_unknown_session_is_404_and_no_tool_runs() {
    let workspace = Workspace::default();
    let mut client = Client::new(&workspace);
    client.version = Some("2025-11-25");
    client.session = Some("4b0c6c0e-0000-4000-8000-000000000000".to_owned());
    assert_gone(&client, &workspace).await;
    client.version = None;
    assert_gone(&client, &workspace).await;
    client.shake_hands("2025-11-25").await;
    assert_eq!(
        client.call("workspace_info", json!({})).await.status,
        StatusCode::OK
    );
}

#[tokio::test]
async fn a_missing_session_is_400_and_no_tool_runs() {
    let workspace = Workspace::default();
    let mut client = Client::new(&workspace);
    for version in [None, Some("2025-03-26"), Some("2025-11-25")] {
        client.version = version;
        let answer = client.call("workspace_write", json!({})).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST);
        let answer = client.ask("tools/list", json!({})).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    }
    assert!(workspace.calls().is_empty());
}

#[tokio::test]
async fn an_ended_session_is_404() {
    let workspace = Workspace::default();
    let mut client = Client::in_session(&workspace).await;
    assert_eq!(
        status(&client, Method::DELETE).await,
        StatusCode::NO_CONTENT
    );
    assert_gone(&client, &workspace).await;
    client.shake_hands("2025-11-25").await;
    assert_eq!(
        client.call("workspace_info", json!({})).await.status,
        StatusCode::OK
    );
}

#[tokio::test]
async fn another_tokens_session_does_not_exist() {
    let workspace = Workspace::default();
    let client = Client::in_session(&workspace).await;
    let mut thief = client.clone();
    thief.token = "agent-b";
    assert_gone(&thief, &workspace).await;
    // A version without sessions in the header opens no way into one either.
    thief.version = Some("2026-07-28");
    let body = json!({"jsonrpc":"2.0","id":0,"method":"initialize","params":{
        "protocolVersion":"2026-07-28","capabilities":{},"clientInfo":{"name":"t","version":"1"}}});
    let request = thief.request(Method::POST, body.to_string());
    assert_eq!(thief.respond(request).await.status(), StatusCode::NOT_FOUND);
    assert_eq!(
        client.call("workspace_info", json!({})).await.status,
        StatusCode::OK
    );
}

#[tokio::test]
async fn every_request_needs_the_token_inside_a_session_too() {
    let workspace = Workspace::default();
    let mut client = Client::in_session(&workspace).await;
    for (token, refused) in [
        ("", StatusCode::UNAUTHORIZED),
        ("revoked", StatusCode::UNAUTHORIZED),
        ("channel", StatusCode::FORBIDDEN),
    ] {
        client.token = token;
        assert_eq!(
            client.call("workspace_write", json!({})).await.status,
            refused
        );
        assert_eq!(client.ask("tools/list", json!({})).await.status, refused);
        assert_eq!(status(&client, Method::GET).await, refused);
        assert_eq!(status(&client, Method::DELETE).await, refused);
    }
    assert!(workspace.calls().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_idle_session_ends_and_a_used_one_does_not() {
    let workspace = Workspace::default();
    let idle = Client::in_session(&workspace).await;
    let mut used = idle.clone();
    used.shake_hands("2025-11-25").await;
    let step = SESSION_IDLE - Duration::from_secs(1);
    tokio::time::advance(step).await;
    assert_eq!(
        used.call("workspace_info", json!({})).await.status,
        StatusCode::OK
    );
    tokio::time::advance(step).await;
    assert_gone(&idle, &workspace).await;
    assert_eq!(
        used.call("workspace_info", json!({})).await.status,
        StatusCode::OK
    );
}

#[tokio::test(start_paused = true)]
async fn a_session_with_an_open_stream_is_not_idle() {
    let workspace = Workspace::default();
    let client = Client::in_session(&workspace).await;
    let stream = client
        .respond(client.request(Method::GET, Body::empty()))
        .await;
    assert_eq!(stream.status(), StatusCode::OK);
    tokio::time::advance(SESSION_IDLE * 2).await;
    assert_eq!(
        client.call("workspace_info", json!({})).await.status,
        StatusCode::OK
    );
    drop(stream);
    tokio::time::advance(SESSION_IDLE).await;
    assert_gone(&client, &workspace).await;
}

#[tokio::test]
async fn one_session_too_many_ends_the_longest_idle_one() {
    let workspace = Workspace::default();
    let first = Client::in_session(&workspace).await;
    let mut newest = first.clone();
    for _ in 0..MAX_SESSIONS_PER_TOKEN {
        newest.shake_hands("2025-11-25").await;
    }
    assert_gone(&first, &workspace).await;
    assert_eq!(
        newest.call("workspace_info", json!({})).await.status,
        StatusCode::OK
    );
}

#[tokio::test]
async fn sessions_in_use_are_not_ended_for_another() {
    let workspace = Workspace::default();
    let mut client = Client::in_session(&workspace).await;
    let mut streams = Vec::new();
    for number in 0..MAX_SESSIONS_PER_TOKEN {
        if number > 0 {
            client.shake_hands("2025-11-25").await;
        }
        streams.push(
            client
                .respond(client.request(Method::GET, Body::empty()))
                .await,
        );
    }
    client.session = None;
    client.version = None;
    let full = client
        .send(json!({"jsonrpc":"2.0","id":0,"method":"initialize","params":{
            "protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}))
        .await;
    assert_eq!(full.status, StatusCode::SERVICE_UNAVAILABLE);
    client.token = "agent-b";
    client.shake_hands("2025-11-25").await;
}

#[tokio::test]
async fn the_end_of_a_session_ends_its_waits() {
    let workspace = Workspace::default();
    let client = Client::in_session(&workspace).await;
    workspace.then(Turn::Wait(Arc::new(Notify::new())));
    let ask = client.call("workspace_ask", json!({"question": "?"}));
    let end = async {
        workspace.until_waiting(1).await;
        assert!(status(&client, Method::DELETE).await.is_success());
    };
    let (answer, ()) = tokio::join!(ask, end);
    assert_eq!((answer.status, answer.body.as_str()), (StatusCode::OK, ""));
    assert_eq!(workspace.waiting(), 0);
}

#[tokio::test]
async fn a_session_is_a_conversation() {
    let workspace = Workspace::default();
    let client = Client::in_session(&workspace).await;
    client.call("workspace_info", json!({})).await;
    let keyed = json!({"name":"workspace_info","_meta":{"postern/session":"mine"}});
    let alone = Client::alone(&workspace);
    alone.ask("tools/call", keyed).await;
    alone.call("workspace_info", json!({})).await;
    let calls = workspace.calls();
    let keys: Vec<_> = calls
        .iter()
        .map(|call| call.conversation.as_str())
        .collect();
    assert_eq!(
        keys,
        [client.session.as_deref().expect("session"), "mine", ""]
    );
}
