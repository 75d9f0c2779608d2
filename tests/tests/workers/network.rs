//! The network between a worker and its ledger is slow, breaks and hangs.

use std::{fs, time::Duration};

use postern_tests::{
    proxy::{Break, Proxy},
    wait_for,
};
use pretty_assertions::{assert_eq, assert_ne};
use serde_json::json;

use crate::fleet::{Fleet, LIMIT, status, stop, until};

/// The lease of the worker, in seconds.
const LEASE: &str = "2";
/// Two of them.
const TWO_LEASES: Duration = Duration::from_secs(4);
/// What a slow network takes for each piece.
const SLOW: Duration = Duration::from_millis(150);

#[tokio::test]
async fn a_worker_behind_a_bad_network_to_its_ledger() {
    let mut fleet = Fleet::start(&[], &[]).await;
    let proxy = Proxy::to_socket(fleet.world.outside().join("ledger.sock")).await;
    fleet
        .add("far", &["--ledger", proxy.address(), "--lease", LEASE])
        .await;
    let agent = fleet.agent("a");

    // Slow or broken within a lease is no fault: nothing is lost, and what is new is placed.
    let (kept, _) = fleet.begin(&agent, "read line; echo $line").await;
    proxy.delay(SLOW);
    fleet.begin(&agent, "true").await;
    tokio::time::sleep(TWO_LEASES).await;
    proxy.delay(Duration::ZERO);
    for how in [Break::Close, Break::Reset] {
        proxy.cut(how);
        fleet.begin(&agent, "true").await;
        tokio::time::sleep(TWO_LEASES).await;
    }
    assert_eq!(status(&agent, &kept).await.0, "running");
    fleet.registered("far", 1).await;
    let line = json!({"commandId": kept, "text": "typed\n"});
    let _told = agent.call("workspace_input", line).await.ok();
    let page = until(&agent, &kept, "exited").await;
    let said = page["output"].as_str().expect("output");
    assert!(said.ends_with("typed\n"), "{said}");

    // Longer than the lease, and it is over: the other worker hears so and leaves word in the spool, where the worker that is
    // cut off finds it and ends what it runs. When it is back, it takes commands under another id.
    fleet.add("near", &[]).await;
    let beat = "while :; do echo >> beats; sleep 0.05; done";
    let mut placed = fleet.begin(&agent, beat).await;
    if placed.1 != "far" {
        stop(&agent, &placed.0).await;
        placed = fleet.begin(&agent, beat).await;
    }
    let (command, on) = placed;
    assert_eq!(on, "far");
    proxy.black_hole();
    until(&agent, &command, "lost").await;
    let beats = fleet.world.project().join("beats");
    let written = || fs::metadata(&beats).expect("written").len();
    wait_for("the end of its command", LIMIT, async || {
        let before = written();
        tokio::time::sleep(Duration::from_millis(300)).await;
        (written() == before).then_some(())
    })
    .await;
    proxy.open();
    fleet.registered("far", 2).await;
    assert_eq!(status(&agent, &command).await.0, "lost");
    let next = [
        fleet.begin(&agent, "sleep 300").await,
        fleet.begin(&agent, "sleep 300").await,
    ];
    assert_ne!(next[0].1, next[1].1);
}
