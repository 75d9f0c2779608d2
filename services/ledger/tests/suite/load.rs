//! Many writers at once, and others at the same file.

use std::{path::Path, time::Duration};

use postern_proto::ledger::v1::{CompleteRequest, State};
use pretty_assertions::assert_eq;
use sqlx::{Connection as _, SqliteConnection, sqlite::SqliteConnectOptions};

use crate::support::{Client, Rig, call, outcome, request, started};

const WRITERS: usize = 50;
const CALLS: usize = 24;
/// What the log is cut back to, and a few batches more.
const LOG_LIMIT: u64 = 12 * 1024 * 1024;

async fn write(mut client: Client, writer: usize, incarnation: u64) {
    for id in 0..CALLS {
        let call = call(&format!("{writer}-{id}"));
        let begun = client.begin(request(&call, incarnation)).await;
        let receipt = started(outcome(begun).expect("no busy database reaches a caller"));
        let complete = CompleteRequest {
            receipt_id: receipt.id,
            incarnation,
            state: State::Completed.into(),
            outcome: "ok".to_owned(),
            result: vec![b'x'; 8 * 1024].into(),
        };
        client.complete(complete).await.expect("ends");
    }
}

async fn connect(path: &Path) -> SqliteConnection {
    SqliteConnection::connect_with(&SqliteConnectOptions::new().filename(path))
        .await
        .expect("connects")
}

/// B55: parallel writers, while another program holds a read transaction, another takes a backup, and a third holds the
/// write lock now and then.
#[tokio::test(flavor = "multi_thread")]
async fn parallel_writers_never_see_a_locked_database() {
    let rig = Rig::new().await;
    let incarnation = rig.incarnation().await;
    let mut reader = connect(&rig.path()).await;
    let mut snapshot = reader.begin().await.expect("begins");
    sqlx::query("SELECT count(*) FROM events")
        .fetch_one(&mut *snapshot)
        .await
        .expect("reads");

    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            #[expect(clippy::disallowed_methods, reason = "joined below")]
            tokio::spawn(write(rig.client.clone(), writer, incarnation))
        })
        .collect();
    let mut other = connect(&rig.path()).await;
    let backup = rig.path().with_extension("backup");
    sqlx::query("VACUUM INTO ?")
        .bind(backup.to_string_lossy().into_owned())
        .execute(&mut other)
        .await
        .expect("backs up");
    for _ in 0..3 {
        let held = other.begin_with("BEGIN IMMEDIATE").await.expect("locks");
        tokio::time::sleep(Duration::from_millis(20)).await;
        held.rollback().await.expect("unlocks");
    }
    for writer in writers {
        writer.await.expect("joins");
    }
    snapshot.rollback().await.expect("ends");
    write(rig.client.clone(), WRITERS, incarnation).await;
    write(rig.client.clone(), WRITERS + 1, incarnation).await;

    let found = rig.verify().await;
    let calls = u64::try_from((WRITERS + 2) * CALLS).expect("fits");
    assert_eq!(
        (found.valid, found.receipts, found.events),
        (true, calls, 2 * calls)
    );
    let log = rig.path().with_extension("db-wal");
    let size = log.metadata().expect("log").len();
    assert!(size <= LOG_LIMIT, "{size}");
    let copied = postern_ledger::verify_file(&backup).await.expect("reads");
    assert_eq!(copied.fault, None);
}
