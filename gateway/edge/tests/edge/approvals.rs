//! Waiting for the owner.

use std::time::Duration;

use postern_proto::ledger::v1::{Decision, State};
use postern_types::Mode;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use crate::{
    host::{call, code},
    rig::{Rig, ask},
    services::sha256,
};

const COMMAND: &str = "0193a0e4-5b1c-7000-8000-00000000abcd";
const OTHER_COMMAND: &str = "0193a0e4-5b1c-7000-8000-00000000abce";

fn write(id: &str, content: &str) -> Value {
    call(
        id,
        "workspace_write",
        json!({"path": "a", "content": content, "expectedSha256": null}),
    )
}

impl Rig {
    /// Waits for the call to be in the inbox, and tells its receipt's id.
    pub(crate) async fn waiting(&self, call_id: &str) -> String {
        let wait = async {
            loop {
                if let Some(entry) = self.world.book().of(call_id)
                    && entry.receipt.state() == State::AwaitingOwner
                {
                    return entry.receipt.id.clone();
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(crate::host::PATIENCE, wait)
            .await
            .expect("an inbox item")
    }

    async fn decide(&self, call_id: &str, decision: Decision, answer: &str) {
        let id = self.waiting(call_id).await;
        self.world.book().decide(&id, decision, answer);
    }
}

#[tokio::test]
async fn an_approved_call_goes_ahead() {
    let rig = Rig::new().await;
    let (_run, mut channel) = rig.start(Mode::Ask).await;
    channel.call(&write("1", "x")).await;
    let id = rig.waiting("1").await;
    assert_eq!(rig.world.get("a"), None);
    let proposal = rig
        .world
        .book()
        .of("1")
        .expect("entry")
        .receipt
        .proposal_json
        .clone();
    assert_eq!(
        serde_json::from_slice::<Value>(&proposal).expect("json"),
        json!({"tool": "workspace_write",
            "arguments": {"path": "a", "content": "x", "expectedSha256": null},
            "effect": {"path": "a", "place": "a", "before": null, "after": sha256("x")},
            "rules": ["mode"]})
    );
    rig.world.book().decide(&id, Decision::Approve, "");
    assert_eq!(channel.content().await["created"], true);
    assert_eq!(
        rig.world.log(),
        ["begin workspace_write", "start", "write a", "complete ok"]
    );
}

#[tokio::test]
async fn a_denied_call_does_not() {
    let rig = Rig::new().await;
    let (_run, mut channel) = rig.start(Mode::Ask).await;
    channel.call(&write("1", "x")).await;
    rig.decide("1", Decision::Deny, "not today").await;
    let content = channel.content().await;
    assert_eq!(code(&content), "APPROVAL_DENIED");
    assert_eq!(content["error"]["details"]["answer"], "not today");
    channel.call(&write("1", "x")).await;
    assert_eq!(channel.content().await, content);
    assert_eq!(rig.world.get("a"), None);
    assert_eq!(
        rig.world.book().of("1").expect("entry").receipt.state(),
        State::Refused
    );
}

#[tokio::test]
async fn nobody_decides_and_the_wait_ends() {
    let rig = Rig::new().await;
    let mut config = rig.config(Mode::Ask);
    config.approval_timeout = Duration::from_millis(60);
    let _run = rig.start_with(config).await;
    let mut channel = rig.host.ready().await;
    assert_eq!(
        code(
            &ask(
                &mut channel,
                "1",
                "workspace_exec",
                json!({"command": "true"})
            )
            .await
        ),
        "APPROVAL_TIMEOUT"
    );
    assert_eq!(
        code(&ask(&mut channel, "2", "workspace_ask", json!({"question": "?"})).await),
        "APPROVAL_TIMEOUT"
    );
    assert_eq!(rig.world.count("exec"), 0);
    // A late approval is none.
    let id = rig.world.book().of("1").expect("entry").receipt.id.clone();
    assert!(!rig.world.book().decide(&id, Decision::Approve, ""));
    assert_eq!(rig.world.count("exec"), 0);
}

#[tokio::test]
async fn an_approval_survives_the_restart_of_the_edge() {
    let rig = Rig::new().await;
    let (run, mut channel) = rig.start(Mode::Ask).await;
    channel.call(&write("1", "x")).await;
    rig.waiting("1").await;
    run.stop.cancel();
    assert_eq!(code(&channel.content().await), "UNAVAILABLE");
    run.end().await;

    let life = rig.next_life().await;
    let (_run, mut channel) = life.start(Mode::Ask).await;
    channel.call(&write("1", "x")).await;
    rig.decide("1", Decision::Approve, "").await;
    assert_eq!(channel.content().await["created"], true);
    assert_eq!(rig.world.count("begin"), 1, "one inbox item");
}

#[tokio::test]
async fn a_decision_made_while_nobody_waited_counts() {
    let rig = Rig::new().await;
    let (run, mut channel) = rig.start(Mode::Ask).await;
    channel.call(&write("1", "x")).await;
    rig.waiting("1").await;
    run.stop.cancel();
    run.end().await;
    rig.decide("1", Decision::Approve, "").await;
    let life = rig.next_life().await;
    let (_run, mut channel) = life.start(Mode::Ask).await;
    channel.call(&write("1", "x")).await;
    assert_eq!(channel.content().await["created"], true);
}

#[tokio::test]
async fn the_file_is_looked_at_again_after_the_wait() {
    let rig = Rig::new().await;
    let before = rig.world.put("a", "one two");
    let (_run, mut channel) = rig.start(Mode::Ask).await;
    let patch = json!({"path": "a", "oldText": "two", "newText": "2", "expectedSha256": before});
    channel.call(&call("1", "workspace_patch", patch)).await;
    rig.waiting("1").await;
    rig.world.put("a", "changed");
    rig.decide("1", Decision::Approve, "").await;
    assert_eq!(code(&channel.content().await), "STALE_REVISION");
    assert_eq!(rig.world.get("a").as_deref(), Some("changed"));
}

#[tokio::test]
async fn what_cannot_be_done_is_not_asked() {
    let rig = Rig::new().await;
    let before = rig.world.put("a", "one");
    let (_run, mut channel) = rig.start(Mode::Ask).await;
    let patch = json!({"path": "a", "oldText": "two", "newText": "2", "expectedSha256": before});
    assert_eq!(
        code(&ask(&mut channel, "1", "workspace_patch", patch).await),
        "NO_MATCH"
    );
}

#[tokio::test]
async fn a_mode_that_forbids_the_call_meanwhile_wins_over_the_approval() {
    let rig = Rig::new().await;
    let (run, mut channel) = rig.start(Mode::Ask).await;
    channel.call(&write("1", "x")).await;
    rig.waiting("1").await;
    run.control.set_mode(Mode::ReadOnly);
    rig.decide("1", Decision::Approve, "").await;
    assert_eq!(code(&channel.content().await), "PERMISSION_DENIED");
    assert_eq!(rig.world.get("a"), None);
}

#[tokio::test]
async fn a_channel_closed_while_waiting_leaves_the_item_in_the_inbox() {
    let rig = Rig::new().await;
    let (run, mut channel) = rig.start(Mode::Ask).await;
    channel.call(&write("1", "x")).await;
    rig.waiting("1").await;
    run.control.set_open(false);
    assert_eq!(code(&channel.content().await), "UNAVAILABLE");
    rig.decide("1", Decision::Approve, "").await;
    assert_eq!(rig.world.get("a"), None);
    run.control.set_open(true);
    let mut channel = rig.host.ready().await;
    channel.call(&write("1", "x")).await;
    assert_eq!(channel.content().await["created"], true);
}

#[tokio::test]
async fn an_approval_for_the_session_covers_the_like_until_the_channel_closes() {
    let rig = Rig::new().await;
    let (mut run, mut channel) = rig.start(Mode::Ask).await;
    let exec = |id: &str, command: &str| call(id, "workspace_exec", json!({"command": command}));
    channel.call(&exec("1", "make")).await;
    rig.decide("1", Decision::ApproveSession, "").await;
    assert_eq!(channel.content().await["timeoutMs"], 120_000);
    // The like goes ahead.
    channel.call(&exec("2", "make")).await;
    assert_eq!(channel.content().await["timeoutMs"], 120_000);
    assert_eq!(
        rig.world.book().of("2").expect("entry").receipt.policy_id,
        "owner.session-approval"
    );
    // Another command, and another session, ask.
    channel.call(&exec("3", "make; rm -rf x")).await;
    rig.decide("3", Decision::Deny, "").await;
    assert_eq!(code(&channel.content().await), "APPROVAL_DENIED");
    let mut other = exec("4", "make");
    other["sessionId"] = json!("other");
    channel.call(&other).await;
    rig.decide("4", Decision::Deny, "").await;
    assert_eq!(code(&channel.content().await), "APPROVAL_DENIED");
    // And so does the same one on the next channel.
    channel.close(1001).await;
    run.event().await;
    let mut channel = rig.host.ready().await;
    run.event().await;
    channel.call(&exec("5", "make")).await;
    rig.decide("5", Decision::Deny, "").await;
    assert_eq!(code(&channel.content().await), "APPROVAL_DENIED");
}

#[tokio::test]
async fn an_approval_for_the_session_covers_no_question_of_another_rule() {
    let rig = Rig::new().await;
    let write_to = |id: &str, session: &str, path: &str| {
        let before = rig.world.get(path).map(|content| sha256(&content));
        let args = json!({"path": path, "content": id, "expectedSha256": before});
        let mut frame = call(id, "workspace_write", args);
        frame["sessionId"] = json!(session);
        frame
    };
    let (run, mut channel) = rig.start(Mode::Ask).await;
    // The mode asks about every change; a rule of the owner's asks about this file in every mode.
    for (session, granted, other) in [("one", "a", "secret.txt"), ("two", "secret.txt", "b")] {
        let [first, like, unlike] = ["1", "2", "3"].map(|number| format!("{session}{number}"));
        channel.call(&write_to(&first, session, granted)).await;
        rig.decide(&first, Decision::ApproveSession, "").await;
        channel.content().await;
        channel.call(&write_to(&like, session, granted)).await;
        channel.content().await;
        assert_eq!(rig.world.get(granted), Some(like));
        channel.call(&write_to(&unlike, session, other)).await;
        rig.decide(&unlike, Decision::Deny, "").await;
        assert_eq!(code(&channel.content().await), "APPROVAL_DENIED");
    }
    // Where that rule alone asks it is the same question.
    run.control.set_mode(Mode::Full);
    channel.call(&write_to("4", "two", "secret.txt")).await;
    channel.content().await;
    assert_eq!(rig.world.get("secret.txt").as_deref(), Some("4"));
    channel.call(&write_to("5", "one", "secret.txt")).await;
    rig.decide("5", Decision::Deny, "").await;
    assert_eq!(code(&channel.content().await), "APPROVAL_DENIED");
}

#[tokio::test]
async fn an_approval_to_type_for_the_session_is_for_that_command() {
    let rig = Rig::new().await;
    let (_run, mut channel) = rig.start(Mode::Ask).await;
    let input = |id: &str, command: &str, text: &str| {
        call(
            id,
            "workspace_input",
            json!({"commandId": command, "text": text}),
        )
    };
    channel.call(&input("1", COMMAND, "y\n")).await;
    rig.decide("1", Decision::ApproveSession, "").await;
    assert_eq!(channel.content().await["bytes"], 2);
    channel.call(&input("2", COMMAND, "no\n")).await;
    assert_eq!(channel.content().await["bytes"], 3);
    channel.call(&input("3", OTHER_COMMAND, "y\n")).await;
    rig.decide("3", Decision::Deny, "").await;
    assert_eq!(code(&channel.content().await), "APPROVAL_DENIED");
}

#[tokio::test]
async fn a_grant_does_not_outlive_a_mode_that_forbids() {
    let rig = Rig::new().await;
    let (run, mut channel) = rig.start(Mode::Ask).await;
    channel.call(&write("1", "x")).await;
    rig.decide("1", Decision::ApproveSession, "").await;
    channel.content().await;
    run.control.set_mode(Mode::ReadOnly);
    channel.call(&write("2", "y")).await;
    assert_eq!(code(&channel.content().await), "PERMISSION_DENIED");
}

#[tokio::test]
async fn a_question_is_answered_once() {
    let rig = Rig::new().await;
    let (_run, mut channel) = rig.start(Mode::ReadOnly).await;
    let question = call("1", "workspace_ask", json!({"question": "Which roof?"}));
    channel.call(&question).await;
    let id = rig.waiting("1").await;
    let asked = rig
        .world
        .book()
        .of("1")
        .expect("entry")
        .receipt
        .proposal_json
        .clone();
    assert_eq!(
        serde_json::from_slice::<Value>(&asked).expect("json"),
        json!({"question": "Which roof?"})
    );
    // Sent again while it waits, it is the same question.
    channel.call(&question).await;
    assert!(
        rig.world
            .book()
            .decide(&id, Decision::Answer, "The red one")
    );
    assert!(
        !rig.world
            .book()
            .decide(&id, Decision::Answer, "The blue one")
    );
    let first = channel.content().await;
    assert_eq!(first["answer"], "The red one");
    assert!(
        first["answeredAt"]
            .as_str()
            .is_some_and(|time| time.ends_with('Z'))
    );
    assert_eq!(channel.content().await, first);
    channel.call(&question).await;
    assert_eq!(channel.content().await, first);
    assert_eq!(rig.world.count("begin"), 1);
}

#[tokio::test]
async fn a_ledger_that_is_away_for_a_while_does_not_lose_the_decision() {
    let rig = Rig::new().await;
    let (_run, mut channel) = rig.start(Mode::Ask).await;
    channel.call(&write("1", "x")).await;
    let id = rig.waiting("1").await;
    rig.world.book().away = true;
    rig.world.book().decide(&id, Decision::Approve, "");
    rig.world.until("away", 1).await;
    rig.world.book().away = false;
    assert_eq!(channel.content().await["created"], true);
}

#[tokio::test]
async fn a_read_that_the_rules_make_wait_is_made_once_approved() {
    let rig = Rig::new().await;
    rig.world.put("secret.txt", "hush");
    let (_run, mut channel) = rig.start(Mode::Full).await;
    let read = call("1", "workspace_read", json!({"path": "secret.txt"}));
    channel.call(&read).await;
    rig.waiting("1").await;
    assert_eq!(rig.world.count("read"), 0);
    rig.decide("1", Decision::Approve, "").await;
    let first = channel.frame().await;
    assert!(first.contains("hush"));
    channel.call(&read).await;
    assert_eq!(channel.frame().await, first);
    assert_eq!(rig.world.count("read"), 1);
}
