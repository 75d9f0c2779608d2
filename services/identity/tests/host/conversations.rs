//! Conversations of agent tokens.

use postern_proto::identity::v1::{ResolveConversationRequest, Role};
use pretty_assertions::{assert_eq, assert_ne};
use tonic::Code;

use crate::harness::{Host, on_both, refused};

on_both! {
    a_conversation_is_a_token_s_own_and_lasts,
    a_conversation_resolved_many_times_at_once_is_one,
}

async fn a_conversation_is_a_token_s_own_and_lasts(mut host: Host) {
    let admin = host.admin().await;
    let workspace = host.workspace(&admin, "w").await;
    let one = host
        .agent(&admin, &workspace, Role::Editor)
        .await
        .token
        .expect("token")
        .id;
    let two = host
        .agent(&admin, &workspace, Role::Editor)
        .await
        .token
        .expect("token")
        .id;
    let session = host.resolve(&one, "key").await.expect("session");
    let uuid = uuid::Uuid::parse_str(&session).expect("a UUID");
    assert_eq!(uuid.get_version_num(), 4);
    for (token, key) in [(&two, "key"), (&one, "other"), (&one, "")] {
        assert_ne!(host.resolve(token, key).await.expect("session"), session);
    }
    for _ in 0..2 {
        assert_eq!(host.resolve(&one, "key").await.expect("session"), session);
        host.restart().await;
    }
    let long = "k".repeat(201);
    for key in ["with space", "é", &long] {
        let answer = host.resolve(&one, key).await;
        refused(answer, Code::InvalidArgument, "invalid_conversation_key");
    }
}

async fn a_conversation_resolved_many_times_at_once_is_one(mut host: Host) {
    let admin = host.admin().await;
    let answers = futures_util::future::join_all((0..30).map(|_| {
        let mut client = host.client.clone();
        let request = ResolveConversationRequest {
            token_id: admin.token.id.clone(),
            key: "key".to_owned(),
        };
        async move { client.resolve_conversation(request).await }
    }))
    .await;
    let sessions: std::collections::HashSet<_> = answers
        .into_iter()
        .map(|answer| answer.expect("session").into_inner().session_id)
        .collect();
    assert_eq!(sessions.len(), 1);
}
