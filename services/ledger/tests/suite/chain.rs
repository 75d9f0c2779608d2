//! The chain against tampering: with rows, with what lies beside them, and with the triggers that guard them.

use std::path::Path;

use postern_kit::{Clock, task::Tasks};
use postern_ledger::{Config, Database, Error, Fault, Service, verify_file, verify_file_past};
use postern_proto::ledger::v1::{DecideRequest, Decision, HeadRequest, InboxKind, State};
use pretty_assertions::assert_eq;
use sqlx::{Connection as _, SqliteConnection, sqlite::SqliteConnectOptions};

use crate::support::{Rig, Store, WORKSPACE, call, on_both, started};

on_both! {
    the_head_and_the_hash_of_an_earlier_event_are_told,
}

async fn raw(path: &Path) -> SqliteConnection {
    SqliteConnection::connect_with(&SqliteConnectOptions::new().filename(path))
        .await
        .expect("connects")
}

async fn execute(connection: &mut SqliteConnection, sql: &'static str) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(sql).execute(connection).await.map(drop)
}

/// Receipts 1 to 4, each begun and completed, so that events 2n-1 and 2n are receipt n's.
async fn written() -> (Store, Vec<String>) {
    let rig = Rig::new().await;
    let incarnation = rig.incarnation().await;
    let mut ids = Vec::new();
    for id in 1..=4 {
        let receipt = started(rig.begin(&call(&format!("call-{id}")), incarnation).await);
        rig.complete(&receipt, incarnation, State::Completed, "result")
            .await
            .expect("ends");
        ids.push(receipt.id);
    }
    (rig.stop().await, ids)
}

const UNGUARD: &str = "DROP TRIGGER events_no_update; DROP TRIGGER events_no_delete;";

/// The attack, how it is done, the receipt found bad, and what is said of it.
const ATTACKS: [(&str, &str, usize, &str); 10] = [
    (
        "an index that says that an end was bad",
        "UPDATE receipts SET ok = 0 WHERE id = (SELECT receipt FROM events WHERE position = 5)",
        3,
        "its events do not lead to what the index says, some are missing",
    ),
    (
        "a changed body",
        "UPDATE events SET body = replace(body, 'workspace_exec', 'workspace_read') WHERE position = 3",
        2,
        "event 3: its content or hash was changed",
    ),
    (
        "a changed hash",
        "UPDATE events SET hash = zeroblob(32) WHERE position = 4",
        2,
        "event 4: its content or hash was changed",
    ),
    (
        "a changed result",
        "UPDATE events SET result = CAST('forged' AS BLOB) WHERE position = 6",
        3,
        "event 6: its result was changed",
    ),
    (
        "a removed plan",
        "UPDATE events SET plan = NULL WHERE position = 5",
        3,
        "event 5: its plan was changed",
    ),
    (
        "a missing row",
        "DELETE FROM events WHERE position = 4",
        3,
        "event 5: event 4 is missing before it",
    ),
    (
        "a truncated middle",
        "DELETE FROM events WHERE position BETWEEN 3 AND 6",
        4,
        "event 7: event 3 is missing before it",
    ),
    (
        "two events exchanged",
        "UPDATE events SET sequence = 100 WHERE position = 2; UPDATE events SET sequence = 2 WHERE position = 3; \
             UPDATE events SET sequence = 3 WHERE position = 2",
        2,
        "event 2: it does not follow the event before it, one of them was changed or replaced",
    ),
    (
        "a truncated end",
        "DELETE FROM events WHERE position >= 8",
        4,
        "its events do not lead to what the index says, some are missing",
    ),
    (
        "an index that says otherwise",
        "UPDATE receipts SET state = 4 WHERE id = (SELECT receipt FROM events WHERE position = 5)",
        3,
        "its events do not lead to what the index says, some are missing",
    ),
];

#[tokio::test]
async fn tampering_is_found_and_the_first_bad_receipt_named() {
    for (attack, sql, receipt, problem) in ATTACKS {
        let (directory, ids) = written().await;
        let path = directory.path();
        let mut connection = raw(&path).await;
        execute(&mut connection, UNGUARD).await.expect("unguards");
        execute(&mut connection, sql).await.expect(attack);
        connection.close().await.expect("closes");
        let found = verify_file(&path).await.expect("reads");
        assert_eq!(
            found.fault,
            Some(Fault {
                receipt_id: ids[receipt - 1].clone(),
                problem: problem.to_owned()
            }),
            "{attack}"
        );
    }
}

/// A forger who also makes the changed event's own hash right is caught by the event after it.
#[tokio::test]
async fn an_event_with_a_matching_forged_hash_breaks_the_next_link() {
    let (directory, ids) = written().await;
    let path = directory.path();
    let mut connection = raw(&path).await;
    execute(&mut connection, UNGUARD).await.expect("unguards");
    let body: String = sqlx::query_scalar("SELECT body FROM events WHERE position = 4")
        .fetch_one(&mut connection)
        .await
        .expect("body");
    let forged = body.replace("\"ok\"", "\"NOT_FOUND\"");
    assert_ne!(forged, body);
    sqlx::query("UPDATE events SET body = ?, hash = ? WHERE position = 4")
        .bind(&forged)
        .bind(
            postern_types::Sha256::of(forged.as_bytes())
                .as_bytes()
                .to_vec(),
        )
        .execute(&mut connection)
        .await
        .expect("forges");
    let fault = verify_file(&path)
        .await
        .expect("reads")
        .fault
        .expect("a fault");
    assert_eq!(fault.receipt_id, ids[2]);
    assert!(
        fault.problem.starts_with("event 5: it does not follow"),
        "{fault:?}"
    );
}

#[tokio::test]
async fn what_is_written_cannot_be_rewritten_or_deleted() {
    let (directory, _) = written().await;
    let path = directory.path();
    let before = verify_file(&path).await.expect("reads");
    let mut connection = raw(&path).await;
    for attack in [
        "UPDATE events SET body = '{}' WHERE position = 1",
        "DELETE FROM events",
        "DELETE FROM receipts",
        "UPDATE incarnations SET incarnation = 9",
        "DELETE FROM incarnations",
        "UPDATE workspaces SET id = 'x'",
        "DELETE FROM workspaces",
        "PRAGMA recursive_triggers = ON; INSERT OR REPLACE INTO events SELECT * FROM events WHERE position = 1",
        "INSERT INTO events (workspace, sequence, receipt, hash, body) \
         SELECT workspace, sequence, receipt, hash, body FROM events WHERE position = 1",
    ] {
        execute(&mut connection, attack).await.expect_err(attack);
    }
    assert_eq!(verify_file(&path).await.expect("reads"), before);
    assert_eq!((before.events, before.receipts, before.fault), (8, 4, None));
}

/// Whoever cuts the end off, index and all, is found out by a checkpoint that was kept elsewhere.
#[tokio::test]
async fn a_chain_cut_short_without_a_trace_is_found_by_a_checkpoint() {
    let (directory, _) = written().await;
    let path = directory.path();
    let heads = verify_file(&path).await.expect("reads").heads;
    let mut connection = raw(&path).await;
    execute(&mut connection, UNGUARD).await.expect("unguards");
    let cut = "DROP TRIGGER receipts_no_delete; DELETE FROM events WHERE position >= 7; \
               DELETE FROM receipts WHERE id NOT IN (SELECT receipt FROM events); \
               UPDATE sessions SET last_sequence = 6";
    execute(&mut connection, cut).await.expect("cuts");
    connection.close().await.expect("closes");
    assert_eq!(verify_file(&path).await.expect("reads").fault, None);
    let found = verify_file_past(&path, heads.clone()).await.expect("reads");
    let fault = found.fault.expect("a fault");
    assert!(fault.problem.contains("ends before event 8"), "{fault:?}");

    let mut other = found.heads;
    other[0].hash = heads[0].hash;
    let found = verify_file_past(&path, other).await.expect("reads");
    let fault = found.fault.expect("a fault");
    assert!(fault.problem.contains("another event"), "{fault:?}");
}

#[tokio::test]
async fn a_file_that_is_no_ledger_is_not_touched() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let path = directory.path().join("other.db");
    let options = SqliteConnectOptions::new()
        .filename(&path)
        .create_if_missing(true);
    let mut other = SqliteConnection::connect_with(&options)
        .await
        .expect("connects");
    execute(&mut other, "CREATE TABLE t (a)")
        .await
        .expect("creates");
    other.close().await.expect("closes");
    assert!(matches!(verify_file(&path).await, Err(Error::Foreign)));
    let missing = directory.path().join("missing.db");
    assert!(verify_file(&missing).await.is_err());
    assert!(!missing.exists());
}

#[tokio::test]
async fn a_damaged_file_is_named_with_what_to_do() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let path = directory.path().join("damaged.db");
    std::fs::write(
        &path,
        "no database, and long enough to be seen as none".repeat(40),
    )
    .expect("writes");
    let config = Config {
        database: Database::Sqlite(path.clone()),
    };
    let opened = Service::open(config, Clock::system(), &Tasks::new()).await;
    let errors = [
        opened.expect_err("no ledger"),
        verify_file(&path).await.expect_err("no ledger"),
    ];
    for error in errors {
        assert!(matches!(error, Error::Unreadable { .. }), "{error}");
        let (said, name) = (error.to_string(), path.display().to_string());
        assert!(
            said.contains(&name) && said.contains("move it away"),
            "{said}"
        );
    }
}

/// Every column that is hashed or digested, in every row that has it: first, middle and last byte.
#[tokio::test]
async fn a_byte_changed_anywhere_is_found() {
    let rig = Rig::new().await;
    let incarnation = rig.incarnation().await;
    let question = InboxKind::Question;
    let asked = rig.ask(&call("call-1"), incarnation, question).await;
    let decision = DecideRequest {
        receipt_id: asked.id.clone(),
        decision: Decision::Answer.into(),
        answer: "forty-two".to_owned(),
        decided_by: "owner".to_owned(),
    };
    rig.client.clone().decide(decision).await.expect("decides");
    rig.complete(&asked, incarnation, State::Completed, "result")
        .await
        .expect("ends");
    started(rig.begin(&call("call-2"), incarnation).await);
    let path = rig.path();
    let _directory = rig.stop().await;
    let mut connection = raw(&path).await;
    execute(&mut connection, UNGUARD).await.expect("unguards");
    let mut tried = 0;
    for column in [
        "receipt", "hash", "body", "plan", "proposal", "result", "answer",
    ] {
        let select = format!(
            "SELECT position, CAST({column} AS BLOB) FROM events WHERE {column} IS NOT NULL"
        );
        let rows: Vec<(i64, Vec<u8>)> = sqlx::query_as(sqlx::AssertSqlSafe(select))
            .fetch_all(&mut connection)
            .await
            .expect("rows");
        assert!(!rows.is_empty(), "{column}");
        let kind = if column == "body" { "TEXT" } else { "BLOB" };
        let set = format!("UPDATE events SET {column} = CAST(? AS {kind}) WHERE position = ?");
        for (position, whole) in rows {
            let mut write = async |bytes: &[u8]| {
                sqlx::query(sqlx::AssertSqlSafe(set.clone()))
                    .bind(bytes.to_vec())
                    .bind(position)
                    .execute(&mut connection)
                    .await
                    .expect("writes");
            };
            for (place, bit) in [(0, 1), (whole.len() / 2, 0x20), (whole.len() - 1, 0x80)] {
                let mut changed = whole.clone();
                changed[place] ^= bit;
                write(&changed).await;
                let found = verify_file(&path).await.expect("reads");
                assert!(found.fault.is_some(), "{column} of {position} at {place}");
                tried += 1;
            }
            write(&whole).await;
        }
    }
    assert!(tried >= 45, "{tried}");
    assert_eq!(verify_file(&path).await.expect("reads").fault, None);
}

async fn the_head_and_the_hash_of_an_earlier_event_are_told(store: fn() -> Store) {
    let rig = Rig::on(store()).await;
    let head = async |workspace: &str, sequence| {
        let request = HeadRequest {
            workspace_id: workspace.to_owned(),
            sequence,
        };
        let told = rig.client.clone().head(request).await.expect("told");
        let told = told.into_inner();
        (told.head.map(|head| (head.sequence, head.hash)), told.hash)
    };
    assert_eq!(head(WORKSPACE, 1).await, (None, String::new()));
    let incarnation = rig.incarnation().await;
    assert_eq!(head(WORKSPACE, 0).await, (None, String::new()));
    let first = started(rig.begin(&call("call-1"), incarnation).await);
    let second = started(rig.begin(&call("call-2"), incarnation).await);
    let newest = Some((2, second.hash.clone()));
    assert_eq!(head(WORKSPACE, 1).await, (newest.clone(), first.hash));
    assert_eq!(head(WORKSPACE, 2).await, (newest.clone(), second.hash));
    assert_eq!(head(WORKSPACE, 3).await, (newest, String::new()));
    assert_eq!(head("another", 1).await, (None, String::new()));
}
