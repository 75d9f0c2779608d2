//! Pages under every combination of filters, held against all receipts filtered by hand.

use postern_proto::ledger::v1::{InboxKind, ListRequest, Receipt, RefuseRequest, State};
use pretty_assertions::assert_eq;

use crate::support::{Rig, START_MS, Store, WORKSPACE, call, on_both, outcome, started};

on_both! {
    every_combination_of_filters_pages_through_what_it_names,
    a_time_range_bounds_when_receipts_were_begun,
    a_receipt_keeps_what_its_call_was_about,
}

const SESSIONS: [&str; 3] = ["session-1", "session-2", "session-3"];
const TOOLS: [&str; 3] = ["workspace_exec", "workspace_write", "bogus tool \u{1f6aa}"];

/// Receipts of every session, tool and state, oldest first.
async fn receipts(rig: &Rig) -> Vec<Receipt> {
    let incarnation = rig.incarnation().await;
    let mut all = Vec::new();
    for number in 0..90 {
        rig.advance(1000);
        let mut call = call(&format!("call-{number}"));
        SESSIONS[number % 3].clone_into(&mut call.session_id);
        TOOLS[number / 3 % 3].clone_into(&mut call.tool);
        all.push(match number / 9 % 5 {
            0 => rig.ask(&call, incarnation, InboxKind::Approval).await,
            1 => started(rig.begin(&call, incarnation).await),
            2 => {
                let request = RefuseRequest {
                    call: Some(call),
                    incarnation,
                    outcome: "PERMISSION_DENIED".to_owned(),
                    ..RefuseRequest::default()
                };
                started(outcome(rig.client.clone().refuse(request).await).expect("refused"))
            }
            ending => {
                let receipt = started(rig.begin(&call, incarnation).await);
                let state = [State::Completed, State::Uncertain][ending - 3];
                let ended = rig.complete(&receipt, incarnation, state, "x").await;
                ended.expect("ends")
            }
        });
    }
    all
}

/// Every page, each with at most `limit` receipts.
async fn paged(rig: &Rig, request: ListRequest) -> Vec<Receipt> {
    let (mut seen, mut request) = (Vec::new(), request);
    loop {
        let page = rig.client.clone().list(request.clone()).await;
        let page = page.expect("lists").into_inner();
        assert!(page.receipts.len() <= request.limit as usize);
        seen.extend(page.receipts);
        if page.next.is_empty() {
            return seen;
        }
        request.after = page.next;
    }
}

fn one_or_all<'a>(all: &'a [&'a str]) -> impl Iterator<Item = &'a str> + Clone {
    std::iter::once("").chain(all.iter().copied())
}

async fn every_combination_of_filters_pages_through_what_it_names(store: fn() -> Store) {
    let rig = Rig::on(store()).await;
    let all = receipts(&rig).await;
    let states = [
        State::Unspecified,
        State::AwaitingOwner,
        State::Executing,
        State::Completed,
        State::Refused,
        State::Uncertain,
    ];
    for workspace in ["", WORKSPACE] {
        for session in one_or_all(&SESSIONS) {
            for tool in one_or_all(&TOOLS) {
                for state in states {
                    let wanted = |receipt: &&Receipt| {
                        (session.is_empty() || receipt.session_id == session)
                            && (tool.is_empty() || receipt.tool == tool)
                            && (state == State::Unspecified || receipt.state() == state)
                    };
                    let request = ListRequest {
                        workspace_id: workspace.to_owned(),
                        session_id: session.to_owned(),
                        tool: tool.to_owned(),
                        state: state.into(),
                        limit: 7,
                        ..ListRequest::default()
                    };
                    let expected: Vec<_> = all.iter().rev().filter(wanted).collect();
                    let found = paged(&rig, request).await;
                    assert_eq!(
                        found.iter().collect::<Vec<_>>(),
                        expected,
                        "{workspace} {session} {tool} {state:?}"
                    );
                }
            }
        }
    }
}

async fn a_time_range_bounds_when_receipts_were_begun(store: fn() -> Store) {
    let rig = Rig::on(store()).await;
    let incarnation = rig.incarnation().await;
    let mut receipts = Vec::new();
    for number in 0..3 {
        let call = call(&format!("call-{number}"));
        receipts.push(started(rig.begin(&call, incarnation).await));
        tokio::time::sleep(std::time::Duration::from_millis(3)).await;
    }
    // Ids tell when they were made; the rig's clock does not move them.
    let begun = |receipt: &Receipt| {
        let digits = receipt.id.replace('-', "");
        i64::from_str_radix(&digits[..12], 16).expect("a time")
    };
    let within = async |since_ms: Option<i64>, until_ms: Option<i64>| {
        let request = ListRequest {
            workspace_id: WORKSPACE.to_owned(),
            since_ms,
            until_ms,
            ..ListRequest::default()
        };
        let ids = rig.list(request).await.into_iter().rev();
        ids.map(|receipt| receipt.id).collect::<Vec<_>>()
    };
    let ids: Vec<_> = receipts.iter().map(|it| it.id.clone()).collect();
    let middle = begun(&receipts[1]);
    assert_eq!(within(None, None).await, ids);
    assert_eq!(within(Some(middle), None).await, ids[1..]);
    assert_eq!(within(None, Some(middle)).await, ids[..1]);
    assert_eq!(within(Some(middle), Some(middle + 1)).await, ids[1..2]);
    assert_eq!(within(Some(i64::MAX), None).await, Vec::<String>::new());
    assert_eq!(within(Some(-1), Some(i64::MAX)).await, ids);
}

async fn a_receipt_keeps_what_its_call_was_about(store: fn() -> Store) {
    let rig = Rig::on(store()).await;
    let incarnation = rig.incarnation().await;
    let receipt = started(rig.begin(&call("call-1"), incarnation).await);
    assert_eq!(receipt.summary, "echo call-1");
    // It is no part of what makes the call the same.
    let mut again = call("call-1");
    again.summary = "something else".to_owned();
    rig.complete(&receipt, incarnation, State::Completed, "x")
        .await
        .expect("ends");
    let (replay, _) = crate::support::replayed(rig.begin(&again, incarnation).await);
    assert_eq!(replay.summary, "echo call-1");
    let rig = rig.restart().await;
    assert_eq!(rig.get(&receipt.id).await.summary, "echo call-1");
    rig.assert_valid().await;
    let incarnation = rig.incarnation().await;
    for bad in ["x".repeat(201), "two\nlines".to_owned()] {
        let mut call = call("call-2");
        call.summary = bad;
        let request = crate::support::request(&call, incarnation);
        let refused = rig
            .client
            .clone()
            .begin(request)
            .await
            .expect_err("refused");
        assert_eq!(refused.code(), tonic::Code::InvalidArgument);
    }
    assert!(receipt.created_at_ms >= START_MS);
}
