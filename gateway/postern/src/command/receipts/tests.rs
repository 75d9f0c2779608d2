//! Exports against whoever changes them.

use postern_kit::{
    Clock,
    task::Tasks,
    transport::{self, Address},
};
use postern_proto::ledger::v1::{
    BeginRequest, Call, CompleteRequest, OpenIncarnationRequest, State, begin_response::Outcome,
    ledger_client::LedgerClient,
};
use pretty_assertions::assert_eq;

use super::*;
use crate::cli::TlsArg;
use crate::{checkpoint::Key, data_dir::DataDir, services};

const WORKSPACE: &str = "w-1";

async fn fill(ledger: &std::path::Path, receipts: usize) {
    let tasks = Tasks::new();
    let config = postern_ledger::Config {
        database: postern_ledger::Database::Sqlite(ledger.to_owned()),
    };
    let service = postern_ledger::Service::open(config, Clock::system(), &tasks).await;
    let mut ledger = LedgerClient::new(transport::local(service.expect("ledger").into_server()));
    let workspace_id = WORKSPACE.to_owned();
    let opened = ledger
        .open_incarnation(OpenIncarnationRequest { workspace_id })
        .await;
    let incarnation = opened.expect("opened").into_inner().incarnation;
    for number in 0..receipts {
        let begin = BeginRequest {
            call: Some(Call {
                workspace_id: WORKSPACE.to_owned(),
                session_id: "s".to_owned(),
                call_id: format!("call-{number}"),
                intention: "Mend the dö\nör".to_owned(),
                tool: "workspace_write".to_owned(),
                args_sha256: postern_types::Sha256::of(b"").to_string(),
                trace_id: String::new(),
                summary: "a \"quoted\" name".to_owned(),
            }),
            incarnation,
            plan_json: br#"{"path":"a"}"#.as_slice().into(),
            question: None,
            policy_id: "mode:full".to_owned(),
        };
        let begun = ledger.begin(begin).await.expect("begun").into_inner();
        let Some(Outcome::Started(receipt)) = begun.outcome else {
            panic!("a fresh call starts");
        };
        let complete = CompleteRequest {
            receipt_id: receipt.id,
            incarnation,
            state: State::Completed.into(),
            outcome: "ok".to_owned(),
            result: "{\"text\":\"résult\"}".into(),
        };
        ledger.complete(complete).await.expect("completed");
    }
    assert!(tasks.shutdown(std::time::Duration::from_secs(5)).await);
}

/// A data directory with a key, a checkpoint and some receipts, and its ledger.
async fn written(receipts: usize) -> (tempfile::TempDir, PathBuf) {
    let home = tempfile::tempdir().expect("folder");
    let data = DataDir::open(&home.path().join("data")).expect("data directory");
    let path = data.join(LEDGER_FILE);
    fill(&path, receipts).await;
    let key = Key::open(&data).expect("key");
    let found = postern_ledger::verify_file(&path).await.expect("verified");
    let head = &found.heads[0];
    let workspace = WORKSPACE.parse().expect("id");
    let at = postern_types::Timestamp::now();
    let signed = key.sign(workspace, head.sequence, head.hash, at);
    let line = serde_json::to_string(&signed).expect("written");
    data.write_private("checkpoint.json", &line)
        .expect("written");
    (home, path)
}

async fn exported(ledger: &std::path::Path, results: bool) -> Vec<u8> {
    let mut out = Vec::new();
    export::write(ledger, results, &mut out)
        .await
        .expect("exported");
    out
}

fn holds(home: &tempfile::TempDir, bytes: &[u8]) -> bool {
    let path = home.path().join("export.jsonl");
    std::fs::write(&path, bytes).expect("written");
    verify::read(&path).is_ok_and(|(report, _)| report.fault.is_none())
}

#[tokio::test]
async fn a_byte_of_an_export_changed_anywhere_is_found() {
    let (home, ledger) = written(2).await;
    for results in [false, true] {
        let whole = exported(&ledger, results).await;
        assert!(holds(&home, &whole));
        let text = String::from_utf8(whole.clone()).expect("text");
        assert_eq!(
            text.contains("résult"),
            results,
            "results only when asked for"
        );
        // Some bytes of each kind of line; all of them would take a while.
        for place in (usize::from(results)..whole.len()).step_by(3) {
            let mut changed = whole.clone();
            changed[place] ^= [1, 0x20, 4][place % 3];
            assert!(!holds(&home, &changed), "byte {place}");
        }
    }
}

#[tokio::test]
async fn lines_of_an_export_taken_out_repeated_or_exchanged_are_found() {
    let (home, ledger) = written(3).await;
    let whole = String::from_utf8(exported(&ledger, true).await).expect("text");
    let lines: Vec<&str> = whole.split_inclusive('\n').collect();
    assert_eq!(lines.len(), 8, "a head, six events and a checkpoint");
    for one in 0..lines.len() {
        let mut without = lines.clone();
        without.remove(one);
        assert!(!holds(&home, without.concat().as_bytes()), "without {one}");
        let cut = lines[..one].concat();
        assert!(!holds(&home, cut.as_bytes()), "cut before {one}");
        let mut twice = lines.clone();
        twice.insert(one, lines[one]);
        assert!(!holds(&home, twice.concat().as_bytes()), "{one} twice");
        for other in one + 1..lines.len() {
            let mut exchanged = lines.clone();
            exchanged.swap(one, other);
            let exchanged = exchanged.concat();
            assert!(!holds(&home, exchanged.as_bytes()), "{one} and {other}");
        }
    }
    assert!(!holds(&home, &whole.as_bytes()[..whole.len() - 1]));
}

/// A running ledger on a socket beside its file.
async fn served(ledger: &std::path::Path, tasks: &Tasks) -> Address {
    let address = Address::Unix(ledger.with_extension("sock"));
    let database = postern_ledger::Database::Sqlite(ledger.to_owned());
    let service = services::ledger(database, &Clock::system(), tasks).await;
    let mut routes = postern_kit::serve::Services::new();
    routes.add(service.expect("a ledger").into_server());
    let listener = postern_kit::serve::Listener::bind(&address).await;
    let serving = postern_kit::serve::serve(listener.expect("bound"), routes, tasks.stopping());
    tasks.spawn("server", serving);
    address
}

#[tokio::test]
async fn a_ledger_elsewhere_is_verified_up_to_the_checkpoints_of_a_directory() {
    let (_home, path) = written(3).await;
    let directory = path.parent();
    let elsewhere = tempfile::tempdir().expect("folder");
    let shorter = elsewhere.path().join("ledger.db");
    fill(&shorter, 1).await;
    let url = |path: &std::path::Path| format!("sqlite://{}", path.display());
    let tasks = Tasks::new();
    let (whole_at, shorter_at) = (served(&path, &tasks).await, served(&shorter, &tasks).await);

    verify::database(&url(&path), directory, true)
        .await
        .expect("it holds");
    verify::remote(&whole_at, &TlsArg::default(), directory, true)
        .await
        .expect("it holds");
    // By itself nothing tells that something was cut off.
    verify::database(&url(&shorter), None, true)
        .await
        .expect("it holds");
    verify::remote(&shorter_at, &TlsArg::default(), None, true)
        .await
        .expect("it holds");
    let lost = [
        verify::database(&url(&shorter), directory, true).await,
        verify::remote(&shorter_at, &TlsArg::default(), directory, true).await,
    ];
    for lost in lost {
        let told = lost.expect_err("it lacks events").to_string();
        assert!(told.contains("checkpoint"), "{told}");
    }
    tasks.shutdown(std::time::Duration::from_secs(5)).await;
    assert!(
        verify::remote(&whole_at, &TlsArg::default(), None, true)
            .await
            .is_err()
    );
    let refused = verify::database("mysql://u:secret@x/y", None, true).await;
    let told = refused.expect_err("no database").to_string();
    assert!(!told.contains("secret"), "{told}");
}
