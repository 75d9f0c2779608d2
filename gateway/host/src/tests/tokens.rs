//! What is open ends with its token (CONTRACT.md, sections 1 and 5).

use std::time::{Duration, Instant};

use postern_proto::identity::v1::{Role, TokenKind};
use postern_types::{ErrorCode, Timestamp};
use pretty_assertions::assert_eq;
use serde_json::json;

use super::{
    World,
    agents::bearer,
    edge::{Edge, success},
    outcome, result, soon,
};

#[tokio::test]
async fn a_revoked_token_gets_no_answer_of_a_call_that_is_under_way() {
    let world = World::new().await;
    let (mut edge, secret) = world.with_agent(Role::Owner).await;
    let (other, token) = (world.agent("w", Role::Owner), bearer(&secret));
    let authorization = [("Authorization", token.as_str())];
    let asked = world.ask(&authorization, "workspace_list", "{}", "");
    let revoke = async {
        let sent = edge.call().await;
        world.identity.revoke("agent");
        sent
    };
    let (answer, sent) = soon(async { tokio::join!(asked, revoke) }).await;
    assert_eq!(answer.problem(), (401, "unauthorized".to_owned()));
    edge.answer(&sent, &success(json!({"entries": []}))).await;
    // Others go on.
    let call = other.start("workspace_info", "{}", None);
    let sent = edge.call().await;
    edge.answer(&sent, &success(json!({}))).await;
    result(call).await;
}

#[tokio::test]
async fn an_expired_token_gets_no_answer_of_a_call_that_is_under_way() {
    let world = World::new().await;
    let (_edge, _) = world.workspace("w").await;
    let start = Instant::now();
    let secret = world.identity.token("short", TokenKind::Agent, |token| {
        let end = Timestamp::now().after(Duration::from_millis(300));
        token.workspace_ids = vec!["w".to_owned()];
        token.expires_at_ms = Some(end.as_millis());
    });
    let token = bearer(&secret);
    let authorization = [("Authorization", token.as_str())];
    let asked = world.ask(&authorization, "workspace_list", "{}", "");
    let answer = soon(asked).await;
    assert_eq!(answer.problem(), (401, "unauthorized".to_owned()));
    assert!(start.elapsed() < Duration::from_secs(4));
}

#[tokio::test]
async fn a_call_that_waits_for_its_turn_is_not_sent_once_its_token_is_revoked() {
    let world = World::with(|limits| limits.in_flight = 1).await;
    let (mut edge, agent) = world.workspace("w").await;
    let revoked = world.agent_named("revoked", "w", Role::Owner);
    let first = agent.start("workspace_info", "{}", None);
    let sent = edge.call().await;
    let waiting = revoked.start("workspace_exec", "{}", None);
    let lane = world.host.shared.calls.lane("w");
    soon(async {
        while lane.waiting() == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    world.identity.revoke("revoked");
    edge.answer(&sent, &success(json!({}))).await;
    result(first).await;
    let refused = outcome(waiting).await.expect_err("refused");
    assert_eq!(refused.code, ErrorCode::PermissionDenied);
    assert!(edge.is_quiet().await);
}

#[tokio::test]
async fn a_call_that_waits_for_a_channel_is_not_sent_once_its_token_is_revoked() {
    let world = World::new().await;
    let (mut edge, agent) = world.workspace("w").await;
    let revoked = world.agent_named("revoked", "w", Role::Owner);
    // Sent once, or not at all: the host cannot know whether the edge has got it.
    let mine = agent.start("workspace_exec", "{}", None);
    let sent = edge.call().await;
    let under_way = revoked.start("workspace_exec", "{}", None);
    edge.call().await;
    drop(edge);
    let lane = world.host.shared.calls.lane("w");
    let mut presence = lane.presence();
    let lost = presence.wait_for(|presence| matches!(presence, crate::lane::Presence::Lost(_)));
    drop(soon(lost).await);
    let waiting = revoked.start("workspace_exec", "{}", None);
    world.identity.revoke("revoked");
    let mut edge = Edge::open(&world, "w", "secret-of-channel-of-w")
        .await
        .expect("channel");
    assert_eq!(edge.call().await, sent);
    for call in [under_way, waiting] {
        let refused = outcome(call).await.expect_err("refused");
        assert_eq!(refused.code, ErrorCode::PermissionDenied);
    }
    assert!(edge.is_quiet().await);
    assert_eq!(lane.in_flight(), 1);
    edge.answer(&sent, &success(json!({}))).await;
    result(mine).await;
}

#[tokio::test]
async fn a_call_that_nobody_can_ask_identity_about_is_not_sent_again() {
    let world = World::new().await;
    let (mut edge, agent) = world.workspace("w").await;
    let call = agent.start("workspace_exec", "{}", None);
    edge.call().await;
    let lane = world.host.shared.calls.lane("w");
    assert_eq!(lane.in_flight(), 1);
    world.identity.go_away();
    drop(world.host.shared.calls.attach(&lane, u64::MAX).await);
    let failure = outcome(call).await.expect_err("no answer");
    assert_eq!(failure.code, ErrorCode::Unavailable);
    assert_eq!(lane.in_flight(), 0);
}
