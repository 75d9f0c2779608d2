//! Recorded reading calls, lists and watching.

use postern_proto::ledger::v1::{
    Call, ListRequest, RecordRequest, State, WatchRequest, begin_response::Outcome,
};
use postern_types::Sha256;
use pretty_assertions::assert_eq;
use tokio_stream::StreamExt as _;

use crate::support::{Rig, START_MS, Store, call, on_both, replayed, started};

on_both! {
    a_recorded_call_is_seen_at_once_and_written_once,
    a_time_that_has_no_canonical_form_is_refused,
    records_are_on_disk_after_a_clean_end,
    pages_are_newest_first_filtered_and_complete,
    a_page_ends_before_it_grows_beyond_a_message,
    watchers_see_every_change_and_end_with_the_ledger,
    a_watcher_that_lags_is_told_so,
}

async fn record(rig: &Rig, call: &Call, incarnation: u64) {
    let request = RecordRequest {
        call: Some(call.clone()),
        incarnation,
        outcome: "ok".to_owned(),
        started_at_ms: START_MS - 3,
        finished_at_ms: START_MS - 1,
    };
    rig.client.clone().record(request).await.expect("records");
}

async fn a_recorded_call_is_seen_at_once_and_written_once(store: fn() -> Store) {
    let rig = Rig::on(store()).await;
    let incarnation = rig.incarnation().await;
    let call = call("call-1");
    record(&rig, &call, incarnation).await;
    let (queued, result) = replayed(rig.lookup(&call, incarnation).await);
    assert_eq!((queued.state(), result.as_str()), (State::Completed, ""));
    assert_eq!((queued.sequence, queued.hash.as_str()), (0, ""));
    record(&rig, &call, incarnation).await;
    let mut other = call.clone();
    other.args_sha256 = Sha256::of(b"other").to_string();
    record(&rig, &other, incarnation).await;
    assert!(matches!(
        rig.lookup(&other, incarnation).await,
        Outcome::Conflict(_)
    ));

    let listed = rig.list(ListRequest::default()).await;
    assert_eq!(listed.len(), 1);
    assert_eq!(
        (
            listed[0].id.as_str(),
            listed[0].sequence,
            listed[0].started_at_ms,
            listed[0].finished_at_ms
        ),
        (
            queued.id.as_str(),
            1,
            Some(START_MS - 3),
            Some(START_MS - 1)
        )
    );
    record(&rig, &other, incarnation).await;
    assert_eq!(replayed(rig.begin(&call, incarnation).await).0, listed[0]);
    let rig = rig.restart().await;
    assert_eq!(rig.list(ListRequest::default()).await, listed);
    assert_eq!(rig.verify().await.events, 1);
}

async fn a_time_that_has_no_canonical_form_is_refused(store: fn() -> Store) {
    let rig = Rig::on(store()).await;
    let incarnation = rig.incarnation().await;
    for (started_at_ms, finished_at_ms) in [(1 << 53, 1), (1, i64::MAX), (-1, 1)] {
        let request = RecordRequest {
            call: Some(call("call-1")),
            incarnation,
            outcome: "ok".to_owned(),
            started_at_ms,
            finished_at_ms,
        };
        let refused = rig.client.clone().record(request).await;
        assert_eq!(
            refused.expect_err("refused").code(),
            tonic::Code::InvalidArgument
        );
    }
}

async fn records_are_on_disk_after_a_clean_end(store: fn() -> Store) {
    let rig = Rig::on(store()).await;
    let incarnation = rig.incarnation().await;
    for id in 0..500 {
        record(&rig, &call(&format!("call-{id}")), incarnation).await;
    }
    let rig = rig.restart().await;
    assert_eq!(rig.verify().await.receipts, 500);
    let incarnation = rig.incarnation().await;
    for id in 0..500 {
        replayed(rig.lookup(&call(&format!("call-{id}")), incarnation).await);
    }
    started(rig.begin(&call("call-500"), incarnation).await);
}

async fn pages_are_newest_first_filtered_and_complete(store: fn() -> Store) {
    let rig = Rig::on(store()).await;
    let incarnation = rig.incarnation().await;
    let mut all = Vec::new();
    for id in 0..23 {
        let mut call = call(&format!("call-{id}"));
        if id % 2 == 1 {
            call.session_id = "session-2".to_owned();
            call.tool = "workspace_write".to_owned();
        }
        all.push(started(rig.begin(&call, incarnation).await));
    }
    all[0] = rig
        .complete(&all[0], incarnation, State::Completed, "x")
        .await
        .expect("ends");
    all.reverse();
    let mut request = ListRequest {
        limit: 10,
        ..ListRequest::default()
    };
    let mut paged = Vec::new();
    loop {
        let page = rig
            .client
            .clone()
            .list(request.clone())
            .await
            .expect("lists");
        let page = page.into_inner();
        assert!(page.receipts.len() <= 10);
        paged.extend(page.receipts);
        if page.next.is_empty() {
            break;
        }
        request.after = page.next;
    }
    assert_eq!(paged, all);
    assert_filtered(&rig).await;
}

async fn assert_filtered(rig: &Rig) {
    let count = async |request| rig.list(request).await.len();
    assert_eq!(
        [
            count(ListRequest {
                session_id: "session-2".to_owned(),
                ..Default::default()
            })
            .await,
            count(ListRequest {
                tool: "workspace_exec".to_owned(),
                ..Default::default()
            })
            .await,
            count(ListRequest {
                state: State::Executing.into(),
                ..Default::default()
            })
            .await,
            count(ListRequest {
                state: State::Completed.into(),
                ..Default::default()
            })
            .await,
            count(ListRequest {
                workspace_id: "another".to_owned(),
                ..Default::default()
            })
            .await,
        ],
        [11, 12, 22, 1, 0]
    );
}

async fn a_page_ends_before_it_grows_beyond_a_message(store: fn() -> Store) {
    let rig = Rig::on(store()).await;
    let incarnation = rig.incarnation().await;
    for id in 0..8 {
        let request = postern_proto::ledger::v1::BeginRequest {
            plan_json: vec![b' '; 2_000_000].into(),
            ..crate::support::request(&call(&format!("call-{id}")), incarnation)
        };
        rig.client.clone().begin(request).await.expect("begins");
    }
    let (mut seen, mut after) = (0, String::new());
    loop {
        let request = ListRequest {
            after,
            ..ListRequest::default()
        };
        let page = rig
            .client
            .clone()
            .list(request)
            .await
            .expect("lists")
            .into_inner();
        seen += page.receipts.len();
        after = page.next;
        if after.is_empty() {
            break;
        }
    }
    assert_eq!(seen, 8);
}

async fn watchers_see_every_change_and_end_with_the_ledger(store: fn() -> Store) {
    let rig = Rig::on(store()).await;
    let incarnation = rig.incarnation().await;
    let watch = async |workspace: &str| {
        let request = WatchRequest {
            workspace_id: workspace.to_owned(),
        };
        rig.client
            .clone()
            .watch(request)
            .await
            .expect("watches")
            .into_inner()
    };
    let mut changes = watch("").await;
    let mut elsewhere = watch("another").await;
    let receipt = started(rig.begin(&call("call-1"), incarnation).await);
    let ended = rig
        .complete(&receipt, incarnation, State::Completed, "x")
        .await
        .expect("ends");
    for expected in [receipt, ended] {
        let change = changes.next().await.expect("goes on").expect("change");
        assert_eq!(change.receipt, Some(expected));
    }
    rig.stop().await;
    assert!(changes.next().await.is_none());
    assert!(elsewhere.next().await.is_none());
}

async fn a_watcher_that_lags_is_told_so(store: fn() -> Store) {
    let rig = Rig::on(store()).await;
    let incarnation = rig.incarnation().await;
    let mut changes = rig
        .client
        .clone()
        .watch(WatchRequest::default())
        .await
        .expect("watches")
        .into_inner();
    let begun = (0..400).map(|id| {
        let (mut client, call) = (rig.client.clone(), call(&format!("call-{id}")));
        async move {
            client
                .begin(crate::support::request(&call, incarnation))
                .await
        }
    });
    for begin in begun {
        begin.await.expect("begins");
    }
    let mut last = None;
    while let Some(change) = changes.next().await {
        last = Some(change);
    }
    let lagged = postern_kit::Failure::from(last.expect("a status").expect_err("lagged"));
    assert_eq!(lagged.details["reason"], "lagged");
}
