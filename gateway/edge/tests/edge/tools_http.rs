//! Tool servers at a URL.

use std::{
    fs,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse as _, Redirect, Response},
    routing::{any, post},
};
use postern_edge::ToolServer;
use postern_kit::task::Tasks;
use postern_types::Mode;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use crate::{
    host::{PATIENCE, code},
    rig::{Rig, ask},
    tools::{listed, result, start},
};

/// What the server was shown: method, token, a header of the owner's, and the session.
type Seen = Arc<Mutex<Vec<[String; 4]>>>;

async fn answer(State(seen): State<Seen>, headers: HeaderMap, body: String) -> Response {
    let told = |name: &str| {
        let value = headers.get(name).and_then(|value| value.to_str().ok());
        value.unwrap_or_default().to_owned()
    };
    let message: Value = serde_json::from_str(&body).expect("json");
    let method = message["method"].as_str().unwrap_or_default().to_owned();
    seen.lock().expect("seen").push([
        method.clone(),
        told("authorization"),
        told("x-team"),
        told("mcp-session-id"),
    ]);
    let result = |result: Value| json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
    let json = |value: Value| {
        (
            [(header::CONTENT_TYPE, "application/json")],
            value.to_string(),
        )
    };
    match method.as_str() {
        "initialize" => {
            let told = result(
                json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                "serverInfo": {"name": "web", "version": "1"}}),
            );
            ([("mcp-session-id", "session-1")], json(told)).into_response()
        }
        "tools/list" => {
            let tool = json!({"name": "find", "inputSchema": {"type": "object"}});
            json(result(json!({"tools": [tool]}))).into_response()
        }
        "tools/call" => {
            let progress = json!({"jsonrpc": "2.0", "method": "notifications/progress",
                "params": {"progressToken": message["params"]["_meta"]["progressToken"], "progress": 1}});
            let found = result(json!({"content": [{"type": "odd", "x": 1}]}));
            let events = format!("data: {progress}\n\nevent: message\ndata: {found}\n\n");
            ([(header::CONTENT_TYPE, "text/event-stream")], events).into_response()
        }
        _ if message["id"].is_null() => StatusCode::ACCEPTED.into_response(),
        _ => (StatusCode::BAD_REQUEST, "no such method").into_response(),
    }
}

/// As [`answer`], but a call is never answered: not even the head of an answer comes.
async fn hang(State(seen): State<Seen>, headers: HeaderMap, body: String) -> Response {
    let is_call = body.contains("tools/call");
    let answer = answer(State(seen), headers, body).await;
    if is_call {
        std::future::pending::<()>().await;
    }
    answer
}

/// As [`answer`], but the first session is forgotten once its tools are listed: a call in it is told so, and not made.
async fn forget(State(seen): State<Seen>, headers: HeaderMap, body: String) -> Response {
    let is_forgotten = headers
        .get("mcp-session-id")
        .is_some_and(|session| session == "session-1");
    if is_forgotten && body.contains("tools/call") {
        return StatusCode::NOT_FOUND.into_response();
    }
    let mut answer = answer(State(Arc::clone(&seen)), headers, body).await;
    if answer.headers().contains_key("mcp-session-id") {
        let seen = seen.lock().expect("seen");
        let opened = seen.iter().filter(|one| one[0] == "initialize").count();
        let session = format!("session-{opened}").parse().expect("a value");
        answer.headers_mut().insert("mcp-session-id", session);
    }
    answer
}

/// A server, and where it is.
async fn serve(seen: &Seen) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("bound");
    let address = listener.local_addr().expect("address");
    let router = Router::new()
        .route("/mcp", post(answer))
        .route("/hangs", post(hang))
        .route("/forgets", post(forget))
        .route("/moved", any(|| async { Redirect::temporary("/mcp") }))
        .with_state(Arc::clone(seen));
    Tasks::new().spawn(
        "web server",
        async move { axum::serve(listener, router).await },
    );
    format!("http://{address}")
}

#[tokio::test]
async fn a_server_at_a_url_is_called_with_the_owners_token_and_headers() {
    let (rig, seen) = (Rig::new().await, Seen::default());
    let url = serve(&seen).await;
    let folder = tempfile::tempdir().expect("folder");
    let token = folder.path().join("token");
    fs::write(&token, "mark-token\n").expect("token");
    let mut server = ToolServer::at("web", &format!("{url}/mcp"));
    server.token_file = Some(token);
    server.headers.insert("X-Team".to_owned(), "a".to_owned());
    let (_run, mut channel) = start(&rig, Mode::Full, vec![server], |_| {}).await;
    assert_eq!(listed(&mut channel, "1").await, ["web__find"]);
    let found = result(&mut channel, "2", "web__find", json!({})).await;
    assert_eq!(found, json!({"content": [{"type": "odd", "x": 1}]}));
    let seen = seen.lock().expect("seen");
    let methods: Vec<&str> = seen.iter().map(|[method, ..]| &**method).collect();
    assert_eq!(
        methods
            .iter()
            .filter(|method| **method == "tools/call")
            .count(),
        1
    );
    for [method, token, team, session] in seen.iter() {
        assert_eq!((&**token, &**team), ("Bearer mark-token", "a"), "{method}");
        let early = ["server/discover", "initialize"].contains(&&**method);
        assert_eq!(session, if early { "" } else { "session-1" }, "{method}");
    }
}

/// A token goes where the owner said, and nowhere else.
/// A server that answers only once it is done may have done it: the call is uncertain, and its id is not free.
#[tokio::test]
async fn a_call_that_no_answer_came_for_in_time_is_uncertain() {
    let (rig, seen) = (Rig::new().await, Seen::default());
    let url = serve(&seen).await;
    let mut server = ToolServer::at("web", &format!("{url}/hangs"));
    server.timeout = 1;
    let (_run, mut channel) = start(&rig, Mode::Full, vec![server], |_| {}).await;
    listed(&mut channel, "1").await;
    for _ in 0..2 {
        let told = result(&mut channel, "2", "web__find", json!({})).await;
        let error = &told["structuredContent"]["error"];
        assert_eq!(error["code"], "UNCERTAIN", "{told}");
    }
    let seen = seen.lock().expect("seen");
    let calls = seen.iter().filter(|[method, ..]| method == "tools/call");
    assert_eq!(calls.count(), 1, "the same id calls nothing again");
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let (rig, seen) = (Rig::new().await, Seen::default());
    let url = serve(&seen).await;
    let server = ToolServer::at("web", &format!("{url}/moved"));
    let (run, _channel) = start(&rig, Mode::Full, vec![server], |_| {}).await;
    let away = async {
        loop {
            let status = serde_json::to_value(run.control.tools()).expect("status");
            if status[0]["state"] == "waiting" {
                return status[0]["problem"].as_str().expect("told").to_owned();
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let told = tokio::time::timeout(PATIENCE, away).await.expect("away");
    assert!(told.contains("307"), "{told}");
    assert_eq!(seen.lock().expect("seen").len(), 0);
}

#[tokio::test]
async fn a_session_that_is_over_is_opened_anew_and_the_call_was_not_made() {
    let (rig, seen) = (Rig::new().await, Seen::default());
    let url = serve(&seen).await;
    let server = ToolServer::at("web", &format!("{url}/forgets"));
    let (_run, mut channel) = start(&rig, Mode::Full, vec![server], |_| {}).await;
    assert_eq!(listed(&mut channel, "1").await, ["web__find"]);
    let find = json!({"name": "web__find", "arguments": {}});
    let first = ask(&mut channel, "2", "workspace_tool", find.clone()).await;
    assert_eq!(code(&first), "UNAVAILABLE", "{first}");
    let again = async {
        loop {
            let told = ask(&mut channel, "2", "workspace_tool", find.clone()).await;
            if code(&told) != "UNAVAILABLE" {
                return;
            }
        }
    };
    tokio::time::timeout(PATIENCE, again).await.expect("found");
    let seen = seen.lock().expect("seen");
    let calls = seen.iter().filter(|one| one[0] == "tools/call");
    let sessions: Vec<&str> = calls.map(|one| &*one[3]).collect();
    assert_eq!(sessions, ["session-2"]);
}
