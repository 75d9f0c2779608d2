//! `postern mcp`: MCP over standard input and output, through the real binary.
#![expect(clippy::expect_used, reason = "tests fail by panicking")]

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use postern_tests::{Bridge, Ready, World, wait_for};
use pretty_assertions::assert_eq;
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

/// For the process to end with its client.
const END_LIMIT: Duration = Duration::from_secs(5);
/// For something that another process does.
const LOOK_LIMIT: Duration = Duration::from_secs(30);
/// The versions that begin with a handshake.
const HANDSHAKES: [&str; 3] = ["2025-11-25", "2025-06-18", "2025-03-26"];

fn alone() -> Value {
    json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "tests", "version": "0"}})
}

async fn call_alone(bridge: &mut Bridge, id: u64, tool: &str, arguments: Value) -> Value {
    let params = json!({"name": tool, "arguments": arguments, "_meta": alone()});
    bridge.ask(id, "tools/call", params).await;
    bridge.answer(id).await["result"].take()
}

fn names(listing: &Value) -> Vec<&str> {
    let tools = listing["result"]["tools"].as_array().expect("tools");
    tools
        .iter()
        .filter_map(|tool| tool["name"].as_str())
        .collect()
}

#[tokio::test]
async fn every_version_lists_and_calls_and_ends_with_its_client() {
    let world = World::new();
    let door = world.up("full").await;
    for version in HANDSHAKES {
        let mut bridge = world.bridge(&door.ready, &[]);
        bridge.handshake(version).await;
        bridge.ask(1, "tools/list", json!({})).await;
        assert_eq!(names(&bridge.answer(1).await).len(), 16, "{version}");
        let read = bridge
            .call(2, "workspace_read", json!({"path": "greeting.txt"}))
            .await;
        assert_eq!(read["structuredContent"]["content"], "hello\n", "{version}");
        bridge.close();
        assert_eq!(
            bridge.ended(END_LIMIT).await,
            (Some(0), Vec::new()),
            "{version}"
        );
    }
    let mut bridge = world.bridge(&door.ready, &["--profile", "full"]);
    bridge
        .ask(1, "server/discover", json!({"_meta": alone()}))
        .await;
    assert!(bridge.answer(1).await["result"].is_object());
    bridge.ask(2, "tools/list", json!({"_meta": alone()})).await;
    assert_eq!(names(&bridge.answer(2).await).len(), 17);
    let read = call_alone(
        &mut bridge,
        3,
        "workspace_read",
        json!({"path": "greeting.txt"}),
    )
    .await;
    assert_eq!(read["structuredContent"]["content"], "hello\n");
    bridge.close();
    assert_eq!(bridge.ended(END_LIMIT).await.0, Some(0));
}

/// B42: a malformed line is told at most once and ends nothing; standard output holds protocol alone.
#[tokio::test]
async fn malformed_lines_end_nothing() {
    let mut world = World::new();
    world.set("POSTERN_LOG", "trace");
    let door = world.up("full").await;
    let mut bridge = world.bridge(&door.ready, &[]);
    for (line, code) in [
        (&b"not json"[..], -32700),
        (b"\xff\xfe", -32700),
        (b"[]", -32600),
        (b"{}", -32600),
    ] {
        bridge.write(line).await;
        let told = bridge.next().await;
        assert_eq!(
            (&told["id"], &told["error"]["code"]),
            (&Value::Null, &json!(code))
        );
    }
    bridge.write(&vec![b'x'; 17 * 1024 * 1024]).await;
    assert_eq!(bridge.next().await["error"]["code"], -32600);
    bridge.write(b"").await;
    let initialize = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}}});
    bridge
        .write(format!("\u{feff}{initialize}").as_bytes())
        .await;
    assert!(bridge.next().await["result"].is_object());
    bridge
        .write(b"{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"ping\"}\r")
        .await;
    let pong = bridge.next().await;
    assert_eq!((&pong["id"], &pong["result"]), (&json!(2), &json!({})));
    bridge.close();
    assert_eq!(bridge.ended(END_LIMIT).await, (Some(0), Vec::new()));
}

/// B48: what waits holds up nothing else, and can be cancelled.
#[tokio::test]
async fn a_call_that_waits_holds_up_no_other_and_can_be_cancelled() {
    let world = World::new();
    let door = world.up("ask").await;
    let mut bridge = world.bridge(&door.ready, &[]);
    bridge.handshake("2025-11-25").await;
    let write = json!({"name": "workspace_write",
        "arguments": {"path": "new.txt", "content": "x", "expectedSha256": null}});
    bridge.ask(1, "tools/call", write).await;
    bridge.ask(2, "ping", json!({})).await;
    assert_eq!(bridge.next().await["id"], 2);
    let cancel = json!({"requestId": 1, "reason": "test"});
    bridge
        .send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancel}))
        .await;
    let read = bridge
        .call(3, "workspace_read", json!({"path": "greeting.txt"}))
        .await;
    assert_eq!(read["structuredContent"]["content"], "hello\n");
    bridge.close();
    let (code, rest) = bridge.ended(END_LIMIT).await;
    assert_eq!(
        (code, rest),
        (Some(0), Vec::new()),
        "the cancelled call is not answered"
    );
    assert!(!world.project().join("new.txt").exists());
}

/// B44: the process ends with its client, however that ends, and a command that was started goes on.
#[tokio::test]
async fn ends_with_its_client_while_a_call_waits() {
    let world = World::new();
    let door = world.up("ask").await;
    let mut bridge = world.bridge(&door.ready, &[]);
    bridge.handshake("2025-11-25").await;
    let question = json!({"name": "workspace_ask", "arguments": {"question": "Shall I?"}});
    bridge.ask(1, "tools/call", question).await;
    let owner = door.owner();
    wait_for("the question", LOOK_LIMIT, async || {
        let items = owner.get("/owner/v1/inbox").await;
        (!items["items"].as_array()?.is_empty()).then_some(())
    })
    .await;
    bridge.close();
    assert_eq!(bridge.ended(END_LIMIT).await.0, Some(0));
    let mut second = world.bridge(&door.ready, &[]);
    second.handshake("2025-11-25").await;
    let pid = i32::try_from(second.pid()).expect("a process id");
    postern_tests::process::signal(pid, Signal::TERM);
    assert_eq!(second.ended(END_LIMIT).await.0, Some(0));
}

/// The process is one conversation: its commands stay its own when the host restarts, another process's are not.
#[tokio::test]
async fn one_process_is_one_conversation_across_a_restart() {
    let world = World::new();
    let door = world
        .up_with("full", &["--listen", &free_address().await])
        .await;
    let mut bridge = world.bridge(&door.ready, &[]);
    let mut other = world.bridge(&door.ready, &[]);
    bridge.handshake("2025-11-25").await;
    other.handshake("2025-11-25").await;
    let started = bridge
        .call(1, "workspace_exec", json!({"command": "sleep 300"}))
        .await;
    let command = started["structuredContent"]["commandId"].clone();
    let refused = other
        .call(1, "workspace_poll", json!({"commandId": command}))
        .await;
    assert_eq!(
        refused["structuredContent"]["error"]["code"],
        "UNKNOWN_COMMAND"
    );

    let listen = door
        .ready
        .mcp_url
        .trim_start_matches("http://")
        .trim_end_matches("/mcp")
        .to_owned();
    let mut program = door.program;
    program.kill().await;
    let _again = world.up_with("full", &["--listen", &listen]).await;
    let polled = bridge
        .call(2, "workspace_poll", json!({"commandId": command}))
        .await;
    assert_eq!(polled["structuredContent"]["status"], "running", "{polled}");
}

async fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    listener.local_addr().expect("its address").to_string()
}

#[tokio::test]
async fn a_file_is_uploaded_only_from_beneath_the_allowed_directory() {
    let world = World::new();
    let door = world.up("full").await;
    let allowed = world.outside().join("allowed");
    fs::create_dir(&allowed).expect("directory");
    fs::write(allowed.join("notes.txt"), "from here\n").expect("file");
    let root = allowed.display().to_string();
    let mut bridge = world.bridge(&door.ready, &["--upload-root", &root]);
    bridge.handshake("2025-11-25").await;
    bridge.ask(1, "tools/list", json!({})).await;
    assert!(names(&bridge.answer(1).await).contains(&"workspace_upload"));
    let arguments =
        |local: &str| json!({"localPath": local, "path": "in/notes.txt", "expectedSha256": null});
    let done = bridge
        .call(2, "workspace_upload", arguments("notes.txt"))
        .await;
    assert_eq!(done["structuredContent"]["created"], true, "{done}");
    assert_eq!(world.read("in/notes.txt"), b"from here\n");
    let refused = bridge
        .call(3, "workspace_upload", arguments("../agent-token"))
        .await;
    assert_eq!(
        refused["structuredContent"]["error"]["code"],
        "PATH_ESCAPES_PROJECT"
    );

    let mut plain = world.bridge(&door.ready, &[]);
    plain.handshake("2025-11-25").await;
    plain.ask(1, "tools/list", json!({})).await;
    assert!(!names(&plain.answer(1).await).contains(&"workspace_upload"));
}

#[tokio::test]
async fn a_bad_token_and_a_host_that_is_away_are_told_and_the_token_is_not() {
    let world = World::new();
    let door = world.up("full").await;
    let mut ready = door.ready.clone();
    ready.agent_token.replace_range(20..24, "zzzz");
    let mut bridge = world.bridge(&ready, &[]);
    bridge.ask(1, "ping", json!({"_meta": alone()})).await;
    let told = bridge.next().await["error"]["message"].to_string();
    assert!(
        told.contains("401") && told.contains("--token-file"),
        "{told}"
    );
    assert!(!told.contains(&ready.agent_token), "{told}");

    ready.mcp_url = format!("http://{}/mcp", free_address().await);
    let mut away = world.bridge(&ready, &[]);
    away.ask(
        0,
        "initialize",
        json!({"protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": {"name": "t", "version": "0"}}),
    )
    .await;
    let told = away.next().await["error"]["message"].to_string();
    assert!(told.contains("cannot be reached"), "{told}");
}

/// A host that says what it is told to, one answer a connection and the last one again and again. Counts its requests.
#[expect(
    clippy::disallowed_methods,
    reason = "the test's own server ends with its runtime"
)]
async fn scripted_host(answers: Vec<String>) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/mcp", listener.local_addr().expect("its address"));
    let requests = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&requests);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = vec![0; 64 * 1024];
            let Ok(1..) = stream.read(&mut request).await else {
                continue;
            };
            let number = counted.fetch_add(1, Ordering::Relaxed);
            match answers.get(number).or(answers.last()) {
                Some(answer) => {
                    let _gone = stream.write_all(answer.as_bytes()).await;
                }
                // Silent: the connection stays open.
                None => std::mem::forget(stream),
            }
        }
    });
    (url, requests)
}

fn http(status: &str, kind: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )
}

fn bridge_to(world: &World, url: &str) -> Bridge {
    let ready = Ready {
        line: Value::Null,
        mcp_url: url.to_owned(),
        agent_token: "a-token".to_owned(),
        console_url: String::new(),
        owner_token: String::new(),
        workspace_id: String::new(),
    };
    world.bridge(&ready, &[])
}

/// B44: also a host that never answers keeps no bridge alive.
#[tokio::test]
async fn ends_with_its_client_while_the_host_is_silent() {
    let world = World::new();
    let (url, requests) = scripted_host(Vec::new()).await;
    let mut bridge = bridge_to(&world, &url);
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": {"name": "t", "version": "0"}});
    bridge.ask(1, "initialize", params).await;
    wait_for("the handshake", LOOK_LIMIT, async || {
        (requests.load(Ordering::Relaxed) > 0).then_some(())
    })
    .await;
    bridge.close();
    assert_eq!(bridge.ended(END_LIMIT).await, (Some(0), Vec::new()));
}

/// What a proxy says while its host restarts is not the client's business: the call is asked again.
#[tokio::test]
async fn what_is_no_answer_never_reaches_the_client() {
    let world = World::new();
    let right = r#"{"jsonrpc":"2.0","id":7,"result":{"ok":true}}"#;
    let (url, requests) = scripted_host(vec![
        http("502 Bad Gateway", "text/html", "<html>"),
        http(
            "503 Service Unavailable",
            "application/json",
            r#"{"message":"not ready"}"#,
        ),
        http("200 OK", "text/event-stream", ": nothing\n\n"),
        http("200 OK", "application/json", right),
    ])
    .await;
    let mut bridge = bridge_to(&world, &url);
    let call = json!({"name": "workspace_read", "arguments": {"path": "a"}, "_meta": alone()});
    bridge.ask(7, "tools/call", call).await;
    let expected: Value = serde_json::from_str(right).expect("JSON");
    assert_eq!(bridge.next().await, expected);
    assert_eq!(requests.load(Ordering::Relaxed), 4);
    bridge.close();
    assert_eq!(bridge.ended(END_LIMIT).await, (Some(0), Vec::new()));
}

/// A stream that breaks each time is asked for again with growing pauses, not in a loop.
#[tokio::test]
async fn a_stream_that_always_breaks_is_no_flood() {
    let world = World::new();
    let empty = http("200 OK", "text/event-stream", "");
    let (url, requests) = scripted_host(vec![empty]).await;
    let mut bridge = bridge_to(&world, &url);
    let call = json!({"name": "workspace_read", "arguments": {"path": "a"}, "_meta": alone()});
    let begun = Instant::now();
    bridge.ask(7, "tools/call", call).await;
    wait_for("the third try", LOOK_LIMIT, async || {
        (requests.load(Ordering::Relaxed) >= 3).then_some(())
    })
    .await;
    // Two pauses lie before the third try: 250 and 500 ms.
    assert!(begun.elapsed() >= Duration::from_millis(750));
}
