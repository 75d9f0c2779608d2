//! Undos that a killed run left behind, on the real ledger and filesystem.

use std::fs;

use postern_proto::ledger::v1::{
    BeginRequest, Call, ListRequest, OpenIncarnationRequest, Receipt, State,
};
use postern_types::{Mode, trace_id};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use crate::{host::PATIENCE, real::Real, services::sha256, undo::Door};

/// The receipt of an undo that a run left behind which was killed.
async fn left_behind(real: &Real, files: Value) {
    let mut ledger = real.ledger();
    let opened = ledger.open_incarnation(OpenIncarnationRequest {
        workspace_id: "work".to_owned(),
    });
    let incarnation = opened.await.expect("incarnation").into_inner().incarnation;
    let request = BeginRequest {
        call: Some(Call {
            workspace_id: "work".to_owned(),
            session_id: "session".to_owned(),
            call_id: "postern-owner:1".to_owned(),
            intention: "Mend the roof".to_owned(),
            tool: "owner_undo".to_owned(),
            args_sha256: sha256("{}"),
            trace_id: trace_id("postern-owner:1"),
            summary: String::new(),
        }),
        incarnation,
        plan_json: json!({"undoes": [], "files": files}).to_string().into(),
        question: None,
        policy_id: "owner".to_owned(),
    };
    ledger.begin(request).await.expect("begin");
}

async fn ended(real: &Real) -> Receipt {
    let wait = async {
        loop {
            let request = ListRequest {
                tool: "owner_undo".to_owned(),
                ..ListRequest::default()
            };
            let page = real
                .ledger()
                .list(request)
                .await
                .expect("list")
                .into_inner();
            if page.receipts[0].state() != State::Executing {
                return page.receipts[0].clone();
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.expect("an end")
}

#[tokio::test]
async fn an_interrupted_undo_is_gone_on_with_at_the_next_start() {
    let mut door = Door::open().await;
    for name in ["done", "open"] {
        door.put(name, "old", 0o644);
        door.write(name, "new", Some("old")).await;
    }
    // Killed between two files: one is taken back, the other is not.
    fs::write(door.path("done"), "old").expect("file");
    let file = |path: &str| json!({"path": path, "before": sha256("new"), "after": sha256("old")});
    left_behind(&door.real, json!([file("done"), file("open")])).await;
    let (_running, _channel) = door.real.start(Mode::ReadOnly).await;
    let receipt = ended(&door.real).await;
    assert_eq!(
        (receipt.state(), receipt.outcome.as_str()),
        (State::Completed, "ok")
    );
    assert_eq!(door.real.content("done").as_deref(), Some("old"));
    assert_eq!(door.real.content("open").as_deref(), Some("old"));
}

#[tokio::test]
async fn an_interrupted_undo_of_what_is_neither_is_uncertain() {
    let mut door = Door::open().await;
    for name in ["a", "b"] {
        door.put(name, "old", 0o644);
        door.write(name, "new", Some("old")).await;
    }
    fs::write(door.path("a"), "mine").expect("file");
    let file = |path: &str| json!({"path": path, "before": sha256("new"), "after": sha256("old")});
    left_behind(&door.real, json!([file("a"), file("b")])).await;
    let (_running, _channel) = door.real.start(Mode::Full).await;
    let receipt = ended(&door.real).await;
    assert_eq!(receipt.state(), State::Uncertain);
    assert_eq!(door.real.content("a").as_deref(), Some("mine"));
    assert_eq!(door.real.content("b").as_deref(), Some("new"));
}
