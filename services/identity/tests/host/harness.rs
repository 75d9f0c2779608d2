//! A host's identity to try, and the requests that most tests send.

use postern_identity::Database;
use postern_identity::host::{Config, Service};
use postern_kit::task::Tasks;
use postern_kit::transport::{Transport, local};
use postern_kit::{Clock, Problem};
use postern_proto::identity::v1::host_identity_client::HostIdentityClient;
use postern_proto::identity::v1::{
    AuthenticateRequest, BootstrapRequest, BootstrapResponse, CreateLaunchRequest,
    CreateLaunchResponse, CreateTokenRequest, CreateTokenResponse, CreateWorkspaceRequest,
    CurrentLaunchRequest, Launch, ListLaunchesRequest, ResolveConversationRequest,
    RevokeLaunchRequest, RevokeTokenRequest, Role, Token, WatchRevocationsResponse, Workspace,
};
use postern_test_postgres::Cluster;
use postern_types::{Sha256, Timestamp};
use pretty_assertions::assert_eq;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use tempfile::TempDir;
use tonic::{Code, Status, Streaming};

pub(crate) const START: i64 = 1_800_000_000_000;

pub(crate) struct Host {
    pub(crate) client: HostIdentityClient<Transport>,
    pub(crate) service: Service,
    pub(crate) tasks: Tasks,
    pub(crate) now: Arc<AtomicI64>,
    pub(crate) place: Place,
}

/// Where the store is.
pub(crate) enum Place {
    Sqlite(TempDir),
    /// A database of the test's own, by its URL.
    Postgres(String),
}

impl Place {
    pub(crate) fn sqlite() -> Self {
        Self::Sqlite(tempfile::tempdir().expect("directory"))
    }

    pub(crate) fn postgres() -> Self {
        Self::Postgres(Cluster::shared().database())
    }

    pub(crate) fn database(&self) -> Database {
        match self {
            Self::Sqlite(directory) => Database::Sqlite(directory.path().join("identity.db")),
            Self::Postgres(url) => url.parse().expect("a URL"),
        }
    }
}

/// Makes two tests of each: one on SQLite, and one on PostgreSQL.
macro_rules! on_both {
    ($($name:ident),* $(,)?) => {
        mod sqlite {
            $(#[tokio::test]
            async fn $name() {
                super::$name($crate::harness::Host::over($crate::harness::Place::sqlite()).await).await;
            })*
        }
        mod postgres {
            $(#[tokio::test]
            async fn $name() {
                super::$name($crate::harness::Host::over($crate::harness::Place::postgres()).await).await;
            })*
        }
    };
}
pub(crate) use on_both;

/// The admin, and the first organization.
pub(crate) struct Admin {
    pub(crate) token: Token,
    pub(crate) secret: String,
    pub(crate) founding: BootstrapResponse,
}

/// Opens the store, and waits until it is ready.
pub(crate) async fn open(database: Database, now: &Arc<AtomicI64>, tasks: &Tasks) -> Service {
    let service = open_at_once(database, now, tasks).await;
    becomes(&service, true).await;
    service
}

pub(crate) async fn open_at_once(
    database: Database,
    now: &Arc<AtomicI64>,
    tasks: &Tasks,
) -> Service {
    let now = Arc::clone(now);
    let clock = Clock::from_fn(move || Timestamp::from_millis(now.load(Ordering::SeqCst)));
    Service::open(Config { database }, clock, tasks.clone())
        .await
        .expect("opened")
}

/// Waits until the service is ready, or is not.
pub(crate) async fn becomes(service: &Service, ready: bool) {
    let mut readiness = service.readiness();
    let changed = readiness.wait_for(|is_ready| *is_ready == ready);
    let changed = tokio::time::timeout(Duration::from_secs(30), changed).await;
    drop(changed.expect("in time").expect("the service lives"));
}

impl Host {
    /// Over what is there.
    pub(crate) async fn over(place: Place) -> Self {
        let now = Arc::new(AtomicI64::new(START));
        let tasks = Tasks::new();
        let service = open(place.database(), &now, &tasks).await;
        Self {
            client: HostIdentityClient::new(local(service.clone().into_server())),
            service,
            tasks,
            now,
            place,
        }
    }

    pub(crate) async fn restart(&mut self) {
        self.service.close().await;
        self.service = open(self.place.database(), &self.now, &self.tasks).await;
        self.client = HostIdentityClient::new(local(self.service.clone().into_server()));
    }

    pub(crate) fn pass(&self, seconds: i64) {
        self.now.fetch_add(seconds * 1000, Ordering::SeqCst);
    }

    pub(crate) async fn bootstrap(&mut self) -> BootstrapResponse {
        let answer = self.client.bootstrap(BootstrapRequest::default()).await;
        answer.expect("bootstrapped").into_inner()
    }

    pub(crate) async fn admin(&mut self) -> Admin {
        let founding = self.bootstrap().await;
        let secret = founding.admin_token.clone().expect("admin token");
        let token = self.authenticate(&secret).await.expect("admin");
        Admin {
            token,
            secret,
            founding,
        }
    }

    pub(crate) async fn authenticate(&mut self, secret: &str) -> Result<Token, Status> {
        let secret = secret.to_owned();
        let answer = self
            .client
            .authenticate(AuthenticateRequest { secret })
            .await?;
        Ok(answer.into_inner().token.expect("token"))
    }

    pub(crate) async fn create(
        &mut self,
        request: CreateWorkspaceRequest,
    ) -> Result<Workspace, Status> {
        let answer = self.client.create_workspace(request).await?;
        Ok(answer.into_inner().workspace.expect("workspace"))
    }

    pub(crate) async fn workspace(&mut self, admin: &Admin, name: &str) -> Workspace {
        let request = named(&admin.token, name);
        self.create(request).await.expect("workspace")
    }

    pub(crate) async fn launch(&mut self, request: CreateLaunchRequest) -> CreateLaunchResponse {
        let answer = self.client.create_launch(request).await;
        answer.expect("launch").into_inner()
    }

    pub(crate) async fn current(&mut self, workspace: &Workspace) -> Option<Launch> {
        let workspace_id = workspace.id.clone();
        let answer = self
            .client
            .current_launch(CurrentLaunchRequest { workspace_id })
            .await;
        answer.expect("current").into_inner().launch
    }

    pub(crate) async fn launches(
        &mut self,
        token: &Token,
        workspace_id: &str,
    ) -> Result<Vec<Launch>, Status> {
        let request = ListLaunchesRequest {
            token_id: token.id.clone(),
            workspace_id: workspace_id.to_owned(),
        };
        let answer = self.client.list_launches(request).await?;
        Ok(answer.into_inner().launches)
    }

    pub(crate) async fn revoke_launch(
        &mut self,
        token: &Token,
        launch_id: &str,
    ) -> Result<Launch, Status> {
        let request = RevokeLaunchRequest {
            token_id: token.id.clone(),
            launch_id: launch_id.to_owned(),
        };
        let answer = self.client.revoke_launch(request).await?;
        Ok(answer.into_inner().launch.expect("launch"))
    }

    pub(crate) async fn agent(
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

    pub(crate) async fn revoke(&mut self, admin: &Admin, id: &str) -> Result<Token, Status> {
        let request = RevokeTokenRequest {
            token_id: admin.token.id.clone(),
            revoke_id: id.to_owned(),
        };
        let answer = self.client.revoke_token(request).await?;
        Ok(answer.into_inner().token.expect("token"))
    }

    pub(crate) async fn resolve(&mut self, token_id: &str, key: &str) -> Result<String, Status> {
        let request = ResolveConversationRequest {
            token_id: token_id.to_owned(),
            key: key.to_owned(),
        };
        let answer = self.client.resolve_conversation(request).await?;
        Ok(answer.into_inner().session_id)
    }
}

/// The next that is heard by whoever watches.
pub(crate) async fn next(
    watch: &mut Streaming<WatchRevocationsResponse>,
) -> Result<Option<WatchRevocationsResponse>, Status> {
    tokio::time::timeout(Duration::from_secs(10), watch.message())
        .await
        .expect("something is heard in time")
}

pub(crate) fn named(token: &Token, name: &str) -> CreateWorkspaceRequest {
    CreateWorkspaceRequest {
        token_id: token.id.clone(),
        name: name.to_owned(),
        ..Default::default()
    }
}

pub(crate) fn keyed(token: &Token, name: &str, key: &str) -> CreateWorkspaceRequest {
    CreateWorkspaceRequest {
        idempotency_key: key.to_owned(),
        body_sha256: Sha256::of(name.as_bytes()).to_string(),
        ..named(token, name)
    }
}

pub(crate) fn launching(
    admin: &Admin,
    workspace: &Workspace,
    intention: &str,
) -> CreateLaunchRequest {
    CreateLaunchRequest {
        token_id: admin.token.id.clone(),
        workspace_id: workspace.id.clone(),
        intention: intention.to_owned(),
        ..Default::default()
    }
}

pub(crate) fn refusal(status: Status) -> (Code, String) {
    let problem = Problem::from(status);
    (problem.kind, problem.code.into_owned())
}

#[track_caller]
pub(crate) fn refused<T: std::fmt::Debug>(answer: Result<T, Status>, kind: Code, code: &str) {
    assert_eq!(
        refusal(answer.expect_err("refused")),
        (kind, code.to_owned())
    );
}
