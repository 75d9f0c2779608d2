//! Permission by Cedar rules: what the mode permits, narrowed by what the owner forbids.

mod examples;
mod modes;
mod owner;
mod text;

use std::{
    collections::HashMap,
    fmt::{self, Display},
    path::Path,
    sync::OnceLock,
};

pub(crate) use self::owner::{MAX_FILES, is_rule_file};
pub use self::{examples::Example, owner::RuleFile};

use cedar_policy::{
    Authorizer, Context, Entities, EntityId, EntityTypeName, EntityUid, Policy, PolicyId,
    PolicySet, Request, Response, RestrictedExpression, Schema,
};
use postern_proto::catalogue;
use serde_json::Value;

use self::modes::Modes;
use crate::{Error, arguments::Schemas, call::Call, shell::Script};

/// Id of the decision over calls whose path rules cannot place.
const ABSOLUTE_PATH: &str = "postern.absolute-path";
/// Id of the decision over commands of which rules cannot know what they start.
const OPEN_COMMAND: &str = "postern.open-command";
/// Id of the decision over calls that could not be put to the rules.
const UNDECIDABLE: &str = "postern.undecidable";

/// What the rules say of a call.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Decision {
    /// What may happen.
    pub verdict: Verdict,
    /// The rule that decided.
    pub policy_id: String,
    /// One sentence for the agent; empty when allowed.
    pub reason: String,
    /// When asked, every rule that asks; the first is the one that decided.
    pub asking: Vec<String>,
}

/// What may happen, the stricter after the laxer.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Verdict {
    /// It goes ahead.
    Allow,
    /// It waits for the owner.
    Ask,
    /// It does not happen.
    Deny,
}

impl fmt::Display for Verdict {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Allow => "allowed",
            Self::Ask => "asked",
            Self::Deny => "denied",
        })
    }
}

/// The rules in force.
#[derive(Debug)]
pub(crate) struct Rules {
    /// What each mode permits: the only permits there are.
    modes: &'static Modes,
    /// What the owner forbids; nothing when the owner has no rules.
    owner: Option<Owner>,
}

/// The owner's rules. None of them permits, and none is asked about what the mode does not permit.
#[derive(Debug)]
struct Owner {
    cedar: Cedar,
    policies: PolicySet,
    facts: HashMap<PolicyId, Fact>,
    /// Whether a rule speaks of what commands start or redirect, and not of commands where that is not known.
    asks_about_open: bool,
}

/// What is told of a rule that decided.
#[derive(Debug)]
struct Fact {
    /// Place among the rules: of several that apply the first is named.
    order: usize,
    shown: String,
    reason: Option<String>,
}

/// What the owner's rules say to one question.
enum Answer<'a> {
    /// No rule forbids it.
    Free,
    /// These do, in their order: the first, and the others.
    Forbidden(&'a Fact, Vec<&'a Fact>),
    /// A rule failed. Cedar leaves a failing rule out, so a forbid that fails would permit: it means no instead.
    Failed(&'a str),
}

/// What the program itself says about rules. It is read once: the owner's are read anew whenever they change.
#[derive(Debug)]
struct Basis {
    schema: Schema,
    modes: Modes,
}

impl Basis {
    fn get() -> Result<&'static Self, Error> {
        static BASIS: OnceLock<Basis> = OnceLock::new();
        if let Some(basis) = BASIS.get() {
            return Ok(basis);
        }
        let schema = schema()?;
        let modes = Modes::read(&schema)?;
        Ok(BASIS.get_or_init(|| Self { schema, modes }))
    }
}

impl Rules {
    /// Reads the modes' rules, and the owner's if there are any. Every example of the owner must come out as it says.
    pub(crate) fn load(directory: Option<&Path>, schemas: &Schemas) -> Result<Self, Error> {
        let files = directory.map(|directory| Self::files(directory, schemas));
        let files = files.transpose()?.unwrap_or_default();
        for file in &files {
            if let Some(example) = file.examples.iter().find(|example| !example.holds()) {
                return Err(Error::Rule {
                    path: file.path.clone(),
                    line: example.line,
                    problem: example.problem(),
                });
            }
        }
        Self::of(files)
    }

    /// The owner's files, each with what its examples came to.
    pub(crate) fn files(directory: &Path, schemas: &Schemas) -> Result<Vec<RuleFile>, Error> {
        let mut files = owner::read(directory, &Basis::get()?.schema)?;
        for file in &mut files {
            let rules = Self::of(vec![file.without_examples()])?;
            file.examples = examples::run(file, schemas, &rules)?;
        }
        Ok(files)
    }

    fn of(files: Vec<RuleFile>) -> Result<Self, Error> {
        let modes = &Basis::get()?.modes;
        let owner = Owner::of(files)?;
        let owner = (!owner.facts.is_empty()).then_some(owner);
        Ok(Self { modes, owner })
    }

    /// Puts both questions: may it at all, and may it without the owner.
    pub(crate) fn decide(&self, call: &Call<'_>) -> Decision {
        let permits = self.modes.permits(call.tool, call.mode);
        let mode = || modes::id(call.mode);
        if !permits.call {
            return denied(mode(), not_permitted(call));
        }
        if let Some(owner) = &self.owner
            && let Some(narrowed) = owner.narrow(call, permits.unattended)
        {
            return narrowed;
        }
        if !permits.unattended {
            return asked(mode(), attended(call));
        }
        Decision {
            verdict: Verdict::Allow,
            policy_id: mode(),
            reason: String::new(),
            asking: Vec::new(),
        }
    }
}

impl Owner {
    fn of(files: Vec<RuleFile>) -> Result<Self, Error> {
        let mut policies = PolicySet::new();
        let mut facts = HashMap::new();
        let mut asks_about_open = false;
        for RuleFile { path, rules, .. } in files {
            for owner::Named { rule, shown } in rules {
                let order = facts.len();
                let id = PolicyId::new(format!("rule{order}"));
                let (line, reason) = (rule.line, rule.reason);
                asks_about_open |= speaks_of_commands(&rule.policy)?;
                policies
                    .add(rule.policy.new_id(id.clone()))
                    .map_err(|error| Error::Rule {
                        path: path.clone(),
                        line,
                        problem: error.to_string(),
                    })?;
                facts.insert(
                    id,
                    Fact {
                        order,
                        shown,
                        reason,
                    },
                );
            }
        }
        Ok(Self {
            cedar: Cedar::new()?,
            policies,
            facts,
            asks_about_open,
        })
    }

    /// The decision that the owner's rules make of a call that the mode permits, if they make one.
    fn narrow(&self, call: &Call<'_>, unattended: bool) -> Option<Decision> {
        let undecidable = |id: &str| Some(denied(id.to_owned(), undecidable(call)));
        let script = call.command.map(Script::read);
        let Some(context) = context(call, script.as_ref()) else {
            return undecidable(UNDECIDABLE);
        };
        match self.answer(call, &self.cedar.call, context.clone()) {
            Answer::Free => {}
            Answer::Forbidden(fact, _) => {
                return Some(denied(fact.shown.clone(), forbidden(call, fact)));
            }
            Answer::Failed(id) => return undecidable(id),
        }
        if !unattended {
            return None;
        }
        match self.answer(call, &self.cedar.unattended, context) {
            Answer::Free if call.is_unplaced() => Some(asked(
                ABSOLUTE_PATH.to_owned(),
                "The owner's rules speak of paths inside the project; write the path relative to the project's root, or \
                 the owner decides."
                    .to_owned(),
            )),
            Answer::Free if self.asks_about_open && script.is_some_and(|script| script.is_open) => {
                Some(asked(
                    OPEN_COMMAND.to_owned(),
                    "The owner's rules speak of programs, and this text does not say which it starts; write it plainly, \
                     or the owner decides."
                        .to_owned(),
                ))
            }
            Answer::Free => None,
            Answer::Forbidden(fact, others) => {
                let reason = fact.reason.clone().unwrap_or_else(|| attended(call));
                let mut decision = asked(fact.shown.clone(), reason);
                let others = others.into_iter().map(|fact| fact.shown.clone());
                decision.asking.extend(others);
                Some(decision)
            }
            Answer::Failed(id) => undecidable(id),
        }
    }

    fn answer(&self, call: &Call<'_>, action: &EntityUid, context: Context) -> Answer<'_> {
        let principal = entity(&self.cedar.session, call.session_id);
        let resource = entity(&self.cedar.tool, call.tool);
        let Some(response) = self
            .cedar
            .ask(&self.policies, principal, action, resource, context)
        else {
            return Answer::Failed(UNDECIDABLE);
        };
        let diagnostics = response.diagnostics();
        if let Some(cedar_policy::AuthorizationError::PolicyEvaluationError(error)) =
            diagnostics.errors().next()
        {
            let fact = self.facts.get(error.policy_id());
            let policy_id = fact.map_or(UNDECIDABLE, |fact| fact.shown.as_str());
            tracing::error!(policy_id, "a rule failed; the call is denied");
            return Answer::Failed(policy_id);
        }
        let facts = diagnostics.reason().filter_map(|id| self.facts.get(id));
        let mut facts: Vec<&Fact> = facts.collect();
        facts.sort_by_key(|fact| fact.order);
        let mut facts = facts.into_iter();
        match facts.next() {
            Some(first) => Answer::Forbidden(first, facts.collect()),
            None => Answer::Free,
        }
    }
}

/// Cedar and the names that every question to it needs.
#[derive(Debug)]
struct Cedar {
    authorizer: Authorizer,
    entities: Entities,
    call: EntityUid,
    unattended: EntityUid,
    session: EntityTypeName,
    tool: EntityTypeName,
}

impl Cedar {
    fn new() -> Result<Self, Error> {
        Ok(Self {
            authorizer: Authorizer::new(),
            entities: Entities::empty(),
            call: r#"Action::"call""#.parse().map_err(embedded)?,
            unattended: r#"Action::"unattended""#.parse().map_err(embedded)?,
            session: "Session".parse().map_err(embedded)?,
            tool: "Tool".parse().map_err(embedded)?,
        })
    }

    /// Puts a question to rules; nothing when Cedar cannot hold it.
    fn ask(
        &self,
        policies: &PolicySet,
        principal: EntityUid,
        action: &EntityUid,
        resource: EntityUid,
        context: Context,
    ) -> Option<Response> {
        let request = Request::new(principal, action.clone(), resource, context, None).ok()?;
        Some(
            self.authorizer
                .is_authorized(&request, policies, &self.entities),
        )
    }
}

/// Whether a rule reads what a command starts or redirects without a look at whether that is known.
fn speaks_of_commands(rule: &Policy) -> Result<bool, Error> {
    let rule = rule.to_json().map_err(embedded)?;
    let reads = |attribute: &str| has_attribute(&rule, attribute);
    Ok(["programs", "writes", "reads"].into_iter().any(reads) && !reads("understood"))
}

/// Whether an expression of a rule, as Cedar writes it in JSON, takes an attribute of that name or asks for it.
fn has_attribute(rule: &Value, name: &str) -> bool {
    match rule {
        Value::Object(fields) => fields.iter().any(|(operator, operands)| {
            let is_it = matches!(operator.as_str(), "." | "has")
                && operands
                    .get("attr")
                    .is_some_and(|attribute| attribute == name);
            is_it || has_attribute(operands, name)
        }),
        Value::Array(items) => items.iter().any(|item| has_attribute(item, name)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// What rules can read of a call; nothing when Cedar cannot hold it.
fn context(call: &Call<'_>, script: Option<&Script>) -> Option<Context> {
    let text = |value: &str| RestrictedExpression::new_string(value.to_owned());
    let attributes = [
        ("mode", Some(call.mode.as_str())),
        ("kind", Some(call.kind.as_str())),
        ("workspace", Some(call.workspace_id)),
        ("path", call.path.as_deref()),
        ("command", call.command),
        ("input", call.input),
        ("ownerTool", call.owner_tool),
        ("toolArguments", call.tool_arguments.as_deref()),
    ];
    let mut attributes: Vec<(String, RestrictedExpression)> = attributes
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), text(value?))))
        .collect();
    if let Some(script) = script {
        let sets = [
            ("programs", &script.programs),
            ("writes", &script.writes),
            ("reads", &script.reads),
        ];
        attributes.extend(sets.map(|(name, words)| {
            let words = words.iter().map(|word| text(word));
            (name.to_owned(), RestrictedExpression::new_set(words))
        }));
        let understood = RestrictedExpression::new_bool(!script.is_open);
        attributes.push(("understood".to_owned(), understood));
    }
    Context::from_pairs(attributes).ok()
}

fn entity(kind: &EntityTypeName, id: &str) -> EntityUid {
    EntityUid::from_type_name_and_id(kind.clone(), EntityId::new(id))
}

/// What rules may speak of. Every rule is checked against it, so that a misspelt tool or attribute is an error at the start
/// and not a rule that never applies.
fn schema() -> Result<Schema, Error> {
    let tools: Vec<String> = catalogue::workspace_tools()
        .iter()
        .map(|tool| format!("{:?}", tool.name))
        .collect();
    let text = format!(
        "entity Session;
         entity Tool enum [{}];
         action \"call\", \"unattended\" appliesTo {{
             principal: Session,
             resource: Tool,
             context: {{
                 mode: String,
                 kind: String,
                 workspace: String,
                 path?: String,
                 command?: String,
                 programs?: Set<String>,
                 writes?: Set<String>,
                 reads?: Set<String>,
                 understood?: Bool,
                 input?: String,
                 ownerTool?: String,
                 toolArguments?: String,
             }}
         }};",
        tools.join(", ")
    );
    Schema::from_cedarschema_str(&text)
        .map(|(schema, _)| schema)
        .map_err(embedded)
}

fn embedded(problem: impl Display) -> Error {
    Error::Embedded(problem.to_string())
}

fn denied(policy_id: String, reason: String) -> Decision {
    Decision {
        verdict: Verdict::Deny,
        policy_id,
        reason,
        asking: Vec::new(),
    }
}

fn asked(policy_id: String, reason: String) -> Decision {
    Decision {
        verdict: Verdict::Ask,
        asking: vec![policy_id.clone()],
        policy_id,
        reason,
    }
}

fn not_permitted(call: &Call<'_>) -> String {
    format!(
        "The owner's mode '{}' does not permit {}; use the reading tools, or ask the owner with workspace_ask to change \
         the mode.",
        call.mode, call.tool
    )
}

fn forbidden(call: &Call<'_>, fact: &Fact) -> String {
    fact.reason.clone().unwrap_or_else(|| {
        format!(
            "A rule of the owner forbids this call of {}; find another way, or ask the owner with workspace_ask.",
            call.tool
        )
    })
}

fn attended(call: &Call<'_>) -> String {
    format!(
        "The owner decides on each such call of {} in the mode '{}'; wait for the decision.",
        call.tool, call.mode
    )
}

fn undecidable(call: &Call<'_>) -> String {
    format!(
        "The rules could not decide on this call of {}, so it is denied; tell the owner with workspace_ask.",
        call.tool
    )
}
