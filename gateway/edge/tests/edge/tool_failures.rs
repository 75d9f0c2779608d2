//! Tool servers that hang, flood, die or never come, and edges that do.

use std::time::Duration;

use postern_types::Mode;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    host::{PATIENCE, code},
    rig::{Rig, Run, ask},
    tools::{listed, result, scripted, start, start_one, use_tool},
};

fn status_of(run: &Run, index: usize) -> Value {
    serde_json::to_value(run.control.tools()).expect("status")[index].clone()
}

/// What is told once a server is away.
async fn problem(run: &Run, index: usize) -> String {
    let told = async {
        loop {
            let status = status_of(run, index);
            if status["state"] == "waiting" {
                return status["problem"].as_str().expect("told").to_owned();
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, told).await.expect("away")
}

/// A server that never answers, one that only writes and one that is not there delay nothing but themselves.
#[tokio::test]
async fn bad_servers_hold_up_nobody() {
    let rig = Rig::new().await;
    let before = Instant::now();
    let mut nowhere = scripted("nowhere", "good");
    nowhere.command = vec!["no-program".to_owned()];
    let tools = vec![
        scripted("mute", "mute"),
        scripted("flood", "flood"),
        scripted("dies", "dies"),
        nowhere,
        scripted("s", "good"),
    ];
    let (run, mut channel) = start(&rig, Mode::Full, tools, |_| {}).await;
    rig.world.tools.until("tools/list", 1).await;
    let echoed = result(&mut channel, "1", "s__echo", json!({})).await;
    assert_eq!(echoed["isError"], Value::Null);
    assert!(
        before.elapsed() < Duration::from_secs(4),
        "{:?}",
        before.elapsed()
    );
    let away = ask(
        &mut channel,
        "2",
        "workspace_tool",
        json!({"name": "mute__x", "arguments": {}}),
    )
    .await;
    assert_eq!(code(&away), "UNAVAILABLE");
    assert_eq!(rig.world.count("begin"), 1, "no receipt is kept of that");
    let names = listed(&mut channel, "3").await;
    assert!(
        names.iter().all(|name| name.starts_with("s__")),
        "{names:?}"
    );
    let told = problem(&run, 2).await;
    assert!(
        told.contains("exit code 3; its last words: no licence \\u{1b}[31mfound"),
        "{told}"
    );
    let told = problem(&run, 3).await;
    assert_eq!(told, "There is no such program.");
    assert_eq!(status_of(&run, 0)["state"], "starting");
}

#[tokio::test]
async fn a_server_that_dies_in_a_call_is_uncertain_restarted_and_not_asked_again() {
    for (name, part) in [
        ("die", "exit code 9; its last words: about to die"),
        ("line", "over 8 MiB"),
    ] {
        let rig = Rig::new().await;
        let (run, mut channel) = start_one(&rig, "good").await;
        listed(&mut channel, "0").await;
        channel
            .call(&use_tool("1", &format!("s__{name}"), &json!({})))
            .await;
        let frame = channel.frame().await;
        assert!(frame.contains(r#""code":"UNCERTAIN""#), "{frame}");
        let told = problem(&run, 0).await;
        assert!(told.contains(part), "{told}");
        let away = ask(
            &mut channel,
            "2",
            "workspace_tool",
            json!({"name": "s__echo", "arguments": {}}),
        )
        .await;
        assert_eq!(code(&away), "UNAVAILABLE");
        rig.world.tools.until("start good", 2).await;
        rig.world.tools.until("tools/list", 2).await;
        let again = async {
            // The very id that was away before.
            while code(
                &ask(
                    &mut channel,
                    "2",
                    "workspace_tool",
                    json!({"name": "s__echo", "arguments": {}}),
                )
                .await,
            ) == "UNAVAILABLE"
            {}
        };
        tokio::time::timeout(PATIENCE, again).await.expect("back");
        channel
            .call(&use_tool("1", &format!("s__{name}"), &json!({})))
            .await;
        assert_eq!(channel.frame().await, frame, "replayed");
        assert_eq!(
            (rig.world.tools.count(name), rig.world.tools.count("echo")),
            (1, 1)
        );
    }
}

#[tokio::test]
async fn a_call_that_takes_too_long_is_cancelled_and_uncertain() {
    let rig = Rig::new().await;
    let mut server = scripted("s", "good");
    server.timeout = 1;
    let (_run, mut channel) = start(&rig, Mode::Full, vec![server], |_| {}).await;
    listed(&mut channel, "0").await;
    let told = result(&mut channel, "1", "s__hang", json!({})).await;
    assert_eq!(code(&told["structuredContent"]), "UNCERTAIN");
    rig.world.tools.until("notifications/cancelled", 1).await;
    rig.world.until("complete UNCERTAIN", 1).await;
    // The server itself is as it was.
    assert!(result(&mut channel, "2", "s__echo", json!({})).await["isError"].is_null());
    assert_eq!(rig.world.tools.count("start good"), 1);
}

/// A server that reads nothing any more holds a call no longer than its time and a little, however much waits before it.
#[tokio::test]
async fn a_server_that_does_not_listen_holds_no_call_for_ever() {
    let rig = Rig::new().await;
    let mut server = scripted("s", "good");
    server.timeout = 1;
    let (_run, mut channel) = start(&rig, Mode::Full, vec![server], |_| {}).await;
    listed(&mut channel, "0").await;
    // As many as may be in flight, until nothing more can be written to it.
    for batch in 0..3 {
        for number in 0..4 {
            let id = format!("{batch}-{number}");
            channel.call(&use_tool(&id, "s__deaf", &json!({}))).await;
        }
        for _ in 0..4 {
            let frame = channel.frame().await;
            let told = frame.contains("UNCERTAIN") || frame.contains("UNAVAILABLE");
            assert!(told, "{frame}");
        }
    }
}

/// A call that ran out of time, and then no sign of life either: the server is ended and started again.
#[tokio::test]
async fn a_server_that_hangs_is_started_again() {
    let rig = Rig::new().await;
    let mut server = scripted("s", "good");
    server.timeout = 1;
    let (run, mut channel) = start(&rig, Mode::Full, vec![server], |_| {}).await;
    listed(&mut channel, "0").await;
    let told = result(&mut channel, "1", "s__deaf", json!({})).await;
    assert_eq!(code(&told["structuredContent"]), "UNCERTAIN");
    let told = problem(&run, 0).await;
    assert!(told.starts_with("it hangs"), "{told}");
    rig.world.tools.until("start good", 2).await;
    rig.world.tools.until("tools/list", 2).await;
    let echo = json!({"name": "s__echo", "arguments": {}});
    let again = async {
        while code(&ask(&mut channel, "2", "workspace_tool", echo.clone()).await) == "UNAVAILABLE" {
        }
    };
    tokio::time::timeout(PATIENCE, again).await.expect("back");
    assert_eq!(
        (rig.world.tools.count("deaf"), rig.world.tools.count("echo")),
        (1, 1)
    );
}

/// The end of the edge: a call has its time, then the server is told, and what is not known is recorded so.
#[tokio::test(start_paused = true)]
async fn the_end_of_the_edge_cancels_what_does_not_end() {
    let rig = Rig::new().await;
    let (run, mut channel) = start_one(&rig, "good").await;
    listed(&mut channel, "0").await;
    channel.call(&use_tool("1", "s__hang", &json!({}))).await;
    rig.world.tools.until("hang", 1).await;
    run.stop.cancel();
    run.end().await;
    rig.world.tools.until("notifications/cancelled", 1).await;
    rig.world.until("complete UNCERTAIN", 1).await;
}

/// A receipt that a killed edge left: the tool is not called again.
#[tokio::test]
async fn a_call_that_a_killed_edge_left_is_uncertain_and_not_repeated() {
    let rig = Rig::new().await;
    let (_run, mut channel) = start_one(&rig, "good").await;
    listed(&mut channel, "0").await;
    channel.call(&use_tool("1", "s__hang", &json!({}))).await;
    rig.world.tools.until("hang", 1).await;
    let rig = rig.next_life().await;
    let (_run, mut channel) = start_one(&rig, "good").await;
    listed(&mut channel, "l").await;
    let told = result(&mut channel, "1", "s__hang", json!({})).await;
    let content = &told["structuredContent"];
    assert_eq!(code(content), "UNCERTAIN");
    let message = content["error"]["message"].as_str().expect("text");
    assert!(message.contains("not called again"), "{message}");
    assert_eq!(rig.world.tools.count("hang"), 1);
}

/// A server that cannot list its tools is away; nothing of it is offered.
#[tokio::test]
async fn a_server_that_lies_about_its_listing_is_away() {
    let rig = Rig::new().await;
    let tools = vec![scripted("u", "unlisted"), scripted("l", "one-line")];
    let (run, mut channel) = start(&rig, Mode::Full, tools, |_| {}).await;
    let told = problem(&run, 0).await;
    assert!(told.contains("cannot be read"), "{told}");
    let told = problem(&run, 1).await;
    assert!(told.contains("over 8 MiB"), "{told}");
    assert_eq!(listed(&mut channel, "1").await, [""; 0]);
}
