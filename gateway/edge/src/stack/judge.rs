//! What the policy says of a call, together with what the owner has granted in this session.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use postern_kit::{Failure, transport::Transport};
use postern_proto::policy::v1::{self as policy, policy_client::PolicyClient};
use postern_types::{ErrorCode, Mode, Sha256};
use serde_json::json;

use crate::{
    args,
    call::Call,
    clients::{Clients, hop, is_passing, policy_mode},
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
    Ask(Asked),
    /// No: unknown tool, invalid arguments, or no permission.
    Refuse { failure: Failure, policy_id: String },
    /// The policy does not answer, which means no for now.
    Away(Failure),
}

/// Why the owner is asked.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    /// The deciding rule.
    pub(super) policy_id: String,
    /// Every rule that asks, that one first.
    pub(super) rules: Vec<String>,
    /// What the text of a command says of what it does.
    pub(super) command: Option<policy::Command>,
}

/// Calls that the owner approved for a session at once.
#[derive(Debug, Eq, PartialEq)]
struct Grant {
    session_id: String,
    tool: String,
    subject: Subject,
    /// The rules that asked. What another rule asks about is another question.
    askers: Vec<String>,
    /// The channel during which it was given. A grant ends with its channel.
    channel: u64,
}

/// What of its arguments a call has to share with the approved one.
#[derive(Debug, Eq, PartialEq)]
enum Subject {
    /// Nothing: the tool is enough.
    Tool,
    /// Programs that a command starts, and files that its redirections write: the like may do as much or less.
    Programs {
        programs: BTreeSet<String>,
        writes: BTreeSet<String>,
        directory: String,
    },
    /// The exact text of a command, and its directory, where the text does not say what it starts.
    Command { text: String, directory: String },
    /// The command that is typed to.
    Input { command_id: String },
    /// The owner's own tool, as its server described it then: one that is another now was not approved.
    OwnerTool {
        name: String,
        described: Option<Sha256>,
    },
}

#[derive(Clone, Debug)]
pub(super) struct Judge {
    policy: PolicyClient<Transport>,
    control: Control,
    project_path: Arc<str>,
    grants: Arc<Mutex<Vec<Grant>>>,
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

    /// Asks the policy with the mode of this moment. `place` is where links lead the call's path, as far as is known.
    pub(super) async fn judge(&self, call: &Call, place: Option<&str>) -> Verdict {
        let wish = self.control.wish();
        let decision = self.decide(call, place, wish.mode).await;
        self.verdict(call, place, wish, decision).await
    }

    /// As [`Judge::judge`], for reading what a call names instead of the call.
    pub(super) async fn judge_reading(
        &self,
        call: &Call,
        path: &str,
        place: Option<&str>,
    ) -> Verdict {
        let wish = self.control.wish();
        let reading = policy::DecideRequest {
            tool: "workspace_read".to_owned(),
            args_json: json!({"path": path}).to_string().into(),
            ..self.request(call, place, wish.mode)
        };
        let decision = hop(self.policy.clone().decide(reading)).await;
        self.verdict(call, place, wish, decision).await
    }

    async fn verdict(
        &self,
        call: &Call,
        place: Option<&str>,
        wish: Wish,
        decision: Result<policy::DecideResponse, Failure>,
    ) -> Verdict {
        let decision = match decision {
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
            policy::Verdict::Ask => {
                let asked = Asked {
                    policy_id,
                    rules: decision.asking,
                    command: decision.command,
                };
                if self.is_granted(call, place, &asked).await {
                    let policy_id = GRANT_POLICY_ID.to_owned();
                    return Verdict::Allow { policy_id, wish };
                }
                Verdict::Ask(asked)
            }
            policy::Verdict::Deny | policy::Verdict::Unspecified => {
                denied(&decision.reason, policy_id)
            }
        }
    }

    async fn decide(
        &self,
        call: &Call,
        place: Option<&str>,
        under: Mode,
    ) -> Result<policy::DecideResponse, Failure> {
        let request = self.request(call, place, under);
        hop(self.policy.clone().decide(request)).await
    }

    fn request(&self, call: &Call, place: Option<&str>, under: Mode) -> policy::DecideRequest {
        policy::DecideRequest {
            workspace_id: call.workspace_id.clone(),
            session_id: call.session_id.clone(),
            tool: call.tool.clone(),
            args_json: call.args_bytes(),
            mode: policy_mode(under).into(),
            project_path: self.project_path.to_string(),
            place: place.unwrap_or_default().to_owned(),
        }
    }

    /// Remembers that calls like this one, about which the owner was asked, may go ahead in this session, until the channel
    /// closes.
    pub(super) async fn grant(&self, call: &Call, place: Option<&str>, asked: &Asked) {
        let Some(grant) = self.grant_for(call, place, asked).await else {
            return;
        };
        let mut grants = self.grants();
        grants.retain(|other| other.channel == grant.channel);
        if grants.len() < MAX_GRANTS && !grants.contains(&grant) {
            grants.push(grant);
        }
    }

    async fn is_granted(&self, call: &Call, place: Option<&str>, asked: &Asked) -> bool {
        if self.grants().is_empty() {
            return false;
        }
        match self.grant_for(call, place, asked).await {
            Some(wanted) => self.grants().iter().any(|grant| grant.covers(&wanted)),
            None => false,
        }
    }

    async fn grant_for(&self, call: &Call, place: Option<&str>, asked: &Asked) -> Option<Grant> {
        let mut subject = subject(call, asked.command.as_ref())?;
        if let Subject::OwnerTool { name, described } = &mut subject {
            *described = Some(self.control.tool_described(name)?);
        }
        Some(Grant {
            session_id: call.session_id.clone(),
            tool: call.tool.clone(),
            subject,
            channel: self.control.connected_generation()?,
            askers: self.askers(call, place, asked).await?,
        })
    }

    /// The rules that ask about a call. Where the mode asks about every call of the kind, the policy names the mode; whether
    /// a rule of the owner's would ask besides is what it says for a mode that never asks. `None` when it cannot be told,
    /// which no approval covers.
    async fn askers(&self, call: &Call, place: Option<&str>, asked: &Asked) -> Option<Vec<String>> {
        let by_rules = self.decide(call, place, Mode::Full).await.ok()?;
        match by_rules.verdict() {
            policy::Verdict::Allow => Some(asked.rules.clone()),
            policy::Verdict::Ask => Some(by_rules.asking),
            policy::Verdict::Deny | policy::Verdict::Unspecified => None,
        }
    }

    fn grants(&self) -> MutexGuard<'_, Vec<Grant>> {
        self.grants.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Grant {
    /// Whether what was granted is at least what is wanted.
    fn covers(&self, wanted: &Self) -> bool {
        let same = (&self.session_id, &self.tool, &self.askers, self.channel)
            == (
                &wanted.session_id,
                &wanted.tool,
                &wanted.askers,
                wanted.channel,
            );
        same && self.subject.covers(&wanted.subject)
    }
}

impl Subject {
    fn covers(&self, wanted: &Self) -> bool {
        match (self, wanted) {
            (
                Self::Programs {
                    programs,
                    writes,
                    directory,
                },
                Self::Programs {
                    programs: started,
                    writes: written,
                    directory: there,
                },
            ) => started.is_subset(programs) && written.is_subset(writes) && there == directory,
            _ => self == wanted,
        }
    }
}

/// `None` when the arguments cannot be read.
fn subject(call: &Call, command: Option<&policy::Command>) -> Option<Subject> {
    let subject = match call.tool.as_str() {
        "workspace_exec" => {
            let exec = args::read::<args::Exec>(call).ok()?;
            let directory = exec.cwd;
            match command.filter(|command| names_all(command)) {
                Some(command) => Subject::Programs {
                    programs: command.programs.iter().cloned().collect(),
                    writes: command.writes.iter().cloned().collect(),
                    directory,
                },
                None => Subject::Command {
                    text: exec.command,
                    directory,
                },
            }
        }
        "workspace_input" => Subject::Input {
            command_id: args::read::<args::Input>(call).ok()?.command_id,
        },
        "workspace_tool" => Subject::OwnerTool {
            name: args::read::<args::OwnerTool>(call).ok()?.name,
            described: None,
        },
        _ => Subject::Tool,
    };
    Some(subject)
}

/// Whether a command's text says all that it starts, each by a name that the agent cannot have made a program of. A path may be a
/// file of his, and a variable can make a program run what it names.
fn names_all(command: &policy::Command) -> bool {
    command.understood && command.plain && !command.programs.is_empty()
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

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use postern_proto::channel::{HostFrame, parse_host_frame};
    use pretty_assertions::{assert_eq, assert_ne};
    use serde_json::{Value, json};

    use super::*;

    fn subject_of(tool: &str, args: &Value) -> Option<Subject> {
        let frame = json!({"type": "call", "protocol": 1, "id": "i", "workspaceId": "w", "sessionId": "s",
            "intention": "i", "tool": tool, "args": args});
        let frame = Bytes::from(frame.to_string());
        let text = std::str::from_utf8(&frame).expect("text");
        match parse_host_frame(text).expect("a frame") {
            HostFrame::Call(call) => subject(&Call::from_frame(&frame, *call), None),
            HostFrame::Ready => panic!("a call was written"),
        }
    }

    #[test]
    fn what_an_approval_is_bound_to_is_the_tool_and_what_it_acts_on() {
        for (tool, one, like, other) in [
            (
                "workspace_exec",
                json!({"command": "make", "cwd": "a"}),
                json!({"command": "make", "cwd": "a", "timeoutMs": 5}),
                json!({"command": "make", "cwd": "b"}),
            ),
            (
                "workspace_input",
                json!({"commandId": "1", "text": "y"}),
                json!({"commandId": "1", "text": "n"}),
                json!({"commandId": "2", "text": "y"}),
            ),
            (
                "workspace_tool",
                json!({"name": "tests", "arguments": {}}),
                json!({"name": "tests", "arguments": {"only": "a"}}),
                json!({"name": "deploy", "arguments": {}}),
            ),
        ] {
            let of = |args| subject_of(tool, args).expect("read");
            assert_eq!(of(&one), of(&like), "{tool}");
            assert_ne!(of(&one), of(&other), "{tool}");
            assert_eq!(subject_of(tool, &json!({})), None, "{tool}");
        }
        let write = json!({"path": "a", "content": "", "expectedSha256": null});
        assert_eq!(subject_of("workspace_write", &write), Some(Subject::Tool));
    }

    #[test]
    fn an_approved_command_covers_what_starts_and_writes_no_more() {
        let of = |programs: &[&str], writes: &[&str], understood, plain| {
            let frame = json!({"type": "call", "protocol": 1, "id": "i", "workspaceId": "w", "sessionId": "s",
                "intention": "i", "tool": "workspace_exec", "args": {"command": format!("{programs:?} {writes:?}")}});
            let frame = Bytes::from(frame.to_string());
            let text = std::str::from_utf8(&frame).expect("text");
            let HostFrame::Call(call) = parse_host_frame(text).expect("a frame") else {
                panic!("a call was written");
            };
            let texts = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
            let command = policy::Command {
                programs: texts(programs),
                writes: texts(writes),
                reads: Vec::new(),
                understood,
                plain,
            };
            subject(&Call::from_frame(&frame, *call), Some(&command)).expect("read")
        };
        let approved = of(&["cargo", "git"], &["log"], true, true);
        for (wanted, covered) in [
            (of(&["cargo", "git"], &["log"], true, true), true),
            (of(&["git"], &[], true, true), true),
            (of(&["git", "touch"], &[], true, true), false),
            (of(&["git"], &["other"], true, true), false),
            (of(&["git"], &[], false, true), false),
            (of(&["git"], &[], true, false), false),
            (of(&[], &[], true, true), false),
        ] {
            assert_eq!(approved.covers(&wanted), covered, "{wanted:?}");
        }
        let by_path = of(&["git"], &[], true, false);
        assert!(
            by_path.covers(&of(&["git"], &[], true, false)),
            "the same text"
        );
    }
}
