//! Executing receipts that a dead edge left behind: resolved by inspection, never repeated.

use postern_types::Mode;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use crate::{
    host::{Channel, call, code},
    rig::{Rig, Run},
    services::{Fault, sha256},
};

/// Makes a call whose edge dies in the middle, and tells how the next edge finds things.
async fn die_during(rig: &Rig, frame: &Value, fault: Fault, done: &str) -> (Rig, Run, Channel) {
    let (_dead, mut channel) = rig.start(Mode::Full).await;
    rig.world.next_effect(fault);
    channel.call(frame).await;
    rig.world.until(done, 1).await;
    let life = rig.next_life().await;
    let (run, channel) = life.start(Mode::Full).await;
    (life, run, channel)
}

fn write(before: Value) -> Value {
    call(
        "1",
        "workspace_write",
        json!({"path": "a", "content": "new", "expectedSha256": before}),
    )
}

#[tokio::test]
async fn a_write_that_happened_is_completed() {
    for (old, created) in [(None, true), (Some("old"), false)] {
        let rig = Rig::new().await;
        let before = old.map(|old| rig.world.put("a", old));
        let frame = write(json!(before));
        let (_life, _run, mut channel) =
            die_during(&rig, &frame, Fault::HangAfter, "write a").await;
        channel.call(&frame).await;
        let first = channel.frame().await;
        let content: Value = serde_json::from_str(&first).expect("json");
        assert_eq!(
            content["result"]["structuredContent"],
            json!({"path": "a", "sha256": sha256("new"), "bytes": 3, "created": created, "previousSha256": before})
        );
        channel.call(&frame).await;
        assert_eq!(channel.frame().await, first, "replayed from now on");
        assert_eq!(rig.world.count("write"), 1);
    }
}

#[tokio::test]
async fn a_write_that_did_not_happen_is_not_applied_and_stays_so() {
    for old in [None, Some("old")] {
        let rig = Rig::new().await;
        let before = old.map(|old| rig.world.put("a", old));
        let frame = write(json!(before));
        let (_life, _run, mut channel) =
            die_during(&rig, &frame, Fault::HangBefore, "hanging").await;
        channel.call(&frame).await;
        let first = channel.frame().await;
        assert!(first.contains("NOT_APPLIED"), "{first}");
        channel.call(&frame).await;
        assert_eq!(channel.frame().await, first);
        assert_eq!(rig.world.get("a").as_deref(), old);
        assert_eq!(rig.world.count("complete NOT_APPLIED"), 1);
    }
}

#[tokio::test]
async fn a_file_at_neither_revision_is_uncertain_and_says_what_to_look_at() {
    let rig = Rig::new().await;
    let before = rig.world.put("a", "old");
    let frame = write(json!(before));
    let (_life, _run, mut channel) = die_during(&rig, &frame, Fault::HangBefore, "hanging").await;
    rig.world.put("a", "somebody else's");
    channel.call(&frame).await;
    let content = channel.content().await;
    assert_eq!(code(&content), "UNCERTAIN");
    assert_eq!(
        content["error"]["details"],
        json!({"path": "a", "previousSha256": before, "intendedSha256": sha256("new"),
            "currentSha256": sha256("somebody else's")})
    );
    channel.call(&frame).await;
    assert_eq!(channel.content().await, content);
}

#[tokio::test]
async fn a_write_of_what_was_there_before_is_completed_either_way() {
    let rig = Rig::new().await;
    let before = rig.world.put("a", "new");
    let frame = write(json!(before));
    let (_life, _run, mut channel) = die_during(&rig, &frame, Fault::HangBefore, "hanging").await;
    channel.call(&frame).await;
    assert_eq!(channel.content().await["sha256"], before);
}

#[tokio::test]
async fn a_patch_is_resolved_by_the_revision_that_it_was_planned_to_leave() {
    for (fault, done, expected) in [
        (Fault::HangAfter, "patch a", "ok"),
        (Fault::HangBefore, "hanging", "NOT_APPLIED"),
    ] {
        let rig = Rig::new().await;
        let before = rig.world.put("a", "one two");
        let frame = call(
            "1",
            "workspace_patch",
            json!({"path": "a", "oldText": "two", "newText": "2", "expectedSha256": before}),
        );
        let (_life, _run, mut channel) = die_during(&rig, &frame, fault, done).await;
        channel.call(&frame).await;
        let content = channel.content().await;
        assert_eq!(code(&content), expected);
        if expected == "ok" {
            assert_eq!(content["sha256"], sha256("one 2"));
            assert_eq!(content["previousSha256"], before);
            assert_eq!(content["bytes"], 5);
            assert_eq!(
                (&content["offset"], &content["line"]),
                (&json!(4), &json!(1))
            );
        }
    }
}

#[tokio::test]
async fn a_delete_is_resolved_by_whether_the_file_is_there() {
    for (fault, done, expected) in [
        (Fault::HangAfter, "delete a", "ok"),
        (Fault::HangBefore, "hanging", "NOT_APPLIED"),
    ] {
        let rig = Rig::new().await;
        let before = rig.world.put("a", "old");
        let frame = call(
            "1",
            "workspace_delete",
            json!({"path": "a", "expectedSha256": before}),
        );
        let (_life, _run, mut channel) = die_during(&rig, &frame, fault, done).await;
        channel.call(&frame).await;
        let content = channel.content().await;
        assert_eq!(code(&content), expected);
        if expected == "ok" {
            assert_eq!(
                content,
                json!({"path": "a", "deleted": true, "previousSha256": before})
            );
        }
    }
}

/// A call whose change was refused, and whose edge dies before it can record that: with what the agent claims in `frame`, the
/// file stands as the change would have left it.
async fn die_before_the_refusal_is_recorded(rig: &Rig, frame: &Value) -> Value {
    let (_dead, mut channel) = rig.start(Mode::Full).await;
    let world = std::sync::Arc::clone(&rig.world);
    rig.world.at_begin(move || world.book().away = true);
    channel.call(frame).await;
    assert_eq!(code(&channel.content().await), "UNAVAILABLE");
    rig.world.book().away = false;
    let life = rig.next_life().await;
    let (_run, mut channel) = life.start(Mode::Full).await;
    channel.call(frame).await;
    let content = channel.content().await;
    channel.call(frame).await;
    assert_eq!(channel.content().await, content);
    content
}

#[tokio::test]
async fn a_delete_of_nothing_is_not_told_as_a_deletion_after_a_crash() {
    for expected in [Value::Null, json!(sha256("old"))] {
        let rig = Rig::new().await;
        let delete = json!({"path": "a", "expectedSha256": expected});
        let frame = call("1", "workspace_delete", delete);
        let content = die_before_the_refusal_is_recorded(&rig, &frame).await;
        assert_eq!(code(&content), "NOT_APPLIED");
    }
}

#[tokio::test]
async fn a_write_over_an_unknown_file_is_not_told_as_a_creation_after_a_crash() {
    let rig = Rig::new().await;
    rig.world.put("a", "new");
    let content = die_before_the_refusal_is_recorded(&rig, &write(Value::Null)).await;
    assert_eq!(code(&content), "NOT_APPLIED");
}

#[tokio::test]
async fn a_change_that_cannot_be_made_leaves_no_claim_in_its_receipt() {
    let rig = Rig::new().await;
    rig.world.put("a", "new");
    let (_run, mut channel) = rig.start(Mode::Full).await;
    channel.call(&write(Value::Null)).await;
    assert_eq!(code(&channel.content().await), "ALREADY_EXISTS");
    let plan = rig
        .world
        .book()
        .of("1")
        .expect("entry")
        .receipt
        .plan_json
        .clone();
    assert!(plan.is_empty());
    assert_eq!(rig.world.count("write"), 0);
}

const COMMAND: &str = "0193a0e4-5b1c-7000-8000-00000000abcd";

fn command_calls() -> [(Value, &'static str, &'static str); 3] {
    [
        (
            call("1", "workspace_exec", json!({"command": "make"})),
            "exec",
            "timeoutMs",
        ),
        (
            call(
                "1",
                "workspace_input",
                json!({"commandId": COMMAND, "text": "yes"}),
            ),
            "input",
            "bytes",
        ),
        (
            call("1", "workspace_stop", json!({"commandId": COMMAND})),
            "stop",
            "status",
        ),
    ]
}

#[tokio::test]
async fn commands_are_found_again_by_their_receipt() {
    for (frame, done, field) in command_calls() {
        let rig = Rig::new().await;
        let (_life, _run, mut channel) = die_during(&rig, &frame, Fault::HangAfter, done).await;
        channel.call(&frame).await;
        let content = channel.content().await;
        assert!(!content[field].is_null(), "{content}");
        assert_eq!(rig.world.count(done), 1, "{done}");
    }
}

#[tokio::test]
async fn commands_that_never_started_are_not_applied() {
    for (frame, done, _) in command_calls() {
        let rig = Rig::new().await;
        let (_life, _run, mut channel) =
            die_during(&rig, &frame, Fault::HangBefore, "hanging").await;
        channel.call(&frame).await;
        assert_eq!(code(&channel.content().await), "NOT_APPLIED");
        channel.call(&frame).await;
        assert_eq!(code(&channel.content().await), "NOT_APPLIED");
        assert_eq!(rig.world.count(done), 0);
    }
}

#[tokio::test]
async fn commands_of_which_nothing_is_known_are_uncertain() {
    for (frame, done, _) in command_calls() {
        let rig = Rig::new().await;
        let (_life, _run, mut channel) = die_during(&rig, &frame, Fault::HangAfter, done).await;
        *rig.world.exec_unknown.lock().expect("flag") = true;
        channel.call(&frame).await;
        let content = channel.content().await;
        assert_eq!(code(&content), "UNCERTAIN");
        assert!(content["error"]["details"]["commandId"].is_string());
        *rig.world.exec_unknown.lock().expect("flag") = false;
        channel.call(&frame).await;
        assert_eq!(channel.content().await, content);
    }
}

#[tokio::test]
async fn an_orphan_that_cannot_be_looked_into_yet_stays_an_orphan() {
    let rig = Rig::new().await;
    let frame = write(Value::Null);
    let (_life, _run, mut channel) = die_during(&rig, &frame, Fault::HangBefore, "hanging").await;
    *rig.world.inspect_away.lock().expect("flag") = true;
    channel.call(&frame).await;
    assert_eq!(code(&channel.content().await), "UNAVAILABLE");
    *rig.world.inspect_away.lock().expect("flag") = false;
    channel.call(&frame).await;
    assert_eq!(code(&channel.content().await), "NOT_APPLIED");
    assert_eq!(rig.world.get("a"), None);
}

#[tokio::test]
async fn an_orphan_is_resolved_under_a_mode_that_would_not_permit_it_any_more() {
    let rig = Rig::new().await;
    let frame = write(Value::Null);
    let (_dead, mut channel) = rig.start(Mode::Full).await;
    rig.world.next_effect(Fault::HangAfter);
    channel.call(&frame).await;
    rig.world.until("write a", 1).await;
    let life = rig.next_life().await;
    let (_run, mut channel) = life.start(Mode::ReadOnly).await;
    channel.call(&frame).await;
    assert_eq!(channel.content().await["sha256"], sha256("new"));
}

#[tokio::test]
async fn the_dead_edge_comes_too_late_with_its_result() {
    let rig = Rig::new().await;
    let frame = write(Value::Null);
    let (dead, mut old) = rig.start(Mode::Full).await;
    rig.world.next_effect(Fault::Held);
    old.call(&frame).await;
    rig.world.until("held", 1).await;
    let life = rig.next_life().await;
    let (_run, mut channel) = life.start(Mode::Full).await;
    channel.call(&frame).await;
    assert_eq!(code(&channel.content().await), "NOT_APPLIED");
    rig.world.release();
    assert_eq!(code(&old.content().await), "UNAVAILABLE");
    assert!(matches!(dead.end().await, postern_edge::End::Failed(_)));
}
