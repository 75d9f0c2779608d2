//! What each mode permits, read from `modes.cedar` once: it depends on the tool and the mode alone, so a call only looks it up.

use std::collections::HashMap;

use cedar_policy::{Context, Decision, EntityUid, PolicySet, RestrictedExpression, Schema};
use postern_proto::catalogue;
use postern_types::Mode;

use super::{Cedar, embedded, entity, text};
use crate::{Error, call::Kind};

const RULES: &str = include_str!("modes.cedar");

/// What a mode permits of a tool.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Permits {
    /// It may happen at all.
    pub(super) call: bool,
    /// It may happen without the owner.
    pub(super) unattended: bool,
}

/// The permits of every tool in every mode.
#[derive(Debug)]
pub(super) struct Modes(HashMap<&'static str, [Permits; Mode::ALL.len()]>);

impl Modes {
    /// Asks the rules about every tool in every mode.
    pub(super) fn read(schema: &Schema) -> Result<Self, Error> {
        let mut policies = PolicySet::new();
        for (order, rule) in text::parse(RULES, schema)
            .map_err(embedded)?
            .into_iter()
            .enumerate()
        {
            let id = cedar_policy::PolicyId::new(format!("mode{order}"));
            policies.add(rule.policy.new_id(id)).map_err(embedded)?;
        }
        let cedar = Cedar::new()?;
        let mut permits = HashMap::new();
        for tool in catalogue::workspace_tools() {
            let kind = Kind::of(&tool.name)
                .ok_or_else(|| Error::Catalogue(format!("{} has no kind", tool.name)))?;
            let mut of_tool = [Permits::default(); Mode::ALL.len()];
            for mode in Mode::ALL {
                let ask = |action| permitted(&cedar, &policies, &tool.name, kind, mode, action);
                of_tool[mode as usize] = Permits {
                    call: ask(&cedar.call)?,
                    unattended: ask(&cedar.unattended)?,
                };
            }
            permits.insert(tool.name.as_str(), of_tool);
        }
        Ok(Self(permits))
    }

    /// What the mode permits of a tool: nothing, of a tool that is not known.
    pub(super) fn permits(&self, tool: &str, mode: Mode) -> Permits {
        self.0
            .get(tool)
            .map(|of_tool| of_tool[mode as usize])
            .unwrap_or_default()
    }
}

fn permitted(
    cedar: &Cedar,
    policies: &PolicySet,
    tool: &str,
    kind: Kind,
    mode: Mode,
    action: &EntityUid,
) -> Result<bool, Error> {
    let text = |text: &str| RestrictedExpression::new_string(text.to_owned());
    let context = Context::from_pairs([
        ("mode".to_owned(), text(mode.as_str())),
        ("kind".to_owned(), text(kind.as_str())),
    ])
    .map_err(embedded)?;
    let principal = entity(&cedar.session, "any");
    let resource = entity(&cedar.tool, tool);
    let response = cedar
        .ask(policies, principal, action, resource, context)
        .ok_or_else(|| embedded("a mode's question is not valid"))?;
    if let Some(error) = response.diagnostics().errors().next() {
        return Err(embedded(error));
    }
    Ok(response.decision() == Decision::Allow)
}

/// Id of a mode's rule, as receipts and refusals name it.
pub(super) fn id(mode: Mode) -> String {
    format!("mode.{mode}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use pretty_assertions::assert_eq;

    use super::*;

    #[test]
    fn rules_are_annotated_with_the_ids_that_decisions_name() {
        let schema = super::super::schema().expect("schema");
        let rules = text::parse(RULES, &schema).expect("rules");
        let annotated: BTreeSet<String> = rules.into_iter().filter_map(|rule| rule.id).collect();
        assert_eq!(annotated, BTreeSet::from(Mode::ALL.map(id)));
    }
}
