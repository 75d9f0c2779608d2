//! `postern reference`: the reference of the tools, one Markdown page a tool, in three languages.
//!
//! What a machine can know (schemas, annotations, profiles, operations) comes from the contracts; the words are beside this
//! file, one JSON file a language with the same keys. A test holds that nothing is missing and that each example meets
//! its schema.

use std::{collections::BTreeMap, fmt::Write as _, fs, path::Path};

use postern_proto::catalogue;
use serde::Deserialize;
use serde_json::Value;

use crate::{
    cli::{Language, Reference},
    error::Error,
    output,
};

/// Examples, and the types of results that the contract gives no schema for; the same in every language.
const EXAMPLES: &str = include_str!("reference/examples.json");

#[derive(Deserialize)]
struct Words {
    headings: BTreeMap<String, String>,
    sentences: BTreeMap<String, String>,
    tools: BTreeMap<String, ToolWords>,
    fields: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct ToolWords {
    summary: String,
    effect: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Example {
    arguments: Value,
    structured_content: Value,
    types: BTreeMap<String, String>,
}

/// A tool as the contracts tell it.
struct Tool {
    name: String,
    read_only: bool,
    destructive: bool,
    open_world: bool,
    input_schema: Value,
    profiles: Vec<String>,
    transports: Vec<String>,
    /// Path and scope of each operation of the host; empty for a tool of the workspace.
    operations: Vec<(String, String)>,
}

/// Why a page cannot be written: a contract or a file of words that does not fit the other.
type Gap = String;

/// Writes the pages.
pub(crate) fn run(arguments: &Reference) -> Result<(), Error> {
    let pages = pages(arguments.lang)
        .map_err(|gap| Error::failed("the reference cannot be written", gap))?;
    let failed =
        |path: &Path, problem| Error::failed(format!("cannot write '{}'", path.display()), problem);
    fs::create_dir_all(&arguments.out).map_err(|problem| failed(&arguments.out, problem))?;
    for (name, text) in &pages {
        let path = arguments.out.join(name);
        fs::write(&path, text).map_err(|problem| failed(&path, problem))?;
    }
    output::text_line(&format!(
        "{} pages in {}",
        pages.len(),
        arguments.out.display()
    ));
    Ok(())
}

const fn words_of(language: Language) -> &'static str {
    match language {
        Language::En => include_str!("reference/en.json"),
        Language::Nb => include_str!("reference/nb.json"),
        Language::Es => include_str!("reference/es.json"),
    }
}

/// File names and texts, the index first.
fn pages(language: Language) -> Result<Vec<(String, String)>, Gap> {
    let words: Words =
        serde_json::from_str(words_of(language)).map_err(|problem| problem.to_string())?;
    let examples: BTreeMap<String, Example> =
        serde_json::from_str(EXAMPLES).map_err(|problem| problem.to_string())?;
    let tools = tools()?;
    let mut index = format!("# {}\n\n", words.heading("index")?);
    let mut pages = Vec::new();
    for tool in &tools {
        let example = examples
            .get(&tool.name)
            .ok_or_else(|| format!("no example of {}", tool.name))?;
        let told = words.tool(&tool.name)?;
        let _ = writeln!(index, "- [`{0}`]({0}.md): {1}", tool.name, told.summary);
        pages.push((
            format!("{}.md", tool.name),
            page(&words, tool, told, example)?,
        ));
    }
    pages.insert(0, ("index.md".to_owned(), index));
    Ok(pages)
}

/// All tools, those of the host first.
fn tools() -> Result<Vec<Tool>, Gap> {
    let contract: Value = serde_json::from_str(catalogue::IDENTITY_CONTRACT)
        .map_err(|problem| problem.to_string())?;
    let texts = |value: &Value| -> Vec<String> {
        let items = value.as_array().into_iter().flatten();
        items.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let mut tools = Vec::new();
    for described in contract["tools"].as_array().into_iter().flatten() {
        let operations = described["operations"].as_array().into_iter().flatten();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        tools.push(Tool {
            name: text(&described["name"]),
            read_only: described["annotations"]["readOnlyHint"] == true,
            destructive: described["annotations"]["destructiveHint"] == true,
            open_world: described["annotations"]["openWorldHint"] == true,
            input_schema: described["inputSchema"].clone(),
            profiles: texts(&described["profiles"]),
            transports: texts(&described["transports"]),
            operations: operations
                .map(|operation| (text(&operation["path"]), text(&operation["scope"])))
                .collect(),
        });
    }
    let both = |first: &str, second: &str| vec![first.to_owned(), second.to_owned()];
    tools.extend(catalogue::workspace_tools().iter().map(|tool| Tool {
        name: tool.name.clone(),
        read_only: tool.annotations.read_only_hint && !catalogue::has_effect(&tool.name),
        destructive: tool.annotations.destructive_hint,
        open_world: tool.annotations.open_world_hint,
        input_schema: tool.input_schema.clone(),
        profiles: both("core", "full"),
        transports: both("stdio", "http"),
        operations: Vec::new(),
    }));
    Ok(tools)
}

fn page(words: &Words, tool: &Tool, told: &ToolWords, example: &Example) -> Result<String, Gap> {
    let mut out = format!("# {}\n\n{}\n", tool.name, told.summary);
    section(&mut out, words, "profiles")?;
    let profiles = words
        .sentence("profiles")?
        .replace("{profiles}", &quoted(&tool.profiles))
        .replace("{transports}", &quoted(&tool.transports));
    let _ = writeln!(out, "{profiles}");
    section(&mut out, words, "permissions")?;
    let mut sentences = vec![told.effect.as_str()];
    sentences.push(words.sentence(if tool.reads_for_all() {
        "reads"
    } else {
        "acts"
    })?);
    if tool.destructive {
        sentences.push(words.sentence("destructive")?);
    }
    if tool.open_world {
        sentences.push(words.sentence("open_world")?);
    }
    let _ = writeln!(out, "{}", sentences.join(" "));
    section(&mut out, words, "input")?;
    input(&mut out, words, tool)?;
    section(&mut out, words, "output")?;
    structured(&mut out, words, tool, example)?;
    section(&mut out, words, "example")?;
    for (heading, value) in [
        ("call", &example.arguments),
        ("result", &example.structured_content),
    ] {
        let value = serde_json::to_string_pretty(value).map_err(|problem| problem.to_string())?;
        let _ = writeln!(
            out,
            "{}\n\n```json\n{value}\n```\n",
            words.heading(heading)?
        );
    }
    let _ = writeln!(out, "## {}\n", words.heading("operations")?);
    if tool.operations.is_empty() {
        let channel = words.sentence("channel")?;
        let protocol = catalogue::PROTOCOL.to_string();
        let _ = writeln!(out, "{}", channel.replace("{protocol}", &protocol));
    }
    for (path, scope) in &tool.operations {
        let operation = words.sentence("operation")?;
        let operation = operation.replace("{path}", path).replace("{scope}", scope);
        let _ = writeln!(out, "{operation}");
    }
    Ok(out)
}

fn section(out: &mut String, words: &Words, heading: &str) -> Result<(), Gap> {
    let _ = writeln!(out, "\n## {}\n", words.heading(heading)?);
    Ok(())
}

fn input(out: &mut String, words: &Words, tool: &Tool) -> Result<(), Gap> {
    let fields = tool.input_schema["properties"].as_object();
    let Some(fields) = fields.filter(|fields| !fields.is_empty()) else {
        let _ = writeln!(out, "{}", words.heading("none")?);
        return Ok(());
    };
    let heading = |name| words.heading(name);
    let _ = writeln!(
        out,
        "| {} | {} | {} | {} |\n|---|---|---|---|",
        heading("field")?,
        heading("type")?,
        heading("required")?,
        heading("meaning")?
    );
    for (name, schema) in fields {
        let required = tool.input_schema["required"]
            .as_array()
            .is_some_and(|required| required.iter().any(|field| field == name));
        let _ = writeln!(
            out,
            "| `{name}` | {} | {} | {} |",
            type_of(schema),
            heading(if required { "yes" } else { "no" })?,
            words.field(&tool.name, name)?
        );
    }
    Ok(())
}

fn structured(out: &mut String, words: &Words, tool: &Tool, example: &Example) -> Result<(), Gap> {
    if example.types.is_empty() {
        let _ = writeln!(out, "{}", words.sentence("free")?);
        return Ok(());
    }
    if tool.name == "workspace_image" {
        let _ = writeln!(out, "{}\n", words.sentence("image")?);
    }
    let heading = |name| words.heading(name);
    let _ = writeln!(
        out,
        "| {} | {} | {} |\n|---|---|---|",
        heading("field")?,
        heading("type")?,
        heading("meaning")?
    );
    for (name, kind) in &example.types {
        let kind = kind.replace('|', "\\|");
        let _ = writeln!(
            out,
            "| `{name}` | {kind} | {} |",
            words.field(&tool.name, name)?
        );
    }
    Ok(())
}

/// The type of an argument with its bounds, in the schema's own words.
fn type_of(schema: &Value) -> String {
    let mut parts = match &schema["type"] {
        Value::String(kind) => vec![kind.clone()],
        Value::Array(kinds) => {
            let kinds: Vec<&str> = kinds.iter().filter_map(Value::as_str).collect();
            vec![kinds.join(" \\| ")]
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => Vec::new(),
    };
    for (least, most) in [("minLength", "maxLength"), ("minimum", "maximum")] {
        match (schema[least].as_u64(), schema[most].as_u64()) {
            (Some(least), Some(most)) => parts.push(format!("{least}–{most}")),
            (Some(least), None) => parts.push(format!("≥ {least}")),
            (None, Some(most)) => parts.push(format!("≤ {most}")),
            (None, None) => {}
        }
    }
    for key in ["format", "pattern"] {
        if let Some(text) = schema[key].as_str() {
            parts.push(format!("`{text}`"));
        }
    }
    parts.join(", ")
}

fn quoted(names: &[String]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    names.join(", ")
}

impl Tool {
    /// Whether every role may use it: the reading tools, and the context of the workspace.
    fn reads_for_all(&self) -> bool {
        self.read_only || self.name == "sosoapi_get_workspace_context"
    }
}

impl Words {
    fn heading(&self, name: &str) -> Result<&str, Gap> {
        find(&self.headings, name)
    }

    fn sentence(&self, name: &str) -> Result<&str, Gap> {
        find(&self.sentences, name)
    }

    fn tool(&self, name: &str) -> Result<&ToolWords, Gap> {
        self.tools
            .get(name)
            .ok_or_else(|| format!("no words for {name}"))
    }

    /// What a field means: for this tool, or for every tool that has it.
    fn field(&self, tool: &str, field: &str) -> Result<&str, Gap> {
        find(&self.fields, &format!("{tool}.{field}")).or_else(|_| find(&self.fields, field))
    }
}

fn find<'a>(words: &'a BTreeMap<String, String>, name: &str) -> Result<&'a str, Gap> {
    words
        .get(name)
        .map(String::as_str)
        .ok_or_else(|| format!("no words for {name}"))
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;
    use pretty_assertions::assert_eq;

    use super::*;

    fn keys(value: &Value, at: &str, found: &mut Vec<String>) {
        for (key, inner) in value.as_object().into_iter().flatten() {
            let here = format!("{at}/{key}");
            keys(inner, &here, found);
            found.push(here);
        }
    }

    #[test]
    fn every_language_has_every_page_and_the_same_keys() {
        let mut first = None;
        for language in Language::value_variants() {
            let pages = pages(*language).expect("pages");
            assert_eq!(pages.len(), 18, "{language:?}");
            let words: Value = serde_json::from_str(words_of(*language)).expect("JSON");
            let mut found = Vec::new();
            keys(&words, "", &mut found);
            assert_eq!(
                first.get_or_insert_with(|| found.clone()),
                &found,
                "{language:?}"
            );
        }
    }

    #[test]
    fn every_example_meets_its_schemas() {
        let examples: BTreeMap<String, Example> = serde_json::from_str(EXAMPLES).expect("JSON");
        let contract: Value = serde_json::from_str(catalogue::IDENTITY_CONTRACT).expect("JSON");
        for tool in tools().expect("tools") {
            let example = &examples[&tool.name];
            let schema = jsonschema::validator_for(&tool.input_schema).expect("schema");
            assert!(schema.is_valid(&example.arguments), "{}", tool.name);
            let described = contract["tools"].as_array().into_iter().flatten();
            for described in described.filter(|described| described["name"] == tool.name) {
                let schema = jsonschema::validator_for(&described["outputSchema"]).expect("schema");
                assert!(
                    schema.is_valid(&example.structured_content),
                    "{}",
                    tool.name
                );
            }
        }
    }

    #[test]
    fn every_field_of_an_example_has_its_type() {
        let examples: BTreeMap<String, Example> = serde_json::from_str(EXAMPLES).expect("JSON");
        for (name, example) in examples {
            let fields = example.structured_content.as_object().expect("object");
            if example.types.is_empty() {
                assert_eq!(name, "workspace_tool");
                continue;
            }
            for (field, value) in fields {
                let kind = match value {
                    Value::Null => "null",
                    Value::Bool(_) => "boolean",
                    Value::Number(_) => "integer",
                    Value::String(_) => "string",
                    Value::Array(_) => "array",
                    Value::Object(_) => "object",
                };
                assert!(example.types[field].contains(kind), "{name}.{field}");
            }
            assert_eq!(fields.len(), example.types.len(), "{name}");
        }
    }

    #[test]
    fn pages_hold_what_a_caller_needs() {
        let pages: BTreeMap<_, _> = pages(Language::En).expect("pages").into_iter().collect();
        let write = &pages["workspace_write.md"];
        for part in [
            "| `expectedSha256` | string \\| null, `^[a-f0-9]{64}$` | yes |",
            "| `content` | string, ≤ 1048576 | yes |",
            "It can overwrite or remove what is there.",
            "`core`, `full`",
            "protocol 1",
        ] {
            assert!(write.contains(part), "{part} in {write}");
        }
        assert!(
            pages["sosoapi_create_workspace.md"].contains("POST /identity-api/workspace/create")
        );
        assert!(pages["workspace_stop.md"].contains("For the roles owner and editor."));
        assert!(pages["index.md"].contains("[`workspace_read`](workspace_read.md)"));
    }
}
