//! Launches as they are listed and revoked.

use postern_proto::identity::v1::{
    CreateLaunchResponse, Launch, ListTokensRequest, Role, WatchRevocationsRequest,
    WatchRevocationsResponse, Workspace,
};
use pretty_assertions::assert_eq;
use tonic::Code;

use crate::harness::{Admin, Host, START, launching, next, on_both, refused};

on_both! {
    valid_expired_and_revoked_launches_are_listed_in_order,
    a_revoked_launch_opens_nothing_and_is_current_no_more,
    a_door_stays_open_as_long_as_another_launch_holds_it,
    a_channel_token_that_is_over_is_listed_with_nothing_that_it_opens,
    whoever_watches_hears_of_a_revoked_launch,
    launches_are_seen_and_revoked_by_those_who_may_create_them_alone,
    launches_made_and_revoked_at_once_leave_in_memory_what_the_store_holds,
}

/// The launch and the secret of its own channel token.
fn both(created: CreateLaunchResponse) -> (Launch, String) {
    (
        created.launch.expect("launch"),
        created.secret.expect("secret"),
    )
}

/// A launch on a channel token that there is.
async fn joined(host: &mut Host, admin: &Admin, workspace: &Workspace, token_id: &str) -> Launch {
    let mut request = launching(admin, workspace, "joined");
    request.channel_token_id = token_id.to_owned();
    host.launch(request).await.launch.expect("launch")
}

async fn opened(host: &mut Host, secret: &str) -> Vec<String> {
    host.authenticate(secret)
        .await
        .expect("channel token")
        .workspace_ids
}

async fn valid_expired_and_revoked_launches_are_listed_in_order(mut host: Host) {
    let admin = host.admin().await;
    let (one, two) = (
        host.workspace(&admin, "one").await,
        host.workspace(&admin, "two").await,
    );
    let valid = host.launch(launching(&admin, &one, "valid")).await;
    let mut short = launching(&admin, &one, "short");
    short.expires_in_seconds = Some(10);
    let expired = host.launch(short).await;
    let other = host.launch(launching(&admin, &two, "other")).await;
    let (revoked, _) = both(host.launch(launching(&admin, &one, "revoked")).await);
    host.pass(10);
    let answer = host.revoke_launch(&admin.token, &revoked.id).await;
    let revoked = Launch {
        revoked_at_ms: Some(START + 10_000),
        ..revoked
    };
    assert_eq!(answer.expect("revoked"), revoked);
    let [valid, expired, other] = [valid, expired, other].map(|it| it.launch.expect("launch"));
    for _ in 0..2 {
        let of_one = host.launches(&admin.token, &one.id).await.expect("list");
        assert_eq!(of_one, [valid.clone(), expired.clone(), revoked.clone()]);
        let all = host.launches(&admin.token, "").await.expect("list");
        let in_order = [&valid, &expired, &other, &revoked].map(Clone::clone);
        assert_eq!(all, in_order);
        host.restart().await;
    }
}

async fn a_revoked_launch_opens_nothing_and_is_current_no_more(mut host: Host) {
    let admin = host.admin().await;
    let workspace = host.workspace(&admin, "w").await;
    let (kept, kept_secret) = both(host.launch(launching(&admin, &workspace, "kept")).await);
    let (launch, secret) = both(host.launch(launching(&admin, &workspace, "gone")).await);
    assert_eq!(host.current(&workspace).await, Some(launch.clone()));
    let revoked = host.revoke_launch(&admin.token, &launch.id).await;
    let revoked = revoked.expect("revoked");
    assert_eq!(revoked.revoked_at_ms, Some(START));
    host.pass(5);
    for _ in 0..2 {
        assert_eq!(opened(&mut host, &secret).await, Vec::<String>::new());
        assert_eq!(opened(&mut host, &kept_secret).await, [&*workspace.id]);
        assert_eq!(host.current(&workspace).await, Some(kept.clone()));
        // Again: the same answer, and the first time is kept.
        let again = host.revoke_launch(&admin.token, &launch.id).await;
        assert_eq!(again.expect("revoked before"), revoked);
        host.restart().await;
    }
    host.revoke_launch(&admin.token, &kept.id)
        .await
        .expect("revoked");
    assert_eq!(host.current(&workspace).await, None);
    // The token itself stays, and opens what it is launched for from now on.
    let anew = joined(&mut host, &admin, &workspace, &launch.token_id).await;
    assert_eq!(opened(&mut host, &secret).await, [&*workspace.id]);
    assert_eq!(host.current(&workspace).await, Some(anew));
}

async fn a_door_stays_open_as_long_as_another_launch_holds_it(mut host: Host) {
    let admin = host.admin().await;
    let (one, two) = (
        host.workspace(&admin, "one").await,
        host.workspace(&admin, "two").await,
    );
    let (first, secret) = both(host.launch(launching(&admin, &one, "first")).await);
    let token_id = first.token_id.clone();
    joined(&mut host, &admin, &two, &token_id).await;
    let mut request = launching(&admin, &one, "short");
    request.channel_token_id.clone_from(&token_id);
    request.expires_in_seconds = Some(60);
    host.launch(request).await;
    host.revoke_launch(&admin.token, &first.id)
        .await
        .expect("revoked");
    let sorted = |mut ids: Vec<String>| {
        ids.sort();
        ids
    };
    let opens = sorted(opened(&mut host, &secret).await);
    assert_eq!(opens, sorted(vec![one.id.clone(), two.id.clone()]));
    let listed = listed_workspaces(&mut host, &admin).await;
    assert_eq!(sorted(listed[1].clone()), opens);
    host.pass(60);
    assert_eq!(opened(&mut host, &secret).await, [&*two.id]);
    // The list tells what is open now, too.
    let listed = listed_workspaces(&mut host, &admin).await;
    assert_eq!(listed, [vec![], vec![two.id.clone()]]);
}

/// What the list of tokens says that each opens.
async fn listed_workspaces(host: &mut Host, admin: &Admin) -> Vec<Vec<String>> {
    let request = ListTokensRequest {
        token_id: admin.token.id.clone(),
    };
    let listed = host.client.list_tokens(request).await.expect("list");
    let tokens = listed.into_inner().tokens.into_iter();
    tokens.map(|token| token.workspace_ids).collect()
}

async fn a_channel_token_that_is_over_is_listed_with_nothing_that_it_opens(mut host: Host) {
    let admin = host.admin().await;
    let workspace = host.workspace(&admin, "w").await;
    let mut short = launching(&admin, &workspace, "short");
    short.expires_in_seconds = Some(10);
    host.launch(short).await;
    let (kept, _) = both(host.launch(launching(&admin, &workspace, "kept")).await);
    let opens = vec![workspace.id.clone()];
    let listed = listed_workspaces(&mut host, &admin).await;
    assert_eq!(listed, [vec![], opens.clone(), opens.clone()]);
    host.pass(10);
    let listed = listed_workspaces(&mut host, &admin).await;
    assert_eq!(listed, [vec![], vec![], opens]);
    let revoked = host.revoke(&admin, &kept.token_id).await.expect("revoked");
    assert_eq!(revoked.workspace_ids, Vec::<String>::new());
    let listed = listed_workspaces(&mut host, &admin).await;
    assert_eq!(listed, [vec![], vec![], Vec::<String>::new()]);
}

async fn whoever_watches_hears_of_a_revoked_launch(mut host: Host) {
    let admin = host.admin().await;
    let workspace = host.workspace(&admin, "w").await;
    let (launch, _) = both(host.launch(launching(&admin, &workspace, "look")).await);
    let watch = host.client.watch_revocations(WatchRevocationsRequest {});
    let mut watch = watch.await.expect("watch").into_inner();
    for _ in 0..2 {
        host.revoke_launch(&admin.token, &launch.id)
            .await
            .expect("revoked");
        let heard = next(&mut watch).await.expect("message").expect("one");
        let expected = WatchRevocationsResponse {
            token_id: launch.token_id.clone(),
            workspace_id: workspace.id.clone(),
        };
        assert_eq!(heard, expected);
    }
}

async fn launches_are_seen_and_revoked_by_those_who_may_create_them_alone(mut host: Host) {
    let admin = host.admin().await;
    let workspace = host.workspace(&admin, "w").await;
    let (launch, channel) = both(host.launch(launching(&admin, &workspace, "look")).await);
    let agent = host.agent(&admin, &workspace, Role::Owner).await;
    let channel = host.authenticate(&channel).await.expect("token");
    for token in [agent.token.expect("token"), channel] {
        for workspace_id in ["", &workspace.id] {
            let answer = host.launches(&token, workspace_id).await;
            refused(answer, Code::PermissionDenied, "missing_scope");
        }
        let answer = host.revoke_launch(&token, &launch.id).await;
        refused(answer, Code::PermissionDenied, "missing_scope");
    }
    for unknown in ["", "nothing", "0193a0e4-5b1c-7000-8000-000000000000"] {
        let answer = host.revoke_launch(&admin.token, unknown).await;
        refused(answer, Code::NotFound, "unknown_launch");
    }
    let answer = host.launches(&admin.token, "nothing").await;
    refused(answer, Code::NotFound, "unknown_workspace");
    assert_eq!(host.current(&workspace).await, Some(launch));
}

async fn launches_made_and_revoked_at_once_leave_in_memory_what_the_store_holds(mut host: Host) {
    let admin = host.admin().await;
    let workspace = host.workspace(&admin, "w").await;
    let (first, secret) = both(host.launch(launching(&admin, &workspace, "first")).await);
    let mut standing = first.clone();
    for _ in 0..20 {
        // The newer one holds the door open, whichever of the two is told last.
        let (mut one, mut other) = (host.client.clone(), host.client.clone());
        let mut create = launching(&admin, &workspace, "next");
        create.channel_token_id.clone_from(&first.token_id);
        let revoke = postern_proto::identity::v1::RevokeLaunchRequest {
            token_id: admin.token.id.clone(),
            launch_id: standing.id.clone(),
        };
        let (revoked, created) =
            tokio::join!(one.revoke_launch(revoke), other.create_launch(create));
        revoked.expect("revoked");
        standing = created
            .expect("created")
            .into_inner()
            .launch
            .expect("launch");
        assert_eq!(opened(&mut host, &secret).await, [&*workspace.id]);
        assert_eq!(host.current(&workspace).await, Some(standing.clone()));
    }
}
