//! The document describes what the code does.

use std::collections::BTreeSet;

use postern_proto::catalogue;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use crate::host::described_routes;

fn document() -> Value {
    super::document(&described_routes(), "https://agents.example")
}

/// Every (path, method, description).
fn operations(document: &Value) -> impl Iterator<Item = (&str, &str, &Value)> {
    let paths = document["paths"].as_object().expect("paths");
    paths.iter().flat_map(|(path, methods)| {
        let methods = methods.as_object().expect("methods");
        methods
            .iter()
            .map(move |(method, operation)| (path.as_str(), method.as_str(), operation))
    })
}

/// Whether a value fits a schema of the document.
fn fits(document: &Value, schema: &Value, value: &Value) -> Result<(), String> {
    let mut schema = schema.clone();
    schema["components"] = document["components"].clone();
    let validator = jsonschema::options()
        .should_validate_formats(true)
        .build(&schema)
        .expect("a schema");
    validator.validate(value).map_err(|error| error.to_string())
}

#[test]
fn every_example_is_valid() {
    let document = document();
    let mut seen = 0;
    for (path, _, operation) in operations(&document) {
        let bodies = operation["responses"]
            .as_object()
            .expect("responses")
            .values()
            .chain(operation.get("requestBody"));
        for media in bodies.map(|body| &body["content"]["application/json"]) {
            let Some(example) = media["examples"]["example"].get("value") else {
                continue;
            };
            fits(&document, &media["schema"], example)
                .unwrap_or_else(|error| panic!("{path}: {error}"));
            seen += 1;
        }
    }
    assert!(seen >= 15, "only {seen} examples");
}

#[test]
fn what_the_contract_defines_is_taken_as_it_defines_it() {
    let document = document();
    let schemas = &document["components"]["schemas"];
    for (name, tool) in ["WorkspaceListRequest", "WorkspaceCreateRequest"]
        .into_iter()
        .zip(catalogue::identity_tools())
    {
        let mut schema = schemas[name].clone();
        if let Some(name) = schema.pointer_mut("/properties/name") {
            // Not every store can hold U+0000.
            assert_eq!(name["pattern"], "^[^\\u0000]*$");
            name.as_object_mut().expect("a schema").remove("pattern");
        }
        assert_eq!(schema, tool.input_schema, "{name}");
    }
}

/// The answers are those of the tools: what fits the contract fits the document, and has no field more or less.
#[test]
fn answers_have_the_fields_of_the_contract() {
    fn fields(document: &Value, schema: &Value, at: &str, found: &mut BTreeSet<String>) {
        let schema = match schema["$ref"].as_str() {
            Some(reference) => document
                .pointer(reference.trim_start_matches('#'))
                .expect("a definition"),
            None => schema,
        };
        if schema["type"] == "array" {
            return fields(document, &schema["items"], &format!("{at}[]"), found);
        }
        let required = schema["required"].as_array();
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let always = required.is_some_and(|names| names.contains(&json!(name)));
            let at = format!("{at}/{name}");
            found.insert(format!("{at} {always}"));
            fields(document, property, &at, found);
        }
    }
    let document = document();
    for (name, tool) in ["WorkspaceList", "WorkspaceCreated"]
        .into_iter()
        .zip(catalogue::identity_tools())
    {
        let (mut ours, mut theirs) = (BTreeSet::new(), BTreeSet::new());
        let schema = &document["components"]["schemas"][name];
        fields(&document, schema, "", &mut ours);
        let contract = tool.output_schema.clone().expect("an output schema");
        fields(&contract, &contract, "", &mut theirs);
        assert_eq!(ours, theirs, "{name}");
    }
}

#[test]
fn the_document_is_whole() {
    let document = document();
    let mut ids = BTreeSet::new();
    for (path, method, operation) in operations(&document) {
        let id = operation["operationId"].as_str().expect("an id");
        assert!(ids.insert(id.to_owned()), "{id} twice");
        assert!(!operation["summary"].as_str().expect("text").is_empty());
        assert_eq!(method == "post", operation["requestBody"].is_object());
        assert!(
            operation["responses"]["403"]["content"]["application/problem+json"]["schema"]["properties"]
                ["code"]["enum"]
                .as_array()
                .is_some_and(|codes| codes.contains(&json!("origin_not_allowed"))),
            "{path}"
        );
    }
    for (path, _, operation) in operations(&document) {
        let responses = operation["responses"].as_object().expect("responses");
        for link in responses
            .values()
            .flat_map(|response| response["links"].as_object().into_iter().flatten())
            .map(|(_, link)| link)
        {
            let to = link["operationId"].as_str().expect("an operation");
            assert!(ids.contains(to), "{path} leads to {to}");
        }
    }
    let references: Vec<_> = document
        .to_string()
        .split("\"$ref\":\"#")
        .skip(1)
        .map(|rest| rest.split('"').next().unwrap_or_default().to_owned())
        .collect();
    assert!(!references.is_empty());
    for reference in references {
        assert!(document.pointer(&reference).is_some(), "{reference}");
    }
    let text = document.to_string();
    assert!(!text.contains("uint64") && !text.contains("\"default\":null"));
}
