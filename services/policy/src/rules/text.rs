//! Text of rules: parsed and checked against the schema, each rule with its place.

use std::fmt;

use cedar_policy::{Effect, Policy, PolicySet, Schema, ValidationMode, Validator};
use miette::Diagnostic;

/// One rule.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    pub(super) policy: Policy,
    /// Line on which it starts, from 1.
    pub(super) line: usize,
    /// Its `@id`.
    pub(super) id: Option<String>,
    /// Its `@reason`, told to the agent.
    pub(super) reason: Option<String>,
}

impl Rule {
    pub(super) fn permits(&self) -> bool {
        self.policy.effect() == Effect::Permit
    }
}

/// What is wrong with a text, and where.
#[derive(Debug)]
pub(super) struct Problem {
    pub(super) line: usize,
    pub(super) problem: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "line {}: {}", self.line, self.problem)
    }
}

/// The rules of a text in its order. A warning is a problem too: a rule that can never apply protects nobody.
pub(super) fn parse(text: &str, schema: &Schema) -> Result<Vec<Rule>, Problem> {
    let policies: PolicySet = text
        .parse()
        .map_err(|errors: cedar_policy::ParseErrors| problem(text, &errors))?;
    if policies.templates().next().is_some() {
        return Err(Problem {
            line: 1,
            problem: "a rule with a slot is a template; write it out".to_owned(),
        });
    }
    let checked = Validator::new(schema.clone()).validate(&policies, ValidationMode::Strict);
    if let Some(error) = checked.validation_errors().next() {
        return Err(problem(text, error));
    }
    if let Some(warning) = checked.validation_warnings().next() {
        return Err(problem(text, warning));
    }
    let mut rules: Vec<(usize, Rule)> = policies
        .policies()
        .map(|policy| {
            let start = policy.as_ref().loc().map_or(0, |loc| loc.start());
            (start, rule(text, start, policy))
        })
        .collect();
    rules.sort_by_key(|(start, _)| *start);
    Ok(rules.into_iter().map(|(_, rule)| rule).collect())
}

fn rule(text: &str, start: usize, policy: &Policy) -> Rule {
    let annotation = |name| policy.annotation(name).map(str::to_owned);
    Rule {
        line: line_of(text, start),
        id: annotation("id"),
        reason: annotation("reason"),
        policy: policy.clone(),
    }
}

fn problem(text: &str, diagnostic: &(impl Diagnostic + ?Sized)) -> Problem {
    let place = diagnostic
        .labels()
        .and_then(|mut labels| labels.next())
        .map_or(text.len(), |label| label.offset());
    let mut problem = diagnostic.to_string();
    if let Some(help) = diagnostic.help() {
        problem = format!("{problem} ({help})");
    }
    Problem {
        line: line_of(text, place),
        problem,
    }
}

fn line_of(text: &str, offset: usize) -> usize {
    let before = &text.as_bytes()[..offset.min(text.len())];
    1 + before.iter().filter(|byte| **byte == b'\n').count()
}
