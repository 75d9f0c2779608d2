//! A second ledger process on the same database takes over from the first while commands run on several workers.

use std::{ffi::OsString, fs, os::unix::fs::symlink};

use postern_test_postgres::Cluster;
use postern_tests::World;
use pretty_assertions::assert_eq;
use rustix::process::Signal;
use serde_json::json;

use crate::fleet::{Fleet, LEDGER, start_ledger, status, stop, until};

/// The workers' lease, in seconds: longer than it takes to notice that a connection leads to a halted process.
const LEASE: &str = "15";

/// Lets the ledger's usual address lead to that process.
fn lead_to(world: &World, name: &str) {
    let at = |name: &str| world.outside().join(format!("{name}.sock"));
    let next = world.outside().join("next");
    symlink(at(name), &next).expect("linked");
    fs::rename(next, at(LEDGER)).expect("moved");
}

async fn take_over(how: Signal) {
    let (world, database) = (World::new(), Cluster::shared().database());
    let first = start_ledger(&world, "first", &database).await;
    lead_to(&world, "first");
    let lease = ["--lease", LEASE];
    let fleet = Fleet::over(world, first, &["one", "two"], &lease).await;
    let second = start_ledger(&fleet.world, "second", &database).await;
    let agent = fleet.agent("a");
    let mut begun = Vec::new();
    for _ in 0..2 {
        begun.push(fleet.begin(&agent, "read line; echo $line").await);
    }
    assert_ne!(begun[0].1, begun[1].1);

    fleet.ledger.signal(how);
    lead_to(&fleet.world, "second");
    for (command, _) in &begun {
        assert_eq!(status(&agent, command).await.0, "running");
        let line = json!({"commandId": command, "text": "typed\n"});
        let _told = agent.call("workspace_input", line).await.ok();
        let page = until(&agent, command, "exited").await;
        let said = page["output"].as_str().expect("output");
        assert!(said.ends_with("typed\n"), "{said}");
    }
    // The first goes on, if it can, and has nothing more to say.
    fleet.ledger.signal(Signal::CONT);
    let mut placed = Vec::new();
    for _ in 0..2 {
        placed.push(fleet.begin(&agent, "sleep 300").await);
    }
    assert_ne!(placed[0].1, placed[1].1);
    for (command, _) in placed {
        assert_eq!(stop(&agent, &command).await["status"], "stopped");
    }
    for worker in ["one", "two"] {
        fleet.registered(worker, 1).await;
    }
    let verify = ["receipts", "verify", "--database", &database];
    let verified = fleet.world.run(&verify.map(OsString::from)).await;
    assert_eq!(verified.code, Some(0), "{verified:?}");
    drop(second);
}

#[tokio::test]
async fn a_standby_takes_over_from_a_killed_ledger_with_all_commands() {
    take_over(Signal::KILL).await;
}

#[tokio::test]
async fn a_standby_takes_over_from_a_halted_ledger_with_all_commands() {
    take_over(Signal::STOP).await;
}
