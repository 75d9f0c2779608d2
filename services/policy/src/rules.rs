//! Permission by Cedar rules: the mode's permits and the owner's forbids.

mod owner;
mod text;

use std::{cmp::Reverse, collections::HashMap, path::Path};

use cedar_policy::{
    Authorizer, Context, Decision as CedarDecision, Entities, EntityId, EntityTypeName, EntityUid,
    PolicyId, PolicySet, Request, RestrictedExpression, Schema,
};
use postern_proto::catalogue;
use postern_types::Mode;

use crate::{Error, call::Call};

const MODES: &str = include_str!("rules/modes.cedar");
/// Id of the decision over calls whose path rules cannot place.
const ABSOLUTE_PATH: &str = "postern.absolute-path";
/// Id of the decision over calls that could not be put to the rules.
const UNDECIDABLE: &str = "postern.undecidable";

/// What the rules say of a call.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Decision {
    pub(crate) verdict: Verdict,
    /// The rule that decided.
    pub(crate) policy_id: String,
    /// One sentence for the agent; empty when allowed.
    pub(crate) reason: String,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Verdict {
    Allow,
    Ask,
    Deny,
}

/// The rules in force.
#[derive(Debug)]
pub(crate) struct Rules {
    authorizer: Authorizer,
    policies: PolicySet,
    facts: HashMap<PolicyId, Fact>,
    entities: Entities,
    actions: Actions,
    types: Types,
    /// Whether the owner has rules at all.
    owned: bool,
}

/// What is told of a rule that decided.
#[derive(Clone, Debug)]
struct Fact {
    /// Place among the rules: of several that apply the first is named, the owner's before the mode's.
    order: (Reverse<bool>, usize),
    shown: String,
    reason: Option<String>,
}

/// The two questions.
#[derive(Debug)]
struct Actions {
    call: EntityUid,
    unattended: EntityUid,
}

#[derive(Debug)]
struct Types {
    session: EntityTypeName,
    tool: EntityTypeName,
}

/// The answer to one question.
enum Answer {
    Yes(Option<Fact>),
    No(Option<Fact>),
    /// A rule failed. Cedar leaves a failing rule out, so a forbid that fails would permit: it means no instead.
    Failed(String),
}

impl Rules {
    /// Reads the mode's rules, and the owner's if there are any.
    pub(crate) fn load(owner: Option<&Path>) -> Result<Self, Error> {
        let broken = |problem: &dyn std::fmt::Display| Error::Embedded(problem.to_string());
        let schema = schema()?;
        let mut rules = Self {
            authorizer: Authorizer::new(),
            policies: PolicySet::new(),
            facts: HashMap::new(),
            entities: Entities::empty(),
            actions: Actions {
                call: r#"Action::"call""#.parse().map_err(|error| broken(&error))?,
                unattended: r#"Action::"unattended""#.parse().map_err(|error| broken(&error))?,
            },
            types: Types {
                session: "Session".parse().map_err(|error| broken(&error))?,
                tool: "Tool".parse().map_err(|error| broken(&error))?,
            },
            owned: false,
        };
        for rule in text::parse(MODES, &schema).map_err(|problem| broken(&problem))? {
            let shown = rule
                .id
                .clone()
                .ok_or_else(|| broken(&"a rule without an id"))?;
            rules
                .add(rule, shown, false)
                .map_err(|problem| broken(&problem))?;
        }
        if let Some(directory) = owner {
            for (rule, shown, file) in owner::read(directory, &schema)? {
                let line = rule.line;
                rules
                    .add(rule, shown, true)
                    .map_err(|problem| Error::Rule {
                        path: file,
                        line,
                        problem,
                    })?;
            }
        }
        Ok(rules)
    }

    fn add(&mut self, rule: text::Rule, shown: String, owned: bool) -> Result<(), String> {
        let order = self.facts.len();
        let id = PolicyId::new(format!("rule{order}"));
        self.policies
            .add(rule.policy.new_id(id.clone()))
            .map_err(|error| error.to_string())?;
        self.owned |= owned;
        let fact = Fact {
            order: (Reverse(owned), order),
            shown,
            reason: rule.reason,
        };
        self.facts.insert(id, fact);
        Ok(())
    }

    /// Puts both questions to the rules.
    pub(crate) fn decide(&self, call: &Call<'_>) -> Decision {
        let mode = mode_id(call.mode);
        let Some(question) = self.question(call) else {
            return denied(UNDECIDABLE.to_owned(), undecidable(call));
        };
        let permit = match self.answer(&question, &self.actions.call) {
            Answer::Yes(permit) => permit,
            Answer::No(Some(fact)) => return denied(fact.shown, forbidden(call, fact.reason)),
            Answer::No(None) => return denied(mode, not_permitted(call)),
            Answer::Failed(id) => return denied(id, undecidable(call)),
        };
        let permit = permit.map_or(mode, |fact| fact.shown);
        match self.answer(&question, &self.actions.unattended) {
            Answer::Yes(_) if self.owned && call.is_absolute() => {
                let reason = "The owner's rules speak of paths inside the project; write the path relative to the \
                              project's root, or the owner decides.";
                asked(ABSOLUTE_PATH.to_owned(), reason.to_owned())
            }
            Answer::Yes(fact) => Decision {
                verdict: Verdict::Allow,
                policy_id: fact.map_or(permit, |fact| fact.shown),
                reason: String::new(),
            },
            Answer::No(Some(fact)) => asked(fact.shown, attended(call, fact.reason)),
            Answer::No(None) => asked(permit, attended(call, None)),
            Answer::Failed(id) => denied(id, undecidable(call)),
        }
    }

    fn answer(&self, question: &Question, action: &EntityUid) -> Answer {
        let request = Request::new(
            question.principal.clone(),
            action.clone(),
            question.resource.clone(),
            question.context.clone(),
            None,
        );
        let Ok(request) = request else {
            return Answer::Failed(UNDECIDABLE.to_owned());
        };
        let response = self
            .authorizer
            .is_authorized(&request, &self.policies, &self.entities);
        let diagnostics = response.diagnostics();
        if let Some(error) = diagnostics.errors().next() {
            let cedar_policy::AuthorizationError::PolicyEvaluationError(error) = error;
            let fact = self.facts.get(error.policy_id());
            let id = fact.map_or_else(|| UNDECIDABLE.to_owned(), |fact| fact.shown.clone());
            tracing::error!(policy_id = id, "a rule failed; the call is denied");
            return Answer::Failed(id);
        }
        let fact = diagnostics
            .reason()
            .filter_map(|id| self.facts.get(id))
            .min_by_key(|fact| fact.order)
            .cloned();
        match response.decision() {
            CedarDecision::Allow => Answer::Yes(fact),
            CedarDecision::Deny => Answer::No(fact),
        }
    }

    /// A call in Cedar's terms; nothing when Cedar cannot hold it.
    fn question(&self, call: &Call<'_>) -> Option<Question> {
        let text = |text: &str| RestrictedExpression::new_string(text.to_owned());
        let mut context = vec![
            ("mode".to_owned(), text(call.mode.as_str())),
            ("kind".to_owned(), text(call.kind.as_str())),
        ];
        // Only the owner's rules read the rest.
        if self.owned {
            let optional = [
                ("workspace", Some(call.workspace_id)),
                ("path", call.path.as_deref()),
                ("command", call.command),
                ("input", call.input),
                ("ownerTool", call.owner_tool),
            ];
            for (name, value) in optional {
                if let Some(value) = value {
                    context.push((name.to_owned(), text(value)));
                }
            }
        }
        Some(Question {
            principal: entity(&self.types.session, call.session_id),
            resource: entity(&self.types.tool, call.tool),
            context: Context::from_pairs(context).ok()?,
        })
    }
}

struct Question {
    principal: EntityUid,
    resource: EntityUid,
    context: Context,
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
                 input?: String,
                 ownerTool?: String,
             }}
         }};",
        tools.join(", ")
    );
    Schema::from_cedarschema_str(&text)
        .map(|(schema, _)| schema)
        .map_err(|error| Error::Embedded(error.to_string()))
}

fn mode_id(mode: Mode) -> String {
    format!("mode.{mode}")
}

fn denied(policy_id: String, reason: String) -> Decision {
    Decision {
        verdict: Verdict::Deny,
        policy_id,
        reason,
    }
}

fn asked(policy_id: String, reason: String) -> Decision {
    Decision {
        verdict: Verdict::Ask,
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

fn forbidden(call: &Call<'_>, reason: Option<String>) -> String {
    reason.unwrap_or_else(|| {
        format!(
            "A rule of the owner forbids this call of {}; find another way, or ask the owner with workspace_ask.",
            call.tool
        )
    })
}

fn attended(call: &Call<'_>, reason: Option<String>) -> String {
    reason.unwrap_or_else(|| {
        format!(
            "The owner decides on each such call of {} in the mode '{}'; wait for the decision.",
            call.tool, call.mode
        )
    })
}

fn undecidable(call: &Call<'_>) -> String {
    format!(
        "The rules could not decide on this call of {}, so it is denied; tell the owner with workspace_ask.",
        call.tool
    )
}
