//! Whatever a test gets from the host is what the document says of it.

use std::sync::LazyLock;

use serde_json::Value;

use super::http_client::Answer;
use crate::{host::described_routes, openapi};

static DOCUMENT: LazyLock<Value> =
    LazyLock::new(|| openapi::document(&described_routes(), "http://127.0.0.1"));

/// Panics when an answer is not described. What is not of the document (`/mcp`, other paths and methods) is only held to be a
/// problem, in its form.
pub(super) fn check(method: &str, target: &str, answer: &Answer) {
    let document = &*DOCUMENT;
    let path = target.split('?').next().unwrap_or_default();
    if path == "/mcp" {
        return;
    }
    let method = method.to_ascii_lowercase();
    let Some(operation) = template(document, path).and_then(|methods| methods.get(&method)) else {
        assert!(matches!(answer.status, 403..=405), "{target}: {answer:?}");
        answer.problem();
        return;
    };
    let status = answer.status.to_string();
    let described = operation["responses"].get(&status).unwrap_or_else(|| {
        panic!("{method} {target} answers {status}, which is not described: {answer:?}")
    });
    for name in described["headers"].as_object().into_iter().flatten() {
        assert!(
            answer.headers.contains_key(&name.0.to_ascii_lowercase()),
            "{} is missing: {answer:?}",
            name.0
        );
    }
    let kind = answer.headers.get("content-type");
    let Some(media) = kind.and_then(|kind| described["content"].get(kind)) else {
        assert!(described["content"].is_null(), "{target}: {answer:?}");
        return;
    };
    let mut schema = media["schema"].clone();
    schema["components"] = document["components"].clone();
    if let Err(error) = jsonschema::validate(&schema, &answer.json()) {
        panic!("{method} {target}: {error}: {answer:?}");
    }
}

/// What is described of a path.
fn template<'a>(document: &'a Value, path: &str) -> Option<&'a Value> {
    let fits = |template: &str| {
        template.split('/').count() == path.split('/').count()
            && template
                .split('/')
                .zip(path.split('/'))
                .all(|(part, given)| part == given || part.starts_with('{'))
    };
    let paths = document["paths"].as_object()?;
    paths
        .iter()
        .find(|(template, _)| fits(template))
        .map(|(_, methods)| methods)
}
