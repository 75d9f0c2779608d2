//! A ledger into another database and back.

use std::sync::{Arc, Mutex};

use postern_kit::{Clock, task::Tasks};
use postern_ledger::{
    Copied, Database, Error, Progress, Service, copy, verify_database, verify_file,
};
use postern_proto::ledger::v1::{
    AbandonRequest, DecideRequest, Decision, InboxKind, ListRequest, State, begin_response::Outcome,
};
use postern_test_postgres::Cluster;
use pretty_assertions::assert_eq;
use sqlx::{ConnectOptions as _, Row as _, sqlite::SqliteConnectOptions};
use tokio::sync::Notify;

use crate::support::{Rig, Store, call, open, started};

/// A bit of everything, and more events than are read or written at a time.
async fn fill(rig: &Rig) {
    let incarnation = rig.incarnation().await;
    for number in 0..150 {
        let mut call = call(&format!("call-{number}"));
        call.session_id = format!("session-{}", number % 7);
        call.intention = format!("Mend \0 the \u{1f6aa} {number}");
        let receipt = started(rig.begin(&call, incarnation).await);
        match number % 4 {
            0 => {}
            1 => {
                let request = AbandonRequest {
                    receipt_id: receipt.id,
                    incarnation,
                };
                rig.client.clone().abandon(request).await.expect("abandons");
            }
            _ => {
                let result = "x".repeat(number * 100);
                let ended = rig.complete(&receipt, incarnation, State::Completed, &result);
                ended.await.expect("ends");
            }
        }
    }
    let asked = rig
        .ask(&call("asked"), incarnation, InboxKind::Question)
        .await;
    let decision = DecideRequest {
        receipt_id: asked.id,
        decision: Decision::Answer.into(),
        answer: "forty-two".to_owned(),
        decided_by: "owner".to_owned(),
    };
    rig.client.clone().decide(decision).await.expect("decides");
    open(&mut rig.client.clone()).await;
}

/// Every event and incarnation of a file, to the byte, but for the numbers that a store gives.
async fn bytes_of(store: &Store) -> Vec<Vec<Option<Vec<u8>>>> {
    let options = SqliteConnectOptions::new().filename(store.path());
    let mut connection = options.connect().await.expect("connects");
    let rows = sqlx::query(
        "SELECT CAST(w.id AS BLOB), CAST(e.sequence AS BLOB), e.receipt, e.hash, CAST(e.body AS BLOB), e.plan, e.proposal, \
         e.result, e.answer FROM events e JOIN workspaces w ON w.number = e.workspace \
         UNION ALL SELECT CAST(w.id AS BLOB), CAST(i.incarnation AS BLOB), CAST(i.at_ms AS BLOB), NULL, NULL, NULL, NULL, \
         NULL, NULL FROM incarnations i JOIN workspaces w ON w.number = i.workspace",
    )
    .fetch_all(&mut connection)
    .await
    .expect("rows");
    let cells = |row: &sqlx::sqlite::SqliteRow| (0..9).map(|cell| row.get(cell)).collect();
    rows.iter().map(cells).collect()
}

async fn copied(from: &Store, to: &Store) -> Result<Copied, Error> {
    copy(&from.database(), &to.database(), |_| {}).await
}

#[tokio::test]
async fn a_ledger_goes_to_a_server_and_back_the_same_to_the_last_byte() {
    let rig = Rig::new().await;
    fill(&rig).await;
    let before = rig.list(ListRequest::default()).await;
    let (first, server, last) = (rig.stop().await, Store::postgres(), Store::sqlite());
    let told = Arc::new(Mutex::new(Vec::new()));
    let hears = Arc::clone(&told);
    let hears = move |progress: Progress| hears.lock().expect("no panic").push(progress);
    let there = copy(&first.database(), &server.database(), hears)
        .await
        .expect("copied");
    let told = told.lock().expect("no panic").clone();
    assert!(
        told.len() > 2 && told.is_sorted_by_key(|it| it.copied),
        "{told:?}"
    );
    assert_eq!(told.last().map(|it| it.copied), Some(there.found.events));
    let back = copied(&server, &last).await.expect("copied back");
    assert_eq!(back, there);
    assert_eq!(verify_file(&last.path()).await.expect("reads"), there.found);
    let on_server = verify_database(&server.database(), there.found.heads.clone()).await;
    assert_eq!(on_server.expect("reads"), there.found);
    assert_eq!(bytes_of(&last).await, bytes_of(&first).await);

    // Either goes on where the first stopped.
    for store in [server, last] {
        let rig = Rig::on(store).await;
        assert_eq!(rig.list(ListRequest::default()).await, before);
        let (incarnation, orphans) = open(&mut rig.client.clone()).await;
        assert_eq!((incarnation, orphans), (3, 38));
        let mut left = call("call-0");
        left.session_id = "session-0".to_owned();
        left.intention = "Mend \0 the \u{1f6aa} 0".to_owned();
        let found = rig.begin(&left, incarnation).await;
        assert!(matches!(found, Outcome::Orphaned(_)), "{found:?}");
        rig.assert_valid().await;
    }
}

#[tokio::test]
async fn a_copy_goes_into_an_empty_database_only_and_while_nothing_runs() {
    let rig = Rig::new().await;
    rig.incarnation().await;
    let (server, file) = (Store::postgres(), Store::sqlite());
    let running = copied(&rig.store, &server).await.expect_err("it runs");
    assert!(matches!(running, Error::InUse), "{running}");
    let first = rig.stop().await;
    let missing = copied(&file, &server).await.expect_err("there is none");
    assert!(matches!(missing, Error::Missing), "{missing}");
    let missing = copied(&server, &file).await.expect_err("there is none");
    assert!(matches!(missing, Error::Missing), "{missing}");

    let other = Rig::on(server).await;
    let running = copied(&first, &other.store).await.expect_err("it runs");
    assert!(matches!(running, Error::InUse), "{running}");
    let running = copied(&other.store, &file).await.expect_err("it runs");
    assert!(matches!(running, Error::InUse), "{running}");
    let incarnation = other.incarnation().await;
    started(other.begin(&call("its-own"), incarnation).await);
    let server = other.stop().await;
    let full = copied(&first, &server).await.expect_err("it is not empty");
    assert!(matches!(full, Error::NotEmpty), "{full}");
    let full = copied(&server, &first).await.expect_err("it is not empty");
    assert!(matches!(full, Error::NotEmpty), "{full}");
    // Nothing of that has changed either.
    for store in [first, server] {
        Rig::on(store).await.assert_valid().await;
    }
}

/// Copies until something was written, and stops in the middle.
async fn interrupted(from: &Store, to: &Store) {
    let written = Arc::new(Notify::new());
    let tells = Arc::clone(&written);
    let (from, to) = (from.database(), to.database());
    tokio::select! {
        biased;
        copied = copy(&from, &to, move |_| tells.notify_one()) => panic!("{copied:?}"),
        () = written.notified() => {}
    }
}

async fn goes_on(from: &Store, to: Store) {
    interrupted(from, &to).await;
    let refused = match &to {
        Store::Sqlite(_) => {
            let opened = Service::open(to.config(), Clock::system(), &Tasks::new()).await;
            let verified = verify_file(&to.path()).await.expect_err("unfinished");
            assert!(matches!(verified, Error::UnfinishedCopy), "{verified}");
            opened.expect_err("unfinished").to_string()
        }
        Store::Postgres(url) => {
            let rig = Rig::at_once(to.clone()).await;
            let refused = loop {
                let request = ListRequest::default();
                let refused = rig
                    .client
                    .clone()
                    .list(request)
                    .await
                    .expect_err("unfinished");
                if refused.message().contains("copy") {
                    break refused.message().to_owned();
                }
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            };
            assert!(!*rig.service.readiness().borrow());
            let epoch = "SELECT epoch < 0 FROM postern_ledger.leader";
            assert_eq!(Cluster::shared().execute(url, epoch), "t\n");
            rig.stop().await;
            refused
        }
    };
    assert!(refused.contains("not finished"), "{refused}");
    // Of another ledger nothing is added to it.
    let other = Rig::new().await;
    other.incarnation().await;
    let other = other.stop().await;
    let refused = copied(&other, &to).await.expect_err("another's");
    assert!(matches!(refused, Error::NotEmpty), "{refused}");
    let whole = copied(from, &to).await.expect("goes on");
    let source: Database = from.database();
    assert_eq!(
        verify_database(&source, vec![]).await.expect("reads"),
        whole.found
    );
    Rig::on(to).await.assert_valid().await;
}

#[tokio::test]
async fn an_interrupted_copy_is_no_ledger_and_goes_on_where_it_stopped() {
    let rig = Rig::new().await;
    fill(&rig).await;
    let from = rig.stop().await;
    goes_on(&from, Store::sqlite()).await;
    goes_on(&from, Store::postgres()).await;
}

/// Interrupted before its first event a copy leaves incarnations, which are not another ledger's.
#[tokio::test]
async fn a_copy_that_was_interrupted_before_its_first_event_is_not_another_ledgers() {
    let (one, other) = (Rig::new().await, Rig::new().await);
    // Two incarnations and no event: the whole of its copy is what an interrupted one leaves of a longer ledger.
    one.incarnation().await;
    one.incarnation().await;
    other.advance(1);
    let incarnation = other.incarnation().await;
    started(other.begin(&call("call-1"), incarnation).await);
    let (one, other) = (one.stop().await, other.stop().await);
    let server = Store::postgres();
    copied(&one, &server).await.expect("copied");
    let unfinished = "UPDATE postern_ledger.leader SET epoch = -abs(epoch)";
    Cluster::shared().execute(server.url(), unfinished);
    let file = Store::sqlite();
    copied(&one, &file).await.expect("copied");
    mark_unfinished(&file).await;
    for to in [server, file] {
        let refused = copied(&other, &to).await.expect_err("another's");
        assert!(matches!(refused, Error::NotEmpty), "{refused}");
        copied(&one, &to).await.expect("goes on");
        assert_eq!(Rig::on(to).await.incarnation().await, 3);
    }
}

async fn mark_unfinished(file: &Store) {
    let options = SqliteConnectOptions::new().filename(file.path());
    let mut connection = options.connect().await.expect("opens");
    sqlx::raw_sql("PRAGMA application_id = 0x504c6370")
        .execute(&mut connection)
        .await
        .expect("marked");
}
