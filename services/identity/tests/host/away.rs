//! A database that is away or hangs, at the start and later.

use std::{
    sync::{Arc, atomic::AtomicI64},
    time::{Duration, Instant},
};

use postern_kit::{
    task::Tasks,
    transport::{DEADLINE, local},
};
use postern_proto::identity::v1::{
    CurrentLaunchRequest, Role, host_identity_client::HostIdentityClient,
};
use postern_test_postgres::Cluster;
use pretty_assertions::assert_eq;
use tonic::{Code, Status};

use crate::harness::{
    Host, Place, START, becomes, launching, named, open_at_once, refusal, refused,
};

async fn over(cluster: &Cluster) -> Host {
    Host::over(Place::Postgres(cluster.database())).await
}

/// An answer within the deadline of a hop.
async fn in_time<T>(answer: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
    let start = Instant::now();
    let answer = answer.await;
    assert!(start.elapsed() < DEADLINE, "{:?}", start.elapsed());
    answer
}

#[tokio::test]
async fn a_database_that_goes_away_is_waited_for_and_everything_works_again() {
    let cluster = Cluster::start();
    let mut host = over(&cluster).await;
    let admin = host.admin().await;
    let workspace = host.workspace(&admin, "w").await;
    let agent = host.agent(&admin, &workspace, Role::Editor).await;
    cluster.stop();
    let answer = in_time(host.create(named(&admin.token, "lost"))).await;
    refused(answer, Code::Unavailable, "unavailable");
    // When nobody can know any more what was revoked, nothing is let in.
    becomes(&host.service, false).await;
    let answer = host.authenticate(&agent.secret).await;
    refused(answer, Code::Unavailable, "unavailable");
    let workspace_id = workspace.id.clone();
    let answer = host
        .client
        .current_launch(CurrentLaunchRequest { workspace_id });
    refused(in_time(answer).await, Code::Unavailable, "unavailable");
    cluster.restart();
    becomes(&host.service, true).await;
    host.authenticate(&agent.secret).await.expect("agent");
    host.workspace(&admin, "found").await;
}

#[tokio::test]
async fn a_database_that_is_away_at_the_start_is_waited_for() {
    let cluster = Cluster::start();
    let database = Place::Postgres(cluster.database()).database();
    cluster.stop();
    let (now, tasks) = (Arc::new(AtomicI64::new(START)), Tasks::new());
    let service = open_at_once(database, &now, &tasks).await;
    let mut client = HostIdentityClient::new(local(service.clone().into_server()));
    let answer = in_time(client.bootstrap(postern_proto::identity::v1::BootstrapRequest {})).await;
    refused(answer, Code::Unavailable, "unavailable");
    assert!(!*service.readiness().borrow());
    cluster.restart();
    becomes(&service, true).await;
    let answer = client.bootstrap(postern_proto::identity::v1::BootstrapRequest {});
    let made = answer.await.expect("bootstrapped").into_inner();
    assert!(made.admin_token.is_some());
    // It ends although nobody told it to close.
    assert!(tasks.shutdown(Duration::from_secs(10)).await);
}

#[tokio::test]
async fn a_database_that_hangs_holds_no_request_beyond_its_deadline() {
    let cluster = Cluster::start();
    let mut host = over(&cluster).await;
    let admin = host.admin().await;
    cluster.freeze();
    let answers = (0..20).map(|_| {
        let mut client = host.client.clone();
        let request = named(&admin.token, "lost");
        in_time(async move { client.create_workspace(request).await })
    });
    for answer in futures_util::future::join_all(answers).await {
        let kind = refusal(answer.expect_err("nobody answers"));
        assert_eq!(kind, (Code::Unavailable, "unavailable".to_owned()));
    }
    becomes(&host.service, false).await;
    cluster.thaw();
    becomes(&host.service, true).await;
    host.workspace(&admin, "found").await;
}

#[tokio::test]
async fn a_store_that_takes_long_to_read_whole_is_read_all_the_same() {
    let mut host = Host::over(Place::postgres()).await;
    let admin = host.admin().await;
    let workspace = host.workspace(&admin, "w").await;
    let made = host.launch(launching(&admin, &workspace, "look")).await;
    host.service.close().await;
    let Place::Postgres(url) = &host.place else {
        unreachable!("it is on PostgreSQL");
    };
    // Longer than what was seen counts as true, and shorter than the store waits.
    let slow = "ALTER TABLE launches RENAME TO launches_kept; \
        CREATE VIEW launches AS WITH slow AS MATERIALIZED \
        (SELECT * FROM launches_kept WHERE pg_sleep(5.3) IS NOT NULL) SELECT * FROM slow";
    let sql = format!("SET search_path = postern_host_identity; {slow}");
    Cluster::shared().execute(url, &sql);
    host.restart().await;
    let token = host.authenticate(&made.secret.expect("secret")).await;
    assert_eq!(token.expect("token").workspace_ids, [workspace.id]);
}
