//! `postern watch` in a terminal of its own: the owner decides by keys.

use std::{ffi::OsString, time::Duration};

use postern_tests::{Answer, Door, Terminal, World, wait_for};
use pretty_assertions::assert_eq;
use rustix::process::Signal;
use serde_json::{Value, json};

/// What the view demands between an item's coming and a key that decides on it, and some more.
const GUARD: Duration = Duration::from_millis(700);
/// For the program to end.
const END_LIMIT: Duration = Duration::from_secs(10);
/// For what was decided to have happened.
const DONE_LIMIT: Duration = Duration::from_secs(30);
/// Control and C.
const CTRL_C: &str = "\u{3}";

fn watch(world: &World) -> Terminal {
    let mut arguments = ["watch", "--data-dir"].map(OsString::from).to_vec();
    arguments.push(world.data().into());
    world.in_terminal(&arguments)
}

/// Waits until the item can be decided on.
async fn item(terminal: &Terminal, sign: &str) {
    terminal.shows(sign).await;
    tokio::time::sleep(GUARD).await;
}

/// Makes a call that waits for the owner, who types keys once he has seen it.
async fn call_and_type(
    door: &Door,
    terminal: &Terminal,
    (tool, arguments): (&str, Value),
    sign: &str,
    keys: &str,
) -> Answer {
    let agent = door.agent();
    let decide = async {
        item(terminal, sign).await;
        terminal.type_keys(keys);
    };
    let (answer, ()) = tokio::join!(agent.call(tool, arguments), decide);
    answer
}

fn write(content: &str) -> (&'static str, Value) {
    let arguments = json!({"path": "new.txt", "content": content, "expectedSha256": null});
    ("workspace_write", arguments)
}

#[tokio::test]
async fn a_write_is_denied_with_words_and_another_approved() {
    let world = World::new();
    let door = world.up("ask").await;
    let terminal = watch(&world);
    let denied = call_and_type(
        &door,
        &terminal,
        write("no"),
        "content: no",
        "dnot this one\r",
    );
    let told = denied.await.refused("APPROVAL_DENIED");
    assert!(told.to_string().contains("not this one"), "{told}");
    terminal.shows("denied").await;
    assert!(!world.project().join("new.txt").exists());
    let written = call_and_type(&door, &terminal, write("yes"), "content: yes", "a").await;
    let _ = written.ok();
    terminal.shows("approved").await;
    assert_eq!(world.read("new.txt"), b"yes");
    terminal.shows("✓").await;
    assert!(door.owner().inbox().await.is_empty());
}

#[tokio::test]
async fn what_an_agent_writes_does_not_steer_the_terminal() {
    let world = World::new();
    let door = world.up("ask").await;
    let terminal = watch(&world);
    let hostile = "\u{1b}]0;owned\u{7}\u{1b}[8m\u{9b}8m\u{202e}";
    let written = call_and_type(
        &door,
        &terminal,
        write(hostile),
        "\\u{1b}]0;owned\\u{7}",
        "a",
    );
    let _ = written.await.ok();
    terminal.shows("approved").await;
    assert_eq!(world.read("new.txt"), hostile.as_bytes());
    let bytes = terminal.written();
    for part in ["\u{1b}]", "\u{7}", "\u{9b}", "\u{202e}", "\u{1b}[8m"] {
        let found = memchr::memmem::find(&bytes, part.as_bytes());
        assert_eq!(found, None, "{}", part.escape_unicode());
    }
}

#[tokio::test]
async fn a_question_is_answered() {
    let world = World::new();
    let door = world.up("read-only").await;
    let terminal = watch(&world);
    let question = ("workspace_ask", json!({"question": "Which colour?"}));
    let answer = call_and_type(&door, &terminal, question, "Which colour?", "rqa blue\r").await;
    assert_eq!(answer.ok()["answer"], "qa blue");
    terminal.shows("answered").await;
}

#[tokio::test]
async fn the_same_in_a_session_is_asked_once() {
    let world = World::new();
    let door = world.up("ask").await;
    let terminal = watch(&world);
    let _ = call_and_type(&door, &terminal, write("one"), "content: one", "s")
        .await
        .ok();
    let arguments = json!({"path": "other.txt", "content": "two", "expectedSha256": null});
    let _ = door.agent().call("workspace_write", arguments).await.ok();
    assert_eq!(world.read("other.txt"), b"two");
}

#[tokio::test]
async fn a_command_is_followed_and_stopped() {
    let world = World::new();
    let door = world.up("full").await;
    let terminal = watch(&world);
    let command = "n=0; while :; do n=$((n+1)); echo \"line-$n\"; sleep 0.1; done";
    let arguments = json!({"command": command});
    let started = door.agent().call("workspace_exec", arguments).await.ok();
    terminal.shows("2 Now (1)").await;
    terminal.type_keys("2");
    terminal.shows("line-20").await;
    terminal.type_keys("x");
    terminal.shows("stopped").await;
    let id = started["commandId"].clone();
    wait_for("the command's end", DONE_LIMIT, || async {
        let commands = door.owner().get("/owner/v1/commands").await;
        let ended = commands["items"]
            .as_array()?
            .iter()
            .find(|it| it["commandId"] == id)?;
        (ended["status"] == "stopped").then_some(())
    })
    .await;
}

#[tokio::test]
async fn mode_and_door_are_switched() {
    let world = World::new();
    let door = world.up("ask").await;
    let terminal = watch(&world);
    terminal.shows("open, connected  mode ask").await;
    terminal.type_keys("m");
    terminal.shows("New mode:").await;
    terminal.type_keys("e");
    terminal.shows("mode edit").await;
    terminal.type_keys("c");
    terminal.shows("DOOR CLOSED").await;
    let status = door.owner().get("/owner/v1/status").await;
    assert_eq!(
        (&status["mode"], &status["channel"]["open"]),
        (&json!("edit"), &json!(false))
    );
    terminal.type_keys("o");
    terminal.shows("open, connected").await;
}

#[tokio::test]
async fn an_edge_that_goes_is_told_and_met_again() {
    let world = World::new();
    let mut door = world.up("ask").await;
    let terminal = watch(&world);
    terminal.shows("open, connected").await;
    door.program.kill().await;
    terminal.shows("EDGE GONE, trying on").await;
    let _door = world.up("ask").await;
    terminal.shows("open, connected").await;
}

#[tokio::test]
async fn the_terminal_is_given_back_as_it_was() {
    let world = World::new();
    let _door = world.up("ask").await;
    for end in ["q", CTRL_C, "terminate"] {
        let mut terminal = watch(&world);
        terminal.shows("open, connected").await;
        assert!(terminal.is_taken());
        let during = terminal.settings();
        terminal.resize(60, 20);
        terminal.shows("▶ 1 Inbox (0)").await;
        match end {
            "terminate" => terminal.signal(Signal::TERM),
            keys => terminal.type_keys(keys),
        }
        let ended = terminal.ended(END_LIMIT).await;
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{end}");
        wait_for("the ordinary screen", END_LIMIT, || async {
            (!terminal.is_taken()).then_some(())
        })
        .await;
        let before = world.in_terminal(&["--version"]).settings();
        let modes = |it: &rustix::termios::Termios| {
            (
                it.input_modes,
                it.output_modes,
                it.control_modes,
                it.local_modes,
            )
        };
        assert_eq!(modes(&terminal.settings()), modes(&before), "{end}");
        assert!(modes(&during) != modes(&before), "it was not raw");
    }
}

#[tokio::test]
async fn what_is_no_terminal_is_refused() {
    let world = World::new();
    let ended = world.run(&["watch"]).await;
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("draws on a terminal"), "{ended:?}");
    let mut terminal = watch(&world);
    let ended = terminal.ended(END_LIMIT).await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("no edge runs on"), "{ended:?}");
    assert!(!terminal.is_taken());
}
