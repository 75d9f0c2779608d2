//! Sessions, and the step to the schema that knows them from a file of the version before.

use postern_ledger::verify_file;
use postern_proto::ledger::v1::{
    AbandonRequest, Call, ListRequest, Session, SessionsRequest, State, StateCount,
};
use pretty_assertions::assert_eq;
use sqlx::{Connection as _, SqliteConnection, sqlite::SqliteConnectOptions};

use crate::support::{Rig, START_MS, Store, WORKSPACE, call, on_both, started};

on_both! {
    sessions_come_by_their_newest_activity_with_what_they_did,
}

fn of_session(session: &str, id: &str, tool: &str) -> Call {
    Call {
        session_id: session.to_owned(),
        tool: tool.to_owned(),
        // As of a program that did not know summaries.
        summary: String::new(),
        ..call(id)
    }
}

async fn sessions(rig: &Rig, limit: u32) -> Vec<Session> {
    let (mut seen, mut after) = (Vec::new(), String::new());
    loop {
        let request = SessionsRequest {
            workspace_id: WORKSPACE.to_owned(),
            after,
            limit,
            changing_tools: vec!["workspace_write".to_owned(), "workspace_patch".to_owned()],
        };
        let page = rig
            .client
            .clone()
            .sessions(request)
            .await
            .expect("sessions");
        let page = page.into_inner();
        assert!(limit == 0 || page.sessions.len() <= limit as usize);
        seen.extend(page.sessions);
        after = page.next;
        if after.is_empty() {
            return seen;
        }
    }
}

fn counts(states: &[(State, u64)]) -> Vec<StateCount> {
    let counts = states.iter().map(|(state, count)| StateCount {
        state: (*state).into(),
        count: *count,
    });
    counts.collect()
}

/// Three sessions, the first of which is active again at the end. One receipt of the second was abandoned.
async fn written(store: Store) -> (Rig, Vec<Session>) {
    let rig = Rig::on(store).await;
    let incarnation = rig.incarnation().await;
    let write = of_session("one", "call-1", "workspace_write");
    let first = started(rig.begin(&write, incarnation).await);
    for (id, tool) in [("call-2", "workspace_patch"), ("call-3", "workspace_exec")] {
        rig.advance(1000);
        let receipt = started(rig.begin(&of_session("two", id, tool), incarnation).await);
        let ended = rig.complete(&receipt, incarnation, State::Completed, "x");
        ended.await.expect("ends");
    }
    let receipt = started(
        rig.begin(&of_session("two", "call-4", "workspace_write"), incarnation)
            .await,
    );
    let request = AbandonRequest {
        receipt_id: receipt.id,
        incarnation,
    };
    rig.client
        .clone()
        .abandon(request)
        .await
        .expect("abandoned");
    rig.advance(1000);
    started(
        rig.begin(
            &of_session("three", "call-5", "workspace_write"),
            incarnation,
        )
        .await,
    );
    rig.advance(1000);
    rig.complete(&first, incarnation, State::Completed, "x")
        .await
        .expect("ends");
    let expected = [
        ("one", 0, 4000, 1, counts(&[(State::Completed, 1)])),
        ("three", 3000, 3000, 0, counts(&[(State::Executing, 1)])),
        ("two", 1000, 2000, 1, counts(&[(State::Completed, 2)])),
    ];
    let expected = expected.map(|(id, first, last, changes, states)| Session {
        session_id: id.to_owned(),
        first_at_ms: START_MS + first,
        last_at_ms: START_MS + last,
        receipts: states.iter().map(|of| of.count).sum(),
        changes,
        states,
    });
    (rig, expected.to_vec())
}

async fn sessions_come_by_their_newest_activity_with_what_they_did(store: fn() -> Store) {
    let (rig, expected) = written(store()).await;
    for limit in [0, 1, 2, 3] {
        assert_eq!(sessions(&rig, limit).await, expected, "{limit} a page");
    }
    let rig = rig.restart().await;
    assert_eq!(sessions(&rig, 0).await, expected);
    rig.assert_valid().await;
    let mut request = SessionsRequest {
        workspace_id: "another".to_owned(),
        ..SessionsRequest::default()
    };
    let other = rig.client.clone().sessions(request.clone()).await;
    assert_eq!(other.expect("sessions").into_inner().sessions, []);
    request.after = "odd".to_owned();
    let refused = rig
        .client
        .clone()
        .sessions(request)
        .await
        .expect_err("refused");
    assert_eq!(refused.code(), tonic::Code::InvalidArgument);
}

async fn raw(path: &std::path::Path) -> SqliteConnection {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true);
    SqliteConnection::connect_with(&options)
        .await
        .expect("connects")
}

async fn execute(connection: &mut SqliteConnection, sql: &str) {
    let sql = sqlx::AssertSqlSafe(sql.to_owned());
    sqlx::raw_sql(sql)
        .execute(connection)
        .await
        .expect("executes");
}

/// A file of version 1, with the same events: version 2 added nothing to them but the summary, which is absent here.
#[tokio::test]
async fn a_ledger_of_the_version_before_is_read_and_brought_up_to_date() {
    let (rig, expected) = written(Store::sqlite()).await;
    let listed = rig.list(ListRequest::default()).await;
    let path = rig.path();
    let store = rig.stop().await;
    let old = path.with_file_name("old.db");
    let mut connection = raw(&old).await;
    execute(&mut connection, include_str!("../../src/sqlite/0001.sql")).await;
    execute(
        &mut connection,
        "PRAGMA application_id = 0x504c6467; PRAGMA user_version = 1",
    )
    .await;
    execute(
        &mut connection,
        &format!("ATTACH '{}' AS new", path.display()),
    )
    .await;
    for table in ["workspaces", "incarnations", "events"] {
        let copy = format!("INSERT INTO main.{table} SELECT * FROM new.{table}");
        execute(&mut connection, &copy).await;
    }
    let columns = "id, workspace, session, call, tool, keyed, state";
    let copy = format!("INSERT INTO main.receipts SELECT {columns} FROM new.receipts");
    execute(&mut connection, &copy).await;
    connection.close().await.expect("closes");
    let before = verify_file(&old).await.expect("reads");
    assert_eq!((before.events, before.fault.as_ref()), (9, None));

    for name in ["ledger.db", "ledger.db-wal", "ledger.db-shm"] {
        // Only the first is always there.
        let _ = std::fs::remove_file(path.with_file_name(name));
    }
    std::fs::rename(&old, &path).expect("renamed");
    let rig = Rig::on(store).await;
    assert_eq!(sessions(&rig, 0).await, expected);
    assert_eq!(rig.list(ListRequest::default()).await, listed);
    rig.assert_valid().await;
    assert_eq!(verify_file(&path).await.expect("reads"), before);
    let incarnation = rig.incarnation().await;
    started(
        rig.begin(
            &of_session("three", "call-6", "workspace_write"),
            incarnation,
        )
        .await,
    );
    assert_eq!(sessions(&rig, 0).await[0].session_id, "three");
    rig.assert_valid().await;
}

#[tokio::test]
async fn what_is_told_of_sessions_is_held_against_their_events() {
    for attack in [
        "UPDATE sessions SET last_ms = 0 WHERE session = 'one'",
        "UPDATE sessions SET session = 'four' WHERE session = 'one'",
        "UPDATE sessions SET last_sequence = 1 WHERE session = 'two'",
        "INSERT INTO sessions SELECT workspace, 'four', 0, 99, 0 FROM sessions WHERE session = 'one'",
        "DROP TRIGGER sessions_no_delete; DELETE FROM sessions WHERE session = 'three'",
    ] {
        let (rig, _) = written(Store::sqlite()).await;
        let path = rig.path();
        let _directory = rig.stop().await;
        let mut connection = raw(&path).await;
        execute(&mut connection, attack).await;
        connection.close().await.expect("closes");
        let fault = verify_file(&path)
            .await
            .expect("reads")
            .fault
            .expect(attack);
        assert!(
            fault.problem.starts_with("what is told of session"),
            "{attack}: {fault:?}"
        );
    }
}
