//! The official MCP servers as the owner's tools, through agent, host, channel, edge and worker.
#![expect(clippy::expect_used, reason = "tests fail by panicking")]

use std::{fs, time::Duration};

use http::StatusCode;
use postern_tests::{Door, Look, World, client, text_of, wait_for};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

/// For a server of Node to be started, or started again, on a loaded machine.
const SERVER_LIMIT: Duration = Duration::from_secs(60);

/// A table of the configuration for an official server.
fn table(name: &str, package: &str, further: &[&str]) -> String {
    let script = format!("node_modules/@modelcontextprotocol/{package}/dist/index.js");
    let node = client::node(&script);
    let node = node.as_std();
    let program = std::iter::once(node.get_program()).chain(node.get_args());
    let words = program.map(|word| word.to_str().expect("text"));
    let words: Vec<&str> = words.chain(further.iter().copied()).collect();
    format!("[[tools]]\nname = \"{name}\"\ncommand = {}\n", json!(words))
}

fn configure(world: &World, text: &str) {
    fs::create_dir_all(world.data()).expect("folder");
    fs::write(world.data().join("postern.toml"), text).expect("file");
}

/// Waits until every server is ready.
async fn ready(door: &Door) -> Value {
    let owner = door.owner();
    wait_for("ready tool servers", SERVER_LIMIT, || async {
        let status = owner.get("/owner/v1/status").await;
        let servers = status["tools"].as_array().expect("servers").clone();
        let all = servers.iter().all(|server| server["state"] == "ready");
        (all && !servers.is_empty()).then_some(Value::Array(servers))
    })
    .await
}

fn call(name: &str, arguments: &Value) -> Value {
    json!({"name": name, "arguments": arguments})
}

#[tokio::test]
async fn the_filesystem_server_works_in_its_sandbox_and_no_further() {
    let world = World::new();
    fs::create_dir(world.project().join("docs")).expect("folder");
    world.write("docs/a.txt", "hello\n");
    let outside = world.outside().to_str().expect("text").to_owned();
    fs::write(world.outside().join("plain.txt"), "outside\n").expect("file");
    let data = world.data().to_str().expect("text").to_owned();
    let project = world.project().to_str().expect("text").to_owned();
    // It is told that all of this is its own: what holds it is the sandbox.
    let folders = [&*project, &*outside, &*data];
    configure(&world, &table("files", "server-filesystem", &folders));
    let door = world.up("full").await;
    ready(&door).await;
    let agent = door.agent();
    let listing = agent.call("workspace_tools", json!({})).await.ok();
    let tools = listing["tools"].as_array().expect("tools");
    let read = tools
        .iter()
        .find(|tool| tool["name"] == "files__read_text_file");
    let read = read.expect("listed");
    assert_eq!(read["inputSchema"]["properties"]["path"]["type"], "string");
    assert_eq!(read["annotations"]["readOnlyHint"], true);
    let path = |path: &str| format!("{}/{path}", world.project().display());
    let arguments = call(
        "files__read_text_file",
        &json!({"path": path("docs/a.txt")}),
    );
    let told = agent.call("workspace_tool", arguments).await;
    assert_eq!(told.content[0]["text"], "hello\n", "{told:?}");
    let write = |to: String| {
        call(
            "files__write_file",
            &json!({"path": to, "content": "new\n"}),
        )
    };
    let written = agent
        .call("workspace_tool", write(path("docs/b.txt")))
        .await;
    assert!(!written.is_error, "{written:?}");
    assert_eq!(world.read("docs/b.txt"), b"new\n");
    // What commands cannot do it cannot do either.
    let refused = agent
        .call("workspace_tool", write(format!("{outside}/made.txt")))
        .await;
    assert!(refused.is_error, "{refused:?}");
    assert!(!world.outside().join("made.txt").exists());
    for secret in ["owner-token", "exec-key"] {
        let token = fs::read_to_string(world.data().join(secret)).expect("a secret");
        let arguments = call(
            "files__read_text_file",
            &json!({"path": format!("{data}/{secret}")}),
        );
        let told = agent.call("workspace_tool", arguments).await;
        assert!(told.is_error, "{secret}");
        assert!(!told.content.to_string().contains(token.trim()), "{secret}");
    }
    let ended = door.stop().await;
    assert_eq!(ended.code, Some(0));
    // A start and an end in order are nothing to be warned of.
    assert!(!ended.stderr.contains(" WARN "), "{ended:?}");
}

#[tokio::test]
async fn the_everything_server_answers_with_progress_images_and_errors_and_is_started_again() {
    let world = World::new();
    configure(&world, &table("all", "server-everything", &["stdio"]));
    let door = world.up("full").await;
    ready(&door).await;
    let agent = door.agent();
    let echo = call("all__echo", &json!({"message": "é🙂"}));
    let told = agent.call("workspace_tool", echo.clone()).await;
    assert_eq!(told.content[0]["text"], "Echo: é🙂", "{told:?}");
    let image = agent
        .call("workspace_tool", call("all__get-tiny-image", &json!({})))
        .await;
    let blocks = image.content.as_array().expect("blocks");
    assert!(
        blocks
            .iter()
            .any(|block| block["type"] == "image" && block["data"].is_string())
    );
    let structured = call(
        "all__get-structured-content",
        &json!({"location": "New York"}),
    );
    let structured = agent.call("workspace_tool", structured).await.ok();
    assert!(structured["temperature"].is_number(), "{structured}");
    let wrong = agent
        .call("workspace_tool", call("all__get-sum", &json!({"a": "x"})))
        .await;
    assert!(wrong.is_error, "{wrong:?}");
    let unknown = agent
        .call("workspace_tool", call("all__nothing", &json!({})))
        .await;
    let _ = unknown.refused("UNKNOWN_TOOL");
    let long = call(
        "all__trigger-long-running-operation",
        &json!({"duration": 2, "steps": 4}),
    );
    let progress = wait_for("progress", SERVER_LIMIT, || async {
        let status = door.owner().get("/owner/v1/status").await;
        status["tools"][0]["calls"][0]["progress"].as_f64()
    });
    let (told, progress) = tokio::join!(agent.call("workspace_tool", long), progress);
    assert!(!told.is_error && progress >= 1.0, "{told:?}");
    // Killed between calls, it is there again.
    let killed = world
        .processes()
        .into_iter()
        .filter(|process| process.has_argument("stdio") && !process.has_argument("up"));
    assert!(killed.map(|process| process.kill()).count() > 0);
    wait_for("the server again", SERVER_LIMIT, || async {
        let told = agent.call("workspace_tool", echo.clone()).await;
        (!told.is_error).then_some(())
    })
    .await;
    assert_eq!(door.stop().await.code, Some(0));
    let left = world.processes();
    assert!(
        !left.iter().any(|process| process.has_argument("stdio")),
        "{left:?}"
    );
}

#[tokio::test]
async fn an_edge_killed_in_a_call_leaves_it_uncertain_and_makes_it_no_second_time() {
    let world = World::new();
    configure(&world, &table("all", "server-everything", &["stdio"]));
    let mut door = world.up("ask").await;
    ready(&door).await;
    let (agent, owner) = (door.agent(), door.owner());
    let call_id = "0193a0e4-5b1c-7000-8000-0000000000e1";
    let long = call(
        "all__trigger-long-running-operation",
        &json!({"duration": 30, "steps": 60}),
    );
    let arguments = long.to_string();
    let killing = async {
        let item = wait_for("an item in the inbox", SERVER_LIMIT, || async {
            owner.inbox().await.into_iter().next()
        })
        .await;
        let approve = json!({"decision": "approve"});
        let reply = owner.decide(&text_of(&item, "id"), &approve).await;
        assert_eq!(reply.status, StatusCode::OK, "{}", reply.json);
        wait_for("progress", SERVER_LIMIT, || async {
            let status = owner.get("/owner/v1/status").await;
            status["tools"][0]["calls"][0]["progress"].as_f64()
        })
        .await;
    };
    let request = agent.try_call(Some(call_id), "workspace_tool", &arguments);
    tokio::select! {
        answered = request => panic!("answered early: {answered:?}"),
        () = killing => {}
    }
    door.program.kill().await;
    let door = world.up("full").await;
    let servers = ready(&door).await;
    assert_eq!(servers[0]["calls"], json!([]));
    let told = door.agent().call_as(call_id, "workspace_tool", &long).await;
    let _ = told.refused("UNCERTAIN");
    let receipts = door.owner().receipts_of(call_id).await;
    assert_eq!(
        (receipts.len(), &receipts[0]["state"]),
        (1, &json!("uncertain"))
    );
    assert_eq!(door.stop().await.code, Some(0));
}

#[tokio::test]
async fn the_console_tells_where_each_server_stands_as_it_changes() {
    let world = World::new();
    let go = world.project().join("go");
    let script = format!("until [ -e '{}' ]; do sleep 0.1; done", go.display());
    let ends = format!(
        "[[tools]]\nname = \"ends\"\ncommand = {}\n",
        json!(["sh", "-c", script])
    );
    let off = "[[tools]]\nname = \"off\"\ncommand = [\"true\"]\nenabled = false\n";
    configure(&world, &format!("{ends}{off}"));
    let door = world.up("full").await;
    let browser = world.browser(Look::default()).await;
    browser.open(&door.ready.console_link()).await;
    let row = |number: u8, words: &str| {
        let cells = format!("#tools tbody tr:nth-child({number}) td:nth-child(-n+3)");
        format!(
            "[...document.querySelectorAll('{cells}')].map(cell => cell.innerText).join(' ') === '{words}'"
        )
    };
    browser.until(&row(1, "ends starting 0")).await;
    browser.until(&row(2, "off disabled 0")).await;
    // It ends without a word of the protocol.
    fs::write(&go, "").expect("file");
    browser.until(&row(1, "ends waiting 0")).await;
    let problem = browser
        .run("return document.querySelector('#tools tbody tr td:nth-child(5)').innerText")
        .await;
    let status = door.owner().get("/owner/v1/status").await;
    assert_eq!(problem, status["tools"][0]["problem"]);
    assert!(problem.as_str().is_some_and(|problem| !problem.is_empty()));
    assert_eq!(door.stop().await.code, Some(0));
}
