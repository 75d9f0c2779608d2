//! Examples that a rule file carries: calls, and what becomes of them by the file's rules in mode `full`.
//!
//! An example is a comment on a line of its own: `// should_deny workspace_read {"path": ".env"}`.

use std::fmt;

use postern_types::Mode;

use super::{Decision, Rules, Verdict, owner::RuleFile};
use crate::{Error, Request, arguments::Schemas, call::Call};

/// Examples of a file at most: each is decided over at every start.
const MAX_EXAMPLES: usize = 500;
/// Starts the word after a comment's slashes.
const MARK: &str = "should_";

/// An example, and what came of it.
#[derive(Clone, Debug)]
pub struct Example {
    /// Its line, from 1.
    pub line: usize,
    /// The call as written: the tool's name and its arguments.
    pub call: String,
    expected: Verdict,
    found: Decision,
}

impl Example {
    /// Whether it came out as it says.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.expected == self.found.verdict
    }

    /// What is wrong with one that does not hold.
    #[must_use]
    pub fn problem(&self) -> String {
        format!(
            "the example should be {}, but is {} by {}: {}",
            self.expected, self.found.verdict, self.found.policy_id, self.call
        )
    }
}

impl fmt::Display for Example {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.expected, self.call)
    }
}

/// Decides over every example of a file, by `rules`.
pub(super) fn run(
    file: &RuleFile,
    schemas: &Schemas,
    rules: &Rules,
) -> Result<Vec<Example>, Error> {
    let mut examples = Vec::new();
    for (number, line) in file.text.lines().enumerate() {
        let wrong = |problem: String| Error::Rule {
            path: file.path.clone(),
            line: number + 1,
            problem,
        };
        let Some(text) = line.trim().strip_prefix("//").map(str::trim) else {
            continue;
        };
        let Some(text) = text.strip_prefix(MARK) else {
            continue;
        };
        if examples.len() == MAX_EXAMPLES {
            return Err(Error::TooMuch {
                path: file.path.clone(),
                bound: "500 examples are tried at most",
            });
        }
        let (word, call) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let expected = match word {
            "allow" => Verdict::Allow,
            "ask" => Verdict::Ask,
            "deny" => Verdict::Deny,
            _ => {
                return Err(wrong(
                    "an example is should_allow, should_ask or should_deny".to_owned(),
                ));
            }
        };
        let call = call.trim();
        let (tool, args) = call.split_once(char::is_whitespace).unwrap_or((call, "{}"));
        let request = Request {
            workspace_id: "example",
            session_id: "example",
            tool,
            args: args.as_bytes(),
            mode: Mode::Full,
            project_path: "",
            place: "",
        };
        let not_a_call = |failure: postern_kit::Failure| {
            wrong(format!("the example is no call: {}", failure.message))
        };
        let arguments = schemas.check(tool, request.args).map_err(not_a_call)?;
        let call_of_it = Call::new(&request, &arguments).map_err(not_a_call)?;
        examples.push(Example {
            line: number + 1,
            call: call.to_owned(),
            expected,
            found: rules.decide(&call_of_it),
        });
    }
    Ok(examples)
}
