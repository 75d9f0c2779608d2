//! The host's identity through its real server.
#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use postern_identity::host::{Config, Service};
use postern_kit::{
    Clock, Problem,
    task::Tasks,
    transport::{Transport, local},
};
use postern_proto::identity::v1::{
    AuthenticateRequest, BootstrapRequest, BootstrapResponse, CreateLaunchRequest,
    CreateLaunchResponse, CreateTokenRequest, CreateTokenResponse, CreateWorkspaceRequest,
    CurrentLaunchRequest, Launch, ListTokensRequest, ListWorkspacesRequest,
    ResolveConversationRequest, RevokeTokenRequest, Role, Token, TokenKind,
    WatchRevocationsRequest, Workspace, host_identity_client::HostIdentityClient,
};
use postern_types::{Sha256, Timestamp};
use pretty_assertions::{assert_eq, assert_ne};
use tempfile::TempDir;
use tonic::{Code, Status};

const START: i64 = 1_800_000_000_000;

struct Host {
    client: HostIdentityClient<Transport>,
    service: Service,
    tasks: Tasks,
    now: Arc<AtomicI64>,
    directory: TempDir,
}

/// The admin, and the first organization.
struct Admin {
    token: Token,
    secret: String,
    founding: BootstrapResponse,
}

async fn open(path: &Path, now: &Arc<AtomicI64>, tasks: &Tasks) -> Service {
    let now = Arc::clone(now);
    let clock = Clock::from_fn(move || Timestamp::from_millis(now.load(Ordering::SeqCst)));
    let path = path.join("identity.db");
    Service::open(Config { path }, clock, tasks.clone())
        .await
        .expect("opened")
}

impl Host {
    async fn new() -> Self {
        let directory = tempfile::tempdir().expect("directory");
        let now = Arc::new(AtomicI64::new(START));
        let tasks = Tasks::new();
        let service = open(directory.path(), &now, &tasks).await;
        Self {
            client: HostIdentityClient::new(local(service.clone().into_server())),
            service,
            tasks,
            now,
            directory,
        }
    }

    async fn restart(&mut self) {
        self.service.close().await;
        self.service = open(self.directory.path(), &self.now, &self.tasks).await;
        self.client = HostIdentityClient::new(local(self.service.clone().into_server()));
    }

    fn pass(&self, seconds: i64) {
        self.now.fetch_add(seconds * 1000, Ordering::SeqCst);
    }

    async fn bootstrap(&mut self) -> BootstrapResponse {
        let answer = self.client.bootstrap(BootstrapRequest::default()).await;
        answer.expect("bootstrapped").into_inner()
    }

    async fn admin(&mut self) -> Admin {
        let founding = self.bootstrap().await;
        let secret = founding.admin_token.clone().expect("admin token");
        let token = self.authenticate(&secret).await.expect("admin");
        Admin {
            token,
            secret,
            founding,
        }
    }

    async fn authenticate(&mut self, secret: &str) -> Result<Token, Status> {
        let secret = secret.to_owned();
        let answer = self
            .client
            .authenticate(AuthenticateRequest { secret })
            .await?;
        Ok(answer.into_inner().token.expect("token"))
    }

    async fn create(&mut self, request: CreateWorkspaceRequest) -> Result<Workspace, Status> {
        let answer = self.client.create_workspace(request).await?;
        Ok(answer.into_inner().workspace.expect("workspace"))
    }

    async fn workspace(&mut self, admin: &Admin, name: &str) -> Workspace {
        let request = named(&admin.token, name);
        self.create(request).await.expect("workspace")
    }

    async fn launch(&mut self, request: CreateLaunchRequest) -> CreateLaunchResponse {
        let answer = self.client.create_launch(request).await;
        answer.expect("launch").into_inner()
    }

    async fn current(&mut self, workspace: &Workspace) -> Option<Launch> {
        let workspace_id = workspace.id.clone();
        let answer = self
            .client
            .current_launch(CurrentLaunchRequest { workspace_id })
            .await;
        answer.expect("current").into_inner().launch
    }

    async fn agent(
        &mut self,
        admin: &Admin,
        workspace: &Workspace,
        role: Role,
    ) -> CreateTokenResponse {
        let request = CreateTokenRequest {
            token_id: admin.token.id.clone(),
            workspace_id: workspace.id.clone(),
            role: role.into(),
            expires_in_seconds: None,
        };
        let answer = self.client.create_token(request).await;
        answer.expect("agent").into_inner()
    }

    async fn revoke(&mut self, admin: &Admin, id: &str) -> Result<Token, Status> {
        let request = RevokeTokenRequest {
            token_id: admin.token.id.clone(),
            revoke_id: id.to_owned(),
        };
        let answer = self.client.revoke_token(request).await?;
        Ok(answer.into_inner().token.expect("token"))
    }

    async fn resolve(&mut self, token_id: &str, key: &str) -> Result<String, Status> {
        let request = ResolveConversationRequest {
            token_id: token_id.to_owned(),
            key: key.to_owned(),
        };
        let answer = self.client.resolve_conversation(request).await?;
        Ok(answer.into_inner().session_id)
    }
}

fn named(token: &Token, name: &str) -> CreateWorkspaceRequest {
    CreateWorkspaceRequest {
        token_id: token.id.clone(),
        name: name.to_owned(),
        ..Default::default()
    }
}

fn keyed(token: &Token, name: &str, key: &str) -> CreateWorkspaceRequest {
    CreateWorkspaceRequest {
        idempotency_key: key.to_owned(),
        body_sha256: Sha256::of(name.as_bytes()).to_string(),
        ..named(token, name)
    }
}

fn launching(admin: &Admin, workspace: &Workspace, intention: &str) -> CreateLaunchRequest {
    CreateLaunchRequest {
        token_id: admin.token.id.clone(),
        workspace_id: workspace.id.clone(),
        intention: intention.to_owned(),
        ..Default::default()
    }
}

fn refusal(status: Status) -> (Code, String) {
    let problem = Problem::from(status);
    (problem.kind, problem.code.into_owned())
}

#[track_caller]
fn refused<T: std::fmt::Debug>(answer: Result<T, Status>, kind: Code, code: &str) {
    assert_eq!(
        refusal(answer.expect_err("refused")),
        (kind, code.to_owned())
    );
}

#[tokio::test]
async fn bootstrap_tells_the_admin_token_once() {
    let mut host = Host::new().await;
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

#[tokio::test]
async fn two_bootstraps_at_once_make_one_organization() {
    let host = Host::new().await;
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

#[tokio::test]
async fn a_lost_admin_token_is_replaced_by_whoever_holds_the_store() {
    let mut host = Host::new().await;
    assert!(host.service.mint_admin().await.is_err());
    let admin = host.admin().await;
    let secret = host.service.mint_admin().await.expect("minted");
    let token = host.authenticate(secret.expose()).await.expect("admin");
    assert_eq!(token.principal_id, admin.token.principal_id);
    assert_ne!(token.id, admin.token.id);
}

#[tokio::test]
async fn what_is_no_valid_token_opens_nothing_and_is_not_told_apart() {
    let mut host = Host::new().await;
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

#[tokio::test]
async fn secrets_are_not_in_the_files() {
    let mut host = Host::new().await;
    let admin = host.admin().await;
    let workspace = host.workspace(&admin, "w").await;
    let agent = host.agent(&admin, &workspace, Role::Editor).await;
    let launch = host.launch(launching(&admin, &workspace, "look")).await;
    let secrets = [
        &admin.secret,
        &agent.secret,
        &launch.secret.expect("secret"),
    ];
    for entry in std::fs::read_dir(host.directory.path()).expect("files") {
        let content = std::fs::read(entry.expect("file").path()).expect("content");
        for secret in secrets {
            let random = &secret.as_bytes()[secret.len() - 49..];
            assert!(!content.windows(49).any(|window| window == random));
        }
    }
}

#[tokio::test]
async fn workspaces_get_unique_slugs_and_are_listed_with_roles() {
    let mut host = Host::new().await;
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

#[tokio::test]
async fn ill_formed_requests_are_refused() {
    let mut host = Host::new().await;
    let admin = host.admin().await;
    let long = "é".repeat(121);
    for name in ["", &long] {
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
    ] {
        let mut request = launching(&admin, &workspace, intention);
        request.expires_in_seconds = seconds;
        let answer = host.client.create_launch(request).await;
        refused(answer, Code::InvalidArgument, code);
    }
}

#[tokio::test]
async fn an_idempotency_key_acts_once() {
    let mut host = Host::new().await;
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

#[tokio::test]
async fn fifty_equal_requests_at_once_make_one_workspace() {
    let mut host = Host::new().await;
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

#[tokio::test]
async fn a_request_refused_before_any_effect_leaves_its_key_free() {
    let mut host = Host::new().await;
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

#[tokio::test]
async fn a_launch_mints_a_channel_token_or_joins_one() {
    let mut host = Host::new().await;
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

#[tokio::test]
async fn the_newest_valid_launch_is_current() {
    let mut host = Host::new().await;
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

#[tokio::test]
async fn a_launch_that_is_over_opens_its_workspace_no_more() {
    let mut host = Host::new().await;
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

#[tokio::test]
async fn a_launch_does_not_outlive_its_token() {
    let mut host = Host::new().await;
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

#[tokio::test]
async fn an_agent_token_creates_no_launch_and_no_token() {
    let mut host = Host::new().await;
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

#[tokio::test]
async fn an_agent_sees_its_own_workspaces_only() {
    let mut host = Host::new().await;
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

#[tokio::test]
async fn a_channel_token_opens_channels_and_nothing_else() {
    let mut host = Host::new().await;
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

#[tokio::test]
async fn a_revoked_token_is_refused_at_once_and_whoever_watches_hears_of_it() {
    let mut host = Host::new().await;
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
    let heard = watch.message().await.expect("message").expect("one");
    assert_eq!(heard.token_id, id);
    host.pass(5);
    let again = host.revoke(&admin, &id).await.expect("revoked before");
    assert_eq!(again, revoked);
    let heard = watch.message().await.expect("message").expect("one");
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
    assert_eq!(watch.message().await.expect("ended"), None);
}

#[tokio::test]
async fn a_token_expires_when_its_time_is_over() {
    let mut host = Host::new().await;
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

#[tokio::test]
async fn tokens_are_listed_in_order_without_secrets() {
    let mut host = Host::new().await;
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

#[tokio::test]
async fn an_unknown_workspace_gets_no_launch_and_no_token() {
    let mut host = Host::new().await;
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

#[tokio::test]
async fn a_conversation_is_a_token_s_own_and_lasts() {
    let mut host = Host::new().await;
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

#[tokio::test]
async fn a_conversation_resolved_many_times_at_once_is_one() {
    let mut host = Host::new().await;
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
