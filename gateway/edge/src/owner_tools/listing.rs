//! Which of a server's tools are offered, and how.

use std::collections::HashSet;

use postern_proto::channel::{parse_edge_frame, result_frame};
use postern_types::Sha256;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{config::ToolServer, text};

/// Tools of one server.
pub(super) const MAX_TOOLS: usize = 256;
/// Bytes of one tool's description and schemas.
const TOOL_BYTES: usize = 64 * 1024;
/// Bytes of all that one edge offers: its listing is written twice, once as text, and must fit into one frame.
pub(super) const LISTING_BYTES: usize = 640 * 1024;
/// Characters of an offered name (the schema of `workspace_tool`).
const NAME_CHARS: usize = 200;
/// Between a server's name and its tool's.
const SEPARATOR: &str = "__";

/// A tool as the agent sees it. Title, description, schemas and annotations are the server's own words.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Offered {
    pub(super) name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<Box<RawValue>>,
    description: Box<RawValue>,
    input_schema: Box<RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_schema: Option<Box<RawValue>>,
    annotations: Box<RawValue>,
    /// Its name on its own server.
    #[serde(skip)]
    pub(super) own_name: String,
    /// What it takes of the listing.
    #[serde(skip)]
    pub(super) bytes: usize,
    /// Of all that the agent is told of it.
    #[serde(skip)]
    pub(super) described: Sha256,
}

/// One page of a server's listing.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Page<'a> {
    #[serde(borrow)]
    pub(super) tools: Vec<&'a RawValue>,
    #[serde(default)]
    pub(super) next_cursor: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Listed<'a> {
    name: String,
    #[serde(borrow, default)]
    title: Option<&'a RawValue>,
    #[serde(borrow, default)]
    description: Option<&'a RawValue>,
    #[serde(borrow)]
    input_schema: &'a RawValue,
    #[serde(borrow, default)]
    output_schema: Option<&'a RawValue>,
    #[serde(borrow, default)]
    annotations: Option<&'a RawValue>,
}

/// What a listing comes to.
#[derive(Debug, Default)]
pub(super) struct Selection {
    pub(super) tools: Vec<Offered>,
    names: HashSet<String>,
    /// How many were left out that the owner would want to know of.
    left_out: usize,
    /// Why the first of them was.
    why: Option<String>,
}

impl Selection {
    /// Takes a tool, or notes why not. Whether there may be more.
    pub(super) fn take(&mut self, server: &ToolServer, raw: &RawValue) -> bool {
        if self.tools.len() >= MAX_TOOLS {
            self.leave_out(format!("it has more than {MAX_TOOLS}"));
            return false;
        }
        match offered(server, raw) {
            Ok(Some(tool)) if self.names.insert(tool.name.clone()) => self.tools.push(tool),
            Ok(Some(tool)) => self.leave_out(format!("'{}' is there twice", tool.own_name)),
            // The owner said so himself.
            Ok(None) => {}
            Err(why) => self.leave_out(why),
        }
        true
    }

    pub(super) fn leave_out(&mut self, why: String) {
        self.left_out += 1;
        self.why.get_or_insert(why);
    }

    /// What the owner is told when some are left out.
    pub(super) fn problem(&self) -> Option<String> {
        let why = self.why.as_ref()?;
        Some(match self.left_out {
            1 => format!("1 tool is left out: {why}"),
            count => format!("{count} tools are left out; the first: {why}"),
        })
    }
}

/// A tool under its name here; `None` when the owner does not offer it.
fn offered(server: &ToolServer, raw: &RawValue) -> Result<Option<Offered>, String> {
    let listed: Listed<'_> = serde_json::from_str(raw.get()).map_err(|_| {
        format!(
            "{} is no tool's description",
            text::shown(raw.get().as_bytes(), 60)
        )
    })?;
    let shown = text::shown(listed.name.as_bytes(), 60);
    let is_fit = |name: &str| {
        !name.is_empty()
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"_-./".contains(&byte))
    };
    let name = format!("{}{SEPARATOR}{}", server.name, listed.name);
    if !is_fit(&listed.name) || name.len() > NAME_CHARS {
        return Err(format!(
            "'{shown}' has a name that cannot be offered (letters, digits, '_', '-', '.' and '/', at most {NAME_CHARS} with its server's)"
        ));
    }
    if !server.offers(&listed.name) {
        return Ok(None);
    }
    if raw.get().len() > TOOL_BYTES {
        return Err(format!("'{shown}' is described in over {TOOL_BYTES} bytes"));
    }
    let is_object = |raw: &&RawValue| raw.get().starts_with('{');
    let is_text = |raw: &&RawValue| raw.get().starts_with('"');
    if !is_object(&listed.input_schema) {
        return Err(format!("'{shown}' has an input schema that is no object"));
    }
    // Whatever goes into a frame must be what the host takes for one.
    let framed = result_frame("i", "s", raw.get()).map_err(|_| String::new());
    if framed.is_ok_and(|frame| parse_edge_frame(&frame).is_err()) {
        return Err(format!("'{shown}' is described in no proper JSON"));
    }
    let literal = |text: &str| RawValue::from_string(text.to_owned()).map_err(|_| String::new());
    let description = match listed.description.filter(is_text) {
        Some(description) => description.to_owned(),
        None => literal(r#""""#)?,
    };
    let annotations = match listed.annotations.filter(is_object) {
        Some(annotations) => annotations.to_owned(),
        None => literal("{}")?,
    };
    let mut tool = Offered {
        name,
        title: listed.title.filter(is_text).map(ToOwned::to_owned),
        description,
        input_schema: listed.input_schema.to_owned(),
        output_schema: listed
            .output_schema
            .filter(is_object)
            .map(ToOwned::to_owned),
        annotations,
        own_name: listed.name,
        bytes: 0,
        described: Sha256::of(b""),
    };
    let told = serde_json::to_vec(&tool).map_err(|_| format!("'{shown}' cannot be told of"))?;
    (tool.bytes, tool.described) = (told.len(), Sha256::of(&told));
    Ok(Some(tool))
}

/// The server and its own tool that an offered name stands for. A server's name holds no `_`, so there is one reading.
pub(super) fn parts(name: &str) -> Option<(&str, &str)> {
    name.split_once(SEPARATOR)
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;
    use serde_json::{Value, json};

    use super::*;

    fn selected(server: &ToolServer, tools: &[&str]) -> Selection {
        let mut selection = Selection::default();
        for tool in tools {
            let raw = RawValue::from_string((*tool).to_owned()).expect("json");
            selection.take(server, &raw);
        }
        selection
    }

    fn fs() -> ToolServer {
        ToolServer::program("fs", vec!["x".to_owned()])
    }

    #[test]
    fn a_tool_keeps_its_own_words_to_the_byte() {
        let tool = r#"{"name":"read.it","title":"T","description":"d\u00e9","inputSchema":{"z":1.0,"a":{"type":"object","x-big":12345678901234567890123}},"annotations":{"readOnlyHint":true,"odd":[]},"_meta":{"x":1},"icons":[]}"#;
        let selection = selected(&fs(), &[tool]);
        let offered = serde_json::to_string(&selection.tools[0]).expect("json");
        assert_eq!(
            offered,
            r#"{"name":"fs__read.it","title":"T","description":"d\u00e9","inputSchema":{"z":1.0,"a":{"type":"object","x-big":12345678901234567890123}},"annotations":{"readOnlyHint":true,"odd":[]}}"#
        );
        assert_eq!(selection.problem(), None);
        assert_eq!(parts("fs__read.it"), Some(("fs", "read.it")));
        assert_eq!(parts("fs__a__b"), Some(("fs", "a__b")));
    }

    #[test]
    fn what_is_missing_is_there_all_the_same() {
        let selection = selected(&fs(), &[r#"{"name":"a","inputSchema":{}}"#]);
        let offered: Value = serde_json::to_value(&selection.tools[0]).expect("json");
        let expected =
            json!({"name": "fs__a", "description": "", "inputSchema": {}, "annotations": {}});
        assert_eq!(offered, expected);
    }

    /// One tool that is described by what clients do not take must not cost the agent the whole listing.
    #[test]
    fn what_is_of_another_kind_than_it_should_be_is_as_if_it_were_missing() {
        let odd = r#"{"name":"a","title":{"b":1},"description":[7],"inputSchema":{},"outputSchema":"no","annotations":3}"#;
        let selection = selected(&fs(), &[odd]);
        let offered: Value = serde_json::to_value(&selection.tools[0]).expect("json");
        let expected =
            json!({"name": "fs__a", "description": "", "inputSchema": {}, "annotations": {}});
        assert_eq!(offered, expected);
    }

    #[test]
    fn unfit_tools_are_left_out_and_told() {
        let long = format!(r#"{{"name":"{}","inputSchema":{{}}}}"#, "n".repeat(197));
        let huge = format!(
            r#"{{"name":"huge","description":"{}","inputSchema":{{}}}}"#,
            "d".repeat(TOOL_BYTES)
        );
        for (tool, part) in [
            (r#"{"name":"a b","inputSchema":{}}"#, "cannot be offered"),
            (r#"{"name":"\u001b[2J","inputSchema":{}}"#, "\\u{1b}"),
            (r#"{"name":"","inputSchema":{}}"#, "cannot be offered"),
            (&long, "cannot be offered"),
            (&huge, "over 65536 bytes"),
            (r#"{"name":"a","inputSchema":[]}"#, "no object"),
            (r#"{"name":"a"}"#, "no tool's description"),
            ("7", "no tool's description"),
            (
                r#"{"name":"a","inputSchema":{"a":1,"a":2}}"#,
                "no proper JSON",
            ),
            (
                r#"{"name":"a","inputSchema":{"a":"\ud800"}}"#,
                "no proper JSON",
            ),
        ] {
            let selection = selected(&fs(), &[tool]);
            assert_eq!(selection.tools.len(), 0, "{tool}");
            let problem = selection.problem().expect(tool);
            assert!(problem.contains(part), "{problem}");
            assert!(!problem.contains(char::is_control), "{problem}");
        }
        let twice = r#"{"name":"a","inputSchema":{}}"#;
        let selection = selected(&fs(), &[twice, twice, "8"]);
        assert_eq!(selection.tools.len(), 1);
        assert_eq!(
            selection.problem().as_deref(),
            Some("2 tools are left out; the first: 'a' is there twice")
        );
    }

    #[test]
    fn a_listing_ends_and_the_owners_choice_is_no_problem() {
        let mut server = fs();
        server.except = vec!["t1".to_owned()];
        let tools: Vec<String> = (0..MAX_TOOLS + 5)
            .map(|number| format!(r#"{{"name":"t{number}","inputSchema":{{}}}}"#))
            .collect();
        let tools: Vec<&str> = tools.iter().map(String::as_str).collect();
        let selection = selected(&server, &tools[..10]);
        assert_eq!((selection.tools.len(), selection.problem()), (9, None));
        let selection = selected(&server, &tools);
        assert_eq!(selection.tools.len(), MAX_TOOLS);
        assert!(selection.problem().expect("told").contains("more than 256"));
    }
}
