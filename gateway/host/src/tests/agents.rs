//! Agents over MCP, from their request to the edge and back.

use postern_proto::identity::v1::{Role, TokenKind};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::{
    World,
    edge::{Edge, success},
    http_client::Answer,
    soon,
};

const ACCEPT: (&str, &str) = ("Accept", "application/json, text/event-stream");
const JSON: (&str, &str) = ("Content-Type", "application/json");

impl World {
    /// A workspace with an open channel, and the secret of an agent's token.
    pub(super) async fn with_agent(&self, role: Role) -> (Edge, String) {
        let (edge, _) = Box::pin(self.workspace("w")).await;
        let secret = self.identity.token("agent", TokenKind::Agent, |token| {
            token.workspace_ids = vec!["w".to_owned()];
            token.set_role(role);
        });
        (edge, secret)
    }

    /// One request of the lifecycle without sessions.
    pub(super) async fn ask(
        &self,
        headers: &[(&str, &str)],
        tool: &str,
        args: &str,
        meta: &str,
    ) -> Answer {
        let mut all = vec![
            ACCEPT,
            JSON,
            ("MCP-Protocol-Version", "2026-07-28"),
            ("Mcp-Method", "tools/call"),
            ("Mcp-Name", tool),
        ];
        all.extend(headers);
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{tool}","arguments":{args},"_meta":{{{meta}"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{{}}}}}}}}"#
        );
        self.http("POST", "/mcp", &all, &body).await
    }
}

pub(super) fn bearer(secret: &str) -> String {
    format!("Bearer {secret}")
}

fn initialize() -> String {
    json!({"jsonrpc":"2.0","id":0,"method":"initialize","params":{
        "protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}})
    .to_string()
}

#[tokio::test]
async fn a_call_reaches_the_edge_and_its_answer_the_agent() {
    let world = World::new().await;
    let (mut edge, secret) = world.with_agent(Role::Editor).await;
    let token = bearer(&secret);
    let authorization = [("Authorization", token.as_str())];
    let ask = world.ask(
        &authorization,
        "workspace_read",
        r#"{"path":"a","n":1.0}"#,
        "",
    );
    let serve = async {
        let call = edge.call().await;
        assert_eq!(
            (&call["tool"], &call["intention"]),
            (&json!("workspace_read"), &json!("the intention"))
        );
        assert_eq!(call["args"], json!({"path": "a", "n": 1.0}));
        edge.answer(&call, &success(json!({"content": "text"})))
            .await;
        call["id"].clone()
    };
    let (answer, id) = tokio::join!(ask, serve);
    let result = answer.json()["result"].clone();
    assert_eq!(result["structuredContent"], json!({"content": "text"}));
    assert_eq!(result["_meta"]["postern/callId"], id);
}

#[tokio::test]
async fn a_lost_answer_is_asked_for_again_by_its_id() {
    let world = World::new().await;
    let (mut edge, secret) = world.with_agent(Role::Owner).await;
    let token = bearer(&secret);
    let authorization = [("Authorization", token.as_str())];
    let meta = r#""postern/callId":"mine","#;
    let call = tokio::select! {
        _ = world.ask(&authorization, "workspace_exec", r#"{"command":"true"}"#, meta) => panic!("answered"),
        call = edge.call() => call,
    };
    edge.answer(&call, &success(json!({"commandId": "c"})))
        .await;
    let again = world
        .ask(
            &authorization,
            "workspace_exec",
            r#"{ "command": "true" }"#,
            meta,
        )
        .await;
    assert_eq!(
        again.json()["result"]["structuredContent"],
        json!({"commandId": "c"})
    );
    let other = world
        .ask(
            &authorization,
            "workspace_exec",
            r#"{"command":"false"}"#,
            meta,
        )
        .await;
    assert_eq!(
        other.json()["result"]["structuredContent"]["error"]["code"],
        "ID_REUSED"
    );
    assert!(edge.is_quiet().await);
}

#[tokio::test]
async fn a_foreign_page_runs_no_tool() {
    let world = World::new().await;
    let (mut edge, secret) = world.with_agent(Role::Owner).await;
    let token = bearer(&secret);
    let authorization = ("Authorization", token.as_str());
    for foreign in [
        ("Host", "evil.example"),
        ("Host", "evil.example:80"),
        ("Origin", "https://evil.example"),
        ("Origin", "null"),
        ("Origin", "http://localhost.evil.example"),
    ] {
        let answer = world
            .ask(&[authorization, foreign], "workspace_info", "{}", "")
            .await;
        assert_eq!(answer.problem().0, 403, "{foreign:?}");
        for method in ["GET", "DELETE"] {
            let answer = world
                .http(method, "/mcp", &[authorization, ACCEPT, foreign], "")
                .await;
            assert_eq!(answer.status, 403, "{foreign:?}");
        }
    }
    let own = format!("http://{}", world.address);
    let page = world
        .ask(&[("Origin", own.as_str())], "workspace_info", "{}", "")
        .await;
    assert_eq!(page.problem(), (401, "unauthorized".to_owned()));
    assert!(page.headers["www-authenticate"].contains("resource_metadata=\"http://"));
    assert!(edge.is_quiet().await);

    let headers = [authorization, ("Origin", own.as_str())];
    let served = world.ask(&headers, "workspace_info", "{}", "");
    let serve = async {
        let call = edge.call().await;
        edge.answer(&call, &success(json!({}))).await;
    };
    assert_eq!(tokio::join!(served, serve).0.status, 200);
}

#[tokio::test]
async fn other_tokens_open_no_tools() {
    let world = World::new().await;
    let (mut edge, secret) = world.with_agent(Role::Owner).await;
    let query = format!("/mcp?access_token={secret}");
    let answer = world
        .http("POST", &query, &[ACCEPT, JSON], &initialize())
        .await;
    assert_eq!(answer.status, 401);
    assert!(!format!("{answer:?}").contains(&secret));
    for kind in [TokenKind::Channel, TokenKind::Admin, TokenKind::Owner] {
        let other = world.identity.token("other", kind, |token| {
            token.workspace_ids = vec!["w".to_owned()];
        });
        let token = bearer(&other);
        let answer = world
            .ask(&[("Authorization", &token)], "workspace_info", "{}", "")
            .await;
        assert_eq!(
            answer.problem(),
            (403, "wrong_token".to_owned()),
            "{kind:?}"
        );
    }
    assert!(edge.is_quiet().await);
}

#[tokio::test]
async fn a_revoked_token_loses_its_session_and_its_stream() {
    let world = World::new().await;
    let (mut edge, secret) = world.with_agent(Role::Owner).await;
    let token = bearer(&secret);
    let authorization = ("Authorization", token.as_str());
    let opened = world
        .http(
            "POST",
            "/mcp",
            &[authorization, ACCEPT, JSON],
            &initialize(),
        )
        .await;
    let session = opened.headers["mcp-session-id"].clone();
    let inside = ("Mcp-Session-Id", session.as_str());

    let mut stream = TcpStream::connect(&world.address)
        .await
        .expect("connection");
    let listen = format!(
        "GET /mcp HTTP/1.1\r\nHost: {}\r\nAuthorization: {token}\r\nMcp-Session-Id: {session}\r\nAccept: text/event-stream\r\n\r\n",
        world.address
    );
    stream.write_all(listen.as_bytes()).await.expect("sent");
    let mut head = [0; 12];
    soon(stream.read_exact(&mut head)).await.expect("a head");
    assert_eq!(&head, b"HTTP/1.1 200");

    world.identity.revoke("agent");
    let mut rest = Vec::new();
    let mut chunk = [0; 1024];
    while !rest.ends_with(b"\r\n0\r\n\r\n") {
        let read = soon(stream.read(&mut chunk))
            .await
            .expect("the stream's end");
        assert!(read > 0, "the stream ends as a stream does");
        rest.extend_from_slice(&chunk[..read]);
    }
    let call =
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"workspace_info"}}"#;
    let answer = world
        .http("POST", "/mcp", &[authorization, inside, ACCEPT, JSON], call)
        .await;
    assert_eq!(answer.problem().0, 401);
    assert!(edge.is_quiet().await);
}

#[tokio::test]
async fn arguments_that_would_break_the_channel_are_not_sent() {
    let world = World::new().await;
    let (mut edge, secret) = world.with_agent(Role::Owner).await;
    let token = bearer(&secret);
    let authorization = [("Authorization", token.as_str())];
    let deep = format!("{}1{}", r#"{"a":"#.repeat(100), "}".repeat(100));
    for args in [
        r#"{"path":"a","path":"b"}"#,
        r#"{"path":"\udc00"}"#,
        r#"{"n":1e999}"#,
        &deep,
    ] {
        let answer = world.ask(&authorization, "workspace_read", args, "").await;
        let code = answer.json()["result"]["structuredContent"]["error"]["code"].clone();
        assert_eq!(code, "INVALID_ARGUMENTS", "{args}");
    }
    assert!(edge.is_quiet().await);
}

#[tokio::test]
async fn a_text_of_escaped_characters_is_sent_as_the_text_that_it_is() {
    let world = World::new().await;
    let (mut edge, secret) = world.with_agent(Role::Owner).await;
    let token = bearer(&secret);
    let authorization = [("Authorization", token.as_str())];
    let write = |count: usize| format!(r#"{{"content":"{}"}}"#, r"\u4e2d".repeat(count));
    let legal = write(600_000);
    let ask = world.ask(&authorization, "workspace_write", &legal, "");
    let serve = async {
        let call = edge.call().await;
        assert_eq!(
            call["args"]["content"].as_str().map(str::len),
            Some(3 * 600_000)
        );
        edge.answer(&call, &success(json!({}))).await;
    };
    assert_eq!(
        tokio::join!(ask, serve).0.json()["result"]["isError"],
        Value::Null
    );
    let answer = world
        .ask(&authorization, "workspace_write", &write(1_000_000), "")
        .await;
    assert_eq!(
        answer.json()["result"]["structuredContent"]["error"]["code"],
        "TOO_LARGE"
    );
}

#[tokio::test]
async fn the_hosts_own_tools_answer_by_the_identity_api() {
    let world = World::new().await;
    let (_edge, secret) = world.with_agent(Role::Viewer).await;
    let token = bearer(&secret);
    let authorization = [("Authorization", token.as_str())];
    let ask = async |tool: &str, args: &str| {
        let answer = world.ask(&authorization, tool, args, "").await;
        answer.json()["result"]["structuredContent"].clone()
    };
    let context = ask(
        "sosoapi_get_workspace_context",
        r#"{"include_version":true}"#,
    )
    .await;
    let listed = world
        .post(
            "/identity-api/workspace/list",
            &secret,
            r#"{"include_version":true}"#,
        )
        .await;
    assert_eq!(context, listed.json());
    for args in [
        r#"{"include_versions":true}"#,
        r#"{"include_version":"true"}"#,
    ] {
        let refused = ask("sosoapi_get_workspace_context", args).await;
        assert_eq!(refused["error"]["code"], "INVALID_ARGUMENTS");
    }
    let refused = ask("sosoapi_create_workspace", r#"{"name":"n"}"#).await;
    assert_eq!(
        (
            &refused["error"]["code"],
            &refused["error"]["details"]["reason"]
        ),
        (&json!("PERMISSION_DENIED"), &json!("insufficient_role"))
    );
    let refused = world
        .post("/identity-api/workspace/create", &secret, r#"{"name":"n"}"#)
        .await;
    assert_eq!(refused.problem(), (403, "insufficient_role".to_owned()));
    assert!(world.identity.asked().is_empty());
}
