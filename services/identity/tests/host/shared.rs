//! Several processes on one PostgreSQL database.

use std::{collections::HashSet, time::Duration};

use postern_proto::identity::v1::{
    BootstrapRequest, ListTokensRequest, ListWorkspacesRequest, Role, WatchRevocationsRequest,
    WatchRevocationsResponse, host_identity_client::HostIdentityClient,
};
use postern_test_postgres::Cluster;
use pretty_assertions::assert_eq;
use tonic::{Code, Status};

use crate::harness::{Admin, Host, Place, keyed, launching, named, next, refused};

/// Two services on one database, as two processes are.
async fn pair() -> (Host, Host, String) {
    let url = Cluster::shared().database();
    let place = || Place::Postgres(url.clone());
    let (one, other) = tokio::join!(Host::over(place()), Host::over(place()));
    (one, other, url)
}

/// Waits until a secret opens something, or does not, at another process than the one that changed it.
async fn becomes_valid(host: &mut Host, secret: &str, valid: bool) {
    let changed = async {
        while host.authenticate(secret).await.is_ok() != valid {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), changed)
        .await
        .expect("the other process follows");
}

#[tokio::test]
async fn what_one_process_creates_and_revokes_the_other_knows() {
    let (mut one, mut other, _) = pair().await;
    let admin = one.admin().await;
    let workspace = one.workspace(&admin, "w").await;
    let agent = one.agent(&admin, &workspace, Role::Editor).await;
    let made = one.launch(launching(&admin, &workspace, "look")).await;
    let (launch, channel) = (made.launch.expect("launch"), made.secret.expect("secret"));
    becomes_valid(&mut other, &agent.secret, true).await;
    becomes_valid(&mut other, &channel, true).await;
    let opens = other.authenticate(&channel).await.expect("channel");
    assert_eq!(opens.workspace_ids, [&*workspace.id]);
    assert_eq!(other.current(&workspace).await, Some(launch.clone()));

    let watch = other.client.watch_revocations(WatchRevocationsRequest {});
    let mut watch = watch.await.expect("watch").into_inner();
    one.revoke_launch(&admin.token, &launch.id)
        .await
        .expect("revoked");
    let heard = next(&mut watch).await.expect("message").expect("one");
    let expected = WatchRevocationsResponse {
        token_id: launch.token_id.clone(),
        workspace_id: workspace.id.clone(),
    };
    assert_eq!(heard, expected);
    // What is heard of is in force.
    let opens = other.authenticate(&channel).await.expect("channel");
    assert_eq!(opens.workspace_ids, Vec::<String>::new());
    assert_eq!(other.current(&workspace).await, None);

    let id = agent.token.expect("token").id;
    one.revoke(&admin, &id).await.expect("revoked");
    let heard = next(&mut watch).await.expect("message").expect("one");
    assert_eq!((heard.token_id, heard.workspace_id), (id, String::new()));
    let answer = other.authenticate(&agent.secret).await;
    refused(answer, Code::Unauthenticated, "invalid_token");
}

#[tokio::test]
async fn processes_that_start_together_found_one_organization() {
    let url = Cluster::shared().database();
    let hosts = (0..4).map(|_| Host::over(Place::Postgres(url.clone())));
    let hosts = futures_util::future::join_all(hosts).await;
    let answers = hosts.iter().map(|host| {
        let mut client = host.client.clone();
        async move { client.bootstrap(BootstrapRequest::default()).await }
    });
    let answers = futures_util::future::join_all(answers).await;
    let answers = answers.into_iter().map(|answer| answer.expect("answer"));
    let answers: Vec<_> = answers.map(tonic::Response::into_inner).collect();
    let told = answers.iter().filter(|it| it.admin_token.is_some()).count();
    let organizations: HashSet<_> = answers.iter().map(|it| &it.organization_id).collect();
    assert_eq!((told, organizations.len()), (1, 1));
}

#[tokio::test]
async fn an_idempotency_key_acts_once_and_slugs_are_unique_whichever_process_is_asked() {
    let (mut one, mut other, _) = pair().await;
    let admin = one.admin().await;
    becomes_valid(&mut other, &admin.secret, true).await;
    let asked = (0..40).map(|number| {
        let mut client: HostIdentityClient<_> = if number % 2 == 0 {
            one.client.clone()
        } else {
            other.client.clone()
        };
        let request = if number < 20 {
            keyed(&admin.token, "keyed", "race-0001")
        } else {
            named(&admin.token, "named")
        };
        async move { client.create_workspace(request).await }
    });
    let answers = futures_util::future::join_all(asked).await;
    let mut keyed_ids = HashSet::new();
    for (number, answer) in answers.into_iter().enumerate() {
        let workspace = answer.expect("created").into_inner().workspace;
        if number < 20 {
            keyed_ids.insert(workspace.expect("workspace").id);
        }
    }
    assert_eq!(keyed_ids.len(), 1);
    let token_id = admin.token.id.clone();
    let listed = other
        .client
        .list_workspaces(ListWorkspacesRequest { token_id });
    let listed = listed.await.expect("list").into_inner().workspaces;
    let slugs: HashSet<_> = listed.iter().map(|it| it.slug.clone()).collect();
    let mut expected: HashSet<_> = (2..=20).map(|number| format!("named-{number}")).collect();
    expected.extend(["named".to_owned(), "keyed".to_owned()]);
    assert_eq!((slugs, listed.len()), (expected, 21));
}

#[tokio::test]
async fn who_has_missed_a_part_of_the_log_reads_everything_anew() {
    let (mut one, _other, url) = pair().await;
    let admin = one.admin().await;
    let workspace = one.workspace(&admin, "w").await;
    let agent = one.agent(&admin, &workspace, Role::Editor).await;
    let watch = one.client.watch_revocations(WatchRevocationsRequest {});
    let mut watch = watch.await.expect("watch").into_inner();
    // As if thousands of changes had come and gone between two looks.
    let sql = "UPDATE tokens SET revoked_at = 1 WHERE kind = 'agent'; \
        UPDATE changes SET sequence = sequence + 100000 WHERE sequence = (SELECT max(sequence) FROM changes)";
    Cluster::shared().execute(
        &url,
        &format!("SET search_path = postern_host_identity; {sql}"),
    );
    becomes_valid(&mut one, &agent.secret, false).await;
    // Nobody knows what was revoked, so whoever watches is told to look at all of it.
    let mut ended: Result<_, Status> = next(&mut watch).await;
    while ended.as_ref().is_ok_and(Option::is_some) {
        ended = next(&mut watch).await;
    }
    refused(ended, Code::DataLoss, "watch_lagged");
    one.authenticate(&admin.secret).await.expect("admin");
}

/// Uses every statement that reads a table of the host's.
async fn use_everything(host: &mut Host, admin: &Admin, name: &str) {
    let workspace = host.workspace(admin, name).await;
    let listed = host.client.list_workspaces(ListWorkspacesRequest {
        token_id: admin.token.id.clone(),
    });
    let listed = listed.await.expect("list").into_inner().workspaces;
    assert_eq!(listed.last(), Some(&workspace));
    let agent = host.agent(admin, &workspace, Role::Editor).await;
    let agent = agent.token.expect("token");
    let made = host.launch(launching(admin, &workspace, "look")).await;
    let (launch, secret) = (made.launch.expect("launch"), made.secret.expect("secret"));
    let channel = host.authenticate(&secret).await.expect("channel");
    assert_eq!(host.current(&workspace).await, Some(launch.clone()));
    let launches = host.launches(&admin.token, &workspace.id).await;
    assert_eq!(launches.expect("list"), std::slice::from_ref(&launch));
    let listed = host.client.list_tokens(ListTokensRequest {
        token_id: admin.token.id.clone(),
    });
    let listed = listed.await.expect("list").into_inner().tokens;
    assert!(listed.contains(&channel), "{listed:?}");
    let revoked = host.revoke_launch(&admin.token, &launch.id).await;
    assert!(revoked.expect("revoked").revoked_at_ms.is_some());
    host.revoke(admin, &agent.id).await.expect("revoked");
}

#[tokio::test]
async fn what_a_newer_process_adds_to_the_tables_disturbs_nobody() {
    let mut host = Host::over(Place::postgres()).await;
    let admin = host.admin().await;
    // Often enough that every connection has prepared what it uses.
    for round in 0..4 {
        use_everything(&mut host, &admin, &format!("before {round}")).await;
    }
    let Place::Postgres(url) = &host.place else {
        unreachable!("it is on PostgreSQL");
    };
    let tables = [
        "tokens",
        "launches",
        "workspaces",
        "changes",
        "conversations",
    ];
    let added = tables.map(|table| format!("ALTER TABLE {table} ADD COLUMN added TEXT"));
    let sql = format!(
        "SET search_path = postern_host_identity; {}",
        added.join("; ")
    );
    Cluster::shared().execute(url, &sql);
    for round in 0..4 {
        use_everything(&mut host, &admin, &format!("after {round}")).await;
    }
}
