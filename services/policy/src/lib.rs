//! Policy service: a pure decision over one call. Tool known, arguments valid, permission; it has no effect and keeps nothing
//! of calls.
//!
//! Invariants:
//! - A mode permits (`rules/modes.cedar`), the owner's rules only forbid: no owner's file can widen a mode.
//! - What cannot be read or understood means no: a broken rule file stops the start, one that breaks later denies every
//!   effect until it is mended, a rule that fails denies the call.
//! - Every decision names the rule that made it.
//! - A message never repeats more than a few characters of what the agent sent.
//!
//! Deliberately not here: paths on disk and links (where a path leads is told by the caller; the filesystem service refuses what
//! leaves the project), what programs do once they run (the sandbox is the boundary), approvals.

mod arguments;
mod call;
mod error;
#[cfg(feature = "fault-points")]
mod fault_points;
mod grpc;
mod rules;
mod shell;
mod watch;

use std::{
    cmp::Ordering,
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::Arc,
};

use postern_kit::{Failure, task::Tasks, transport::MESSAGE_LIMIT};
use postern_proto::{catalogue, policy::v1::policy_server::PolicyServer};
use postern_types::Mode;

use self::{arguments::Schemas, call::Call, rules::Rules, shell::Script, watch::Current};
pub use self::{
    error::Error,
    rules::{Decision, Example, RuleFile, Verdict},
};
#[cfg(feature = "fault-points")]
pub use fault_points::ALL as FAULT_POINTS;

/// What the owner has decided beforehand.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// Directory of the owner's rules, `*.cedar`. Without one the mode alone decides.
    pub owner_policies: Option<PathBuf>,
}

/// The rules that an owner starts with: the text of a file.
pub const DEFAULT_RULES: &str = include_str!("rules/defaults.cedar");

/// The policy service.
#[derive(Debug)]
pub struct Service {
    schemas: Arc<Schemas>,
    rules: Current,
}

impl Service {
    /// Compiles the catalogue's schemas and reads the rules. Reads files, so it belongs to a start.
    ///
    /// # Errors
    /// When a file of the owner's rules cannot be read, is broken, holds no rule, or permits anything.
    pub fn new(config: Config) -> Result<Self, Error> {
        let schemas = Arc::new(schemas()?);
        let rules = Rules::load(config.owner_policies.as_deref(), &schemas)?;
        Ok(Self {
            rules: Current::new(rules),
            schemas,
        })
    }

    /// As [`Service::new`], and reads the rules again whenever their files change, until the tasks stop. While they are
    /// broken, effects are denied.
    ///
    /// # Errors
    /// As [`Service::new`]: a start with broken rules is refused.
    pub fn following(config: Config, tasks: &Tasks) -> Result<Self, Error> {
        let service = Self::new(config.clone())?;
        if let Some(directory) = config.owner_policies {
            service
                .rules
                .follow(directory, Arc::clone(&service.schemas), tasks);
        }
        Ok(service)
    }

    /// The gRPC server.
    #[must_use]
    pub fn into_server(self) -> PolicyServer<Self> {
        PolicyServer::new(self)
            .max_decoding_message_size(MESSAGE_LIMIT)
            .max_encoding_message_size(MESSAGE_LIMIT)
    }

    /// Decides over a call. The order is the contract's (CONTRACT.md, section 2, steps 6 to 8).
    ///
    /// # Errors
    /// An unknown tool, or arguments that do not meet its schema.
    pub fn judge(&self, request: &Request<'_>) -> Result<Decision, Failure> {
        let arguments = self.schemas.check(request.tool, request.args)?;
        let call = Call::new(request, &arguments)?;
        postern_kit::fault_point!(crate::fault_points::PERMISSION_BEFORE);
        let decision = self.decide(call, request.place);
        postern_kit::fault_point!(crate::fault_points::PERMISSION_AFTER);
        Ok(decision)
    }
}

impl Service {
    /// The stricter of what the rules say of the path as written and of the place to which it leads.
    fn decide(&self, call: Call<'_>, place: &str) -> Decision {
        let written = self.rules.decide(&call);
        let Some(elsewhere) = call.at(place) else {
            return written;
        };
        let there = self.rules.decide(&elsewhere);
        match there.verdict.cmp(&written.verdict) {
            Ordering::Greater => there,
            Ordering::Less => written,
            Ordering::Equal => {
                let mut both = written;
                let more = |rule: &String| !both.asking.contains(rule);
                let further: Vec<String> = there.asking.into_iter().filter(more).collect();
                both.asking.extend(further);
                both
            }
        }
    }
}

/// The owner's rule files, each with what its examples came to by its rules alone. Nothing is in force by this.
///
/// # Errors
/// When a file cannot be read, is broken, holds no rule, permits anything, or carries an example that is no call.
pub fn read(directory: &Path) -> Result<Vec<RuleFile>, Error> {
    Rules::files(directory, &schemas()?)
}

/// What rules see of a command's text.
#[derive(Clone, Debug)]
pub struct Command {
    /// Programs that it starts, without their directories.
    pub programs: BTreeSet<String>,
    /// Files that its redirections write, as written.
    pub writes: BTreeSet<String>,
    /// Files that its redirections read, as written.
    pub reads: BTreeSet<String>,
    /// Whether these are all.
    pub understood: bool,
    /// Whether each program stands there by its bare name, with no variable set for it.
    pub plain: bool,
}

impl Command {
    /// Reads a text as `sh -c` gets it. Runs nothing.
    #[must_use]
    pub fn read(text: &str) -> Self {
        let script = Script::read(text);
        Self {
            programs: script.programs,
            writes: script.writes,
            reads: script.reads,
            understood: !script.is_open,
            plain: !script.is_particular,
        }
    }
}

fn schemas() -> Result<Schemas, Error> {
    Schemas::compile(catalogue::workspace_tools())
}

/// A call as the edge received it.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Workspace.
    pub workspace_id: &'a str,
    /// Session.
    pub session_id: &'a str,
    /// Name of the tool, known or not.
    pub tool: &'a str,
    /// The call's `args`: JSON in UTF-8.
    pub args: &'a [u8],
    /// The owner's mode.
    pub mode: Mode,
    /// Real path of the project's root; empty when it is not known.
    pub project_path: &'a str,
    /// Where its path leads, relative to the root with links followed; empty when that is not known or the same.
    pub place: &'a str,
}
