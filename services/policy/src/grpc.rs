//! The policy as a gRPC service: decode, call, encode.

use postern_kit::Failure;
use postern_proto::policy::v1::{self as pb, policy_server::Policy};
use postern_types::{ErrorCode, Mode};
use serde_json::Value;
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
        let command = (request.tool == "workspace_exec").then(|| command(&request.args_json));
        Ok(Response::new(pb::DecideResponse {
            command: command.flatten(),
            ..decision.into()
        }))
    }
}

/// What the text of a valid command says.
fn command(args: &[u8]) -> Option<pb::Command> {
    let args: Value = serde_json::from_slice(args).ok()?;
    let command = crate::Command::read(args.get("command")?.as_str()?);
    Some(pb::Command {
        programs: command.programs.into_iter().collect(),
        writes: command.writes.into_iter().collect(),
        reads: command.reads.into_iter().collect(),
        understood: command.understood,
        plain: command.plain,
    })
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
            asking: decision.asking,
            command: None,
        }
    }
}
