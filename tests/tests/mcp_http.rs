//! MCP over HTTP from outside: who is let in, which sessions there are, and how long answers travel.
#![expect(clippy::expect_used, reason = "tests fail by panicking")]

use http::{Method, StatusCode};
use postern_tests::{Http, RealHost, Reply, World};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

/// A client that says whatever the test wants.
struct Client {
    http: Http,
    url: String,
    bearer: String,
    session: Option<String>,
}

impl Client {
    fn new(url: &str, token: &str) -> Self {
        Self {
            http: Http::default(),
            url: url.to_owned(),
            bearer: format!("Bearer {token}"),
            session: None,
        }
    }

    async fn send(&self, method: Method, further: &[(&str, &str)], body: Value) -> Reply {
        let mut headers = vec![
            ("Accept", "application/json, text/event-stream"),
            ("Content-Type", "application/json"),
            ("MCP-Protocol-Version", "2025-11-25"),
        ];
        if !self.bearer.is_empty() {
            headers.push(("Authorization", &self.bearer));
        }
        if let Some(session) = &self.session {
            headers.push(("Mcp-Session-Id", session));
        }
        headers.extend(further);
        let body = if body.is_null() {
            Vec::new()
        } else {
            body.to_string().into_bytes()
        };
        let sent = self.http.send(method, &self.url, &headers, body, |event| {
            event["id"].is_number()
        });
        sent.await.expect("an answer")
    }

    async fn post(&self, method: &str, params: Value) -> Reply {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        self.send(Method::POST, &[], body).await
    }

    async fn initialize(&mut self) -> Reply {
        let client = json!({"name": "tests", "version": "0"});
        let params =
            json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client});
        let reply = self.post("initialize", params).await;
        if let Some(session) = reply.headers.get("mcp-session-id") {
            self.session = Some(session.to_str().expect("text").to_owned());
        }
        reply
    }

    async fn write(&self) -> Reply {
        let arguments = json!({"path": "written.txt", "content": "", "expectedSha256": null});
        let params = json!({"name": "workspace_write", "arguments": arguments});
        self.post("tools/call", params).await
    }
}

fn kind(reply: &Reply) -> &str {
    let kind = reply.headers.get("content-type");
    kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default()
}

/// Whatever asks in a session that is not there gets `status` and no stream, and nothing is done.
async fn assert_refused(world: &World, client: &mut Client, status: StatusCode) {
    let called = client.write().await;
    assert_eq!(
        (called.status, kind(&called)),
        (status, "application/problem+json")
    );
    let listed = client.post("tools/list", json!({})).await;
    assert_eq!(
        (
            listed.status,
            kind(&listed).starts_with("text/event-stream")
        ),
        (status, false)
    );
    let streamed = client.send(Method::GET, &[], Value::Null).await;
    assert_eq!(
        (
            streamed.status,
            kind(&streamed).starts_with("text/event-stream")
        ),
        (status, false)
    );
    assert!(!world.project().join("written.txt").exists());
}

/// B45: a session that there is not, is none any more or was of another start is told so by status, and a client can
/// start anew. (That an idle one ends is tested beside the host's code, where time can be made to pass.)
#[tokio::test]
async fn sessions_that_are_not_there_are_404_and_a_new_one_works() {
    let world = World::new();
    let door = world.up("full").await;
    let (url, token) = (door.ready.mcp_url.clone(), door.ready.agent_token.clone());
    let mut client = Client::new(&url, &token);
    assert_refused(&world, &mut client, StatusCode::BAD_REQUEST).await;

    client.session = Some("6f1c5b0a-never-was".to_owned());
    assert_refused(&world, &mut client, StatusCode::NOT_FOUND).await;
    assert_eq!(client.initialize().await.status, StatusCode::NOT_FOUND);

    client.session = None;
    assert_eq!(client.initialize().await.status, StatusCode::OK);
    let ended = client.send(Method::DELETE, &[], Value::Null).await;
    assert_eq!(ended.status, StatusCode::NO_CONTENT);
    assert_refused(&world, &mut client, StatusCode::NOT_FOUND).await;

    client.session = None;
    assert_eq!(client.initialize().await.status, StatusCode::OK);
    assert_eq!(door.stop().await.code, Some(0));
    let listen = url.trim_start_matches("http://").trim_end_matches("/mcp");
    let door = world.up_with("full", &["--listen", listen]).await;
    assert_refused(&world, &mut client, StatusCode::NOT_FOUND).await;

    client.session = None;
    assert_eq!(client.initialize().await.status, StatusCode::OK);
    let written = client.write().await;
    assert_eq!(written.json["result"]["structuredContent"]["created"], true);
    assert_eq!(door.stop().await.code, Some(0));
}

/// B41: neither a name that was bound to this machine nor a page of another site gets anything, whatever token it has; and
/// being at home takes no token's place.
#[tokio::test]
async fn foreign_hosts_and_origins_are_refused_before_anything_runs() {
    let host = RealHost::start().await;
    let mcp = Client::new(&format!("{}/mcp", host.url), &host.agent_token);
    let channel = Client::new(
        &format!(
            "{}/api/ai-gateway/v1/workspaces/{}/channel",
            host.url, host.workspace
        ),
        &host.channel_token,
    );
    let upgrade = [
        ("Connection", "Upgrade"),
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    let initialize = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}}});
    for foreign in [
        ("Host", "evil.example"),
        ("Origin", "https://evil.example"),
        ("Origin", "null"),
        ("Origin", "http://localhost.evil.example"),
    ] {
        let posted = mcp.send(Method::POST, &[foreign], initialize.clone()).await;
        let streamed = mcp.send(Method::GET, &[foreign], Value::Null).await;
        let mut headers = upgrade.to_vec();
        headers.push(foreign);
        let upgraded = channel.send(Method::GET, &headers, Value::Null).await;
        for reply in [posted, streamed, upgraded] {
            assert_eq!(reply.status, StatusCode::FORBIDDEN, "{foreign:?}");
            assert!(!reply.headers.contains_key("mcp-session-id"), "{foreign:?}");
        }
    }
    let home = [("Host", "localhost"), ("Origin", "http://localhost:5173")];
    let welcome = mcp.send(Method::POST, &home, initialize.clone()).await;
    assert_eq!(welcome.status, StatusCode::OK);
    let nobody = Client {
        bearer: String::new(),
        ..Client::new(&mcp.url, "")
    };
    for headers in [&home[..], &[]] {
        let refused = nobody.send(Method::POST, headers, initialize.clone()).await;
        assert_eq!(refused.status, StatusCode::UNAUTHORIZED);
    }
}

/// RFC 9728: who comes without a token is told where to read what is needed, and that is there.
#[tokio::test]
async fn a_refused_client_finds_the_resources_metadata() {
    let host = RealHost::start().await;
    let client = Client::new(&format!("{}/mcp", host.url), "postern_agent_nothing");
    let refused = client.post("tools/list", json!({})).await;
    assert_eq!(refused.status, StatusCode::UNAUTHORIZED);
    let challenge = refused.headers["www-authenticate"].to_str().expect("text");
    let address = challenge
        .strip_prefix("Bearer resource_metadata=\"")
        .and_then(|rest| rest.strip_suffix('"'))
        .expect("the metadata's address");
    let found = Http::default()
        .send(Method::GET, address, &[], Vec::new(), |_| true)
        .await
        .expect("the metadata");
    assert_eq!(found.status, StatusCode::OK);
    assert_eq!(found.json["resource"], format!("{}/mcp", host.url));
    assert_eq!(found.json["bearer_methods_supported"], json!(["header"]));
    assert_eq!(found.json["scopes_supported"], json!(["agent:operate"]));
}

/// Some clients refuse long events, so long answers are plain JSON, in a session, too.
#[tokio::test]
async fn a_long_answer_is_plain_json() {
    let world = World::new();
    // Each of these is written as six characters, and the whole twice.
    let text = "\u{1}".repeat(131_072);
    world.write("long.txt", &text);
    let door = world.up("full").await;
    let mut client = Client::new(&door.ready.mcp_url, &door.ready.agent_token);
    client.initialize().await;
    let arguments = json!({"path": "long.txt", "limit": text.len()});
    let read = client
        .post(
            "tools/call",
            json!({"name": "workspace_read", "arguments": arguments}),
        )
        .await;
    assert_eq!(
        (read.status, kind(&read)),
        (StatusCode::OK, "application/json")
    );
    assert!(read.body.len() > 512 * 1024, "{}", read.body.len());
    assert!(read.json["result"]["structuredContent"]["content"] == text.as_str());
    assert_eq!(door.stop().await.code, Some(0));
}
