//! The host over the real identity service, from the first organization to a revoked token.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use http::{HeaderMap, header};
use postern_kit::{
    Clock,
    task::Tasks,
    transport::{self, Transport},
};
use postern_proto::identity::v1::{
    AuthenticateRequest, BootstrapRequest, RevokeLaunchRequest,
    host_identity_client::HostIdentityClient,
};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use super::{
    Agent, World,
    edge::{Edge, success},
    result, stub,
};
use crate::{Limits, access::AgentToken};

async fn identity(directory: &tempfile::TempDir) -> (Transport, String) {
    let config = postern_identity::host::Config {
        database: postern_identity::Database::Sqlite(directory.path().join("identity.db")),
    };
    let service = postern_identity::host::Service::open(config, Clock::system(), Tasks::new())
        .await
        .expect("identity");
    let transport = transport::local(service.into_server());
    let mut client = HostIdentityClient::new(transport.clone());
    let bootstrap = client.bootstrap(BootstrapRequest {}).await;
    let made = bootstrap.expect("bootstrap").into_inner();
    (transport, made.admin_token.expect("the admin token"))
}

/// What a successful `POST` answers.
async fn post(world: &World, path: &str, secret: &str, body: Value) -> Value {
    let path = format!("/identity-api/{path}");
    let answer = world.post(&path, secret, &body.to_string()).await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.body);
    answer.json()
}

/// The id of a workspace that the admin makes.
async fn workspace(world: &World, admin: &str) -> String {
    let body = json!({"name": "Project"});
    text(&post(world, "workspace/create", admin, body).await["workspace"]["id"])
}

#[tokio::test]
async fn a_channel_ends_with_its_launch_while_the_token_lives() {
    let directory = Arc::new(tempfile::tempdir().expect("directory"));
    let (transport, admin) = identity(&directory).await;
    let unused = stub::Identity::default();
    let world = World::over(directory, unused, transport, Limits::default()).await;
    let launch = async |body: Value| post(&world, "launch/create", &admin, body).await;
    let lasting = workspace(&world, &admin).await;
    let made = launch(json!({"workspace_id": lasting, "intention": "stay"})).await;
    let (id, secret) = (&made["launch"]["token_id"], text(&made["launch"]["token"]));
    let mut stays = Edge::open(&world, &lasting, &secret)
        .await
        .expect("channel");
    // In one workspace the token's launch is the newest. In the other one another token's is, and tells nothing.
    let (known, hidden) = (
        workspace(&world, &admin).await,
        workspace(&world, &admin).await,
    );
    for workspace in [&known, &hidden] {
        launch(
            json!({"workspace_id": workspace, "intention": "go", "token_id": id, "expires_in": 2}),
        )
        .await;
    }
    let start = Instant::now();
    launch(json!({"workspace_id": hidden, "intention": "other"})).await;
    let opened = Edge::open(&world, &known, &secret).await;
    let mut edge = opened.expect("channel");
    let opened = Edge::open(&world, &hidden, &secret).await;
    let mut other = opened.expect("channel");
    assert_eq!(edge.closed().await.0, 4401);
    assert_eq!(other.closed().await.0, 4401);
    assert!(start.elapsed() < Duration::from_secs(7));
    assert!(stays.is_quiet().await);
}

#[tokio::test]
async fn a_channel_is_cut_at_once_when_its_last_launch_is_revoked_and_others_of_its_token_stay() {
    let directory = Arc::new(tempfile::tempdir().expect("directory"));
    let (transport, admin) = identity(&directory).await;
    let mut client = HostIdentityClient::new(transport.clone());
    let asked = client.authenticate(AuthenticateRequest {
        secret: admin.clone(),
    });
    let token = asked.await.expect("admin").into_inner().token;
    let token_id = token.expect("token").id;
    let unused = stub::Identity::default();
    let world = World::over(directory, unused, transport, Limits::default()).await;
    let launch = async |body: Value| post(&world, "launch/create", &admin, body).await;
    let (one, two) = (
        workspace(&world, &admin).await,
        workspace(&world, &admin).await,
    );
    let first = launch(json!({"workspace_id": one, "intention": "go"})).await["launch"].clone();
    let shared = &first["token_id"];
    let second = json!({"workspace_id": one, "intention": "on", "token_id": shared});
    let second = launch(second).await["launch"].clone();
    launch(json!({"workspace_id": two, "intention": "go", "token_id": shared})).await;
    let secret = text(&first["token"]);
    let mut edge = Edge::open(&world, &one, &secret).await.expect("channel");
    let mut other = Edge::open(&world, &two, &secret).await.expect("channel");
    let mut revoke = async |launch: &Value| {
        let (token_id, launch_id) = (token_id.clone(), text(&launch["id"]));
        let request = RevokeLaunchRequest {
            token_id,
            launch_id,
        };
        client.revoke_launch(request).await.expect("revoked");
    };
    revoke(&second).await;
    assert!(edge.is_quiet().await);
    // Neither launch has an end, so without a word of it the channel would be looked at with the next ping only.
    let start = Instant::now();
    revoke(&first).await;
    assert_eq!(edge.closed().await.0, 4401);
    assert!(start.elapsed() < Duration::from_secs(5));
    let refused = Edge::open(&world, &one, &secret).await.err();
    assert_eq!(refused.expect("refused").status(), 403);
    assert!(other.is_quiet().await);
}

async fn agent_token(world: &World, secret: &str) -> Arc<AgentToken> {
    let bearer = format!("Bearer {secret}").parse().expect("header");
    let headers = HeaderMap::from_iter([(header::AUTHORIZATION, bearer)]);
    let access = &world.host.shared.access;
    access.agent(&headers).await.expect("an agent's token")
}

fn text(value: &Value) -> String {
    value.as_str().expect("text").to_owned()
}

#[tokio::test]
async fn from_the_first_organization_to_a_revoked_token() {
    let directory = Arc::new(tempfile::tempdir().expect("directory"));
    let (transport, admin) = identity(&directory).await;
    let unused = stub::Identity::default();
    let world = World::over(directory, unused, transport, Limits::default()).await;

    let workspace = workspace(&world, &admin).await;
    let body = json!({"workspace_id": workspace, "intention": "mend it", "expires_in": 3600});
    let launch = post(&world, "launch/create", &admin, body).await;
    let body = json!({"workspace_id": workspace, "role": "editor"});
    let minted = post(&world, "token/create", &admin, body).await;
    let agent_secret = text(&minted["token"]["secret"]);
    let listed = post(&world, "workspace/list", &agent_secret, json!({})).await;
    assert_eq!(listed["active_workspace_id"], json!(workspace));
    assert_eq!(listed["workspaces"][0]["role"], "editor");

    // The agent's token opens no channel, and the channel's opens nothing else.
    let channel_secret = text(&launch["launch"]["token"]);
    let refused = Edge::open(&world, &workspace, &agent_secret).await.err();
    assert_eq!(refused.expect("refused").status(), 403);
    let refused = world
        .post("/identity-api/workspace/list", &channel_secret, "{}")
        .await;
    assert_eq!(refused.problem().0, 403);
    let mut edge = Edge::open(&world, &workspace, &channel_secret)
        .await
        .expect("channel");
    let agent = Agent {
        host: world.host.clone(),
        token: agent_token(&world, &agent_secret).await,
        conversation: String::new(),
    };
    let call = agent.start("workspace_info", "{}", None);
    let sent = edge.call().await;
    assert_eq!(sent["intention"], "mend it");
    edge.answer(&sent, &success(json!({}))).await;
    result(call).await;

    let revoked = json!({"id": launch["launch"]["token_id"]});
    let revoked = post(&world, "token/revoke", &admin, revoked).await;
    assert!(revoked["token"]["revoked_at"].is_string());
    assert_eq!(edge.closed().await.0, 4401);
    let refused = Edge::open(&world, &workspace, &channel_secret).await.err();
    assert_eq!(refused.expect("refused").status(), 401);
}
