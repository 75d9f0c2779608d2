//! What the program does with a ledger's database: copies from a file to a server and back, one that is killed in the middle, and a
//! verification that takes longer than a request may.
#![expect(clippy::expect_used, reason = "tests fail by panicking")]

use std::{
    path::Path,
    time::{Duration, Instant},
};

use postern_test_postgres::Cluster;
use postern_tests::{Ended, World, wait_for};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

/// Longest that something may take that must come.
const LIMIT: Duration = Duration::from_secs(60);
/// More receipts than are copied at a time.
const RECEIPTS: usize = 150;

/// A data directory with a ledger on which nothing runs.
async fn written() -> World {
    let world = World::new();
    let door = world.up("full").await;
    let agent = door.agent();
    let mut last = Value::Null;
    for number in 0..RECEIPTS {
        let arguments =
            json!({"path": "a.txt", "content": number.to_string(), "expectedSha256": last});
        last = agent.call("workspace_write", arguments).await.ok()["sha256"].clone();
    }
    let _ = door.stop().await;
    world
}

fn file(path: &Path) -> String {
    format!("sqlite://{}", path.display())
}

async fn copy(world: &World, from: &str, to: &str) -> Ended {
    world
        .run(&["ledger", "copy", "--json", "--from", from, "--to", to])
        .await
}

/// What `receipts verify` tells, up to what the edge has signed.
async fn verified(world: &World, database: &str) -> Value {
    let data = world.data();
    let data = data.to_str().expect("text");
    let words = ["receipts", "verify", "--json", "--data-dir", data];
    let ended = world
        .run(&[&words[..], &["--database", database]].concat())
        .await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let told: Value = serde_json::from_str(ended.stdout.trim()).expect("a line of JSON");
    json!([
        told["valid"],
        told["events"],
        told["receipts"],
        told["checkpoints"]
    ])
}

#[tokio::test]
async fn a_ledger_is_copied_to_a_server_and_back_and_each_verifies() {
    let world = written().await;
    let first = file(&world.data().join("ledger.db"));
    let last = file(&world.outside().join("last.db"));
    let server = Cluster::shared().database();
    let there = copy(&world, &first, &server).await;
    assert_eq!(there.code, Some(0), "{there:?}");
    let back = copy(&world, &server, &last).await;
    assert_eq!(back.code, Some(0), "{back:?}");
    assert_eq!(back.stdout, there.stdout);
    let whole = verified(&world, &first).await;
    assert_eq!(whole[0], true);
    for copied in [&server, &last] {
        assert_eq!(verified(&world, copied).await, whole);
    }

    // Into one that holds receipts nothing is copied, not even the same ones.
    for (from, to) in [(&first, &server), (&server, &last)] {
        let refused = copy(&world, from, to).await;
        assert_ne!(refused.code, Some(0));
        assert!(refused.stderr.contains("holds receipts"), "{refused:?}");
        assert_eq!(verified(&world, to).await, whole);
    }
}

#[tokio::test]
async fn a_copy_that_is_killed_in_the_middle_is_no_ledger_and_goes_on() {
    let world = written().await;
    let first = file(&world.data().join("ledger.db"));
    let server = Cluster::shared().database();
    let sql = |sql: &str| Cluster::shared().execute(&server, sql);
    // Tables without receipts, which a ledger makes; and batches that take their time.
    let mut ledger = world.start(&[
        "serve",
        "ledger",
        "--json",
        "--listen",
        &format!("unix:{}", world.outside().join("ledger.sock").display()),
        "--database",
        &server,
    ]);
    ledger.event("listening", LIMIT).await;
    let made = "SELECT count(*) FROM pg_tables WHERE schemaname = 'postern_ledger' AND tablename = 'events'";
    wait_for("the tables", LIMIT, async || {
        (sql(made) == "1\n").then_some(())
    })
    .await;
    ledger.kill().await;
    sql("SET search_path = postern_ledger; \
         CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(1); RETURN NULL; END $$; \
         CREATE TRIGGER slow AFTER INSERT ON events FOR EACH STATEMENT EXECUTE FUNCTION slow()");
    let mut copying = world.start(&[
        "ledger", "copy", "--json", "--from", &first, "--to", &server,
    ]);
    let count = || {
        let told = sql("SELECT count(*) FROM postern_ledger.events");
        told.trim().parse::<usize>().expect("a count")
    };
    wait_for("the first part", LIMIT, async || {
        (count() > 0).then_some(())
    })
    .await;
    copying.kill().await;
    sql("DROP TRIGGER slow ON postern_ledger.events");
    let part = count();
    assert!(part < 2 * RECEIPTS, "it is in the middle: {part}");
    let refused = world
        .run(&["receipts", "verify", "--json", "--database", &server])
        .await;
    assert_ne!(refused.code, Some(0), "{refused:?}");
    assert!(refused.stderr.contains("not finished"), "{refused:?}");

    // The server gives the killed one's lock back when it notices.
    wait_for("the rest", LIMIT, async || {
        let ended = copy(&world, &first, &server).await;
        let busy = ended.stderr.contains("another ledger");
        assert!(busy || ended.code == Some(0), "{ended:?}");
        (!busy).then_some(())
    })
    .await;
    assert_eq!(
        verified(&world, &server).await,
        verified(&world, &first).await
    );
}

/// Longer than a request between processes may take.
const SLOW: Duration = Duration::from_secs(10);

#[tokio::test]
async fn a_running_ledger_verifies_itself_however_long_that_takes() {
    let mut world = written().await;
    let first = file(&world.data().join("ledger.db"));
    let server = Cluster::shared().database();
    let copied = copy(&world, &first, &server).await;
    assert_eq!(copied.code, Some(0), "{copied:?}");
    let whole = verified(&world, &server).await;
    let address = format!("unix:{}", world.outside().join("ledger.sock").display());
    let words = ["serve", "ledger", "--json", "--listen", &address];
    let mut ledger = world.start(&[&words[..], &["--database", &server]].concat());
    ledger.event("listening", LIMIT).await;
    wait_for("a ledger that is ready", LIMIT, async || {
        let ended = world.run(&["healthcheck", &address]).await;
        (ended.code == Some(0)).then_some(())
    })
    .await;
    // Each event takes its time to be walked over: a hundred at a time less than a statement may, all together more than a request.
    Cluster::shared().execute(
        &server,
        "SET search_path = postern_ledger; ALTER TABLE events RENAME TO kept; \
         CREATE FUNCTION slow(body TEXT) RETURNS TEXT STABLE LANGUAGE plpgsql AS $$ BEGIN \
             IF current_query() LIKE '%ORDER BY sequence LIMIT%' THEN PERFORM pg_sleep(0.04); END IF; RETURN body; END $$; \
         CREATE VIEW events AS SELECT position, workspace, sequence, receipt, hash, slow(body) AS body, plan, proposal, \
             result, answer FROM kept",
    );
    let begun = Instant::now();
    let words = ["receipts", "verify", "--json", "--ledger", &address];
    let ended = world.run(&words).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(begun.elapsed() > SLOW, "{:?}", begun.elapsed());
    let told: Vec<Value> = ended
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).expect("a line of JSON"))
        .collect();
    let (last, before) = told.split_last().expect("an end");
    assert_eq!(
        (&last["valid"], &last["events"], &last["receipts"]),
        (&whole[0], &whole[1], &whole[2])
    );
    assert!(before.len() > 2, "{before:?}");
    assert!(before.iter().all(|it| it["event"] == "verifying"));
    assert!(before.is_sorted_by_key(|it| it["events"].as_u64()));

    // Two ledgers that the environment names: neither is meant more than the other.
    world.set("POSTERN_LEDGER", &address);
    world.set("POSTERN_DATABASE", &first);
    let refused = world.run(&["receipts", "verify"]).await;
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("POSTERN_DATABASE"), "{refused:?}");
    let meant = world
        .run(&["receipts", "verify", "--json", "--database", &first])
        .await;
    assert_eq!(meant.code, Some(0), "{meant:?}");
    assert!(!meant.stdout.contains("verifying"), "{meant:?}");
}
