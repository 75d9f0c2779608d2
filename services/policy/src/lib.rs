//! Policy service: a pure decision over one call. Tool known, arguments valid, permission; it has no effect and keeps nothing
//! of calls.
//!
//! Invariants:
//! - A mode permits (`rules/modes.cedar`), the owner's rules only forbid: no owner's file can widen a mode.
//! - What cannot be read or understood means no: a broken rule file stops the start, a rule that fails denies the call.
//! - Every decision names the rule that made it.
//! - A message never repeats more than a few characters of what the agent sent.
//!
//! Deliberately not here: paths on disk and links (the filesystem service refuses what leaves the project), what a shell
//! does with a command's text (the sandbox is the boundary), approvals.

mod arguments;
mod call;
mod error;
#[cfg(feature = "fault-points")]
mod fault_points;
mod grpc;
mod rules;

use std::path::PathBuf;

use postern_kit::{Failure, transport::MESSAGE_LIMIT};
use postern_proto::{catalogue, policy::v1::policy_server::PolicyServer};
use postern_types::Mode;

use self::{
    arguments::Schemas,
    call::Call,
    rules::{Decision, Rules},
};
pub use error::Error;
#[cfg(feature = "fault-points")]
pub use fault_points::ALL as FAULT_POINTS;

/// What the owner has decided beforehand.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// Directory of the owner's rules, `*.cedar`. Without one the mode alone decides.
    pub owner_policies: Option<PathBuf>,
}

/// The policy service.
#[derive(Debug)]
pub struct Service {
    schemas: Schemas,
    rules: Rules,
}

impl Service {
    /// Compiles the catalogue's schemas and reads the rules. Reads files, so it belongs to a start.
    ///
    /// # Errors
    /// When a file of the owner's rules cannot be read, is broken, holds no rule, or permits anything.
    pub fn new(config: Config) -> Result<Self, Error> {
        Ok(Self {
            schemas: Schemas::compile(catalogue::workspace_tools())?,
            rules: Rules::load(config.owner_policies.as_deref())?,
        })
    }

    /// The gRPC server.
    #[must_use]
    pub fn into_server(self) -> PolicyServer<Self> {
        PolicyServer::new(self)
            .max_decoding_message_size(MESSAGE_LIMIT)
            .max_encoding_message_size(MESSAGE_LIMIT)
    }

    /// Decides over a call. The order is the contract's (CONTRACT.md, section 2, steps 6 to 8).
    fn decide(&self, request: &Request<'_>) -> Result<Decision, Failure> {
        let arguments = self.schemas.check(request.tool, request.args)?;
        let call = Call::new(request, &arguments)?;
        postern_kit::fault_point!(crate::fault_points::PERMISSION_BEFORE);
        let decision = self.rules.decide(&call);
        postern_kit::fault_point!(crate::fault_points::PERMISSION_AFTER);
        Ok(decision)
    }
}

/// A call as the edge received it.
#[derive(Clone, Copy, Debug)]
struct Request<'a> {
    workspace_id: &'a str,
    session_id: &'a str,
    tool: &'a str,
    args: &'a [u8],
    mode: Mode,
}
