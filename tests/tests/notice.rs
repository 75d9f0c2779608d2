//! The owner hears that something waits for him, if he wants to.
#![expect(clippy::expect_used, reason = "tests fail by panicking")]

use std::{ffi::OsString, fs, os::unix::fs::PermissionsExt as _, time::Duration};

use postern_tests::{Agent, Owner, World, wait_for};
use pretty_assertions::assert_eq;
use serde_json::json;

const LIMIT: Duration = Duration::from_secs(30);

/// A desktop's `notify-send` that notes what it is asked to show, and the environment of Postern's that it got.
fn desktop(world: &mut World) -> std::path::PathBuf {
    let folder = world.outside().join("desktop");
    fs::create_dir(&folder).expect("folder");
    let program = folder.join("notify-send");
    let shown = folder.join("shown");
    let script = format!(
        "#!/bin/sh\nprintf '%s\\n' \"$@\" >> '{0}.new'\nenv | grep ^POSTERN_ >> '{0}.new'\nmv '{0}.new' '{0}'\n",
        shown.display()
    );
    fs::write(&program, script).expect("program");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("mode");
    let mut path = OsString::from(folder);
    path.push(":");
    path.push(std::env::var_os("PATH").expect("a path"));
    world.set("PATH", path);
    shown
}

#[tokio::test]
async fn what_comes_to_wait_is_shown_on_the_desktop_as_text() {
    let mut world = World::new();
    let shown = desktop(&mut world);
    world.set("POSTERN_REASON", "of no use to others");
    let door = world.up_with("ask", &["--notify", "desktop"]).await;
    let (agent, owner) = (door.agent(), door.owner());
    let write = json!({"path": "<b>a&b</b>\u{1b}.txt", "content": "x", "expectedSha256": null});
    let deciding = async {
        let text = wait_for("a notice", LIMIT, async || fs::read_to_string(&shown).ok()).await;
        let item = owner.inbox().await.pop().expect("an item");
        let id = item["id"].as_str().expect("an id").to_owned();
        let reply = owner.decide(&id, &json!({"decision": "deny"})).await;
        assert_eq!(reply.status, 200);
        text
    };
    let (answer, text) = tokio::join!(agent.call("workspace_write", write), deciding);
    let _error = answer.refused("APPROVAL_DENIED");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[..3],
        ["--app-name=Postern", "--", "Something waits for you"]
    );
    assert!(
        lines[3].starts_with("workspace_write: &lt;b&gt;a&amp;b&lt;/b&gt;"),
        "{text}"
    );
    assert_eq!(
        lines.len(),
        4,
        "no other argument and nothing of its environment: {text}"
    );
    assert!(!text.contains('\u{1b}'), "{text}");
    assert_eq!(door.stop().await.code, Some(0));
}

/// The bell rings in the owner's terminal, once for an item, and in nothing that is no terminal.
#[tokio::test]
async fn what_comes_to_wait_rings_the_terminals_bell() {
    let world = World::new();
    let arguments = world.up_arguments("ask", &["--notify", "bell"]);
    let terminal = world.wholly_in_terminal(&arguments);
    let ready = wait_for("the ready line", LIMIT, async || {
        let written = String::from_utf8(terminal.written()).ok()?;
        let mut lines = written.lines();
        let ready = lines.find(|line| line.starts_with('{'))?;
        serde_json::from_str::<serde_json::Value>(ready).ok()
    })
    .await;
    let text = |field: &str| ready[field].as_str().expect(field).to_owned();
    let agent = Agent::modern(&text("mcpUrl"), &text("agentToken"));
    let owner = Owner::new(&text("consoleUrl"), &text("ownerToken"));
    let bells = || terminal.written().iter().filter(|byte| **byte == 7).count();
    assert_eq!(bells(), 0);
    let write = json!({"path": "a\u{7}.txt", "content": "x", "expectedSha256": null});
    let deciding = async {
        wait_for("a bell", LIMIT, async || (bells() > 0).then_some(())).await;
        let item = owner.inbox().await.pop().expect("an item");
        let id = item["id"].as_str().expect("an id").to_owned();
        let reply = owner.decide(&id, &json!({"decision": "deny"})).await;
        assert_eq!(reply.status, 200);
    };
    let (answer, ()) = tokio::join!(agent.call("workspace_write", write), deciding);
    let _error = answer.refused("APPROVAL_DENIED");
    assert_eq!(bells(), 1);
}

#[tokio::test]
async fn nothing_is_shown_unless_the_owner_wants_it() {
    let mut world = World::new();
    let shown = desktop(&mut world);
    let door = world.up("ask").await;
    let (agent, owner) = (door.agent(), door.owner());
    let question = json!({"question": "Which one?"});
    let deciding = async {
        let item = wait_for("an item", LIMIT, async || owner.inbox().await.pop()).await;
        let id = item["id"].as_str().expect("an id").to_owned();
        let answer = json!({"decision": "answer", "answer": "that"});
        assert_eq!(owner.decide(&id, &answer).await.status, 200);
    };
    let (answer, ()) = tokio::join!(agent.call("workspace_ask", question), deciding);
    assert_eq!(answer.ok()["answer"], "that");
    assert_eq!(door.stop().await.code, Some(0));
    assert!(!shown.exists());
}

#[tokio::test]
async fn what_waited_before_the_start_is_told_too() {
    let mut world = World::new();
    let shown = desktop(&mut world);
    let mut door = world.up("ask").await;
    let (agent, owner) = (door.agent(), door.owner());
    let write = json!({"path": "a.txt", "content": "x", "expectedSha256": null});
    let waiting = wait_for("an item", LIMIT, async || owner.inbox().await.pop());
    tokio::select! {
        answer = agent.call("workspace_write", write) => panic!("nobody decided: {answer:?}"),
        _item = waiting => {}
    }
    door.program.kill().await;
    assert!(!shown.exists());
    let door = world.up_with("ask", &["--notify", "desktop"]).await;
    let text = wait_for("a notice", LIMIT, async || fs::read_to_string(&shown).ok()).await;
    assert!(text.contains("workspace_write: a.txt"), "{text}");
    assert_eq!(door.stop().await.code, Some(0));
}
