//! Launches and their channel tokens.

use postern_proto::identity::v1::TokenKind;
use pretty_assertions::assert_eq;
use tonic::Code;

use crate::harness::{Host, START, launching, on_both, refused};

on_both! {
    a_launch_mints_a_channel_token_or_joins_one,
    the_newest_valid_launch_is_current,
    a_launch_that_is_over_opens_its_workspace_no_more,
    a_launch_does_not_outlive_its_token,
}

async fn a_launch_mints_a_channel_token_or_joins_one(mut host: Host) {
    let admin = host.admin().await;
    let one = host.workspace(&admin, "one").await;
    let two = host.workspace(&admin, "two").await;
    let first = host.launch(launching(&admin, &one, "first")).await;
    let launch = first.launch.expect("launch");
    let secret = first.secret.expect("secret");
    assert!(secret.starts_with("postern_channel_"));
    let token = host.authenticate(&secret).await.expect("channel token");
    assert_eq!(
        (token.kind(), &token.workspace_ids),
        (TokenKind::Channel, &vec![one.id.clone()])
    );
    assert_eq!(token.scopes, ["channel:open"]);

    let mut request = launching(&admin, &two, "second");
    request.channel_token_id = launch.token_id.clone();
    let second = host.launch(request).await;
    assert_eq!(second.secret, None);
    assert_eq!(second.launch.expect("launch").token_id, launch.token_id);
    host.restart().await;
    let mut workspaces = host
        .authenticate(&secret)
        .await
        .expect("channel token")
        .workspace_ids;
    workspaces.sort();
    let mut both = vec![one.id.clone(), two.id.clone()];
    both.sort();
    assert_eq!(workspaces, both);

    for (id, kind, code) in [
        (
            "0193a0e4-5b1c-7000-8000-000000000000",
            Code::NotFound,
            "unknown_token",
        ),
        (
            admin.token.id.as_str(),
            Code::InvalidArgument,
            "not_a_channel_token",
        ),
    ] {
        let mut request = launching(&admin, &one, "third");
        request.channel_token_id = id.to_owned();
        refused(host.client.create_launch(request).await, kind, code);
    }
}

async fn the_newest_valid_launch_is_current(mut host: Host) {
    let admin = host.admin().await;
    let workspace = host.workspace(&admin, "w").await;
    assert_eq!(host.current(&workspace).await, None);
    let kept = host
        .launch(launching(&admin, &workspace, "kept"))
        .await
        .launch
        .expect("launch");
    assert_eq!(host.current(&workspace).await, Some(kept.clone()));
    let mut short = launching(&admin, &workspace, "short");
    short.expires_in_seconds = Some(10);
    let short = host.launch(short).await;
    assert_eq!(host.current(&workspace).await, short.launch);
    let revoked = host
        .launch(launching(&admin, &workspace, "revoked"))
        .await
        .launch
        .expect("launch");
    assert_eq!(host.current(&workspace).await, Some(revoked.clone()));
    host.revoke(&admin, &revoked.token_id)
        .await
        .expect("revoked");
    assert_eq!(host.current(&workspace).await, short.launch);
    host.pass(10);
    assert_eq!(host.current(&workspace).await, Some(kept.clone()));
    host.restart().await;
    assert_eq!(host.current(&workspace).await, Some(kept));
    let secret = short.secret.expect("secret");
    refused(
        host.authenticate(&secret).await,
        Code::Unauthenticated,
        "invalid_token",
    );
}

async fn a_launch_that_is_over_opens_its_workspace_no_more(mut host: Host) {
    let admin = host.admin().await;
    let one = host.workspace(&admin, "one").await;
    let two = host.workspace(&admin, "two").await;
    let first = host.launch(launching(&admin, &one, "first")).await;
    let secret = first.secret.expect("secret");
    let mut request = launching(&admin, &two, "second");
    request.channel_token_id = first.launch.expect("launch").token_id;
    request.expires_in_seconds = Some(60);
    host.launch(request).await;
    assert_eq!(
        host.authenticate(&secret)
            .await
            .expect("token")
            .workspace_ids
            .len(),
        2
    );
    host.pass(60);
    for _ in 0..2 {
        let token = host.authenticate(&secret).await.expect("token");
        assert_eq!(token.workspace_ids, std::slice::from_ref(&one.id));
        host.restart().await;
    }
}

async fn a_launch_does_not_outlive_its_token(mut host: Host) {
    let admin = host.admin().await;
    let workspace = host.workspace(&admin, "w").await;
    let mut request = launching(&admin, &workspace, "first");
    request.expires_in_seconds = Some(60);
    let first = host.launch(request).await.launch.expect("launch");
    let mut request = launching(&admin, &workspace, "second");
    request.channel_token_id = first.token_id;
    let second = host.launch(request).await.launch.expect("launch");
    assert_eq!(second.expires_at_ms, Some(START + 60_000));
}
