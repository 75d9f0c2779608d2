//! Undos that a killed run left behind, on the real ledger and filesystem.

use std::fs;

use postern_proto::ledger::v1::{
    BeginRequest, Call, GetRequest, ListRequest, OpenIncarnationRequest, Receipt, State,
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

async fn result_of(real: &Real, receipt: &Receipt) -> Value {
    let receipt_id = receipt.id.clone();
    let found = real.ledger().get(GetRequest { receipt_id }).await;
    serde_json::from_slice(&found.expect("a receipt").into_inner().result).expect("JSON")
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

/// Files that an undo takes back from `new` to `old`, and one that it takes away again.
fn planned(paths: &[&str], made: &str) -> Value {
    let file = |path: &&str| json!({"path": path, "before": sha256("new"), "after": sha256("old"), "mode": 0o640});
    let mut files: Vec<Value> = paths.iter().map(file).collect();
    files.push(json!({"path": made, "before": sha256("new"), "after": null, "mode": 0o600, "directories": ["made"]}));
    files.into()
}

/// An undo of `a`, `b`, `d/c` and `made/f` that was killed when `a` was taken back and `made/f` had gone with its directory.
async fn half_undone(door: &mut Door) -> Value {
    for name in ["a", "b", "d/c"] {
        door.put(name, "old", 0o640);
        door.write(name, "new", Some("old")).await;
    }
    door.write("made/f", "new", None).await;
    fs::write(door.path("a"), "old").expect("file");
    // Its bytes are kept before it goes.
    let deleted = door.delete("made/f", "new").await;
    assert_eq!(deleted.outcome, "ok");
    let _gone = fs::remove_dir(door.path("made"));
    planned(&["a", "b", "d/c"], "made/f")
}

#[tokio::test]
async fn what_an_interrupted_undo_changed_is_put_back_when_something_hinders_the_rest() {
    let mut door = Door::open().await;
    let files = half_undone(&mut door).await;
    fs::write(door.path("d/c"), "mine").expect("file");
    left_behind(&door.real, files).await;
    let (_running, _channel) = door.real.start(Mode::Full).await;
    let receipt = ended(&door.real).await;
    assert_eq!(
        (receipt.state(), receipt.outcome.as_str()),
        (State::Completed, "STALE_REVISION")
    );
    let content = |path| door.real.content(path);
    assert_eq!(content("a").as_deref(), Some("new"), "put back");
    assert_eq!(content("b").as_deref(), Some("new"), "never changed");
    assert_eq!(content("d/c").as_deref(), Some("mine"), "his own");
    assert_eq!(content("made/f").as_deref(), Some("new"), "put back");
    assert_eq!(door.mode("made/f"), 0o600);
    let told = result_of(&door.real, &receipt).await.to_string();
    assert!(told.contains("d/c") && told.contains("put back"), "{told}");
}

#[tokio::test]
async fn an_interrupted_undo_that_can_go_neither_way_tells_what_each_file_is() {
    let mut door = Door::open().await;
    let files = half_undone(&mut door).await;
    fs::write(door.path("d/c"), "mine").expect("file");
    let image = door
        .real
        .directory
        .path()
        .join("before")
        .join(sha256("new"));
    fs::remove_file(image).expect("an image");
    left_behind(&door.real, files).await;
    let (_running, _channel) = door.real.start(Mode::Full).await;
    let receipt = ended(&door.real).await;
    assert_eq!(receipt.state(), State::Uncertain);
    let told = result_of(&door.real, &receipt).await;
    let details = &told["structuredContent"]["error"]["details"];
    let expected = json!({
        "undone": ["a", "made/f"],
        "notUndone": ["b"],
        "changedSince": [{"path": "d/c", "currentSha256": sha256("mine")}],
    });
    assert_eq!(details, &expected);
    assert_eq!(door.real.content("a").as_deref(), Some("old"));
    assert_eq!(door.real.content("d/c").as_deref(), Some("mine"));
}
