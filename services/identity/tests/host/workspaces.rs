//! Workspaces and idempotency keys.

use postern_proto::identity::v1::{ListWorkspacesRequest, Role};
use pretty_assertions::{assert_eq, assert_ne};
use tonic::Code;

use crate::harness::{Host, START, keyed, launching, named, on_both, refusal, refused};

on_both! {
    workspaces_get_unique_slugs_and_are_listed_with_roles,
    ill_formed_requests_are_refused,
    an_idempotency_key_acts_once,
    fifty_equal_requests_at_once_make_one_workspace,
    a_request_refused_before_any_effect_leaves_its_key_free,
}

async fn workspaces_get_unique_slugs_and_are_listed_with_roles(mut host: Host) {
    let admin = host.admin().await;
    for (name, slug) in [
        ("My Project", "my-project"),
        ("my project", "my-project-2"),
        ("My-Project", "my-project-3"),
        ("Проект", "proekt"),
    ] {
        let workspace = host.workspace(&admin, name).await;
        assert_eq!(
            (workspace.slug.as_str(), workspace.name.as_str()),
            (slug, name)
        );
        assert_eq!((workspace.version, workspace.created_at_ms), (1, START));
        assert_eq!(workspace.organization_id, admin.founding.organization_id);
    }
    host.restart().await;
    let request = ListWorkspacesRequest {
        token_id: admin.token.id.clone(),
    };
    let listed = host
        .client
        .list_workspaces(request)
        .await
        .expect("list")
        .into_inner();
    let slugs: Vec<_> = listed
        .workspaces
        .iter()
        .map(|workspace| (workspace.slug.as_str(), workspace.role()))
        .collect();
    assert_eq!(
        slugs,
        [
            ("my-project", Role::Owner),
            ("my-project-2", Role::Owner),
            ("my-project-3", Role::Owner),
            ("proekt", Role::Owner),
        ]
    );
    assert_eq!(listed.active_workspace_id, None);
}

async fn ill_formed_requests_are_refused(mut host: Host) {
    let admin = host.admin().await;
    let long = "é".repeat(121);
    for name in ["", &long, "a\0b"] {
        let answer = host.create(named(&admin.token, name)).await;
        refused(answer, Code::InvalidArgument, "invalid_name");
    }
    let longest = "é".repeat(120);
    host.create(named(&admin.token, &longest))
        .await
        .expect("120 characters");
    let long_key = "k".repeat(161);
    for key in ["short", "with space", "naïve-key", &long_key] {
        let answer = host.create(keyed(&admin.token, "n", key)).await;
        refused(answer, Code::InvalidArgument, "invalid_idempotency_key");
    }
    let mut request = keyed(&admin.token, "n", "long-enough");
    request.body_sha256 = "abc".to_owned();
    refused(
        host.create(request).await,
        Code::InvalidArgument,
        "invalid_body_digest",
    );
    let mut request = named(&admin.token, "n");
    request.organization_id = "0193a0e4-5b1c-7000-8000-000000000000".to_owned();
    refused(
        host.create(request).await,
        Code::PermissionDenied,
        "not_a_member",
    );
    let workspace = host.workspace(&admin, "w").await;
    for (seconds, intention, code) in [
        (Some(0), "i", "invalid_expiry"),
        (Some(u64::MAX), "i", "invalid_expiry"),
        (None, "", "invalid_intention"),
        (None, "a\0b", "invalid_intention"),
    ] {
        let mut request = launching(&admin, &workspace, intention);
        request.expires_in_seconds = seconds;
        let answer = host.client.create_launch(request).await;
        refused(answer, Code::InvalidArgument, code);
    }
}

async fn an_idempotency_key_acts_once(mut host: Host) {
    let admin = host.admin().await;
    let first = host
        .create(keyed(&admin.token, "one", "key-00001"))
        .await
        .expect("created");
    host.restart().await;
    host.pass(3600);
    let again = host
        .create(keyed(&admin.token, "one", "key-00001"))
        .await
        .expect("replayed");
    assert_eq!(again, first);
    let answer = host.create(keyed(&admin.token, "two", "key-00001")).await;
    refused(answer, Code::AlreadyExists, "idempotency_key_reused");
    let other = host
        .create(keyed(&admin.token, "one", "key-00002"))
        .await
        .expect("created");
    assert_ne!(other.id, first.id);
    // Keys are a principal's own.
    let agent = host
        .agent(&admin, &first, Role::Editor)
        .await
        .token
        .expect("token");
    let mine = host
        .create(keyed(&agent, "two", "key-00001"))
        .await
        .expect("created");
    assert_eq!(mine.name, "two");
}

async fn fifty_equal_requests_at_once_make_one_workspace(mut host: Host) {
    let admin = host.admin().await;
    let answers = futures_util::future::join_all((0..50).map(|number| {
        let mut client = host.client.clone();
        let name = if number % 10 == 9 { "other" } else { "same" };
        let request = keyed(&admin.token, name, "race-0001");
        async move { client.create_workspace(request).await }
    }))
    .await;
    let mut ids = std::collections::HashSet::new();
    let mut reused = 0;
    for answer in answers {
        match answer {
            Ok(answer) => {
                ids.insert(answer.into_inner().workspace.expect("workspace").id);
            }
            Err(status) => {
                assert_eq!(refusal(status).1, "idempotency_key_reused");
                reused += 1;
            }
        }
    }
    assert_eq!((ids.len(), reused), (1, 5));
    let request = ListWorkspacesRequest {
        token_id: admin.token.id.clone(),
    };
    let listed = host
        .client
        .list_workspaces(request)
        .await
        .expect("list")
        .into_inner();
    assert_eq!(listed.workspaces.len(), 1);
}

async fn a_request_refused_before_any_effect_leaves_its_key_free(mut host: Host) {
    let admin = host.admin().await;
    let mut request = keyed(&admin.token, "one", "key-00001");
    request.organization_id = "0193a0e4-5b1c-7000-8000-000000000000".to_owned();
    refused(
        host.create(request).await,
        Code::PermissionDenied,
        "not_a_member",
    );
    host.create(keyed(&admin.token, "two", "key-00001"))
        .await
        .expect("the key is free");
}
