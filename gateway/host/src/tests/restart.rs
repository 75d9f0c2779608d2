//! What a host knows after a restart.

use postern_types::ErrorCode;
use pretty_assertions::assert_eq;
use serde_json::json;

use super::{
    World,
    edge::{Edge, success},
    outcome, result, soon,
};
use postern_proto::identity::v1::Role;

#[tokio::test]
async fn open_calls_are_sent_again_as_they_were_and_answers_are_kept() {
    let world = World::new().await;
    let (mut edge, agent) = world.workspace("w").await;
    let answered = agent.start("workspace_exec", r#"{"command":"1"}"#, Some("answered"));
    let call = edge.call().await;
    edge.answer(&call, &success(json!({"n": 1}))).await;
    result(answered).await;
    let open = agent.start("workspace_exec", r#"{"command":"2"}"#, Some("open"));
    let sent = edge.call().await;

    let shutdown = soon(world.restart());
    let (world, (code, _)) = tokio::join!(shutdown, edge.closed());
    assert_eq!(code, 1001);
    assert_eq!(
        outcome(open).await.expect_err("no answer").code,
        ErrorCode::Unavailable
    );
    world.identity.launch("w", "a newer intention");
    let agent = world.agent("w", Role::Owner);
    // Without a channel the kept answer is there, and a reused id is known.
    let kept = agent.start("workspace_exec", r#"{"command":"1"}"#, Some("answered"));
    assert_eq!(result(kept).await, success(json!({"n": 1})));
    let reused = agent
        .call("workspace_exec", r#"{"command":"3"}"#, Some("open"))
        .await;
    assert_eq!(reused.expect_err("reused").code, ErrorCode::IdReused);
    // An open call is asked for by its id: sent again with what it had, once.
    let mut asked = agent.clone();
    asked.conversation = "another".to_owned();
    let first = asked.start("workspace_exec", r#"{"command":"2"}"#, Some("open"));
    let second = agent.start("workspace_exec", r#"{"command":"2"}"#, Some("open"));
    let mut edge = Edge::open(&world, "w", "secret-of-channel-of-w")
        .await
        .expect("channel");
    assert_eq!(edge.call().await, sent);
    edge.answer(&sent, &success(json!({"n": 2}))).await;
    assert_eq!(result(first).await, success(json!({"n": 2})));
    assert_eq!(result(second).await, success(json!({"n": 2})));
    assert!(edge.is_quiet().await);
}

#[tokio::test]
async fn a_second_host_on_the_same_journal_is_refused() {
    let world = World::new().await;
    let file = world.directory.path().join("journal.db");
    let options = sqlx::sqlite::SqliteConnectOptions::new()
        .filename(file)
        .busy_timeout(std::time::Duration::ZERO);
    let refused = async {
        let mut connection = sqlx::ConnectOptions::connect(&options).await?;
        sqlx::query("SELECT count(*) FROM call")
            .fetch_one(&mut connection)
            .await
    };
    let error = refused.await.expect_err("refused");
    assert!(error.to_string().contains("locked"), "{error}");
}
