//! Effects: results, replay, attaching, and services that fail in the middle.

use postern_types::{ErrorCode, Mode};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use crate::{
    host::{call, code},
    rig::{Rig, ask},
    services::{Fault, sha256},
};

fn write(id: &str, path: &str, content: &str) -> Value {
    call(
        id,
        "workspace_write",
        json!({"path": path, "content": content, "expectedSha256": null}),
    )
}

const COMMAND: &str = "0193a0e4-5b1c-7000-8000-00000000abcd";

#[tokio::test]
async fn changes_tell_every_field() {
    let rig = Rig::new().await;
    let (_run, mut channel) = rig.start(Mode::Full).await;
    let (one, two) = (sha256("one"), sha256("two"));
    assert_eq!(
        ask(
            &mut channel,
            "1",
            "workspace_write",
            json!({"path": "a", "content": "one", "expectedSha256": null})
        )
        .await,
        json!({"path": "a", "sha256": one, "bytes": 3, "created": true, "previousSha256": null})
    );
    assert_eq!(
        ask(
            &mut channel,
            "2",
            "workspace_patch",
            json!({"path": "a", "oldText": "one", "newText": "two", "expectedSha256": one})
        )
        .await,
        json!({"path": "a", "sha256": two, "bytes": 3, "previousSha256": one, "offset": 0, "line": 1})
    );
    assert_eq!(
        ask(
            &mut channel,
            "3",
            "workspace_delete",
            json!({"path": "a", "expectedSha256": two})
        )
        .await,
        json!({"path": "a", "deleted": true, "previousSha256": two})
    );
}

#[tokio::test]
async fn commands_tell_every_field() {
    let rig = Rig::new().await;
    let (_run, mut channel) = rig.start(Mode::Full).await;
    let mut started = ask(
        &mut channel,
        "4",
        "workspace_exec",
        json!({"command": "true"}),
    )
    .await;
    assert_eq!(started["commandId"].take().as_str().map(str::len), Some(36));
    assert_eq!(
        started,
        json!({"commandId": null, "startedAt": "1970-01-01T00:00:01Z", "cwd": ".", "timeoutMs": 120_000})
    );
    assert_eq!(
        ask(
            &mut channel,
            "5",
            "workspace_input",
            json!({"commandId": COMMAND, "text": "y\n"})
        )
        .await,
        json!({"commandId": COMMAND, "bytes": 2})
    );
    assert_eq!(
        ask(
            &mut channel,
            "6",
            "workspace_stop",
            json!({"commandId": COMMAND})
        )
        .await,
        json!({"commandId": COMMAND, "status": "stopped", "exitCode": null, "signal": "SIGTERM"})
    );
}

#[tokio::test]
async fn the_same_call_again_gets_the_same_bytes_and_does_nothing() {
    let rig = Rig::new().await;
    let (_run, mut channel) = rig.start(Mode::Full).await;
    channel.call(&write("1", "a", "x")).await;
    let first = channel.frame().await;
    // Another order of keys and other white space are the same arguments.
    let again = r#"{"type":"call","protocol":1,"id":"1","workspaceId":"work","sessionId":"session",
        "intention":"Mend the roof","tool":"workspace_write","args":{ "expectedSha256":null, "content":"\u0078","path":"a"}}"#;
    channel.send(again).await;
    assert_eq!(channel.frame().await, first);
    assert_eq!(rig.world.count("write"), 1);
    // And after a restart.
    let life = rig.next_life().await;
    let (_run, mut channel) = life.start(Mode::ReadOnly).await;
    channel.call(&write("1", "a", "x")).await;
    assert_eq!(channel.frame().await, first);
    assert_eq!(rig.world.count("write"), 1);
}

#[tokio::test]
async fn an_id_used_for_something_else_is_refused_and_keeps_its_receipt() {
    let rig = Rig::new().await;
    let (_run, mut channel) = rig.start(Mode::Full).await;
    let exec = |command: &str| call("k", "workspace_exec", json!({"command": command}));
    channel.call(&exec("echo 1 >> log")).await;
    let first = channel.frame().await;
    channel.call(&exec("echo 2 >> log")).await;
    assert_eq!(code(&channel.content().await), "ID_REUSED");
    channel.call(&write("k", "a", "x")).await;
    assert_eq!(code(&channel.content().await), "ID_REUSED");
    channel.call(&exec("echo 1 >> log")).await;
    assert_eq!(channel.frame().await, first);
    assert_eq!(rig.world.count("exec"), 1);
    assert_eq!(rig.world.count("refuse"), 0);
}

#[tokio::test]
async fn equal_calls_at_once_act_once_and_get_the_one_result() {
    let rig = Rig::new().await;
    let (_run, mut channel) = rig.start(Mode::Full).await;
    rig.world.next_effect(Fault::Held);
    let exec = call("k", "workspace_exec", json!({"command": "echo x >> log"}));
    for _ in 0..8 {
        channel.call(&exec).await;
    }
    rig.world.until("held", 1).await;
    // While it runs, the id stands for this call alone.
    channel
        .call(&call("k", "workspace_exec", json!({"command": "other"})))
        .await;
    assert_eq!(code(&channel.content().await), "ID_REUSED");
    rig.world.release();
    let first = channel.frame().await;
    for _ in 1..8 {
        assert_eq!(channel.frame().await, first);
    }
    assert_eq!(rig.world.count("exec"), 1);
}

#[tokio::test]
async fn work_goes_on_when_the_channel_drops_and_the_next_channel_gets_its_result() {
    let rig = Rig::new().await;
    let (mut run, mut channel) = rig.start(Mode::Full).await;
    rig.world.next_effect(Fault::Held);
    channel.call(&write("1", "a", "x")).await;
    rig.world.until("held", 1).await;
    drop(channel);
    run.event().await;
    let mut channel = rig.host.ready().await;
    channel.call(&write("1", "a", "x")).await;
    // Whether it joins the running call or finds it finished: one effect, its result.
    rig.world.release();
    assert_eq!(channel.content().await["created"], true);
    assert_eq!(rig.world.count("write"), 1);
}

#[tokio::test]
async fn a_failed_effect_is_an_outcome_and_is_replayed() {
    let rig = Rig::new().await;
    rig.world.put("a", "old");
    let (_run, mut channel) = rig.start(Mode::Full).await;
    let late = call(
        "1",
        "workspace_write",
        json!({"path": "a", "content": "x", "expectedSha256": sha256("older")}),
    );
    channel.call(&late).await;
    let stale = channel.frame().await;
    assert!(stale.contains("STALE_REVISION") && stale.contains(&sha256("old")));
    rig.world.put("a", "older");
    channel.call(&late).await;
    assert_eq!(channel.frame().await, stale);

    // What a patch would run into is known before its effect, and is an outcome too.
    let patch =
        json!({"path": "a", "oldText": "zzz", "newText": "x", "expectedSha256": sha256("older")});
    assert_eq!(
        code(&ask(&mut channel, "2", "workspace_patch", patch).await),
        "NO_MATCH"
    );
    assert_eq!(rig.world.count("complete NO_MATCH"), 1);
}

#[tokio::test]
async fn busy_and_unavailable_leave_the_id_free() {
    let rig = Rig::new().await;
    let (_run, mut channel) = rig.start(Mode::Full).await;
    rig.world.next_effect(Fault::Busy);
    channel.call(&write("1", "a", "x")).await;
    assert_eq!(code(&channel.content().await), "BUSY");
    assert_eq!(rig.world.count("abandon"), 1);

    // The hop broke: the file says that nothing happened, so the id is free again.
    rig.world.next_effect(Fault::AwayBefore);
    channel.call(&write("1", "a", "x")).await;
    assert_eq!(code(&channel.content().await), "UNAVAILABLE");
    assert_eq!(rig.world.count("inspect a"), 1);
    assert_eq!(rig.world.count("abandon"), 2);

    channel.call(&write("1", "a", "x")).await;
    assert_eq!(channel.content().await["created"], true);
}

#[tokio::test]
async fn a_lost_answer_is_found_again_by_inspection() {
    let rig = Rig::new().await;
    let (_run, mut channel) = rig.start(Mode::Full).await;
    rig.world.next_effect(Fault::AwayAfter);
    channel.call(&write("1", "a", "x")).await;
    assert_eq!(
        channel.content().await,
        json!({"path": "a", "sha256": sha256("x"), "bytes": 1, "created": true, "previousSha256": null})
    );
    rig.world.next_effect(Fault::AwayAfter);
    let started = ask(
        &mut channel,
        "2",
        "workspace_exec",
        json!({"command": "true"}),
    )
    .await;
    assert_eq!(started["timeoutMs"], 120_000);
    assert_eq!((rig.world.count("write"), rig.world.count("exec")), (1, 1));
}

#[tokio::test]
async fn an_effect_that_cannot_be_looked_into_yet_is_never_repeated() {
    let rig = Rig::new().await;
    let (_run, mut channel) = rig.start(Mode::Full).await;
    let exec = call("1", "workspace_exec", json!({"command": "echo x >> log"}));
    rig.world.next_effect(Fault::AwayAfter);
    *rig.world.inspect_away.lock().expect("flag") = true;
    channel.call(&exec).await;
    assert_eq!(code(&channel.content().await), "UNAVAILABLE");
    *rig.world.inspect_away.lock().expect("flag") = false;
    channel.call(&exec).await;
    assert_eq!(channel.content().await["timeoutMs"], 120_000);
    assert_eq!(rig.world.count("exec"), 1);

    // The other way round: the service was gone before it did anything, so the same id acts now.
    let exec = call("2", "workspace_exec", json!({"command": "echo y >> log"}));
    rig.world.next_effect(Fault::AwayBefore);
    *rig.world.inspect_away.lock().expect("flag") = true;
    channel.call(&exec).await;
    assert_eq!(code(&channel.content().await), "UNAVAILABLE");
    *rig.world.inspect_away.lock().expect("flag") = false;
    channel.call(&exec).await;
    assert_eq!(channel.content().await["timeoutMs"], 120_000);
    assert_eq!(rig.world.count("exec"), 2);
}

#[tokio::test]
async fn a_result_that_cannot_be_recorded_is_not_told() {
    let rig = Rig::new().await;
    let (_run, mut channel) = rig.start(Mode::Full).await;
    rig.world.next_effect(Fault::Held);
    channel.call(&write("1", "a", "x")).await;
    rig.world.until("held", 1).await;
    rig.world.book().away = true;
    rig.world.release();
    assert_eq!(code(&channel.content().await), "UNAVAILABLE");
    rig.world.book().away = false;
    channel.call(&write("1", "a", "x")).await;
    assert_eq!(channel.content().await["created"], true);
    assert_eq!(rig.world.count("write"), 1);
}

#[tokio::test]
async fn a_mode_that_narrows_between_receipt_and_effect_stops_the_effect() {
    let rig = Rig::new().await;
    let (run, mut channel) = rig.start(Mode::Full).await;
    let control = run.control.clone();
    rig.world.at_begin(move || control.set_mode(Mode::ReadOnly));
    channel.call(&write("1", "a", "x")).await;
    assert_eq!(code(&channel.content().await), "PERMISSION_DENIED");
    assert_eq!(rig.world.get("a"), None);
    assert_eq!(
        rig.world.log(),
        [
            "begin workspace_write",
            "abandon",
            "refuse PERMISSION_DENIED"
        ]
    );
}

#[tokio::test]
async fn a_mode_that_changes_without_forbidding_the_effect_lets_it_go_on() {
    let rig = Rig::new().await;
    let (run, mut channel) = rig.start(Mode::Full).await;
    let control = run.control.clone();
    rig.world.at_begin(move || control.set_mode(Mode::Edit));
    channel.call(&write("1", "a", "x")).await;
    assert_eq!(channel.content().await["created"], true);
}

#[tokio::test]
async fn a_channel_closed_between_receipt_and_effect_stops_the_effect() {
    let rig = Rig::new().await;
    let (run, mut channel) = rig.start(Mode::Full).await;
    let control = run.control.clone();
    rig.world.at_begin(move || control.set_open(false));
    channel.call(&write("1", "a", "x")).await;
    assert_eq!(code(&channel.content().await), "UNAVAILABLE");
    assert_eq!(channel.closed().await.expect("close").0, 1001);
    assert_eq!(rig.world.get("a"), None);
    // Opened again, the same id acts.
    run.control.set_open(true);
    let mut channel = rig.host.ready().await;
    channel.call(&write("1", "a", "x")).await;
    assert_eq!(channel.content().await["created"], true);
}

#[tokio::test]
async fn a_ledger_without_room_is_no_outcome_and_the_id_may_act_later() {
    let rig = Rig::new().await;
    let (_run, mut channel) = rig.start(Mode::Full).await;
    rig.world.book().full = true;
    channel.call(&write("1", "a", "x")).await;
    let refused = channel.content().await;
    assert_eq!(code(&refused), "UNAVAILABLE", "{refused}");
    assert_eq!(refused["error"]["details"]["reason"], "disk_full");
    assert_eq!(rig.world.count("write"), 0, "no effect without a receipt");
    rig.world.book().full = false;
    channel.call(&write("1", "a", "x")).await;
    assert_eq!(code(&channel.content().await), "ok");
    assert_eq!(rig.world.count("write"), 1);
}

#[tokio::test]
async fn a_policy_that_is_away_still_lets_receipts_decide() {
    let rig = Rig::new().await;
    let (_run, mut channel) = rig.start(Mode::Full).await;
    channel.call(&write("1", "a", "x")).await;
    let first = channel.frame().await;
    *rig.world.policy_away.lock().expect("flag") = true;
    channel.call(&write("1", "a", "x")).await;
    assert_eq!(channel.frame().await, first);
    channel.call(&write("2", "b", "x")).await;
    assert_eq!(code(&channel.content().await), "UNAVAILABLE");
    assert_eq!(rig.world.get("b"), None);
}

#[tokio::test]
async fn an_effect_that_failed_and_did_not_happen_keeps_its_answer() {
    for (failed, told) in [
        (ErrorCode::Internal, "INTERNAL"),
        (ErrorCode::Uncertain, "NOT_APPLIED"),
    ] {
        let rig = Rig::new().await;
        let (_run, mut channel) = rig.start(Mode::Full).await;
        rig.world.next_effect(Fault::FailedBefore(failed));
        channel.call(&write("1", "a", "x")).await;
        let first = channel.frame().await;
        assert!(first.contains(told), "{first}");
        channel.call(&write("1", "a", "x")).await;
        assert_eq!(channel.frame().await, first);
        assert_eq!((rig.world.get("a"), rig.world.count("abandon")), (None, 0));
    }
}

#[tokio::test]
async fn a_change_that_may_not_last_is_uncertain_although_the_file_shows_it() {
    let rig = Rig::new().await;
    let (_run, mut channel) = rig.start(Mode::Full).await;
    rig.world
        .next_effect(Fault::FailedAfter(ErrorCode::Uncertain));
    *rig.world.not_durable.lock().expect("flag") = true;
    channel.call(&write("1", "a", "x")).await;
    let first = channel.frame().await;
    assert!(first.contains("UNCERTAIN"), "{first}");
    *rig.world.not_durable.lock().expect("flag") = false;
    channel.call(&write("1", "a", "x")).await;
    assert_eq!(channel.frame().await, first);
    assert_eq!(rig.world.count("write"), 1);
}

#[tokio::test]
async fn a_bad_directory_of_a_command_is_told_as_its_own_argument() {
    let rig = Rig::new().await;
    let (_run, mut channel) = rig.start(Mode::Full).await;
    let exec = json!({"command": "true", "cwd": "a//b"});
    let refused = ask(&mut channel, "1", "workspace_exec", exec).await;
    let details = &refused["error"]["details"];
    assert_eq!(
        (&details["pointer"], &details["rule"]),
        (&json!("/cwd"), &json!("path"))
    );
}
