//! Workers over another project, or another spool, than those of the same ledger.

use std::fs;

use pretty_assertions::assert_eq;
use rustix::process::Signal;
use serde_json::json;

use crate::fleet::{Fleet, stop};

#[tokio::test]
async fn a_worker_of_another_project_gets_no_command() {
    let mut fleet = Fleet::start(&["own"], &[]).await;
    let agent = fleet.agent("a");
    let outside = fleet.world.outside().to_owned();
    let (elsewhere, spool) = (outside.join("elsewhere"), fleet.spool());
    fs::create_dir(&elsewhere).expect("a project");
    let own = fleet.world.project();

    // The ledger says why it refuses each of them.
    fleet.add_over("other", &elsewhere, &spool, &[]).await;
    let spools = outside.join("other-spool");
    fleet.add_over("apart", &own, &spools, &[]).await;
    fleet.says("other", "another project (--project)").await;
    fleet.says("apart", "another spool (--spool)").await;
    for _ in 0..8 {
        let (command, on) = fleet.begin(&agent, "sleep 300").await;
        assert_eq!(on, "own");
        stop(&agent, &command).await;
    }

    // Alone it is the ledger's worker, and still none for this edge.
    fleet.signal("apart", Signal::KILL);
    fleet.signal("own", Signal::TERM);
    fleet.registered("other", 1).await;
    fleet
        .says("the edge", "another project than this edge")
        .await;
    let answer = agent.call("workspace_exec", json!({"command": "touch here"}));
    let error = answer.await.refused("UNAVAILABLE");
    let said = error["message"].as_str().expect("a message");
    assert!(said.contains("another project"), "{said}");
    assert!(!elsewhere.join("here").exists());

    // With one of its own again it goes on.
    fleet.signal("other", Signal::TERM);
    fleet.add("next", &[]).await;
    assert_eq!(fleet.begin(&agent, "true").await.1, "next");
}
