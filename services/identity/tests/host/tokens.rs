//! What each kind of token opens, and how its time ends.

use postern_proto::identity::v1::{
    CreateTokenRequest, ListTokensRequest, ListWorkspacesRequest, Role, TokenKind,
    WatchRevocationsRequest, Workspace,
};
use pretty_assertions::assert_eq;
use std::time::Duration;
use tonic::Code;

use crate::harness::{Admin, Host, START, launching, named, next, on_both, refused};

on_both! {
    an_agent_token_creates_no_launch_and_no_token,
    an_agent_sees_its_own_workspaces_only,
    a_channel_token_opens_channels_and_nothing_else,
    a_revoked_token_is_refused_at_once_and_whoever_watches_hears_of_it,
    a_token_expires_when_its_time_is_over,
    tokens_are_listed_in_order_without_secrets,
    an_unknown_workspace_gets_no_launch_and_no_token,
}

async fn an_agent_token_creates_no_launch_and_no_token(mut host: Host) {
    let admin = host.admin().await;
    let workspace = host.workspace(&admin, "w").await;
    let agent = host.agent(&admin, &workspace, Role::Owner).await;
    assert!(agent.secret.starts_with("postern_agent_"));
    let token = host.authenticate(&agent.secret).await.expect("agent");
    assert_eq!(Some(&token), agent.token.as_ref());
    assert_eq!(
        (
            token.kind(),
            token.role(),
            &token.workspace_ids,
            &token.scopes
        ),
        (
            TokenKind::Agent,
            Role::Owner,
            &vec![workspace.id.clone()],
            &vec!["agent:operate".to_owned()]
        )
    );
    let attacker = Admin { token, ..admin };
    let request = launching(&attacker, &workspace, "mine");
    refused(
        host.client.create_launch(request).await,
        Code::PermissionDenied,
        "missing_scope",
    );
    let request = CreateTokenRequest {
        token_id: attacker.token.id.clone(),
        workspace_id: workspace.id.clone(),
        role: Role::Owner.into(),
        expires_in_seconds: None,
    };
    refused(
        host.client.create_token(request).await,
        Code::PermissionDenied,
        "missing_scope",
    );
    refused(
        host.revoke(&attacker, &attacker.token.id.clone()).await,
        Code::PermissionDenied,
        "missing_scope",
    );
    let token_id = attacker.token.id.clone();
    refused(
        host.client
            .list_tokens(ListTokensRequest { token_id })
            .await,
        Code::PermissionDenied,
        "missing_scope",
    );
    assert_eq!(host.current(&workspace).await, None);
}

async fn an_agent_sees_its_own_workspaces_only(mut host: Host) {
    let admin = host.admin().await;
    let given = host.workspace(&admin, "given").await;
    host.workspace(&admin, "hidden").await;
    let agent = host
        .agent(&admin, &given, Role::Editor)
        .await
        .token
        .expect("token");
    let made = host.create(named(&agent, "made")).await.expect("made");
    assert_eq!(made.organization_id, admin.founding.organization_id);
    let token_id = agent.id.clone();
    let listed = host
        .client
        .list_workspaces(ListWorkspacesRequest { token_id })
        .await
        .expect("list")
        .into_inner();
    let names: Vec<_> = listed
        .workspaces
        .iter()
        .map(|workspace| (workspace.name.as_str(), workspace.role()))
        .collect();
    assert_eq!(names, [("given", Role::Editor), ("made", Role::Owner)]);
    assert_eq!(listed.active_workspace_id, Some(given.id.clone()));
    for role in [Role::Reviewer, Role::Viewer] {
        let reader = host.agent(&admin, &given, role).await.token.expect("token");
        let answer = host.create(named(&reader, "mine")).await;
        refused(answer, Code::PermissionDenied, "insufficient_role");
    }
}

async fn a_channel_token_opens_channels_and_nothing_else(mut host: Host) {
    let admin = host.admin().await;
    let workspace = host.workspace(&admin, "w").await;
    let channel = host.launch(launching(&admin, &workspace, "look")).await;
    let token = host
        .authenticate(&channel.secret.expect("secret"))
        .await
        .expect("token");
    refused(
        host.create(named(&token, "n")).await,
        Code::PermissionDenied,
        "missing_scope",
    );
    refused(
        host.resolve(&token.id, "k").await,
        Code::PermissionDenied,
        "missing_scope",
    );
    let token_id = token.id.clone();
    refused(
        host.client
            .list_workspaces(ListWorkspacesRequest { token_id })
            .await,
        Code::PermissionDenied,
        "missing_scope",
    );
}

async fn a_revoked_token_is_refused_at_once_and_whoever_watches_hears_of_it(mut host: Host) {
    let admin = host.admin().await;
    let workspace = host.workspace(&admin, "w").await;
    let agent = host.agent(&admin, &workspace, Role::Editor).await;
    let id = agent.token.expect("token").id;
    let mut watch = host
        .client
        .watch_revocations(WatchRevocationsRequest {})
        .await
        .expect("watch")
        .into_inner();
    let revoked = host.revoke(&admin, &id).await.expect("revoked");
    assert_eq!(revoked.revoked_at_ms, Some(START));
    refused(
        host.authenticate(&agent.secret).await,
        Code::Unauthenticated,
        "invalid_token",
    );
    refused(
        host.resolve(&id, "k").await,
        Code::Unauthenticated,
        "invalid_token",
    );
    let heard = next(&mut watch).await.expect("message").expect("one");
    assert_eq!(heard.token_id, id);
    host.pass(5);
    let again = host.revoke(&admin, &id).await.expect("revoked before");
    assert_eq!(again, revoked);
    let heard = next(&mut watch).await.expect("message").expect("one");
    assert_eq!(heard.token_id, id);
    host.restart().await;
    refused(
        host.authenticate(&agent.secret).await,
        Code::Unauthenticated,
        "invalid_token",
    );
    refused(
        host.revoke(&admin, "nothing").await,
        Code::NotFound,
        "unknown_token",
    );
    assert!(host.tasks.shutdown(Duration::from_secs(5)).await);
    assert_eq!(next(&mut watch).await.expect("ended"), None);
}

async fn a_token_expires_when_its_time_is_over(mut host: Host) {
    let admin = host.admin().await;
    let workspace = host.workspace(&admin, "w").await;
    let request = CreateTokenRequest {
        token_id: admin.token.id.clone(),
        workspace_id: workspace.id.clone(),
        role: Role::Viewer.into(),
        expires_in_seconds: Some(30),
    };
    let agent = host
        .client
        .create_token(request)
        .await
        .expect("agent")
        .into_inner();
    assert_eq!(
        agent.token.expect("token").expires_at_ms,
        Some(START + 30_000)
    );
    host.pass(29);
    host.authenticate(&agent.secret).await.expect("still valid");
    host.pass(1);
    refused(
        host.authenticate(&agent.secret).await,
        Code::Unauthenticated,
        "invalid_token",
    );
    host.restart().await;
    refused(
        host.authenticate(&agent.secret).await,
        Code::Unauthenticated,
        "invalid_token",
    );
}

async fn tokens_are_listed_in_order_without_secrets(mut host: Host) {
    let admin = host.admin().await;
    let workspace = host.workspace(&admin, "w").await;
    let agent = host
        .agent(&admin, &workspace, Role::Editor)
        .await
        .token
        .expect("token");
    let launch = host.launch(launching(&admin, &workspace, "look")).await;
    let channel = host
        .authenticate(&launch.secret.expect("secret"))
        .await
        .expect("token");
    let token_id = admin.token.id.clone();
    let listed = host
        .client
        .list_tokens(ListTokensRequest { token_id })
        .await
        .expect("list")
        .into_inner();
    assert_eq!(listed.tokens, [admin.token, agent, channel]);
}

async fn an_unknown_workspace_gets_no_launch_and_no_token(mut host: Host) {
    let admin = host.admin().await;
    let workspace = Workspace {
        id: "0193a0e4-5b1c-7000-8000-000000000000".to_owned(),
        ..Default::default()
    };
    let answer = host
        .client
        .create_launch(launching(&admin, &workspace, "look"))
        .await;
    refused(answer, Code::NotFound, "unknown_workspace");
}
