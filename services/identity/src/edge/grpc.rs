//! The edge's identity as a gRPC service: decode, call, encode.

use postern_kit::Failure;
use postern_proto::identity::v1::{self as pb, edge_identity_server::EdgeIdentity};
use postern_types::{ErrorCode, Id, Intention};
use tonic::{Request, Response, Status};

use super::{Call, Service, model::Pin};
use crate::Error;

#[tonic::async_trait]
impl EdgeIdentity for Service {
    async fn pin(
        &self,
        request: Request<pb::PinRequest>,
    ) -> Result<Response<pb::PinResponse>, Status> {
        let request = request.into_inner();
        let workspace_id = workspace_id(&request.workspace_id)?;
        let intention = Intention::try_from(request.intention)
            .map_err(|form| Error::invalid("invalid_intention", form.to_string()))?;
        if !request.project_path.starts_with('/') {
            return Err(Error::invalid("invalid_project", "A project's path is absolute.").into());
        }
        let pin = Pin {
            intention,
            project_path: request.project_path,
            device: request.device,
            inode: request.inode,
        };
        let changed = self.pin(&workspace_id, pin, request.repin).await?;
        Ok(Response::new(pb::PinResponse { changed }))
    }

    async fn admit(
        &self,
        request: Request<pb::AdmitRequest>,
    ) -> Result<Response<pb::AdmitResponse>, Status> {
        let request = request.into_inner();
        let call = Call {
            workspace_id: request.workspace_id,
            intention: request.intention,
            session_id: call_id(&request.session_id)?,
            pinned_workspace_id: call_id(&request.pinned_workspace_id)?,
            let_in: request.let_in,
        };
        let new_session = self.admit(call).await?;
        Ok(Response::new(pb::AdmitResponse { new_session }))
    }

    async fn list_sessions(
        &self,
        request: Request<pb::ListSessionsRequest>,
    ) -> Result<Response<pb::ListSessionsResponse>, Status> {
        let workspace_id = workspace_id(&request.get_ref().workspace_id)?;
        let sessions = self.sessions(&workspace_id).await?;
        let sessions = sessions
            .into_iter()
            .map(|session| pb::Session {
                session_id: session.session_id,
                admitted_at_ms: session.admitted_at.as_millis(),
            })
            .collect();
        Ok(Response::new(pb::ListSessionsResponse { sessions }))
    }
}

fn workspace_id(text: &str) -> Result<Id, Error> {
    text.parse::<Id>()
        .map_err(|form| Error::invalid("invalid_workspace", form.to_string()))
}

/// An id of a call. The frame's shape was checked before, so a bad one here is the caller's fault, not the agent's.
fn call_id(text: &str) -> Result<Id, Failure> {
    text.parse()
        .map_err(|_| Failure::new(ErrorCode::Internal, "The call has an id without its form."))
}
