//! What a page costs: looks into indexes, however many receipts there are. SQLite says itself how it would answer.

use sqlx::{
    AssertSqlSafe, Connection as _, Row as _, SqliteConnection, sqlite::SqliteConnectOptions,
};

use super::*;

/// A ledger's schema, to be asked how statements would run.
async fn schema(directory: &tempfile::TempDir) -> SqliteConnection {
    let path = directory.path().join("ledger.db");
    let _opened = crate::sqlite::open(&path).await.expect("a ledger");
    let options = SqliteConnectOptions::new().filename(path).read_only(true);
    SqliteConnection::connect_with(&options)
        .await
        .expect("connection")
}

async fn plan(connection: &mut SqliteConnection, statement: &str) -> Vec<String> {
    let explained = sqlx::query(AssertSqlSafe(format!("EXPLAIN QUERY PLAN {statement}")))
        .fetch_all(connection)
        .await
        .expect("a plan");
    let detail = |row: &sqlx::sqlite::SqliteRow| row.try_get(3).expect("a detail");
    explained.iter().map(detail).collect()
}

/// The step of a plan that reads a table from end to end, by the table's name or alias, if there is one.
fn scan(plan: &[String]) -> Option<&String> {
    const KEPT: [&str; 8] = [
        "receipts",
        "events",
        "sessions",
        "workspaces",
        "r",
        "e",
        "s",
        "w",
    ];
    let of_kept = |step: &&String| {
        let table = step
            .strip_prefix("SCAN ")
            .and_then(|rest| rest.split(' ').next());
        table.is_some_and(|table| KEPT.contains(&table))
    };
    plan.iter().find(of_kept)
}

fn demand_looks(what: &str, plan: &[String], index: &str) {
    assert_eq!(scan(plan), None, "{what}: {plan:#?}");
    let uses_it = plan.iter().any(|step| step.contains(index));
    assert!(uses_it, "{what}: {plan:#?}");
}

#[tokio::test]
async fn what_reads_everything_would_be_seen() {
    let directory = tempfile::tempdir().expect("directory");
    let mut connection = schema(&directory).await;
    for all in [
        SELECT_MISINDEXED,
        "SELECT count(*) FROM receipts r WHERE r.ok",
    ] {
        let plan = plan(&mut connection, all).await;
        assert!(scan(&plan).is_some(), "{plan:#?}");
    }
}

#[tokio::test]
async fn a_page_of_receipts_is_looks_into_indexes_whatever_is_asked_for() {
    let directory = tempfile::tempdir().expect("directory");
    let mut connection = schema(&directory).await;
    for (session, tool, index) in [
        (false, false, "receipts_state"),
        (true, false, "receipts_session"),
        (false, true, "receipts_tool"),
        (true, true, "receipts_session"),
    ] {
        for state in [None, Some(State::Executing)] {
            let filter = Filter {
                workspace: Some("w".parse().expect("id")),
                session: session.then(|| "s".parse().expect("id")),
                tool: tool.then(|| "workspace_write".to_owned()),
                state,
                since_ms: None,
                until_ms: None,
                before: None,
                limit: 50,
                bytes: 1 << 20,
            };
            let plan = plan(&mut connection, &list(&filter)).await;
            demand_looks(&format!("{filter:?}"), &plan, index);
        }
    }
}

#[tokio::test]
async fn a_page_of_sessions_reads_the_receipts_of_its_sessions_alone_and_from_an_index() {
    let directory = tempfile::tempdir().expect("directory");
    let mut connection = schema(&directory).await;
    let plan = plan(&mut connection, SESSIONS).await;
    demand_looks("sessions", &plan, "sessions_activity");
    // Everything that is counted stands in the index.
    demand_looks("sessions", &plan, "USING COVERING INDEX receipts_session");
}

#[tokio::test]
async fn a_receipt_is_found_by_its_id_and_by_its_call() {
    let directory = tempfile::tempdir().expect("directory");
    let mut connection = schema(&directory).await;
    for (what, statement) in [
        ("ids", SELECT_BY_IDS),
        ("keys", SELECT_BY_KEYS),
        ("page", SELECT_PAGE),
    ] {
        let plan = plan(&mut connection, statement).await;
        demand_looks(what, &plan, "SEARCH");
    }
}
