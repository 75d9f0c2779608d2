//! The policy as a gRPC service: decode, call, encode.

use postern_kit::Failure;
use postern_proto::policy::v1::{self as pb, policy_server::Policy};
use postern_types::{ErrorCode, Mode};
use tonic::{Response, Status};

use crate::{
    Request, Service,
    rules::{Decision, Verdict},
};

#[tonic::async_trait]
impl Policy for Service {
    async fn decide(
        &self,
        request: tonic::Request<pb::DecideRequest>,
    ) -> Result<Response<pb::DecideResponse>, Status> {
        let request = request.get_ref();
        let decision = self.judge(&Request {
            workspace_id: &request.workspace_id,
            session_id: &request.session_id,
            tool: &request.tool,
            args: &request.args_json,
            mode: mode(request.mode)?,
            project_path: &request.project_path,
            place: &request.place,
        })?;
        Ok(Response::new(decision.into()))
    }
}

/// The mode, if it is one. A mode that is not understood permits nothing.
fn mode(number: i32) -> Result<Mode, Failure> {
    match pb::Mode::try_from(number) {
        Ok(pb::Mode::ReadOnly) => Ok(Mode::ReadOnly),
        Ok(pb::Mode::Ask) => Ok(Mode::Ask),
        Ok(pb::Mode::Edit) => Ok(Mode::Edit),
        Ok(pb::Mode::Full) => Ok(Mode::Full),
        Ok(pb::Mode::Unspecified) | Err(_) => Err(Failure::new(
            ErrorCode::Internal,
            "The call came without a mode that the policy service knows.",
        )),
    }
}

impl From<Decision> for pb::DecideResponse {
    fn from(decision: Decision) -> Self {
        let verdict = match decision.verdict {
            Verdict::Allow => pb::Verdict::Allow,
            Verdict::Ask => pb::Verdict::Ask,
            Verdict::Deny => pb::Verdict::Deny,
        };
        Self {
            verdict: verdict.into(),
            policy_id: decision.policy_id,
            reason: decision.reason,
        }
    }
}
