//! Calls: order, joining, sending again, refusals (CONTRACT.md, sections 2 and 5).

use std::{collections::HashSet, time::Duration};

use futures_util::future::join_all;
use postern_proto::{catalogue, identity::v1::Role};
use postern_types::ErrorCode;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{World, edge::success, outcome, result, soon};

#[tokio::test]
async fn a_call_reaches_the_edge_and_its_result_comes_back_as_it_is() {
    let world = World::new().await;
    let (mut edge, agent) = world.workspace("w").await;
    let call = agent.start("workspace_read", r#"{"path":"a","offset":0}"#, None);
    let sent = edge.call().await;
    let id = sent["id"].as_str().expect("id").to_owned();
    assert_eq!(Uuid::parse_str(&id).expect("UUID").get_version_num(), 7);
    assert_eq!(
        sent,
        json!({
            "type": "call", "protocol": 1, "id": id, "workspaceId": "w", "sessionId": "session-0",
            "intention": "the intention", "tool": "workspace_read", "args": {"path": "a", "offset": 0},
        })
    );
    let text = format!(
        r#"{{"type":"result","id":"{id}","sessionId":"session-0","result":{{ "content":[], "n": 1.0e2 }}}}"#
    );
    edge.send(tokio_tungstenite::tungstenite::Message::text(text))
        .await;
    let outcome = outcome(call).await.expect("an answer");
    assert_eq!(
        (outcome.call_id, outcome.result.get()),
        (id, r#"{ "content":[], "n": 1.0e2 }"#)
    );
}

#[tokio::test]
async fn four_are_in_flight_and_the_others_wait_in_order() {
    let world = World::new().await;
    let (mut edge, agent) = world.workspace("w").await;
    let mut calls = Vec::new();
    for number in 0..8 {
        calls.push(agent.start("workspace_info", "{}", Some(&format!("call-{number}"))));
        // Each asks before the next does.
        let lane = world.host.shared.calls.lane("w");
        soon(async {
            while lane.waiting() + lane.in_flight() <= number {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
    let mut open = Vec::new();
    for _ in 0..4 {
        open.push(edge.call().await);
    }
    assert!(edge.is_quiet().await, "a fifth call in flight");
    for number in 4..8 {
        let answered = open.remove(1);
        edge.answer(&answered, &success(json!({}))).await;
        let next = edge.call().await;
        assert_eq!(next["id"], format!("call-{number}"));
        open.push(next);
    }
    for call in open {
        edge.answer(&call, &success(json!({}))).await;
    }
    for call in calls {
        result(call).await;
    }
}

#[tokio::test]
async fn who_waits_too_long_or_behind_too_many_is_told_busy() {
    let world = World::with(|limits| {
        limits.in_flight = 1;
        limits.waiting = 1;
        limits.turn_wait = Duration::from_millis(300);
    })
    .await;
    let (mut edge, agent) = world.workspace("w").await;
    let first = agent.start("workspace_info", "{}", None);
    let sent = edge.call().await;
    let second = agent.start("workspace_info", "{}", Some("second"));
    let lane = world.host.shared.calls.lane("w");
    soon(async {
        while lane.waiting() == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let third = agent
        .call("workspace_info", "{}", None)
        .await
        .expect_err("busy");
    assert_eq!(third.code, ErrorCode::Busy);
    assert_eq!(
        outcome(second).await.expect_err("busy").code,
        ErrorCode::Busy
    );
    edge.answer(&sent, &success(json!({}))).await;
    result(first).await;
    // Nothing is left of it: the id is free for another call.
    let again = agent.start("workspace_list", "{}", Some("second"));
    let sent = edge.call().await;
    assert_eq!(
        (&sent["id"], &sent["tool"]),
        (&json!("second"), &json!("workspace_list"))
    );
    edge.answer(&sent, &success(json!({}))).await;
    result(again).await;
}

#[tokio::test]
async fn fifty_at_once_with_one_id_are_one_call() {
    let world = World::new().await;
    let (mut edge, agent) = world.workspace("w").await;
    let calls: Vec<_> = (0..50)
        .map(|number| {
            let args = if number % 2 == 0 {
                r#"{"command":"x","cwd":"."}"#
            } else {
                r#"{ "cwd":".", "command":"x" }"#
            };
            agent.start("workspace_exec", args, Some("one"))
        })
        .collect();
    let sent = edge.call().await;
    assert!(edge.is_quiet().await, "a second call on the wire");
    edge.answer(&sent, &success(json!({"commandId": "c"})))
        .await;
    for call in calls {
        assert_eq!(result(call).await, success(json!({"commandId": "c"})));
    }
    // And later: the kept answer, without the edge.
    let again = agent
        .call(
            "workspace_exec",
            r#"{"command":"x","cwd":"."}"#,
            Some("one"),
        )
        .await
        .expect("kept");
    assert_eq!(
        serde_json::from_str::<Value>(again.result.get()).expect("JSON"),
        success(json!({"commandId": "c"}))
    );
    assert!(edge.is_quiet().await, "asked again");
}

#[tokio::test]
async fn an_id_is_not_used_for_another_call() {
    let world = World::new().await;
    let (mut edge, agent) = world.workspace("w").await;
    let call = agent.start("workspace_exec", r#"{"command":"echo 1"}"#, Some("k"));
    let sent = edge.call().await;
    let reused = |tool: &'static str, args: &'static str| {
        let agent = agent.clone();
        async move {
            agent
                .call(tool, args, Some("k"))
                .await
                .expect_err("reused")
                .code
        }
    };
    assert_eq!(
        reused("workspace_exec", r#"{"command":"echo 2"}"#).await,
        ErrorCode::IdReused
    );
    edge.answer(&sent, &success(json!({}))).await;
    result(call).await;
    assert_eq!(
        reused("workspace_exec", r#"{"command":"echo 2"}"#).await,
        ErrorCode::IdReused
    );
    assert_eq!(
        reused("workspace_input", r#"{"command":"echo 1"}"#).await,
        ErrorCode::IdReused
    );
    assert!(edge.is_quiet().await);
    // Another token may use it.
    let other = world.agent_named("another", "w", Role::Owner);
    let call = other.start("workspace_info", "{}", Some("k"));
    let sent = edge.call().await;
    assert_eq!(sent["sessionId"], "session-1");
    edge.answer(&sent, &success(json!({}))).await;
    result(call).await;
}

#[tokio::test]
async fn the_recorded_call_of_an_id_is_not_refused_for_another_that_asks_at_the_same_time() {
    let world = World::new().await;
    let (mut edge, agent) = world.workspace("w").await;
    let call = agent.start("workspace_exec", r#"{"command":"right"}"#, Some("k"));
    let sent = edge.call().await;
    edge.answer(&sent, &success(json!({"n": 1}))).await;
    result(call).await;
    let wrong = agent.call("workspace_exec", r#"{"command":"wrong"}"#, Some("k"));
    let right = agent.call("workspace_exec", r#"{"command":"right"}"#, Some("k"));
    let (wrong, right) = soon(async { tokio::join!(wrong, right) }).await;
    assert_eq!(wrong.expect_err("reused").code, ErrorCode::IdReused);
    let kept: Value = serde_json::from_str(right.expect("kept").result.get()).expect("JSON");
    assert_eq!(kept, success(json!({"n": 1})));
    assert!(edge.is_quiet().await);
}

#[tokio::test]
async fn conversations_have_sessions_of_their_own_and_a_call_keeps_its_own() {
    let world = World::new().await;
    let (mut edge, mut agent) = world.workspace("w").await;
    let mut sessions = HashSet::new();
    for key in ["", "a", "b", "a"] {
        agent.conversation = key.to_owned();
        let call = agent.start(
            "workspace_read",
            r#"{"path":"p"}"#,
            Some(&format!("of-{key}")),
        );
        let sent = edge.call().await;
        sessions.insert(sent["sessionId"].as_str().expect("session").to_owned());
        edge.answer(&sent, &success(json!({}))).await;
        result(call).await;
    }
    assert_eq!(sessions.len(), 3);
    // Asked again from another conversation and under a newer launch: as it was sent first.
    world.identity.launch("w", "a newer intention");
    agent.conversation = "b".to_owned();
    let call = agent.start("workspace_read", r#"{"path":"p"}"#, Some("of-a"));
    let sent = edge.call().await;
    assert_eq!(
        (&sent["sessionId"], &sent["intention"]),
        (&json!("session-1"), &json!("the intention"))
    );
    edge.answer(&sent, &success(json!({}))).await;
    result(call).await;
    let call = agent.start("workspace_info", "{}", None);
    let sent = edge.call().await;
    assert_eq!(sent["intention"], "a newer intention");
    edge.answer(&sent, &success(json!({}))).await;
    result(call).await;
    world.identity.end_launch("w");
    assert_eq!(
        agent
            .call("workspace_info", "{}", None)
            .await
            .expect_err("no launch")
            .code,
        ErrorCode::Unavailable
    );
}

#[tokio::test]
async fn roles_are_checked_before_anything_is_sent() {
    let world = World::new().await;
    let (mut edge, _) = world.workspace("w").await;
    for role in [
        Role::Unspecified,
        Role::Viewer,
        Role::Reviewer,
        Role::Editor,
        Role::Owner,
    ] {
        let agent = world.agent("w", role);
        for tool in catalogue::workspace_tools() {
            let reads = tool.annotations.read_only_hint && tool.name != "workspace_stop";
            let may = match role {
                Role::Unspecified => false,
                Role::Viewer | Role::Reviewer => reads,
                Role::Editor | Role::Owner => true,
            };
            if may {
                let call = agent.start(&tool.name, "{}", None);
                let sent = edge.call().await;
                edge.answer(&sent, &success(json!({}))).await;
                result(call).await;
            } else {
                let refused = agent
                    .call(&tool.name, "{}", None)
                    .await
                    .expect_err("refused");
                assert_eq!(
                    refused.code,
                    ErrorCode::PermissionDenied,
                    "{role:?} {}",
                    tool.name
                );
            }
        }
    }
    let unknown = world
        .agent("w", Role::Owner)
        .call("workspace_nothing", "{}", None)
        .await;
    assert_eq!(unknown.expect_err("unknown").code, ErrorCode::UnknownTool);
    assert!(edge.is_quiet().await);
}

#[tokio::test]
async fn what_no_frame_may_carry_is_refused_before_it_is_sent() {
    let world = World::new().await;
    let (mut edge, agent) = world.workspace("w").await;
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(99), "]".repeat(99));
    let large = format!(
        r#"{{"content":"{}"}}"#,
        "x".repeat(catalogue::MAX_FRAME_BYTES)
    );
    let cases = [
        (r#"{"path":"a","path":"b"}"#, ErrorCode::InvalidArguments),
        (r#"{"path":"\ud800"}"#, ErrorCode::InvalidArguments),
        (deep.as_str(), ErrorCode::InvalidArguments),
        ("[]", ErrorCode::InvalidArguments),
        (large.as_str(), ErrorCode::TooLarge),
        (
            &large[large.len() - catalogue::MAX_FRAME_BYTES..],
            ErrorCode::TooLarge,
        ),
    ];
    for (args, code) in cases.into_iter().take(5) {
        let refused = agent
            .call("workspace_write", args, Some("id"))
            .await
            .expect_err("refused");
        assert_eq!(refused.code, code, "{}", &args[..args.len().min(40)]);
    }
    // At the limit to the byte.
    let around = {
        let call = agent.start("workspace_write", r#"{"content":""}"#, Some("0"));
        let sent = edge.call().await;
        edge.answer(&sent, &success(json!({}))).await;
        result(call).await;
        sent.to_string().len()
    };
    let room = catalogue::MAX_FRAME_BYTES - around;
    let fits = format!(r#"{{"content":"{}"}}"#, "x".repeat(room));
    let call = agent.start("workspace_write", &fits, Some("1"));
    let sent = edge.call().await;
    edge.answer(&sent, &success(json!({}))).await;
    result(call).await;
    let over = format!(r#"{{"content":"{}"}}"#, "x".repeat(room + 1));
    let refused = agent
        .call("workspace_write", &over, Some("2"))
        .await
        .expect_err("refused");
    assert_eq!(refused.code, ErrorCode::TooLarge);
    assert!(
        agent
            .call("workspace_info", "{}", Some("two words"))
            .await
            .is_err()
    );
    assert!(edge.is_quiet().await);
}

#[tokio::test]
async fn a_call_that_nobody_waits_for_is_not_sent_any_more() {
    let world = World::with(|limits| limits.in_flight = 1).await;
    let (mut edge, agent) = world.workspace("w").await;
    let first = agent.start("workspace_info", "{}", None);
    let sent = edge.call().await;
    let given_up = agent.start("workspace_exec", "{}", Some("given-up"));
    let lane = world.host.shared.calls.lane("w");
    let waiting = |number| {
        let lane = std::sync::Arc::clone(&lane);
        soon(async move {
            while lane.waiting() != number {
                tokio::task::yield_now().await;
            }
        })
    };
    waiting(1).await;
    given_up.abort();
    waiting(0).await;
    edge.answer(&sent, &success(json!({}))).await;
    result(first).await;
    assert!(edge.is_quiet().await);
    // One that was sent goes on without its agent, and its answer is there for who asks.
    let call = agent.start("workspace_exec", "{}", Some("goes-on"));
    let sent = edge.call().await;
    call.abort();
    edge.answer(&sent, &success(json!({"n": 1}))).await;
    let asked = agent.start("workspace_exec", "{}", Some("goes-on"));
    assert_eq!(result(asked).await, success(json!({"n": 1})));
    assert!(edge.is_quiet().await);
}

#[tokio::test]
async fn an_edge_that_reads_nothing_holds_up_no_other() {
    let world = World::new().await;
    let (stuck, busy_agent) = world.workspace("stuck").await;
    let (mut edge, agent) = world.workspace("w").await;
    let large = format!(r#"{{"content":"{}"}}"#, "x".repeat(2_000_000));
    let stuck_calls: Vec<_> = (0..4)
        .map(|_| busy_agent.start("workspace_write", &large, None))
        .collect();
    let lane = world.host.shared.calls.lane("stuck");
    soon(async {
        while lane.in_flight() < 4 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let calls = (0..20)
        .map(|_| agent.start("workspace_info", "{}", None))
        .collect::<Vec<_>>();
    let start = std::time::Instant::now();
    for _ in 0..20 {
        let sent = edge.call().await;
        edge.answer(&sent, &success(json!({}))).await;
    }
    join_all(calls.into_iter().map(result)).await;
    assert!(start.elapsed() < Duration::from_secs(5));
    drop((stuck, stuck_calls));
}
