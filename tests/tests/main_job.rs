//! The main job: an agent works in a fresh project through `postern up`, by the official Python client and by raw
//! JSON-RPC, in both eras of the protocol.
#![expect(clippy::expect_used, reason = "tests fail by panicking")]

use std::time::Duration;

use postern_tests::{Agent, Era, World, client, text_of, wait_for};
use postern_types::Sha256;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use tokio::process::Command;

/// The whole job of the Python client, on a loaded machine.
const CLIENT_LIMIT: Duration = Duration::from_secs(180);
/// For a command to say something.
const OUTPUT_LIMIT: Duration = Duration::from_secs(30);

/// Characters of one to four bytes, in an order that makes every page size meet every kind of border.
const WIDE: &str = "aé漢🙂\nßb한𝄞c\r\n";

fn prepared() -> World {
    let world = World::new();
    world.write("small.txt", WIDE.repeat(12));
    world.write("wide.txt", WIDE.repeat(12_000));
    world.write("dot.png", client::DOT_PNG);
    world
}

async fn official_client(mode: &str) -> String {
    let world = prepared();
    let door = world.up("full").await;
    let mut client = Command::new(client::python());
    client
        .arg(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/clients/python/main_job.py"
        ))
        .arg(door.ready.client_configuration().to_string())
        .arg(world.project())
        .arg(mode);
    let ended = world.run_client(client, CLIENT_LIMIT).await;
    let said = ended.stdout;
    assert!(
        ended.code == Some(0),
        "the client failed after:\n{said}\n{}\nthe program said:\n{}",
        ended.stderr,
        door.program.stderr()
    );
    assert_eq!(door.stop().await.code, Some(0));
    said
}

#[tokio::test]
async fn official_python_client_without_handshake() {
    let said = official_client("auto").await;
    assert!(said.starts_with("protocol 2026-07-28\n"), "{said}");
    assert!(said.ends_with("ok give_up\n"), "{said}");
}

#[tokio::test]
async fn official_python_client_with_handshake() {
    let said = official_client("legacy").await;
    assert!(said.starts_with("protocol 2025-11-25\n"), "{said}");
    assert!(said.ends_with("ok give_up\n"), "{said}");
}

#[tokio::test]
async fn raw_client_in_every_era() {
    let world = prepared();
    let door = world.up("full").await;
    for era in [
        Era::Modern,
        Era::Handshake("2025-11-25"),
        Era::Handshake("2025-06-18"),
        Era::Handshake("2025-03-26"),
    ] {
        let agent = door.agent_of(era).await;
        assert_eq!(agent.has_session(), era != Era::Modern, "{era:?}");
        let info = agent.call("workspace_info", json!({})).await.ok();
        assert_eq!(info["workspaceId"], door.ready.workspace_id.as_str());
        read_by_pages(&world, &agent).await;
        edit_with_revisions(&world, &agent).await;
        run_the_tests(&world, &agent).await;
        answer_a_prompt(&agent).await;
        stop_with_children(&world, &agent).await;
    }
    assert_eq!(door.stop().await.code, Some(0));
}

/// What a client is told of a session that it does not have: nothing runs, and a new handshake works.
#[tokio::test]
async fn command_of_another_session_is_unknown() {
    let world = World::new();
    let door = world.up("full").await;
    let first = door.agent_of(Era::Handshake("2025-11-25")).await;
    let second = door.agent_of(Era::Handshake("2025-11-25")).await;
    let command = first.exec("sleep 300").await;
    for tool in ["workspace_poll", "workspace_stop"] {
        let answer = second.call(tool, json!({"commandId": command})).await;
        assert_eq!(answer.code(), "UNKNOWN_COMMAND", "{tool}");
    }
    let stopped = first
        .call("workspace_stop", json!({"commandId": command}))
        .await
        .ok();
    assert_eq!(stopped["status"], "stopped");
}

async fn read_by_pages(world: &World, agent: &Agent) {
    let on_disk = String::from_utf8(world.read("small.txt")).expect("text");
    for limit in [4, 5, 6, 7, 100] {
        let mut content = String::new();
        let mut next = json!(0);
        while !next.is_null() {
            let page = agent
                .call(
                    "workspace_read",
                    json!({"path": "small.txt", "offset": next, "limit": limit}),
                )
                .await
                .ok();
            let part = page["content"].as_str().expect("text");
            assert!(!part.is_empty() && part.len() <= limit, "{page}");
            content.push_str(part);
            next = page["nextOffset"].clone();
        }
        assert!(
            content == on_disk,
            "paged by {limit} bytes, the file comes back as it is"
        );
    }
    let whole = agent
        .call("workspace_read", json!({"path": "small.txt"}))
        .await
        .ok();
    let expected = json!({
        "path": "small.txt",
        "content": on_disk,
        "offset": 0,
        "bytes": on_disk.len(),
        "nextOffset": null,
        "size": on_disk.len(),
        "sha256": Sha256::of(on_disk.as_bytes()).to_string(),
        "lineEnding": "mixed",
        "bom": false,
    });
    assert_eq!(whole, expected);
}

async fn edit_with_revisions(world: &World, agent: &Agent) {
    let path = "new folder/file.txt";
    let created = agent
        .call(
            "workspace_write",
            json!({"path": path, "content": "one\n", "expectedSha256": null}),
        )
        .await
        .ok();
    let first = Sha256::of(b"one\n").to_string();
    let expected = json!({
        "path": path, "sha256": first, "bytes": 4, "created": true, "previousSha256": null,
    });
    assert_eq!(created, expected);
    let patched = agent
        .call(
            "workspace_patch",
            json!({"path": path, "oldText": "one", "newText": "two", "expectedSha256": first}),
        )
        .await
        .ok();
    let second = Sha256::of(b"two\n").to_string();
    let expected = json!({
        "path": path, "sha256": second, "bytes": 4, "previousSha256": first, "offset": 0, "line": 1,
    });
    assert_eq!(patched, expected);
    let stale = agent
        .call(
            "workspace_delete",
            json!({"path": path, "expectedSha256": first}),
        )
        .await
        .refused("STALE_REVISION");
    assert_eq!(stale["details"]["currentSha256"], second);
    assert_eq!(world.read(path), b"two\n");
    let deleted = agent
        .call(
            "workspace_delete",
            json!({"path": path, "expectedSha256": second}),
        )
        .await
        .ok();
    let expected = json!({"path": path, "deleted": true, "previousSha256": second});
    assert_eq!(deleted, expected);
    assert!(!world.project().join(path).exists());
}

async fn run_the_tests(world: &World, agent: &Agent) {
    world.write("greeting.txt", "hello\n");
    let before = agent.run("sh check.sh").await;
    assert_eq!(before.last["exitCode"], 1, "{}", before.output);
    world.write("greeting.txt", "hello world\n");
    let after = agent.run("sh check.sh").await;
    assert_eq!(after.last["status"], "exited");
    assert_eq!(after.last["exitCode"], 0);
    assert_eq!(
        after.output,
        "running 2 tests\nok 1 - instructions are there\nok 2 - the greeting is complete\n"
    );
}

async fn see(agent: &Agent, command: &str, text: &str) -> String {
    wait_for(text, OUTPUT_LIMIT, || async {
        let page = agent.poll(command, 0).await;
        let output = text_of(&page, "output");
        output.contains(text).then_some(output)
    })
    .await
}

async fn answer_a_prompt(agent: &Agent) {
    let command = agent
        .exec("printf 'Name? '; read -r name; echo \"Hello, $name.\"")
        .await;
    see(agent, &command, "Name? ").await;
    let sent = agent
        .call(
            "workspace_input",
            json!({"commandId": command, "text": "Ada\n"}),
        )
        .await
        .ok();
    assert_eq!(sent, json!({"commandId": command, "bytes": 4}));
    let finished = agent.follow(&command).await;
    assert_eq!(finished.output, "Name? Hello, Ada.\n");
    let late = agent
        .call(
            "workspace_input",
            json!({"commandId": command, "text": "x"}),
        )
        .await;
    assert_eq!(late.code(), "COMMAND_ENDED");
}

async fn stop_with_children(world: &World, agent: &Agent) {
    let command = agent
        .exec("sleep 331 & (setsid sleep 331 &); echo started; sleep 331")
        .await;
    see(agent, &command, "started\n").await;
    let sleeps = || {
        let mut found = world.processes();
        found.retain(|process| process.arguments == ["sleep", "331"]);
        found.len()
    };
    wait_for("three sleeps", OUTPUT_LIMIT, || async {
        (sleeps() == 3).then_some(())
    })
    .await;
    let stopped = agent
        .call("workspace_stop", json!({"commandId": command}))
        .await
        .ok();
    assert_eq!(stopped["status"], "stopped", "{stopped}");
    assert_eq!(sleeps(), 0, "what the command started went with it");
    let last: Value = agent.poll(&command, 0).await;
    assert_eq!(last["status"], "stopped");
}
