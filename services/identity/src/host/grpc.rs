//! The host's identity as a gRPC service: decode, call, encode.

use std::pin::Pin;

use futures_util::{Stream, StreamExt as _};
use postern_kit::Problem;
use postern_proto::identity::v1::{self as pb, host_identity_server::HostIdentity};
use postern_types::{Intention, Timestamp};
use tokio_stream::wrappers::{BroadcastStream, errors::BroadcastStreamRecvError};
use tonic::{Code, Request, Response, Status};

use super::{
    Service,
    follow::Sign,
    model::{Idempotency, Launch, Revocation, Role, Scope, Token, Workspace},
};
use crate::{
    Error,
    secret::{Kind, Secret},
};

#[tonic::async_trait]
impl HostIdentity for Service {
    type WatchRevocationsStream =
        Pin<Box<dyn Stream<Item = Result<pb::WatchRevocationsResponse, Status>> + Send>>;

    async fn bootstrap(
        &self,
        _request: Request<pb::BootstrapRequest>,
    ) -> Result<Response<pb::BootstrapResponse>, Status> {
        let (founding, secret) = self.bootstrap().await?;
        Ok(Response::new(pb::BootstrapResponse {
            organization_id: founding.organization_id,
            principal_id: founding.principal_id,
            admin_token: secret.map(Secret::into_exposed),
        }))
    }

    async fn authenticate(
        &self,
        request: Request<pb::AuthenticateRequest>,
    ) -> Result<Response<pb::AuthenticateResponse>, Status> {
        let (token, workspaces) = self.authenticate(&request.get_ref().secret)?;
        Ok(Response::new(pb::AuthenticateResponse {
            token: Some(token_message(&token, workspaces)),
        }))
    }

    async fn create_workspace(
        &self,
        request: Request<pb::CreateWorkspaceRequest>,
    ) -> Result<Response<pb::CreateWorkspaceResponse>, Status> {
        let request = request.into_inner();
        let idempotency = Idempotency::parse(request.idempotency_key, &request.body_sha256)?;
        let workspace = self
            .create_workspace(
                &request.token_id,
                request.name,
                request.organization_id,
                idempotency,
            )
            .await?;
        Ok(Response::new(pb::CreateWorkspaceResponse {
            workspace: Some(workspace),
        }))
    }

    async fn list_workspaces(
        &self,
        request: Request<pb::ListWorkspacesRequest>,
    ) -> Result<Response<pb::ListWorkspacesResponse>, Status> {
        let (active_workspace_id, workspaces) =
            self.list_workspaces(&request.get_ref().token_id).await?;
        Ok(Response::new(pb::ListWorkspacesResponse {
            active_workspace_id,
            workspaces: workspaces.into_iter().map(Into::into).collect(),
        }))
    }

    async fn create_launch(
        &self,
        request: Request<pb::CreateLaunchRequest>,
    ) -> Result<Response<pb::CreateLaunchResponse>, Status> {
        let request = request.into_inner();
        let intention = intention(request.intention)?;
        let (launch, secret) = self
            .create_launch(
                &request.token_id,
                request.workspace_id,
                intention,
                request.expires_in_seconds,
                request.channel_token_id,
            )
            .await?;
        Ok(Response::new(pb::CreateLaunchResponse {
            launch: Some(launch.into()),
            secret: secret.map(Secret::into_exposed),
        }))
    }

    async fn current_launch(
        &self,
        request: Request<pb::CurrentLaunchRequest>,
    ) -> Result<Response<pb::CurrentLaunchResponse>, Status> {
        let launch = self.current_launch(&request.get_ref().workspace_id).await?;
        Ok(Response::new(pb::CurrentLaunchResponse {
            launch: launch.map(Into::into),
        }))
    }

    async fn list_launches(
        &self,
        request: Request<pb::ListLaunchesRequest>,
    ) -> Result<Response<pb::ListLaunchesResponse>, Status> {
        let request = request.into_inner();
        let workspace_id = Some(request.workspace_id).filter(|id| !id.is_empty());
        let launches = self.list_launches(&request.token_id, workspace_id).await?;
        Ok(Response::new(pb::ListLaunchesResponse {
            launches: launches.into_iter().map(Into::into).collect(),
        }))
    }

    async fn revoke_launch(
        &self,
        request: Request<pb::RevokeLaunchRequest>,
    ) -> Result<Response<pb::RevokeLaunchResponse>, Status> {
        let request = request.into_inner();
        let launch = self
            .revoke_launch(&request.token_id, request.launch_id)
            .await?;
        Ok(Response::new(pb::RevokeLaunchResponse {
            launch: Some(launch.into()),
        }))
    }

    async fn create_token(
        &self,
        request: Request<pb::CreateTokenRequest>,
    ) -> Result<Response<pb::CreateTokenResponse>, Status> {
        let request = request.into_inner();
        let role = role(request.role())?;
        let (token, secret) = self
            .create_token(
                &request.token_id,
                request.workspace_id,
                role,
                request.expires_in_seconds,
            )
            .await?;
        let workspaces = token.active.iter().map(|(id, _)| id.clone()).collect();
        Ok(Response::new(pb::CreateTokenResponse {
            token: Some(token_message(&token, workspaces)),
            secret: secret.into_exposed(),
        }))
    }

    async fn list_tokens(
        &self,
        request: Request<pb::ListTokensRequest>,
    ) -> Result<Response<pb::ListTokensResponse>, Status> {
        let tokens = self.list_tokens(&request.get_ref().token_id).await?;
        let tokens = tokens
            .into_iter()
            .map(|(token, workspaces)| token_message(&token, workspaces))
            .collect();
        Ok(Response::new(pb::ListTokensResponse { tokens }))
    }

    async fn revoke_token(
        &self,
        request: Request<pb::RevokeTokenRequest>,
    ) -> Result<Response<pb::RevokeTokenResponse>, Status> {
        let request = request.into_inner();
        let (token, workspaces) = self
            .revoke_token(&request.token_id, request.revoke_id)
            .await?;
        Ok(Response::new(pb::RevokeTokenResponse {
            token: Some(token_message(&token, workspaces)),
        }))
    }

    async fn watch_revocations(
        &self,
        _request: Request<pb::WatchRevocationsRequest>,
    ) -> Result<Response<Self::WatchRevocationsStream>, Status> {
        let revocations = BroadcastStream::new(self.watch_revocations()).map(|next| match next {
            Ok(Sign::Revoked(revocation)) => Ok(revocation.into()),
            Ok(Sign::Missed) | Err(BroadcastStreamRecvError::Lagged(_)) => Err(lagged()),
        });
        let stopping = self.0.tasks.stopping().cancelled_owned();
        Ok(Response::new(Box::pin(revocations.take_until(stopping))))
    }

    async fn resolve_conversation(
        &self,
        request: Request<pb::ResolveConversationRequest>,
    ) -> Result<Response<pb::ResolveConversationResponse>, Status> {
        let request = request.into_inner();
        let session_id = self
            .resolve_conversation(&request.token_id, request.key)
            .await?;
        Ok(Response::new(pb::ResolveConversationResponse {
            session_id,
        }))
    }
}

/// A watcher that fell behind has missed revocations: it must watch anew and ask again about every token it has let in.
fn lagged() -> Status {
    Problem::new(
        Code::DataLoss,
        "watch_lagged",
        "Revocations were missed. Watch again, and authenticate what is open anew.",
    )
    .into()
}

/// PostgreSQL stores no NUL, so neither store takes one.
fn intention(text: String) -> Result<Intention, Error> {
    let refused = || {
        Error::invalid(
            "invalid_intention",
            "An intention is 1 to 4000 characters, and none of them is NUL.",
        )
    };
    let intention = Intention::try_from(text).map_err(|_| refused())?;
    if intention.as_str().contains('\0') {
        return Err(refused());
    }
    Ok(intention)
}

fn role(role: pb::Role) -> Result<Role, Error> {
    match role {
        pb::Role::Owner => Ok(Role::Owner),
        pb::Role::Editor => Ok(Role::Editor),
        pb::Role::Reviewer => Ok(Role::Reviewer),
        pb::Role::Viewer => Ok(Role::Viewer),
        pb::Role::Unspecified => Err(Error::invalid(
            "invalid_role",
            "A role is one of owner, editor, reviewer, viewer.",
        )),
    }
}

impl From<Role> for pb::Role {
    fn from(role: Role) -> Self {
        match role {
            Role::Owner => Self::Owner,
            Role::Editor => Self::Editor,
            Role::Reviewer => Self::Reviewer,
            Role::Viewer => Self::Viewer,
        }
    }
}

fn token_message(token: &Token, workspace_ids: Vec<String>) -> pb::Token {
    let kind = match token.kind {
        Kind::Admin => pb::TokenKind::Admin,
        Kind::Agent => pb::TokenKind::Agent,
        Kind::Channel => pb::TokenKind::Channel,
        Kind::Owner => pb::TokenKind::Owner,
    };
    let role = token
        .active
        .as_ref()
        .map_or(pb::Role::Unspecified, |(_, role)| (*role).into());
    pb::Token {
        id: token.id.clone(),
        kind: kind.into(),
        scopes: Scope::of(token.kind)
            .iter()
            .map(|scope| scope.as_str().to_owned())
            .collect(),
        principal_id: token.principal_id.clone(),
        organization_id: token.organization_id.clone(),
        workspace_ids,
        role: role.into(),
        created_at_ms: token.created_at.as_millis(),
        expires_at_ms: token.expires_at.map(Timestamp::as_millis),
        revoked_at_ms: token.revoked_at.map(Timestamp::as_millis),
    }
}

impl From<Workspace> for pb::Workspace {
    fn from(workspace: Workspace) -> Self {
        Self {
            id: workspace.id,
            organization_id: workspace.organization_id,
            slug: workspace.slug,
            name: workspace.name,
            created_at_ms: workspace.created_at.as_millis(),
            version: u64::try_from(workspace.version).unwrap_or_default(),
            role: pb::Role::from(workspace.role).into(),
        }
    }
}

impl From<Revocation> for pb::WatchRevocationsResponse {
    fn from(revocation: Revocation) -> Self {
        Self {
            token_id: revocation.token_id,
            workspace_id: revocation.workspace_id.unwrap_or_default(),
        }
    }
}

impl From<Launch> for pb::Launch {
    fn from(launch: Launch) -> Self {
        Self {
            id: launch.id,
            workspace_id: launch.workspace_id,
            intention: launch.intention.into(),
            token_id: launch.token_id,
            created_at_ms: launch.created_at.as_millis(),
            expires_at_ms: launch.expires_at.map(Timestamp::as_millis),
            revoked_at_ms: launch.revoked_at.map(Timestamp::as_millis),
        }
    }
}
