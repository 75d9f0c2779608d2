//! The store on a server: what guards its rows, and what verification finds when that is taken away.

use postern_test_postgres::Cluster;
use pretty_assertions::assert_eq;

use postern_proto::ledger::v1::State;

use crate::support::{Rig, Store, call, started};

/// Runs SQL in the ledger's schema, and tells what was wrong with it.
fn sql(store: &Store, sql: &str) -> Result<String, String> {
    let sql = format!("SET search_path = postern_ledger; {sql}");
    Cluster::shared().try_execute(store.url(), &sql)
}

/// Receipts 1 to 4, each begun and completed, so that events 2n-1 and 2n are receipt n's.
async fn written() -> (Rig, Vec<String>) {
    let rig = Rig::on(Store::postgres()).await;
    let incarnation = rig.incarnation().await;
    let mut ids = Vec::new();
    for id in 1..=4 {
        let receipt = started(rig.begin(&call(&format!("call-{id}")), incarnation).await);
        rig.complete(&receipt, incarnation, State::Completed, "result")
            .await
            .expect("ends");
        ids.push(receipt.id);
    }
    (rig, ids)
}

const UNGUARD: &str = "ALTER TABLE events DISABLE TRIGGER USER; ALTER TABLE receipts DISABLE TRIGGER USER; \
    ALTER TABLE sessions DISABLE TRIGGER USER;";
const INDEX: &str = "its events do not lead to what the index says, some are missing";

/// The attack, how it is done, the receipt found bad, and what is said of it.
const ATTACKS: [(&str, &str, usize, &str); 11] = [
    (
        "a changed body",
        "UPDATE events SET body = replace(body, 'workspace_exec', 'workspace_read') WHERE sequence = 3",
        2,
        "event 3: its content or hash was changed",
    ),
    (
        "a changed hash",
        "UPDATE events SET hash = decode(repeat('00', 32), 'hex') WHERE sequence = 4",
        2,
        "event 4: its content or hash was changed",
    ),
    (
        "a changed result",
        "UPDATE events SET result = 'forged' WHERE sequence = 6",
        3,
        "event 6: its result was changed",
    ),
    (
        "a missing row",
        "DELETE FROM events WHERE sequence = 4",
        3,
        "event 5: event 4 is missing before it",
    ),
    (
        "two events exchanged",
        "UPDATE events SET sequence = 100 WHERE sequence = 2; UPDATE events SET sequence = 2 WHERE sequence = 3; \
         UPDATE events SET sequence = 3 WHERE sequence = 100",
        2,
        "event 2: it does not follow the event before it, one of them was changed or replaced",
    ),
    (
        "a truncated end",
        "DELETE FROM events WHERE sequence >= 8",
        4,
        INDEX,
    ),
    (
        "an index that says another state",
        "UPDATE receipts SET state = 4 WHERE id = (SELECT receipt FROM events WHERE sequence = 5)",
        3,
        INDEX,
    ),
    (
        "an index that says that an end was bad",
        "UPDATE receipts SET ok = false WHERE id = (SELECT receipt FROM events WHERE sequence = 5)",
        3,
        INDEX,
    ),
    (
        "an index that says another tool",
        "UPDATE receipts SET tool = 'x' WHERE id = (SELECT receipt FROM events WHERE sequence = 3)",
        2,
        INDEX,
    ),
    (
        "an event that the index does not know",
        "DELETE FROM receipts WHERE id = (SELECT receipt FROM events WHERE sequence = 3)",
        2,
        INDEX,
    ),
    (
        "a session that is not told of",
        "DELETE FROM sessions",
        1,
        INDEX,
    ),
];

#[tokio::test]
async fn tampering_is_found_and_the_first_bad_receipt_named() {
    for (attack, change, receipt, problem) in ATTACKS {
        let (rig, ids) = written().await;
        rig.assert_valid().await;
        sql(&rig.store, &format!("{UNGUARD} {change}")).expect(attack);
        let found = rig.verify().await;
        assert_eq!(
            (found.valid, found.bad_receipt_id, found.problem),
            (false, ids[receipt - 1].clone(), problem.to_owned()),
            "{attack}"
        );
    }
}

#[tokio::test]
async fn what_is_told_of_sessions_is_held_against_their_events() {
    for attack in [
        "UPDATE sessions SET last_ms = 0",
        "UPDATE sessions SET first_ms = 0",
        "UPDATE sessions SET last_sequence = 1",
        "INSERT INTO sessions SELECT workspace, 'four', 0, 99, 0 FROM sessions",
    ] {
        let (rig, _) = written().await;
        sql(&rig.store, attack).expect(attack);
        let found = rig.verify().await;
        assert!(
            found.problem.starts_with("what is told of session"),
            "{attack}: {found:?}"
        );
    }
}

#[tokio::test]
async fn what_is_written_cannot_be_rewritten_or_deleted() {
    let (rig, _) = written().await;
    let before = rig.verify().await;
    for attack in [
        "UPDATE events SET body = '{}' WHERE sequence = 1",
        "DELETE FROM events",
        "TRUNCATE events",
        "DELETE FROM receipts",
        "TRUNCATE receipts",
        "UPDATE incarnations SET incarnation = 9",
        "DELETE FROM incarnations",
        "TRUNCATE incarnations",
        "UPDATE workspaces SET id = 'x'",
        "DELETE FROM workspaces",
        "TRUNCATE workspaces",
        "DELETE FROM sessions",
        "TRUNCATE sessions",
        "DELETE FROM leader",
        "INSERT INTO leader (epoch) VALUES (9)",
        "INSERT INTO events (workspace, sequence, receipt, hash, body) \
         SELECT workspace, sequence, receipt, hash, body FROM events WHERE sequence = 1",
    ] {
        sql(&rig.store, attack).expect_err(attack);
    }
    assert_eq!(rig.verify().await, before);
}

/// A tool's name comes from the other side and is no text that a server's column holds.
#[tokio::test]
async fn a_name_with_a_nul_is_kept_and_found_like_any_other() {
    let rig = Rig::on(Store::postgres()).await;
    let incarnation = rig.incarnation().await;
    let mut odd = call("odd");
    odd.tool = "no\0tool".to_owned();
    odd.intention = "with a \0 and \u{fffd}".to_owned();
    let receipt = started(rig.begin(&odd, incarnation).await);
    let request = postern_proto::ledger::v1::ListRequest {
        workspace_id: odd.workspace_id.clone(),
        tool: odd.tool.clone(),
        ..Default::default()
    };
    assert_eq!(rig.list(request).await, [receipt]);
    rig.assert_valid().await;
}
