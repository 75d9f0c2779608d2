//! Calls of agents on their way to a workspace.

use std::sync::Arc;

use postern_kit::Failure;
use postern_types::ErrorCode;
use serde_json::value::RawValue;

use crate::access::AgentToken;

/// One tool call of an agent that has shown its token.
#[derive(Debug)]
pub(crate) struct AgentCall {
    /// Who calls.
    pub(crate) token: Arc<AgentToken>,
    /// Key of the conversation, 1 to 200 visible ASCII characters; empty means the token itself.
    pub(crate) conversation: String,
    /// Id given by the client, to ask again for a lost answer; a fresh one otherwise.
    pub(crate) call_id: Option<String>,
    /// A `workspace_*` tool.
    pub(crate) tool: String,
    /// Its arguments: one JSON object.
    pub(crate) args: Box<RawValue>,
}

/// What came back.
#[derive(Clone, Debug)]
pub(crate) struct CallOutcome {
    /// Id of the call, by which its answer can be asked for again.
    pub(crate) call_id: String,
    /// MCP `CallToolResult`, as it came.
    pub(crate) result: Arc<RawValue>,
}

/// The way to the workspaces.
#[derive(Clone, Debug)]
pub(crate) struct Calls {}

impl Calls {
    /// Makes a call, or joins the one of the same id. Dropping the future ends the waiting; a call that was sent goes on,
    /// and its answer can be asked for by its id.
    ///
    /// # Errors
    /// What the host itself refuses. Its details hold `callId` once there is one.
    pub(crate) async fn call(&self, call: AgentCall) -> Result<CallOutcome, Failure> {
        let _ = (
            call.token,
            call.conversation,
            call.call_id,
            call.tool,
            call.args,
        );
        Err(Failure::new(
            ErrorCode::Unavailable,
            "The workspace has no channel.",
        ))
    }
}
