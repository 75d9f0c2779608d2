//! An identity service in memory.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use postern_kit::Problem;
use postern_proto::identity::v1::{
    self as api, Role, Token, TokenKind, host_identity_server::HostIdentity,
};
use tokio::sync::broadcast;
use tokio_stream::{Stream, StreamExt as _, wrappers::BroadcastStream};
use tonic::{Code, Request, Response, Status};

type Answer<T> = Result<Response<T>, Status>;

struct State {
    tokens: HashMap<String, Token>,
    launches: HashMap<String, api::Launch>,
    sessions: HashMap<(String, String), String>,
    asked: Vec<String>,
    revocations: broadcast::Sender<api::WatchRevocationsResponse>,
    away: bool,
}

#[derive(Clone)]
pub(super) struct Identity(Arc<Mutex<State>>);

impl Default for Identity {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(State {
            tokens: HashMap::new(),
            launches: HashMap::new(),
            sessions: HashMap::new(),
            asked: Vec::new(),
            revocations: broadcast::Sender::new(16),
            away: false,
        })))
    }
}

impl Identity {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().expect("state")
    }

    /// Adds a token and gives its secret.
    pub(super) fn token(
        &self,
        id: &str,
        kind: TokenKind,
        change: impl FnOnce(&mut Token),
    ) -> String {
        let mut token = Token {
            id: id.to_owned(),
            ..Token::default()
        };
        token.set_kind(kind);
        token.set_role(Role::Owner);
        if kind == TokenKind::Agent {
            token.scopes = vec!["agent:operate".to_owned()];
        }
        change(&mut token);
        let secret = format!("secret-of-{id}");
        self.state().tokens.insert(secret.clone(), token);
        secret
    }

    /// The token of a secret.
    pub(super) fn shown(&self, secret: &str) -> Option<Token> {
        self.state().tokens.get(secret).cloned()
    }

    pub(super) fn channel_token(&self, id: &str, workspaces: &[&str]) -> String {
        self.token(id, TokenKind::Channel, |token| {
            token.workspace_ids = workspaces.iter().map(|id| (*id).to_owned()).collect();
        })
    }

    pub(super) fn launch(&self, workspace_id: &str, intention: &str) {
        let launch = api::Launch {
            workspace_id: workspace_id.to_owned(),
            intention: intention.to_owned(),
            token_id: format!("channel-of-{workspace_id}"),
            ..api::Launch::default()
        };
        self.state()
            .launches
            .insert(workspace_id.to_owned(), launch);
    }

    /// Gives the workspace's launch an id.
    pub(super) fn name_launch(&self, workspace_id: &str, id: &str) {
        if let Some(launch) = self.state().launches.get_mut(workspace_id) {
            id.clone_into(&mut launch.id);
        }
    }

    pub(super) fn end_launch(&self, workspace_id: &str) {
        self.state().launches.remove(workspace_id);
    }

    pub(super) fn revoke(&self, id: &str) {
        let mut state = self.state();
        state.tokens.retain(|_, token| token.id != id);
        let _nobody = state.revocations.send(api::WatchRevocationsResponse {
            token_id: id.to_owned(),
            workspace_id: String::new(),
        });
    }

    /// From now on it does not say who anybody is.
    pub(super) fn go_away(&self) {
        self.state().away = true;
    }

    /// Names of the changing methods that were asked.
    pub(super) fn asked(&self) -> Vec<String> {
        self.state().asked.clone()
    }

    fn note(&self, request: impl std::fmt::Debug) {
        self.state().asked.push(format!("{request:?}"));
    }
}

fn refused(kind: Code, code: &'static str) -> Status {
    Problem::new(kind, code, "refused").into()
}

#[tonic::async_trait]
impl HostIdentity for Identity {
    type WatchRevocationsStream =
        std::pin::Pin<Box<dyn Stream<Item = Result<api::WatchRevocationsResponse, Status>> + Send>>;

    async fn bootstrap(&self, _: Request<api::BootstrapRequest>) -> Answer<api::BootstrapResponse> {
        Err(Status::unimplemented("no bootstrap"))
    }

    async fn authenticate(
        &self,
        request: Request<api::AuthenticateRequest>,
    ) -> Answer<api::AuthenticateResponse> {
        if self.state().away {
            return Err(Status::unavailable("away"));
        }
        let token = self.shown(&request.get_ref().secret);
        let token = token.ok_or_else(|| refused(Code::Unauthenticated, "unknown_token"))?;
        Ok(Response::new(api::AuthenticateResponse {
            token: Some(token),
        }))
    }

    async fn create_workspace(
        &self,
        request: Request<api::CreateWorkspaceRequest>,
    ) -> Answer<api::CreateWorkspaceResponse> {
        self.note(request.get_ref());
        if request.get_ref().name == "taken" {
            return Err(refused(Code::AlreadyExists, "idempotency_key_reused"));
        }
        if request.get_ref().name == "revoked meanwhile" {
            return Err(refused(Code::Unauthenticated, "invalid_token"));
        }
        let workspace = api::Workspace {
            id: "11111111-1111-4111-8111-111111111111".to_owned(),
            organization_id: "22222222-2222-4222-8222-222222222222".to_owned(),
            slug: "example".to_owned(),
            name: request.into_inner().name,
            created_at_ms: 1_700_000_000_123,
            version: 1,
            role: Role::Owner.into(),
        };
        Ok(Response::new(api::CreateWorkspaceResponse {
            workspace: Some(workspace),
        }))
    }

    async fn list_workspaces(
        &self,
        _: Request<api::ListWorkspacesRequest>,
    ) -> Answer<api::ListWorkspacesResponse> {
        let workspace = api::Workspace {
            id: "w".to_owned(),
            slug: "slug".to_owned(),
            name: "Name".to_owned(),
            version: 3,
            role: Role::Editor.into(),
            ..api::Workspace::default()
        };
        let answer = api::ListWorkspacesResponse {
            active_workspace_id: None,
            workspaces: vec![workspace],
        };
        Ok(Response::new(answer))
    }

    async fn create_launch(
        &self,
        request: Request<api::CreateLaunchRequest>,
    ) -> Answer<api::CreateLaunchResponse> {
        self.note(request.get_ref());
        let request = request.into_inner();
        let launch = api::Launch {
            id: "launch".to_owned(),
            workspace_id: request.workspace_id,
            intention: request.intention,
            token_id: "token".to_owned(),
            created_at_ms: 0,
            expires_at_ms: None,
            revoked_at_ms: None,
        };
        let secret = request
            .channel_token_id
            .is_empty()
            .then(|| "minted".to_owned());
        Ok(Response::new(api::CreateLaunchResponse {
            launch: Some(launch),
            secret,
        }))
    }

    async fn current_launch(
        &self,
        request: Request<api::CurrentLaunchRequest>,
    ) -> Answer<api::CurrentLaunchResponse> {
        let launch = self
            .state()
            .launches
            .get(&request.get_ref().workspace_id)
            .cloned();
        Ok(Response::new(api::CurrentLaunchResponse { launch }))
    }

    async fn list_launches(
        &self,
        _: Request<api::ListLaunchesRequest>,
    ) -> Answer<api::ListLaunchesResponse> {
        let launches = self.state().launches.values().cloned().collect();
        Ok(Response::new(api::ListLaunchesResponse { launches }))
    }

    async fn revoke_launch(
        &self,
        request: Request<api::RevokeLaunchRequest>,
    ) -> Answer<api::RevokeLaunchResponse> {
        let id = request.into_inner().launch_id;
        let mut state = self.state();
        let launch = state.launches.values_mut().find(|launch| launch.id == id);
        let launch = launch.ok_or_else(|| refused(Code::NotFound, "unknown_launch"))?;
        launch.revoked_at_ms.get_or_insert(1_700_000_000_456);
        Ok(Response::new(api::RevokeLaunchResponse {
            launch: Some(launch.clone()),
        }))
    }

    async fn create_token(
        &self,
        request: Request<api::CreateTokenRequest>,
    ) -> Answer<api::CreateTokenResponse> {
        self.note(request.get_ref());
        let mut token = Token {
            id: "token".to_owned(),
            ..Token::default()
        };
        token.set_kind(TokenKind::Agent);
        token.set_role(request.get_ref().role());
        token.workspace_ids = vec![request.into_inner().workspace_id];
        Ok(Response::new(api::CreateTokenResponse {
            token: Some(token),
            secret: "minted".to_owned(),
        }))
    }

    async fn list_tokens(
        &self,
        _: Request<api::ListTokensRequest>,
    ) -> Answer<api::ListTokensResponse> {
        let tokens = self.state().tokens.values().cloned().collect();
        Ok(Response::new(api::ListTokensResponse { tokens }))
    }

    async fn revoke_token(
        &self,
        request: Request<api::RevokeTokenRequest>,
    ) -> Answer<api::RevokeTokenResponse> {
        let id = request.into_inner().revoke_id;
        let token = self
            .state()
            .tokens
            .values()
            .find(|token| token.id == id)
            .cloned();
        let token = token.ok_or_else(|| refused(Code::NotFound, "unknown_token"))?;
        self.revoke(&id);
        Ok(Response::new(api::RevokeTokenResponse {
            token: Some(token),
        }))
    }

    async fn watch_revocations(
        &self,
        _: Request<api::WatchRevocationsRequest>,
    ) -> Answer<Self::WatchRevocationsStream> {
        let revoked = BroadcastStream::new(self.state().revocations.subscribe())
            .filter_map(Result::ok)
            .map(Ok);
        Ok(Response::new(Box::pin(revoked)))
    }

    async fn resolve_conversation(
        &self,
        request: Request<api::ResolveConversationRequest>,
    ) -> Answer<api::ResolveConversationResponse> {
        let request = request.into_inner();
        let mut state = self.state();
        let fresh = format!("session-{}", state.sessions.len());
        let session_id = state
            .sessions
            .entry((request.token_id, request.key))
            .or_insert(fresh)
            .clone();
        Ok(Response::new(api::ResolveConversationResponse {
            session_id,
        }))
    }
}
