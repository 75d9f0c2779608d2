//! What a host can hide from the owner by sending much: nothing.

use postern_kit::{Clock, task::Tasks, transport};
use postern_proto::ledger::v1::{BeginRequest, Call, OpenIncarnationRequest, Question};
use postern_types::{Mode, Sha256, trace_id};
use pretty_assertions::assert_eq;

use super::*;
use crate::{
    control::test_control,
    owner::{
        Api,
        tests::{only_ledger, settings},
    },
};

struct World {
    state: super::super::State,
    _tasks: Tasks,
    _directory: tempfile::TempDir,
}

impl World {
    async fn new() -> Self {
        let directory = tempfile::tempdir().expect("directory");
        let (clock, tasks) = (Clock::system(), Tasks::new());
        let config = postern_ledger::Config {
            database: postern_ledger::Database::Sqlite(directory.path().join("ledger.db")),
        };
        let ledger = postern_ledger::Service::open(config, clock.clone(), &tasks);
        let ledger = transport::local(ledger.await.expect("ledger").into_server());
        let api = Api::new(
            test_control(Mode::Ask),
            only_ledger(&ledger),
            settings("127.0.0.1:7301".parse().expect("address")),
            clock,
        );
        Self {
            state: api.0,
            _tasks: tasks,
            _directory: directory,
        }
    }

    /// Items of a workspace that wait, each with a proposal of so many bytes.
    async fn wait(&self, workspace: &str, ids: &[&str], bytes: usize) {
        let mut ledger = self.state.ledger.clone();
        let workspace_id = workspace.to_owned();
        let opened = ledger
            .open_incarnation(OpenIncarnationRequest { workspace_id })
            .await
            .expect("incarnation")
            .into_inner();
        for id in ids {
            let proposal =
                json!({"tool": "workspace_write", "arguments": {"content": "x".repeat(bytes)}});
            let request = BeginRequest {
                call: Some(Call {
                    workspace_id: workspace.to_owned(),
                    session_id: "s".to_owned(),
                    call_id: (*id).to_owned(),
                    intention: "i".to_owned(),
                    tool: "workspace_write".to_owned(),
                    args_sha256: Sha256::of(id.as_bytes()).to_string(),
                    trace_id: trace_id(id),
                    summary: String::new(),
                }),
                incarnation: opened.incarnation,
                plan_json: Bytes::new(),
                question: Some(Question {
                    kind: InboxKind::Approval.into(),
                    proposal_json: proposal.to_string().into(),
                    expires_at_ms: self.state.clock.now().as_millis() + 600_000,
                }),
                policy_id: "mode".to_owned(),
            };
            ledger.begin(request).await.expect("begun");
        }
    }

    async fn list(&self) -> Value {
        let part = Ok(Query(Part::default()));
        list(State(self.state.clone()), part)
            .await
            .expect("listed")
            .0
    }

    async fn show(&self, id: &str) -> Result<Value, Refusal> {
        let shown = show(State(self.state.clone()), Path(id.to_owned())).await;
        shown.map(|Json(item)| item)
    }
}

#[tokio::test]
async fn large_proposals_hide_no_other_item_and_can_be_had_whole() {
    let world = World::new().await;
    let size = 2_000_000;
    world.wait("w", &["small"], 10).await;
    world.wait("w", &["1", "2", "3", "4", "5", "6"], size).await;
    let listed = world.list().await;
    assert_eq!(listed["next"], Value::Null);
    let items = listed["items"].as_array().expect("items");
    let ids: Vec<_> = items.iter().map(|item| item["callId"].clone()).collect();
    assert_eq!(ids, ["6", "5", "4", "3", "2", "1", "small"]);
    let cut: Vec<_> = items.iter().filter(|item| item["cut"] == true).collect();
    assert_eq!(cut.len(), 2, "the rest has room");
    assert!(listed.to_string().len() < WHOLE_BYTES + 100_000);
    for item in items {
        let whole = world.show(item["id"].as_str().expect("id")).await;
        let whole = whole.expect("shown");
        let content = whole["proposal"]["arguments"]["content"].as_str();
        let expected = if item["callId"] == "small" { 10 } else { size };
        assert_eq!(content.expect("whole").len(), expected);
        if item["cut"] == true {
            assert!(
                item["proposal"]
                    .as_str()
                    .is_some_and(|text| text.starts_with('{'))
            );
        }
    }
}

#[tokio::test]
async fn items_of_another_owners_workspace_are_neither_shown_nor_decided() {
    let world = World::new().await;
    world.wait("other", &["1"], 10).await;
    assert_eq!(world.list().await["items"], json!([]));
    let all = world
        .state
        .ledger
        .clone()
        .list(ListRequest::default())
        .await;
    let id = all.expect("listed").into_inner().receipts.remove(0).id;
    assert_eq!(
        world.show(&id).await.expect_err("foreign").0.code,
        "no_such_receipt"
    );
    let body = Bytes::from_static(br#"{"decision":"approve"}"#);
    let decided = decide(
        State(world.state.clone()),
        Extension(Caller::Token),
        Path(id.clone()),
        body,
    )
    .await;
    assert_eq!(decided.expect_err("foreign").0.code, "no_such_receipt");
    let shown = receipts::show(State(world.state.clone()), Path(id)).await;
    assert_eq!(shown.expect_err("foreign").0.code, "no_such_receipt");
}
