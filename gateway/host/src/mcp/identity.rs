//! The two tools that the host itself answers, by the same functions as the identity API.

use http::StatusCode;
use postern_kit::Failure;
use postern_types::ErrorCode;
use serde::Serialize;
use serde_json::Value;

use crate::{access::AgentToken, identity::Identity, identity_api, problem::Problem};

/// A tool of the host.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum IdentityTool {
    /// `sosoapi_get_workspace_context`.
    WorkspaceContext,
    /// `sosoapi_create_workspace`.
    CreateWorkspace,
}

impl IdentityTool {
    /// The tool of that name.
    pub(super) fn named(name: &str) -> Option<Self> {
        match name {
            "sosoapi_get_workspace_context" => Some(Self::WorkspaceContext),
            "sosoapi_create_workspace" => Some(Self::CreateWorkspace),
            _ => None,
        }
    }
}

/// Calls a tool of the host: its structured answer.
///
/// # Errors
/// What the arguments, the role or the identity service refuse.
pub(super) async fn call(
    identity: &Identity,
    token: &AgentToken,
    tool: IdentityTool,
    args: &str,
) -> Result<Value, Failure> {
    match tool {
        IdentityTool::WorkspaceContext => {
            structured(identity_api::workspace_list(identity, token.id(), args).await)
        }
        IdentityTool::CreateWorkspace => {
            let role = Some(token.role);
            structured(identity_api::workspace_create(identity, token.id(), role, args).await)
        }
    }
}

fn structured(answer: Result<impl Serialize, Problem>) -> Result<Value, Failure> {
    let answer = answer.map_err(failure)?;
    serde_json::to_value(answer)
        .map_err(|_| Failure::new(ErrorCode::Internal, "The answer could not be written."))
}

/// The identity API's refusal in the words of tool calls; its own code stays in the details.
fn failure(problem: Problem) -> Failure {
    let code = match problem.status {
        StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY => ErrorCode::InvalidArguments,
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => ErrorCode::PermissionDenied,
        StatusCode::NOT_FOUND => ErrorCode::NotFound,
        StatusCode::CONFLICT if problem.code == "idempotency_key_reused" => ErrorCode::IdReused,
        StatusCode::CONFLICT => ErrorCode::AlreadyExists,
        StatusCode::TOO_MANY_REQUESTS => ErrorCode::Busy,
        StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => ErrorCode::Unavailable,
        _ => ErrorCode::Internal,
    };
    Failure::new(code, problem.detail).with("reason", problem.code)
}

#[cfg(test)]
mod tests {
    use postern_proto::catalogue;
    use pretty_assertions::assert_eq;

    use super::*;

    #[test]
    fn every_identity_tool_of_the_catalogue_is_answered() {
        for tool in catalogue::identity_tools() {
            assert!(IdentityTool::named(&tool.name).is_some(), "{}", tool.name);
        }
        assert_eq!(IdentityTool::named("workspace_read"), None);
    }

    #[test]
    fn refusals_keep_their_reason() {
        let problem = Problem::new(
            StatusCode::CONFLICT,
            "idempotency_key_reused",
            "Other body.",
        );
        let told = failure(problem);
        assert_eq!(
            (told.code, told.details["reason"].as_str()),
            (ErrorCode::IdReused, Some("idempotency_key_reused"))
        );
    }
}
