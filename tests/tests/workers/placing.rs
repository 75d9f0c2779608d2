//! Which worker a command is placed on.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use pretty_assertions::assert_eq;
use serde_json::json;

use crate::fleet::{Fleet, TELL_WORKER, exec, status, stop, until};

#[tokio::test]
async fn a_hundred_commands_are_spread_over_four_workers() {
    let fleet = Fleet::start(&["one", "two", "three", "four"], &[]).await;
    let agents = ["a", "b", "c", "d"].map(|name| fleet.agent(name));
    let runs = agents.iter().map(async |agent| {
        let mut pids = Vec::new();
        for _ in 0..25 {
            let finished = agent.run(TELL_WORKER).await;
            assert_eq!(finished.last["status"], "exited");
            pids.push(finished.output.trim().parse().expect("a process id"));
        }
        pids
    });
    let mut placed = BTreeMap::<String, usize>::new();
    for pid in join_all(runs).await.into_iter().flatten() {
        *placed.entry(fleet.name_of(pid)).or_default() += 1;
    }
    assert_eq!(placed.values().sum::<usize>(), 100);
    assert!(
        placed.len() == 4 && placed.values().all(|count| *count >= 10),
        "{placed:?}"
    );
}

#[tokio::test]
async fn a_command_is_placed_where_there_is_room_and_nowhere_when_all_are_full() {
    let mut fleet = Fleet::start(&["one", "two"], &["--capacity", "1"]).await;
    let agent = fleet.agent("a");
    let (first, on) = fleet.begin(&agent, "sleep 300").await;
    let (second, other) = fleet.begin(&agent, "sleep 300").await;
    assert_ne!(on, other);
    let full = json!({"command": "touch too-much"});
    let _told = agent
        .call("workspace_exec", full.clone())
        .await
        .refused("BUSY");
    // There is room on the third as soon as it is there, and on the others as soon as a command has ended.
    fleet.add("three", &["--capacity", "1"]).await;
    let (third, on) = fleet.begin(&agent, "sleep 300").await;
    assert_eq!(on, "three");
    let _told = agent.call("workspace_exec", full).await.refused("BUSY");
    stop(&agent, &first).await;
    let fourth = exec(&agent, "sleep 300").await;
    assert_eq!(fleet.worker_of(&fourth), fleet.worker_of(&first));
    for command in [second, third, fourth] {
        assert_eq!(status(&agent, &command).await.0, "running");
        assert_eq!(stop(&agent, &command).await["status"], "stopped");
        until(&agent, &command, "stopped").await;
    }
    assert!(!fleet.world.project().join("too-much").exists());
}
