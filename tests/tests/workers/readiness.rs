//! What health says of a worker: before its ledger is there, while it is away, after it is back, and during a drain.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use postern_tests::{Health, wait_for};
use pretty_assertions::assert_eq;
use rustix::process::Signal;

use crate::fleet::{Fleet, LIMIT, status, stop};

/// The lease of the worker, in seconds.
const LEASE: &str = "2";
/// Two of them, with some renewals.
const TWO_LEASES: Duration = Duration::from_secs(4);

/// Waits until a command that writes without end has written once more.
async fn goes_on(beats: &Path) {
    let written = || fs::metadata(beats).map_or(0, |facts| facts.len());
    let before = written();
    wait_for("a further beat", LIMIT, async || {
        (written() > before).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_worker_is_ready_while_its_lease_runs_and_never_while_it_drains() {
    let mut fleet = Fleet::start(&[], &[]).await;
    fleet.ledger.kill().await;
    fleet.begin_worker("one", &["--lease", LEASE]).await;
    let address = fleet.socket("one").into_string().expect("text");
    wait_for("word that its ledger is away", LIMIT, async || {
        let said = fleet.workers["one"].stderr();
        said.contains("the ledger does not answer").then_some(())
    })
    .await;
    assert_eq!(Health::of(&fleet.world, &address).await, Health::NotServing);
    fleet.restart_ledger(Duration::ZERO).await;
    Health::Serving.becomes(&fleet.world, &address).await;

    // Without its ledger it takes no command once its lease is over, and goes on with what it runs.
    let agent = fleet.agent("a");
    let beat = "while :; do echo >> beats; sleep 0.05; done";
    let (command, _) = fleet.begin(&agent, beat).await;
    let beats = fleet.world.project().join("beats");
    fleet.ledger.signal(Signal::STOP);
    Health::NotServing.becomes(&fleet.world, &address).await;
    goes_on(&beats).await;
    fleet.ledger.signal(Signal::CONT);
    Health::Serving.becomes(&fleet.world, &address).await;
    assert_eq!(status(&agent, &command).await.0, "running");
    fleet.registered("one", 1).await;

    // Its lease goes on while it drains, and it takes no command all the same.
    fleet.signal("one", Signal::TERM);
    Health::NotServing.becomes(&fleet.world, &address).await;
    let draining = Instant::now();
    while draining.elapsed() < TWO_LEASES {
        let health = Health::of(&fleet.world, &address).await;
        assert_eq!(health, Health::NotServing, "{:?}", draining.elapsed());
    }
    goes_on(&beats).await;
    assert_eq!(stop(&agent, &command).await["status"], "stopped");
    let worker = fleet.workers.remove("one").expect("the worker");
    assert_eq!(worker.ended(LIMIT).await.code, Some(0));
    assert_eq!(Health::of(&fleet.world, &address).await, Health::Away);
}
