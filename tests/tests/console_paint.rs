//! When the console's pages are first painted in a browser, with many receipts. Measured by hand, with nothing else running:
//! `cargo test -p postern-tests --test console_paint -- --ignored --nocapture`, with `POSTERN_BIN` for a release binary.
#![expect(
    clippy::expect_used,
    clippy::print_stdout,
    reason = "what a measurement needs and has not, fails it; figures for whoever measures"
)]

use futures_util::future::join_all;
use postern_kit::transport::{Address, connect};
use postern_proto::ledger::v1::{
    Call, OpenIncarnationRequest, RecordRequest, SessionsRequest, ledger_client::LedgerClient,
};
use postern_tests::{Look, World, wait_for};
use postern_types::{Sha256, Timestamp, trace_id};
use pretty_assertions::assert_eq;
use rustix::process::Signal;

/// Receipts that the ledger has then.
const RECEIPTS: u64 = 100_000;
/// Receipts on their way at once: fewer than the ledger's queue takes.
const AT_ONCE: u64 = 500;
/// Sessions that they belong to.
const SESSIONS: u64 = 100;
/// How often each page is opened.
const ROUNDS: usize = 15;
/// For a program to be ready or to end, and for what is recorded to be there.
const LIMIT: std::time::Duration = std::time::Duration::from_secs(60);

/// A receipt of a reading call.
fn record(workspace_id: &str, incarnation: u64, number: u64) -> RecordRequest {
    let call_id = format!("call-{number}");
    let now = Timestamp::now().as_millis();
    RecordRequest {
        call: Some(Call {
            workspace_id: workspace_id.to_owned(),
            session_id: format!("session-{}", number % SESSIONS),
            intention: "Mend the door".to_owned(),
            tool: "workspace_read".to_owned(),
            args_sha256: Sha256::of(b"").to_string(),
            trace_id: trace_id(&call_id),
            summary: format!("src/file-{number}.rs"),
            call_id,
        }),
        incarnation,
        outcome: "ok".to_owned(),
        started_at_ms: now,
        finished_at_ms: now,
    }
}

/// Writes receipts into a data directory's ledger, by a ledger service of its own.
async fn fill(world: &World, workspace_id: &str) {
    let socket = world.outside().join("ledger.sock");
    let listen = format!("unix:{}", socket.display());
    let database = format!("sqlite://{}", world.data().join("ledger.db").display());
    let arguments = [
        "serve",
        "ledger",
        "--json",
        "--listen",
        &listen,
        "--database",
        &database,
    ];
    let mut program = world.start(&arguments);
    let _listening = program.event("listening", LIMIT).await;
    let client = LedgerClient::new(connect(&Address::Unix(socket)).expect("transport"));
    let open = OpenIncarnationRequest {
        workspace_id: workspace_id.to_owned(),
    };
    let opened = client.clone().open_incarnation(open).await;
    let incarnation = opened.expect("opened").into_inner().incarnation;
    for first in (0..RECEIPTS).step_by(usize::try_from(AT_ONCE).expect("small")) {
        let batch = (first..first + AT_ONCE).map(|number| {
            let mut client = client.clone();
            let request = record(workspace_id, incarnation, number);
            async move { client.record(request).await.expect("recorded") }
        });
        join_all(batch).await;
        // A reading call is answered before it is written.
        wait_for("the batch to be written", LIMIT, || async {
            let wanted = SessionsRequest {
                workspace_id: workspace_id.to_owned(),
                limit: 1000,
                ..SessionsRequest::default()
            };
            let page = client.clone().sessions(wanted).await;
            let sessions = page.expect("sessions").into_inner().sessions;
            let written: u64 = sessions.iter().map(|session| session.receipts).sum();
            (written >= first + AT_ONCE).then_some(())
        })
        .await;
    }
    program.signal(Signal::TERM);
    let ended = program.ended(LIMIT).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

#[tokio::test]
#[ignore = "measures, and asserts nothing of time"]
async fn first_paint_with_many_receipts() {
    let world = World::new();
    let door = world.up("full").await;
    let workspace_id = door.ready.workspace_id.clone();
    let _ = door.stop().await;
    fill(&world, &workspace_id).await;
    let door = world.up("full").await;
    let browser = world.browser(Look::default()).await;
    let link = door.ready.console_link();
    browser.open(&link).await;
    let (console, _) = link.split_once("/link/").expect("a link");
    println!("| page | first paint, median | slowest | answer's last byte, median |");
    println!("| --- | ---: | ---: | ---: |");
    for path in [
        "/",
        "/receipts",
        "/receipts?session=session-7",
        "/sessions",
        "/inbox",
    ] {
        let (mut paints, mut answers) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            browser.open(&format!("{console}{path}")).await;
            browser
                .until("performance.getEntriesByType('paint').length > 0")
                .await;
            let times = browser
                .run("return [performance.getEntriesByType('paint')[0].startTime, performance.getEntriesByType('navigation')[0].responseEnd]")
                .await;
            paints.push(times[0].as_f64().expect("a time"));
            answers.push(times[1].as_f64().expect("a time"));
        }
        paints.sort_unstable_by(f64::total_cmp);
        answers.sort_unstable_by(f64::total_cmp);
        let (middle, last) = (ROUNDS / 2, ROUNDS - 1);
        println!(
            "| `{path}` | {:.0} ms | {:.0} ms | {:.0} ms |",
            paints[middle], paints[last], answers[middle]
        );
    }
}
