//! How fast pages are with many receipts. Measured by hand, with nothing else running:
//! `cargo test --release -p postern-edge --lib console::tests::speed -- --ignored --nocapture`

use std::time::Instant;

use futures_util::future::join_all;
use postern_proto::ledger::v1::{RecordRequest, SessionsRequest};

use pretty_assertions::assert_eq;

use super::*;

/// Receipts that the ledger has then.
const RECEIPTS: u64 = 100_000;
/// Receipts on their way at once: fewer than the ledger's queue takes.
const AT_ONCE: u64 = 500;
/// Sessions that they belong to.
const SESSIONS: u64 = 100;
/// How often each page is asked for.
const ROUNDS: usize = 20;

impl World {
    /// Records a reading call of one of so many sessions.
    pub(super) async fn record(&self, number: u64, sessions: u64) {
        let call_id = format!("call-{number}");
        let request = RecordRequest {
            call: Some(Call {
                workspace_id: "w".to_owned(),
                session_id: format!("session-{}", number % sessions),
                intention: "i".to_owned(),
                tool: "workspace_read".to_owned(),
                args_sha256: Sha256::of(b"").to_string(),
                trace_id: trace_id(&call_id),
                summary: format!("src/file-{number}.rs"),
                call_id,
            }),
            incarnation: self.incarnation,
            outcome: "ok".to_owned(),
            started_at_ms: Timestamp::now().as_millis(),
            finished_at_ms: Timestamp::now().as_millis(),
        };
        let recorded = self.api.0.ledger.clone().record(request).await;
        recorded.expect("recorded");
    }

    async fn recorded(&self) -> u64 {
        let request = SessionsRequest {
            workspace_id: "w".to_owned(),
            limit: 1000,
            ..SessionsRequest::default()
        };
        let page = self.api.0.ledger.clone().sessions(request).await;
        let sessions = page.expect("sessions").into_inner().sessions;
        sessions.iter().map(|session| session.receipts).sum()
    }
}

#[expect(clippy::print_stdout, reason = "figures for whoever measures")]
#[tokio::test]
#[ignore = "measures, and asserts nothing of time"]
async fn pages_with_many_receipts() {
    let world = World::new().await;
    for start in (0..RECEIPTS).step_by(usize::try_from(AT_ONCE).expect("small")) {
        join_all((start..start + AT_ONCE).map(|number| world.record(number, SESSIONS))).await;
        while world.recorded_behind(start + AT_ONCE).await {}
    }
    println!("{} receipts", world.recorded().await);
    for path in [
        "/",
        "/inbox",
        "/receipts",
        "/receipts?session=session-7",
        "/receipts?tool=workspace_write",
        "/receipts?state=refused",
        "/sessions",
    ] {
        let mut times = Vec::new();
        for _ in 0..ROUNDS {
            let cookie = world.cookie().await;
            let start = Instant::now();
            let reply = world
                .ask(Method::GET, NAMED, path, &[("cookie", &cookie)])
                .await;
            times.push(start.elapsed());
            assert_eq!(reply.status, StatusCode::OK, "{path}");
        }
        times.sort_unstable();
        println!(
            "{path}: median {:?}, slowest {:?}",
            times[ROUNDS / 2],
            times[ROUNDS - 1]
        );
    }
}

impl World {
    /// Whether the newest receipt of a batch is not written yet.
    pub(super) async fn recorded_behind(&self, count: u64) -> bool {
        let filter = crate::owner::receipts::Filter {
            limit: Some(1),
            ..Default::default()
        };
        let page = crate::owner::receipts::page(&self.api.0, filter).await;
        let newest = page.expect("a page").receipts.pop();
        newest.is_none_or(|receipt| receipt.call_id != format!("call-{}", count - 1))
    }
}
