//! What the policy says of a call, together with what the owner has granted in this session.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
};

use postern_kit::{Failure, transport::Transport};
use postern_proto::policy::v1::{self as policy, policy_client::PolicyClient};
use postern_types::{ErrorCode, Mode};

use crate::{
    args,
    call::Call,
    clients::{Clients, hop, is_passing},
    config::Config,
    control::{Control, Wish},
};

/// Grants that are remembered at once. Beyond it the owner is asked again.
const MAX_GRANTS: usize = 1024;
/// What stands in a receipt as the deciding rule when the owner had approved the like before.
const GRANT_POLICY_ID: &str = "owner.session-approval";

/// May the call go ahead?
#[derive(Clone, Debug)]
pub(super) enum Verdict {
    /// Yes, unattended, as long as the owner's wish is still this one.
    Allow { policy_id: String, wish: Wish },
    /// Once the owner has said so.
    Ask { policy_id: String },
    /// No: unknown tool, invalid arguments, or no permission.
    Refuse { failure: Failure, policy_id: String },
    /// The policy does not answer, which means no for now.
    Away(Failure),
}

/// Calls that the owner approved for a session at once.
#[derive(Debug, Eq, Hash, PartialEq)]
struct Grant {
    session_id: String,
    tool: String,
    /// For a command its exact text and directory: another command is another question.
    command: Option<(String, String)>,
    /// The channel during which it was given. A grant ends with its channel.
    channel: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Judge {
    policy: PolicyClient<Transport>,
    control: Control,
    project_path: Arc<str>,
    grants: Arc<Mutex<HashSet<Grant>>>,
}

impl Judge {
    pub(super) fn new(config: &Config, clients: &Clients, control: Control) -> Self {
        Self {
            policy: clients.policy.clone(),
            control,
            project_path: config
                .path_for_rules
                .as_ref()
                .and_then(|path| path.to_str())
                .unwrap_or_default()
                .into(),
            grants: Arc::default(),
        }
    }

    /// Asks the policy with the mode of this moment.
    pub(super) async fn judge(&self, call: &Call) -> Verdict {
        let wish = self.control.wish();
        let request = policy::DecideRequest {
            workspace_id: call.workspace_id.clone(),
            session_id: call.session_id.clone(),
            tool: call.tool.clone(),
            args_json: call.args_bytes(),
            mode: mode(wish.mode).into(),
            project_path: self.project_path.to_string(),
        };
        let decision = match hop(self.policy.clone().decide(request)).await {
            Ok(decision) => decision,
            Err(failure) if is_passing(failure.code) || failure.code == ErrorCode::Internal => {
                return Verdict::Away(failure);
            }
            Err(failure) => {
                let policy_id = String::new();
                return Verdict::Refuse { failure, policy_id };
            }
        };
        let policy_id = decision.policy_id.clone();
        match decision.verdict() {
            policy::Verdict::Allow => Verdict::Allow { policy_id, wish },
            policy::Verdict::Ask if self.is_granted(call) => Verdict::Allow {
                policy_id: GRANT_POLICY_ID.to_owned(),
                wish,
            },
            policy::Verdict::Ask => Verdict::Ask { policy_id },
            policy::Verdict::Deny | policy::Verdict::Unspecified => {
                denied(&decision.reason, policy_id)
            }
        }
    }

    /// Remembers that calls like this one may go ahead in this session, until the channel closes.
    pub(super) fn grant(&self, call: &Call) {
        let Some(channel) = self.control.connected_generation() else {
            return;
        };
        let mut grants = self.grants.lock().unwrap_or_else(PoisonError::into_inner);
        grants.retain(|grant| grant.channel == channel);
        if grants.len() < MAX_GRANTS
            && let Some(grant) = grant_for(call, channel)
        {
            grants.insert(grant);
        }
    }

    fn is_granted(&self, call: &Call) -> bool {
        let Some(channel) = self.control.connected_generation() else {
            return false;
        };
        let grants = self.grants.lock().unwrap_or_else(PoisonError::into_inner);
        !grants.is_empty() && grant_for(call, channel).is_some_and(|grant| grants.contains(&grant))
    }
}

fn grant_for(call: &Call, channel: u64) -> Option<Grant> {
    let command = if call.tool == "workspace_exec" {
        let exec = args::read::<args::Exec>(call).ok()?;
        Some((exec.command, exec.cwd))
    } else {
        None
    };
    Some(Grant {
        session_id: call.session_id.clone(),
        tool: call.tool.clone(),
        command,
        channel,
    })
}

fn denied(reason: &str, policy_id: String) -> Verdict {
    let reason = if reason.is_empty() {
        "The owner's mode and rules do not permit this call."
    } else {
        reason
    };
    let failure =
        Failure::new(ErrorCode::PermissionDenied, reason).with("policy", policy_id.as_str());
    Verdict::Refuse { failure, policy_id }
}

const fn mode(mode: Mode) -> policy::Mode {
    match mode {
        Mode::ReadOnly => policy::Mode::ReadOnly,
        Mode::Ask => policy::Mode::Ask,
        Mode::Edit => policy::Mode::Edit,
        Mode::Full => policy::Mode::Full,
    }
}
