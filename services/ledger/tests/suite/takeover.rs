//! Several ledgers on one database: one writes, the others stand by.

use std::{
    collections::HashSet,
    io::{BufRead as _, BufReader},
    process::Command,
    time::{Duration, Instant},
};

use postern_kit::{Effect, Failure};
use postern_ledger::accept_loss;
use postern_proto::ledger::v1::{State, begin_response::Outcome};
use postern_test_postgres::Cluster;
use postern_types::ErrorCode;
use pretty_assertions::assert_eq;

use crate::{
    durability::child,
    support::{Rig, Store, call, outcome, request, started},
};

/// Time within which another ledger takes over (CONTRACT.md, section 8).
const TAKEOVER: Duration = Duration::from_secs(15);

fn sql(store: &Store, sql: &str) -> String {
    let sql = format!("SET search_path = postern_ledger; {sql}");
    Cluster::shared().execute(store.url(), &sql)
}

async fn try_begin(rig: &Rig, id: &str, incarnation: u64) -> Result<Outcome, Failure> {
    let mut client = rig.client.clone();
    outcome(client.begin(request(&call(id), incarnation)).await)
}

async fn refused(rig: &Rig, id: &str, incarnation: u64) {
    let failure = try_begin(rig, id, incarnation).await.expect_err("refused");
    assert_eq!(
        (failure.code, failure.effect),
        (ErrorCode::Unavailable, Effect::None),
        "{failure}"
    );
}

#[tokio::test]
async fn a_second_ledger_stands_by_and_takes_over_when_the_first_ends() {
    let first = Rig::on(Store::postgres()).await;
    let incarnation = first.incarnation().await;
    let receipt = started(first.begin(&call("call-1"), incarnation).await);
    let second = Rig::at_once(first.store.clone()).await;
    refused(&second, "call-2", incarnation).await;
    assert!(!*second.service.readiness().borrow());

    first.stop().await;
    let start = Instant::now();
    second.becomes(true).await;
    assert!(
        start.elapsed() < Duration::from_secs(3),
        "{:?}",
        start.elapsed()
    );
    // A clean change of ledgers is nothing that an edge notices.
    assert_eq!(
        second.begin(&call("call-1"), incarnation).await,
        Outcome::Running(receipt.clone())
    );
    second
        .complete(&receipt, incarnation, State::Completed, "result")
        .await
        .expect("ends");
    second.assert_valid().await;
}

/// Halted, a process keeps its connections and everything that it remembers.
#[tokio::test]
async fn a_halted_ledger_is_replaced_in_time_and_writes_nothing_when_it_goes_on() {
    let store = Store::postgres();
    let mut halted = child(store.url());
    let id = halted.id().to_string();
    let signal = |name: &str| {
        let sent = Command::new("kill").args([name, &id]).status();
        assert!(sent.expect("kill runs").success());
    };
    let mut lines = BufReader::new(halted.stdout.take().expect("output")).lines();
    let mut next = || loop {
        let line = lines.next().expect("goes on").expect("a line");
        if line.contains("acknowledged ") && line.len() > 100 {
            return line;
        }
    };
    for _ in 0..200 {
        next();
    }
    let second = Rig::at_once(store).await;
    refused(&second, "call-1", 1).await;
    signal("-STOP");
    let start = Instant::now();
    second.becomes(true).await;
    assert!(start.elapsed() < TAKEOVER, "{:?}", start.elapsed());
    let before = second.verify().await;
    assert!(before.valid, "{before:?}");
    signal("-CONT");
    // It stops at the first refusal, which it takes for a failed test.
    let ended = halted.wait().expect("ends");
    assert!(!ended.success());
    assert_eq!(second.verify().await, before);
    started(second.begin(&call("call-1"), 1).await);
    second.assert_valid().await;
}

#[tokio::test]
async fn a_ledger_that_was_replaced_writes_nothing_and_begins_anew() {
    let rig = Rig::on(Store::postgres()).await;
    let incarnation = rig.incarnation().await;
    started(rig.begin(&call("call-1"), incarnation).await);
    sql(&rig.store, "UPDATE leader SET epoch = epoch + 1");
    refused(&rig, "call-2", incarnation).await;
    assert_eq!(sql(&rig.store, "SELECT count(*) FROM events"), "1\n");
    rig.becomes(true).await;
    started(rig.begin(&call("call-2"), incarnation).await);
    // Idle, it finds out by itself.
    let epoch = "SELECT epoch FROM leader";
    let before = sql(&rig.store, epoch);
    sql(&rig.store, "UPDATE leader SET epoch = epoch + 1");
    rig.becomes(false).await;
    rig.becomes(true).await;
    assert_ne!(sql(&rig.store, epoch), before);
    rig.assert_valid().await;
}

/// An older state of the database took its place under the ledger's own connection: nothing is added to it.
#[tokio::test]
async fn a_database_that_lost_its_newest_events_is_not_gone_on_with() {
    let rig = Rig::on(Store::postgres()).await;
    let incarnation = rig.incarnation().await;
    started(rig.begin(&call("call-1"), incarnation).await);
    started(rig.begin(&call("call-2"), incarnation).await);
    sql(
        &rig.store,
        "ALTER TABLE events DISABLE TRIGGER USER; ALTER TABLE receipts DISABLE TRIGGER USER; \
         DELETE FROM receipts WHERE id = (SELECT receipt FROM events WHERE sequence = 2); \
         DELETE FROM events WHERE sequence = 2; UPDATE sessions SET last_sequence = 1; \
         ALTER TABLE events ENABLE TRIGGER USER; ALTER TABLE receipts ENABLE TRIGGER USER",
    );
    refused(&rig, "call-3", incarnation).await;
    rig.becomes(false).await;
    refused(&rig, "call-3", incarnation).await;
    assert_eq!(sql(&rig.store, "SELECT count(*) FROM events"), "1\n");
    let lost = accept_loss(&rig.store.database()).await.expect("accepted");
    let lost: Vec<_> = lost.iter().map(|it| it.sequence).collect();
    assert_eq!(lost, [2]);
    rig.becomes(true).await;
    // What was lost is free again.
    started(rig.begin(&call("call-2"), incarnation).await);
    started(rig.begin(&call("call-3"), incarnation).await);
    let found = rig.verify().await;
    assert_eq!((found.valid, found.events), (true, 3), "{found:?}");
}

/// Two ledgers, callers at both, and somebody who ends the writer's session again and again: the chain is one, and whatever was
/// acknowledged by either is in it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ledgers_that_take_turns_share_one_chain() {
    let store = Store::postgres();
    let one = Rig::on(store.clone()).await;
    let other = Rig::at_once(store.clone()).await;
    let incarnation = one.incarnation().await;
    let tasks = postern_kit::task::Tasks::new();
    let stop = tasks.stopping();
    let callers: Vec<_> = (0..8)
        .map(|caller| {
            let clients = [one.client.clone(), other.client.clone()];
            let stop = stop.clone();
            tasks.spawn("caller", async move {
                let mut acknowledged = Vec::new();
                for number in 0.. {
                    if stop.is_cancelled() {
                        break;
                    }
                    let mut client = clients[number % 2].clone();
                    let call = call(&format!("{caller}-{number}"));
                    let begun = client.begin(request(&call, incarnation)).await;
                    match outcome(begun) {
                        Ok(begun) => acknowledged.push(started(begun).id),
                        Err(failure) => {
                            assert_eq!(failure.code, ErrorCode::Unavailable, "{failure}");
                            tokio::time::sleep(Duration::from_millis(5)).await;
                        }
                    }
                }
                acknowledged
            })
        })
        .collect();
    let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_locks \
        WHERE locktype = 'advisory' AND objsubid = 2 AND granted AND database = \
        (SELECT oid FROM pg_database WHERE datname = current_database())";
    let mut ended = 0;
    while ended < 8 {
        tokio::time::sleep(Duration::from_millis(250)).await;
        let count = sql(&store, end).trim().parse::<u32>().expect("a count");
        assert!(count <= 1, "one leads");
        ended += count;
    }
    stop.cancel();
    let mut acknowledged = Vec::new();
    for caller in callers {
        acknowledged.extend(caller.await.expect("joins"));
    }
    let known = sql(&store, "SELECT encode(id, 'hex') FROM receipts");
    let known: HashSet<_> = known.lines().collect();
    for id in &acknowledged {
        assert!(known.contains(id.replace('-', "").as_str()), "{id}");
    }
    let acknowledged = acknowledged.len();
    assert!(acknowledged > 50, "{acknowledged}");
    one.stop().await;
    other.becomes(true).await;
    other.assert_valid().await;
}
