//! The first organization, its admin, and who is let in at all.

use postern_proto::identity::v1::{BootstrapRequest, BootstrapResponse, Role, TokenKind};
use postern_test_postgres::Cluster;
use pretty_assertions::{assert_eq, assert_ne};
use tonic::Code;

use crate::harness::{Host, Place, launching, on_both, refusal};

on_both! {
    bootstrap_tells_the_admin_token_once,
    two_bootstraps_at_once_make_one_organization,
    a_lost_admin_token_is_replaced_by_whoever_holds_the_store,
    what_is_no_valid_token_opens_nothing_and_is_not_told_apart,
    secrets_are_not_in_the_store,
}

async fn bootstrap_tells_the_admin_token_once(mut host: Host) {
    let admin = host.admin().await;
    assert_eq!(admin.token.kind(), TokenKind::Admin);
    assert_eq!(
        admin.token.scopes,
        ["agent:operate", "launch:create", "token:create"]
    );
    let again = BootstrapResponse {
        admin_token: None,
        ..admin.founding.clone()
    };
    assert_eq!(host.bootstrap().await, again);
    host.restart().await;
    assert_eq!(host.bootstrap().await, again);
    assert_eq!(
        host.authenticate(&admin.secret).await.expect("admin"),
        admin.token
    );
}

async fn two_bootstraps_at_once_make_one_organization(host: Host) {
    let answers = futures_util::future::join_all((0..20).map(|_| {
        let mut client = host.client.clone();
        async move { client.bootstrap(BootstrapRequest::default()).await }
    }))
    .await;
    let answers: Vec<_> = answers
        .into_iter()
        .map(|answer| answer.expect("answer").into_inner())
        .collect();
    let told = answers
        .iter()
        .filter(|answer| answer.admin_token.is_some())
        .count();
    assert_eq!(told, 1);
    assert!(
        answers
            .iter()
            .all(|answer| answer.organization_id == answers[0].organization_id)
    );
}

async fn a_lost_admin_token_is_replaced_by_whoever_holds_the_store(mut host: Host) {
    assert!(host.service.mint_admin().await.is_err());
    let admin = host.admin().await;
    let secret = host.service.mint_admin().await.expect("minted");
    let token = host.authenticate(secret.expose()).await.expect("admin");
    assert_eq!(token.principal_id, admin.token.principal_id);
    assert_ne!(token.id, admin.token.id);
}

async fn what_is_no_valid_token_opens_nothing_and_is_not_told_apart(mut host: Host) {
    let admin = host.admin().await;
    let workspace = host.workspace(&admin, "w").await;
    let agent = host.agent(&admin, &workspace, Role::Editor).await;
    let id = agent.token.expect("token").id;
    host.revoke(&admin, &id).await.expect("revoked");
    let unknown = postern_identity::secret::mint(postern_identity::secret::Kind::Admin)
        .expect("secret")
        .into_exposed();
    let mut statuses = Vec::new();
    for secret in ["", "nonsense", &unknown, &agent.secret, &admin.secret[1..]] {
        statuses.push(host.authenticate(secret).await.expect_err(secret));
    }
    for status in statuses {
        assert!(!status.message().contains("postern_"));
        assert_eq!(
            refusal(status),
            (Code::Unauthenticated, "invalid_token".to_owned())
        );
    }
}

async fn secrets_are_not_in_the_store(mut host: Host) {
    let admin = host.admin().await;
    let workspace = host.workspace(&admin, "w").await;
    let agent = host.agent(&admin, &workspace, Role::Editor).await;
    let launch = host.launch(launching(&admin, &workspace, "look")).await;
    let secrets = [
        &admin.secret,
        &agent.secret,
        &launch.secret.expect("secret"),
    ];
    let contents: Vec<Vec<u8>> = match &host.place {
        Place::Sqlite(directory) => std::fs::read_dir(directory.path())
            .expect("files")
            .map(|entry| std::fs::read(entry.expect("file").path()).expect("content"))
            .collect(),
        Place::Postgres(url) => vec![Cluster::shared().dump(url).into_bytes()],
    };
    let id = launch.launch.expect("launch").id;
    let is_there = |content: &Vec<u8>| content.windows(id.len()).any(|it| it == id.as_bytes());
    assert!(contents.iter().any(is_there));
    for content in contents {
        for secret in secrets {
            let random = &secret.as_bytes()[secret.len() - 49..];
            assert!(!content.windows(49).any(|window| window == random));
        }
    }
}
