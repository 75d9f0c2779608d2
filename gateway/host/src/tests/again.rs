//! Calls that outlive a channel: sent again, waited for, answered late (CONTRACT.md, section 5).

use postern_types::ErrorCode;
use pretty_assertions::assert_eq;
use serde_json::json;
use std::time::Duration;

use super::edge::{Edge, failure, success};
use super::{World, outcome, result};

#[tokio::test]
async fn unanswered_calls_are_sent_again_on_the_next_channel_with_the_same_ids() {
    let world = World::new().await;
    let (mut edge, agent) = world.workspace("w").await;
    let first = agent.start("workspace_write", r#"{"path":"a"}"#, None);
    let sent = edge.call().await;
    let second = agent.start("workspace_read", r#"{"path":"b"}"#, None);
    let read = edge.call().await;
    drop(edge);
    // Newer launches change nothing for a call that was sent.
    world.identity.launch("w", "a newer intention");
    let mut edge = Edge::open(&world, "w", "secret-of-channel-of-w")
        .await
        .expect("channel");
    assert_eq!(
        (edge.call().await, edge.call().await),
        (sent.clone(), read.clone())
    );
    // A takeover: again, and the older channel's late result counts no more than once.
    let mut newer = Edge::open(&world, "w", "secret-of-channel-of-w")
        .await
        .expect("channel");
    assert_eq!(edge.closed().await.0, 4409);
    assert_eq!(
        (newer.call().await, newer.call().await),
        (sent.clone(), read.clone())
    );
    newer.answer(&read, &success(json!({"n": 2}))).await;
    newer.answer(&sent, &success(json!({"n": 1}))).await;
    newer.answer(&sent, &success(json!({"n": 3}))).await;
    assert_eq!(result(first).await, success(json!({"n": 1})));
    assert_eq!(result(second).await, success(json!({"n": 2})));
    assert!(newer.is_quiet().await);
}

#[tokio::test]
async fn an_agent_waits_for_the_next_channel_only_so_long_and_the_late_result_is_kept() {
    let wait = Duration::from_millis(1500);
    let world = World::with(|limits| limits.channel_wait = wait).await;
    let (mut edge, agent) = world.workspace("w").await;
    let call = agent.start("workspace_exec", r#"{"command":"x"}"#, None);
    let sent = edge.call().await;
    drop(edge);
    let refused = outcome(call).await.expect_err("no answer");
    assert_eq!(
        (refused.code, &refused.details["callId"]),
        (ErrorCode::Unavailable, &sent["id"])
    );
    // At once, now that there has been no channel for so long; and what was never sent is never sent.
    let start = std::time::Instant::now();
    let refused = agent
        .call("workspace_exec", "{}", Some("never"))
        .await
        .expect_err("no channel");
    assert_eq!(
        (refused.code, &refused.details["callId"]),
        (ErrorCode::Unavailable, &json!("never"))
    );
    assert!(start.elapsed() < wait, "the wait is not begun anew");
    let mut edge = Edge::open(&world, "w", "secret-of-channel-of-w")
        .await
        .expect("channel");
    assert_eq!(edge.call().await, sent);
    edge.answer(&sent, &success(json!({"late": true}))).await;
    let id = sent["id"].as_str();
    let asked = agent.start("workspace_exec", r#"{"command":"x"}"#, id);
    assert_eq!(result(asked).await, success(json!({"late": true})));
    assert!(edge.is_quiet().await);
}

#[tokio::test]
async fn no_outcome_is_kept_of_busy_and_unavailable() {
    let world = World::new().await;
    let (mut edge, agent) = world.workspace("w").await;
    for code in ["BUSY", "UNAVAILABLE", "STALE_REVISION"] {
        let call = agent.start("workspace_write", r#"{"path":"a"}"#, Some(code));
        let sent = edge.call().await;
        edge.answer(&sent, &failure(code)).await;
        assert_eq!(result(call).await, failure(code));
        let again = agent.start("workspace_write", r#"{"path":"a"}"#, Some(code));
        if code == "STALE_REVISION" {
            assert_eq!(result(again).await, failure(code));
        } else {
            let sent = edge.call().await;
            edge.answer(&sent, &success(json!({}))).await;
            assert_eq!(result(again).await, success(json!({})));
        }
    }
    assert!(edge.is_quiet().await);
}
