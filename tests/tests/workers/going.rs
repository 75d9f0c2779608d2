//! Workers that go: killed, frozen, drained.

use std::{
    fs,
    time::{Duration, Instant},
};

use postern_tests::wait_for;
use pretty_assertions::assert_eq;
use rustix::process::Signal;
use serde_json::json;

use crate::fleet::{Fleet, LIMIT, status, stop, until};

/// Two leases of a second, and what a loaded machine takes.
const TWO_LEASES: Duration = Duration::from_secs(5);
/// After which a signal is not the same wish as the one before.
const ANOTHER_WISH: Duration = Duration::from_millis(1100);

#[tokio::test]
async fn a_killed_worker_loses_its_own_commands_alone() {
    let mut fleet = Fleet::start(&["one", "two"], &[]).await;
    let agent = fleet.agent("a");
    let mut begun = Vec::new();
    for _ in 0..6 {
        begun.push(fleet.begin(&agent, "sleep 300").await);
    }
    let mut killed = fleet.workers.remove("one").expect("a worker");
    killed.kill().await;
    let at = Instant::now();
    let (lost, kept): (Vec<_>, Vec<_>) = begun.into_iter().partition(|(_, on)| on == "one");
    assert_eq!((lost.len(), kept.len()), (3, 3));
    for (command, _) in lost {
        let page = until(&agent, &command, "lost").await;
        assert!(at.elapsed() < TWO_LEASES, "{:?}", at.elapsed());
        let said = page["output"].as_str().expect("output");
        assert_eq!(said, format!("{}\n", killed.pid()));
        let late = json!({"commandId": command, "text": "x"});
        let _told = agent
            .call("workspace_input", late)
            .await
            .refused("COMMAND_ENDED");
        assert_eq!(stop(&agent, &command).await["status"], "lost");
    }
    for (command, _) in kept {
        assert_eq!(status(&agent, &command).await.0, "running");
        assert_eq!(stop(&agent, &command).await["status"], "stopped");
    }
    let (_, on) = fleet.begin(&agent, "true").await;
    assert_eq!(on, "two");
}

/// Nobody can tell a worker that hangs from one that is dead, so its commands are lost; it finds that out when it comes back.
#[tokio::test]
async fn a_frozen_worker_that_comes_back_ends_what_was_told_as_lost() {
    let fleet = Fleet::start(&["one", "two"], &[]).await;
    let agent = fleet.agent("a");
    let beat = "while :; do echo >> beats; sleep 0.05; done";
    let (command, frozen) = fleet.begin(&agent, beat).await;
    let (other, thawed) = fleet.begin(&agent, "sleep 300").await;
    assert_ne!(frozen, thawed);
    let before = fleet.worker_of(&command);
    fleet.signal(&frozen, Signal::STOP);
    until(&agent, &command, "lost").await;
    assert_eq!(status(&agent, &other).await.0, "running");
    // Its process is there, and does not tell what it does.
    let beats = fleet.world.project().join("beats");
    let written = || fs::metadata(&beats).expect("written").len();
    let one = written();
    wait_for("a beat", LIMIT, async || (written() > one).then_some(())).await;

    fleet.signal(&frozen, Signal::CONT);
    fleet.registered(&frozen, 2).await;
    let ended = written();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(
        written(),
        ended,
        "the command of the lapsed lease still runs"
    );
    assert_eq!(status(&agent, &command).await.0, "lost");
    assert_eq!(status(&agent, &other).await.0, "running");
    stop(&agent, &other).await;
    // It takes commands again, under another id.
    let mut next = fleet.begin(&agent, "sleep 300").await;
    if next.1 != frozen {
        next = fleet.begin(&agent, "sleep 300").await;
    }
    assert_eq!(next.1, frozen);
    assert_ne!(fleet.worker_of(&next.0), before);
}

#[tokio::test]
async fn a_draining_worker_takes_nothing_new_and_stops_what_does_not_end() {
    let mut fleet = Fleet::start(&["one", "two"], &["--drain", "4"]).await;
    let agent = fleet.agent("a");
    let mut begun = Vec::new();
    for then in ["read line; echo $line", "sleep 300"] {
        // One of each on each.
        for _ in 0..2 {
            let (command, on) = fleet.begin(&agent, then).await;
            begun.push((command, on, then));
        }
    }
    fleet.signal("one", Signal::TERM);
    // All go to the other while the drained one still runs.
    for _ in 0..4 {
        assert_eq!(fleet.begin(&agent, "true").await.1, "two");
    }
    for (command, on, then) in &begun {
        if then.starts_with("read") && on == "one" {
            let line = json!({"commandId": command, "text": "typed\n"});
            let _told = agent.call("workspace_input", line).await.ok();
            let page = until(&agent, command, "exited").await;
            let said = page["output"].as_str().expect("output");
            assert!(said.ends_with("typed\n"), "{said}");
        }
    }
    let drained = fleet.workers.remove("one").expect("a worker");
    let ended = drained.ended(LIMIT).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for (command, on, then) in begun {
        let (status, _) = status(&agent, &command).await;
        let expected = match (on.as_str(), then.starts_with("read")) {
            ("one", true) => "exited",
            ("one", false) => "stopped",
            _ => "running",
        };
        assert_eq!(status, expected, "{then} on {on}");
    }
}

/// As everywhere: a further signal a second after the first does not wait for what the first one waits for.
#[tokio::test]
async fn a_second_signal_ends_a_draining_worker_at_once_and_its_commands_with_it() {
    let mut fleet = Fleet::start(&["one"], &["--drain", "3600"]).await;
    let agent = fleet.agent("a");
    let beat = "while :; do echo >> beats; sleep 0.05; done";
    let (command, _) = fleet.begin(&agent, beat).await;
    fleet.signal("one", Signal::TERM);
    tokio::time::sleep(ANOTHER_WISH).await;
    assert_eq!(status(&agent, &command).await.0, "running");
    fleet.signal("one", Signal::TERM);
    let worker = fleet.workers.remove("one").expect("a worker");
    assert_eq!(worker.ended(LIMIT).await.code, Some(1));
    let beats = fleet.world.project().join("beats");
    let written = || fs::metadata(&beats).expect("written").len();
    wait_for("the end of the command", LIMIT, async || {
        let before = written();
        tokio::time::sleep(Duration::from_millis(300)).await;
        (written() == before).then_some(())
    })
    .await;
    fleet.add("two", &[]).await;
    until(&agent, &command, "lost").await;
}
