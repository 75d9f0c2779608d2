//! Arguments against the catalogue's JSON Schemas, and refusals that name the argument, the rule and what is allowed.

use std::{borrow::Cow, collections::HashMap};

use jsonschema::{
    ValidationError, Validator,
    error::{TypeKind, ValidationErrorKind},
};
use postern_kit::Failure;
use postern_proto::catalogue::Tool;
use postern_types::ErrorCode;
use serde_json::{Map, Value};

use crate::Error;

/// Characters of a name that are repeated to the agent. The catalogue's own names are shorter.
const MAX_ECHO: usize = 64;

/// The compiled schemas of every tool.
#[derive(Debug)]
pub(crate) struct Schemas(HashMap<&'static str, Schema>);

#[derive(Debug)]
struct Schema {
    validator: Validator,
    /// The arguments' names, for messages.
    takes: String,
}

impl Schemas {
    pub(crate) fn compile(tools: &'static [Tool]) -> Result<Self, Error> {
        let mut schemas = HashMap::new();
        for tool in tools {
            let validator = jsonschema::validator_for(&tool.input_schema)
                .map_err(|error| Error::Catalogue(format!("schema of {}: {error}", tool.name)))?;
            let takes = takes(&tool.input_schema);
            schemas.insert(tool.name.as_str(), Schema { validator, takes });
        }
        Ok(Self(schemas))
    }

    /// The arguments, if the tool is known and they meet its schema.
    pub(crate) fn check(&self, tool: &str, args: &[u8]) -> Result<Map<String, Value>, Failure> {
        postern_kit::fault_point!(crate::fault_points::TOOL_BEFORE);
        let Some(schema) = self.0.get(tool) else {
            return Err(Failure::new(
                ErrorCode::UnknownTool,
                format!(
                    "There is no tool '{}'. List the tools to see which there are.",
                    shown(tool)
                ),
            ));
        };
        postern_kit::fault_point!(crate::fault_points::ARGUMENTS_BEFORE);
        let value: Value = serde_json::from_slice(args)
            .map_err(|_| invalid("", "json", "The arguments are not JSON."))?;
        if !schema.validator.is_valid(&value) {
            return Err(schema.refusal(tool, &value));
        }
        let Value::Object(arguments) = value else {
            return Err(invalid("", "type", "The arguments must be an object."));
        };
        if tool == "workspace_patch" {
            changes_something(&arguments)?;
        }
        Ok(arguments)
    }
}

impl Schema {
    /// The refusal of arguments that do not meet the schema. Of several problems the most telling is named: an argument that
    /// does not exist is often another one misspelt, which is then missing too.
    fn refusal(&self, tool: &str, value: &Value) -> Failure {
        let rank = |error: &ValidationError<'_>| match error.kind().keyword() {
            "additionalProperties" => 0,
            "required" => 1,
            _ => 2,
        };
        match self.validator.iter_errors(value).min_by_key(rank) {
            Some(error) => self.explain(tool, &error),
            None => invalid("", "schema", "The arguments do not meet the tool's schema."),
        }
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the library has dozens of kinds; the catalogue uses those above, and the last arm serves any other"
    )]
    fn explain(&self, tool: &str, error: &ValidationError<'_>) -> Failure {
        let at = error.instance_path().as_str();
        let rule = error.kind().keyword();
        let argument = argument(at);
        let message = match error.kind() {
            ValidationErrorKind::AdditionalProperties { unexpected } => {
                let name = shown(unexpected.first().map_or("", String::as_str));
                let message = format!("'{name}' is no argument of {tool}. {}", self.takes);
                return invalid(&below(at, &name), rule, message);
            }
            ValidationErrorKind::Required { property } => {
                let name = property.as_str().unwrap_or_default();
                let message = format!("The argument '{name}' is missing. {}", self.takes);
                return invalid(&below(at, name), rule, message);
            }
            ValidationErrorKind::Type { kind } => format!(
                "{argument} must be {}; it is {}.",
                types(kind),
                found(error.instance())
            ),
            ValidationErrorKind::Minimum { limit } => {
                format!("{argument} must be at least {limit}.")
            }
            ValidationErrorKind::Maximum { limit } => {
                format!("{argument} must be at most {limit}.")
            }
            ValidationErrorKind::MinLength { limit } => {
                format!("{argument} must have at least {limit} character(s).")
            }
            ValidationErrorKind::MaxLength { limit } => {
                format!("{argument} must have at most {limit} characters.")
            }
            ValidationErrorKind::Pattern { pattern } => {
                format!("{argument} must match the pattern {pattern}.")
            }
            _ => format!("{argument} does not meet the rule '{rule}' of the tool's schema."),
        };
        invalid(at, rule, message)
    }
}

/// A patch replaces a text by another one (CONTRACT.md, section 3); the schema cannot say so.
fn changes_something(arguments: &Map<String, Value>) -> Result<(), Failure> {
    let text = |name: &str| arguments.get(name).and_then(Value::as_str);
    if text("oldText") == Some("") {
        return Err(invalid(
            "/oldText",
            "minLength",
            "'oldText' must have at least 1 character: an empty text occurs everywhere.",
        ));
    }
    if text("oldText") == text("newText") {
        return Err(invalid(
            "/newText",
            "distinct",
            "'newText' must differ from 'oldText': equal texts change nothing.",
        ));
    }
    Ok(())
}

fn invalid(pointer: &str, rule: &str, message: impl Into<String>) -> Failure {
    Failure::new(ErrorCode::InvalidArguments, message)
        .with("pointer", pointer)
        .with("rule", rule)
}

/// What a message calls the value at a JSON Pointer.
fn argument(pointer: &str) -> String {
    match pointer.strip_prefix('/') {
        None => "The arguments".to_owned(),
        Some(name) => format!("'{}'", shown(name)),
    }
}

/// The JSON Pointer of a property (RFC 6901).
fn below(pointer: &str, name: &str) -> String {
    format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1"))
}

/// As much of a text as is repeated to the agent, on one line.
fn shown(text: &str) -> String {
    let mut shown: String = text
        .chars()
        .take(MAX_ECHO)
        .map(|character| {
            if character.is_control() {
                char::REPLACEMENT_CHARACTER
            } else {
                character
            }
        })
        .collect();
    if text.chars().nth(MAX_ECHO).is_some() {
        shown.push('…');
    }
    shown
}

fn takes(schema: &Value) -> String {
    let names: Vec<&str> = schema
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flat_map(Map::keys)
        .map(String::as_str)
        .collect();
    if names.is_empty() {
        "It takes no arguments.".to_owned()
    } else {
        format!("It takes: {}.", names.join(", "))
    }
}

fn types(kind: &TypeKind) -> Cow<'static, str> {
    match kind {
        TypeKind::Single(kind) => with_article(kind.as_str()).into(),
        TypeKind::Multiple(kinds) => {
            let names: Vec<&str> = kinds
                .iter()
                .map(|kind| with_article(kind.as_str()))
                .collect();
            names.join(" or ").into()
        }
    }
}

fn found(value: &Value) -> &'static str {
    with_article(match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "fraction",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    })
}

fn with_article(kind: &str) -> &'static str {
    match kind {
        "null" => "null",
        "boolean" => "a boolean",
        "fraction" => "a number with a fraction",
        "integer" => "an integer",
        "number" => "a number",
        "string" => "a string",
        "array" => "an array",
        "object" => "an object",
        _ => "of another type",
    }
}
