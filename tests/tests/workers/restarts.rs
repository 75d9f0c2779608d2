//! Restarts of the ledger and of the edge while commands run on several workers.

use std::time::Duration;

use pretty_assertions::assert_eq;
use serde_json::json;

use crate::fleet::{Fleet, status, stop, until};

/// More than two leases.
const AWAY: Duration = Duration::from_millis(2500);

#[tokio::test]
async fn a_ledger_that_was_away_declares_nobody_dead() {
    let mut fleet = Fleet::start(&["one", "two"], &[]).await;
    let agent = fleet.agent("a");
    let (first, on) = fleet.begin(&agent, "read line; echo $line").await;
    let (second, other) = fleet.begin(&agent, "sleep 300").await;
    assert_ne!(on, other);
    fleet.restart_ledger(AWAY).await;
    for command in [&first, &second] {
        assert_eq!(status(&agent, command).await.0, "running");
    }
    let line = json!({"commandId": first, "text": "typed\n"});
    let _told = agent.call("workspace_input", line).await.ok();
    let page = until(&agent, &first, "exited").await;
    let said = page["output"].as_str().expect("output");
    assert!(said.ends_with("typed\n"), "{said}");
    assert_eq!(agent.run("echo again").await.output, "again\n");
    // Another lease later, too.
    tokio::time::sleep(AWAY).await;
    assert_eq!(status(&agent, &second).await.0, "running");
    assert_eq!(stop(&agent, &second).await["status"], "stopped");
}

#[tokio::test]
async fn a_new_edge_finds_every_command_on_its_worker() {
    let mut fleet = Fleet::start(&["one", "two"], &[]).await;
    let agent = fleet.agent("a");
    let mut begun = Vec::new();
    for _ in 0..4 {
        begun.push(
            fleet
                .begin(&agent, "read line; echo $line; sleep 300")
                .await,
        );
    }
    let on_one = begun.iter().filter(|(_, on)| on == "one").count();
    assert_eq!(on_one, 2);
    fleet.restart_edge().await;
    for (command, _) in begun {
        let line = json!({"commandId": command, "text": format!("{command}\n")});
        let _told = agent.call("workspace_input", line).await.ok();
        let offset = 0;
        let heard = postern_tests::wait_for("what was typed", crate::fleet::LIMIT, async || {
            let page = agent.poll(&command, offset).await;
            let said = page["output"].as_str().expect("output").to_owned();
            said.contains(&command).then_some(page)
        });
        assert_eq!(heard.await["status"], "running");
        assert_eq!(stop(&agent, &command).await["status"], "stopped");
    }
}
