//! The identity service as the host asks it.

use postern_kit::{
    Failure,
    transport::{DEADLINE, MESSAGE_LIMIT, Transport},
};
use postern_proto::identity::v1::{self as api, host_identity_client::HostIdentityClient};
use tonic::{Response, Status, Streaming};

/// A client of the identity service. Every question has a deadline.
#[derive(Clone)]
pub(crate) struct Identity {
    client: HostIdentityClient<Transport>,
}

/// One unary question under the deadline of a hop.
macro_rules! ask {
    ($identity:ident . $method:ident ($request:expr)) => {{
        let mut client = $identity.client.clone();
        within_deadline(client.$method($request)).await
    }};
}

async fn within_deadline<T>(
    answer: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<T, Status> {
    match tokio::time::timeout(DEADLINE, answer).await {
        Ok(answer) => Ok(answer?.into_inner()),
        Err(_) => Err(Status::unavailable("the identity service does not answer")),
    }
}

impl Identity {
    pub(crate) fn new(transport: Transport) -> Self {
        Self {
            client: HostIdentityClient::new(transport)
                .max_decoding_message_size(MESSAGE_LIMIT)
                .max_encoding_message_size(MESSAGE_LIMIT),
        }
    }

    /// Who holds a token. Asked for each request, so that a revoked one opens nothing more.
    pub(crate) async fn authenticate(&self, secret: String) -> Result<api::Token, Status> {
        let request = api::AuthenticateRequest { secret };
        ask!(self.authenticate(request))?
            .token
            .ok_or_else(|| Status::internal("an answer without a token"))
    }

    pub(crate) async fn create_workspace(
        &self,
        request: api::CreateWorkspaceRequest,
    ) -> Result<api::CreateWorkspaceResponse, Status> {
        ask!(self.create_workspace(request))
    }

    pub(crate) async fn list_workspaces(
        &self,
        token_id: &str,
    ) -> Result<api::ListWorkspacesResponse, Status> {
        let token_id = token_id.to_owned();
        ask!(self.list_workspaces(api::ListWorkspacesRequest { token_id }))
    }

    pub(crate) async fn create_launch(
        &self,
        request: api::CreateLaunchRequest,
    ) -> Result<api::CreateLaunchResponse, Status> {
        ask!(self.create_launch(request))
    }

    /// The launches that the caller could have created, of one workspace or all.
    pub(crate) async fn list_launches(
        &self,
        token_id: &str,
        workspace_id: Option<String>,
    ) -> Result<api::ListLaunchesResponse, Status> {
        ask!(self.list_launches(api::ListLaunchesRequest {
            token_id: token_id.to_owned(),
            workspace_id: workspace_id.unwrap_or_default(),
        }))
    }

    pub(crate) async fn revoke_launch(
        &self,
        token_id: &str,
        launch_id: String,
    ) -> Result<api::RevokeLaunchResponse, Status> {
        ask!(self.revoke_launch(api::RevokeLaunchRequest {
            token_id: token_id.to_owned(),
            launch_id,
        }))
    }

    pub(crate) async fn create_token(
        &self,
        request: api::CreateTokenRequest,
    ) -> Result<api::CreateTokenResponse, Status> {
        ask!(self.create_token(request))
    }

    pub(crate) async fn list_tokens(
        &self,
        token_id: &str,
    ) -> Result<api::ListTokensResponse, Status> {
        let token_id = token_id.to_owned();
        ask!(self.list_tokens(api::ListTokensRequest { token_id }))
    }

    pub(crate) async fn revoke_token(
        &self,
        token_id: &str,
        revoke_id: String,
    ) -> Result<api::RevokeTokenResponse, Status> {
        let token_id = token_id.to_owned();
        ask!(self.revoke_token(api::RevokeTokenRequest {
            token_id,
            revoke_id,
        }))
    }

    /// The revocations from now on.
    pub(crate) async fn watch_revocations(
        &self,
    ) -> Result<Streaming<api::WatchRevocationsResponse>, Status> {
        ask!(self.watch_revocations(api::WatchRevocationsRequest {}))
    }

    /// The newest launch that is valid. It is not kept: another host may have made a newer one.
    pub(crate) async fn current_launch(
        &self,
        workspace_id: &str,
    ) -> Result<Option<api::Launch>, Status> {
        let workspace_id = workspace_id.to_owned();
        let answer = ask!(self.current_launch(api::CurrentLaunchRequest { workspace_id }))?;
        Ok(answer.launch)
    }

    /// The newest launch's intention.
    pub(crate) async fn intention(&self, workspace_id: &str) -> Result<Option<String>, Failure> {
        let launch = self.current_launch(workspace_id).await?;
        Ok(launch.map(|launch| launch.intention))
    }

    /// The wire session of a conversation.
    pub(crate) async fn conversation(&self, token_id: &str, key: &str) -> Result<String, Failure> {
        let request = api::ResolveConversationRequest {
            token_id: token_id.to_owned(),
            key: key.to_owned(),
        };
        Ok(ask!(self.resolve_conversation(request))?.session_id)
    }
}
