//! The order of the checks (CONTRACT.md, section 2): of two things wrong with a call, the earlier is told.

use postern_types::Mode;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use crate::{
    host::{call, code},
    rig::{Rig, ask},
    services::Fault,
};

/// A call with everything wrong with it that the names say.
fn wrong(id: &str, wrongs: &[&str]) -> Value {
    let mut frame = call(
        id,
        "workspace_write",
        json!({"path": "a", "content": "x", "expectedSha256": null}),
    );
    for wrong in wrongs {
        match *wrong {
            "workspace" => frame["workspaceId"] = json!("other"),
            "intention" => frame["intention"] = json!("Burn the house"),
            "session" => frame["sessionId"] = json!("stranger"),
            "tool" => frame["tool"] = json!("workspace_rule"),
            "args" => frame["args"]["bad"] = json!(1),
            "permission" => {}
            other => panic!("{other}"),
        }
    }
    frame
}

#[tokio::test]
async fn of_all_that_is_wrong_the_first_is_told() {
    let rig = Rig::new().await;
    // Read-only: the write is not permitted either.
    let (_run, mut channel) = rig.start(Mode::ReadOnly).await;
    let order = [
        ("workspace", "WRONG_WORKSPACE"),
        ("intention", "WRONG_INTENTION"),
        ("session", "UNKNOWN_SESSION"),
        ("tool", "UNKNOWN_TOOL"),
        ("args", "INVALID_ARGUMENTS"),
        ("permission", "PERMISSION_DENIED"),
    ];
    for first in 0..order.len() {
        let wrongs: Vec<_> = order[first..].iter().map(|(wrong, _)| *wrong).collect();
        channel.call(&wrong(&format!("all-{first}"), &wrongs)).await;
        assert_eq!(code(&channel.content().await), order[first].1, "{wrongs:?}");
        channel
            .call(&wrong(&format!("one-{first}"), &wrongs[..1]))
            .await;
        assert_eq!(code(&channel.content().await), order[first].1, "{wrongs:?}");
    }
    assert_eq!(rig.world.get("a"), None);
    assert_eq!(rig.world.count("begin"), 0);
    assert_eq!(rig.world.count("refuse"), 12);
}

#[tokio::test]
async fn a_receipt_decides_before_tool_arguments_and_permission() {
    let rig = Rig::new().await;
    let (run, mut channel) = rig.start(Mode::Full).await;
    let good = wrong("1", &[]);
    channel.call(&good).await;
    let first = channel.frame().await;
    run.control.set_mode(Mode::ReadOnly);

    channel.call(&good).await;
    assert_eq!(channel.frame().await, first, "the answer is replayed");
    for wrongs in [&["tool"][..], &["args"]] {
        channel.call(&wrong("1", wrongs)).await;
        assert_eq!(code(&channel.content().await), "ID_REUSED", "{wrongs:?}");
    }
    // But a call that is not for this workspace learns nothing of receipts.
    for (wrongs, expected) in [
        (&["workspace"][..], "WRONG_WORKSPACE"),
        (&["intention"], "WRONG_INTENTION"),
        (&["session"], "UNKNOWN_SESSION"),
    ] {
        channel.call(&wrong("1", wrongs)).await;
        assert_eq!(code(&channel.content().await), expected);
    }
    assert_eq!(rig.world.count("write"), 1);
}

#[tokio::test]
async fn refusals_of_foreign_calls_are_kept_under_the_pinned_workspace_and_leave_the_id_free() {
    let rig = Rig::new().await;
    let (_run, mut channel) = rig.start(Mode::Full).await;
    channel.call(&wrong("1", &["workspace"])).await;
    assert_eq!(code(&channel.content().await), "WRONG_WORKSPACE");
    {
        let book = rig.world.book();
        let entry = book.of("1").expect("receipt");
        assert_eq!(entry.receipt.workspace_id, "work");
        assert!(!entry.keyed);
    }
    channel.call(&wrong("1", &[])).await;
    assert_eq!(channel.content().await["path"], "a");
}

#[tokio::test]
async fn a_refusal_is_replayed_like_a_result() {
    let rig = Rig::new().await;
    let (run, mut channel) = rig.start(Mode::ReadOnly).await;
    channel.call(&wrong("1", &[])).await;
    let refused = channel.frame().await;
    assert!(refused.contains("PERMISSION_DENIED") && refused.contains(r#""policy":"mode""#));
    run.control.set_mode(Mode::Full);
    channel.call(&wrong("1", &[])).await;
    assert_eq!(channel.frame().await, refused);
    assert_eq!(rig.world.get("a"), None);

    channel
        .call(&call("2", "workspace_read", json!({"path": "a", "bad": 1})))
        .await;
    let refused = channel.frame().await;
    assert!(refused.contains(r#""pointer":"/bad""#), "{refused}");
    channel
        .call(&call("2", "workspace_read", json!({"path": "a", "bad": 1})))
        .await;
    assert_eq!(channel.frame().await, refused);
    assert_eq!(rig.world.count("refuse"), 2);
}

#[tokio::test]
async fn the_receipt_is_durable_before_the_effect_and_the_result_before_the_answer() {
    let rig = Rig::new().await;
    let (_run, mut channel) = rig.start(Mode::Full).await;
    channel.call(&wrong("1", &[])).await;
    channel.content().await;
    assert_eq!(
        rig.world.log(),
        ["begin workspace_write", "write a", "complete ok"]
    );
}

#[tokio::test]
async fn the_fifth_call_in_flight_is_busy_and_leaves_nothing_behind() {
    let rig = Rig::new().await;
    let (run, mut channel) = rig.start(Mode::Full).await;
    let write = |id: &str| {
        call(
            id,
            "workspace_write",
            json!({"path": id, "content": "x", "expectedSha256": null}),
        )
    };
    for id in ["1", "2", "3", "4"] {
        rig.world.next_effect(Fault::Held);
        channel.call(&write(id)).await;
    }
    rig.world.until("held", 4).await;
    assert_eq!(run.control.status().in_flight, 4);
    // The same call again takes no place of its own.
    channel.call(&write("1")).await;
    channel.call(&write("5")).await;
    let busy = channel.result().await;
    assert_eq!(busy["id"], "5");
    let error = &busy["result"]["structuredContent"]["error"];
    assert_eq!(
        (&error["code"], &error["retryable"]),
        (&json!("BUSY"), &json!(true))
    );
    for _ in 0..4 {
        rig.world.release();
    }
    for _ in 0..5 {
        channel.content().await;
    }
    assert_eq!(rig.world.count("write"), 4);
    assert_eq!(
        ask(
            &mut channel,
            "5",
            "workspace_write",
            write("5")["args"].clone()
        )
        .await["path"],
        "5"
    );
}
