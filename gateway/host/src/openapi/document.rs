//! The document.

use std::collections::BTreeMap;

use schemars::{Schema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};

use super::operation::{Access, Content, Link, Operation, Refusal};
use crate::{access, identity_api, problem};

/// What the document says of itself.
const ABOUT: &str = "\
Workspaces, launches and tokens of an agent host, the channel by which an owner's edge serves a workspace, and facts for everybody.

Refusals are problem details (RFC 9457) with a stable `code`. A path that is not described is answered 404 `not_found`, a method \
that a path does not take 405 `method_not_allowed` with `Allow`. Bodies are taken literally: one JSON object, no key twice, no \
field that is not described, no null where a field may be left out. What is not a request of HTTP/1.1, has a head of more than \
32 KiB or 64 fields, or is slower than 10 s, is hung up on, with a bare 400, 414 or 431 where one can still be told.

Agents use their workspace by MCP at `/mcp`, which is not described here.";

/// The document of some operations.
pub(super) fn of(operations: &[Operation], public_url: &str) -> Value {
    let mut schemas = Schemas::new();
    let mut paths: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for operation in operations {
        let described = describe(operation, &mut schemas);
        paths
            .entry(operation.path)
            .or_default()
            .insert(operation.method.key().to_owned(), described);
    }
    json!({
        "openapi": "3.1.1",
        "info": {
            "title": "Postern agent host",
            "version": env!("CARGO_PKG_VERSION"),
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
            "description": ABOUT,
        },
        "servers": [{"url": public_url}],
        "paths": paths,
        "components": {
            "schemas": schemas.into_definitions(),
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "An admin's or agent's token. The names beside it are the scopes that it takes; the admin's has all.",
                },
                "channelToken": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The channel token of a launch. It opens channels and nothing else.",
                },
            },
        },
    })
}

/// What is received and what is sent have schemas of their own.
struct Schemas {
    received: SchemaGenerator,
    sent: SchemaGenerator,
}

impl Schemas {
    fn new() -> Self {
        let settings = || {
            SchemaSettings::draft2020_12().with(|settings| {
                settings.definitions_path = "/components/schemas".into();
                settings.meta_schema = None;
            })
        };
        Self {
            received: settings().for_deserialize().into_generator(),
            sent: settings().for_serialize().into_generator(),
        }
    }

    fn into_definitions(mut self) -> Map<String, Value> {
        let mut definitions = self.received.take_definitions(true);
        definitions.extend(self.sent.take_definitions(true));
        definitions.values_mut().for_each(without_native_details);
        definitions
    }
}

/// Takes away what only says how a value is kept in memory.
fn without_native_details(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            let native = fields
                .get("format")
                .and_then(Value::as_str)
                .is_some_and(|format| format.starts_with("uint"));
            if native {
                fields.remove("format");
            }
            if fields.get("default").is_some_and(Value::is_null) {
                fields.remove("default");
            }
            fields.values_mut().for_each(without_native_details);
        }
        Value::Array(items) => items.iter_mut().for_each(without_native_details),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn describe(operation: &Operation, schemas: &mut Schemas) -> Value {
    let mut described = json!({
        "operationId": operation.id,
        "summary": operation.summary,
        "security": security(operation.access),
        "responses": responses(operation, schemas),
    });
    let parameters = parameters(operation.path);
    if !parameters.is_empty() {
        described["parameters"] = parameters.into();
    }
    if let Some(content) = &operation.takes {
        described["requestBody"] = json!({
            "required": true,
            "description": content.description,
            "content": {"application/json": media(content, &mut schemas.received)},
        });
    }
    described
}

fn security(access: Access) -> Value {
    match access {
        Access::Everybody => json!([]),
        Access::Scope(scope) => json!([{"token": [scope]}]),
        Access::Channel => json!([{"channelToken": []}]),
    }
}

/// The parts of a path that vary.
fn parameters(path: &str) -> Vec<Value> {
    let names = path
        .split('/')
        .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    names
        .map(|name| {
            json!({
                "name": name,
                "in": "path",
                "required": true,
                "schema": {"type": "string", "format": "uuid"},
            })
        })
        .collect()
}

fn media(content: &Content, generator: &mut SchemaGenerator) -> Value {
    let schema: Schema = (content.schema)(generator);
    let mut media = json!({"schema": schema});
    if let Ok(example) = serde_json::from_str::<Value>(content.example) {
        media["examples"] = json!({"example": {"value": example}});
    }
    media
}

fn responses(operation: &Operation, schemas: &mut Schemas) -> Map<String, Value> {
    let mut responses = Map::new();
    let (status, done) = done(operation, schemas);
    responses.insert(status.to_owned(), done);
    let mut by_status: BTreeMap<u16, Vec<Refusal>> = BTreeMap::new();
    for refusal in refusals(operation) {
        by_status.entry(refusal.status).or_default().push(refusal);
    }
    for (status, refusals) in by_status {
        let problem = schemas.sent.subschema_for::<problem::Details>();
        responses.insert(status.to_string(), refused(status, &refusals, &problem));
    }
    responses
}

/// Every refusal of an operation: what its access and body imply, and its own.
pub(super) fn refusals(operation: &Operation) -> impl Iterator<Item = Refusal> {
    let by_access = match operation.access {
        Access::Everybody => [].as_slice(),
        Access::Scope(_) => identity_api::TOKEN_REFUSALS,
        Access::Channel => access::TOKEN_REFUSALS,
    };
    let by_body = match operation.takes {
        Some(_) => identity_api::BODY_REFUSALS,
        None => &[],
    };
    [
        access::SITE_REFUSALS,
        by_access,
        by_body,
        operation.refusals,
    ]
    .into_iter()
    .flatten()
    .copied()
}

/// The answer of what was done.
fn done(operation: &Operation, schemas: &mut Schemas) -> (&'static str, Value) {
    let content = &operation.gives;
    if matches!(operation.access, Access::Channel) {
        let headers = headers(&["Upgrade", "Connection", "Sec-WebSocket-Accept"]);
        return (
            "101",
            json!({"description": content.description, "headers": headers}),
        );
    }
    let mut done = json!({
        "description": content.description,
        "content": {"application/json": media(content, &mut schemas.sent)},
    });
    if matches!(operation.access, Access::Scope(_)) {
        done["headers"] = headers(&["Cache-Control"]);
    }
    if !operation.links.is_empty() {
        done["links"] = operation.links.iter().map(link).collect();
    }
    ("200", done)
}

fn link(link: &Link) -> (String, Value) {
    let body: Value = serde_json::from_str(link.body).unwrap_or_default();
    let described = json!({"operationId": link.to, "requestBody": body});
    (link.name.to_owned(), described)
}

fn refused(status: u16, refusals: &[Refusal], problem: &Schema) -> Value {
    let sentences: Vec<_> = refusals
        .iter()
        .map(|refusal| format!("`{}`: {}", refusal.code, refusal.when))
        .collect();
    let codes: Vec<_> = refusals.iter().map(|refusal| refusal.code).collect();
    let mut names = vec!["Cache-Control"];
    names.extend(refusals.iter().flat_map(|refusal| refusal.headers));
    names.dedup();
    json!({
        "description": sentences.join("\n\n"),
        "headers": headers(&names),
        "content": {"application/problem+json": {"schema": {
            "allOf": [problem],
            "properties": {"status": {"const": status}, "code": {"enum": codes}},
        }}},
    })
}

/// Header fields that an answer always has.
fn headers(names: &[&str]) -> Value {
    names
        .iter()
        .map(|name| {
            let schema = match *name {
                "Retry-After" => json!({"type": "integer", "minimum": 1}),
                "Cache-Control" => json!({"const": "no-store"}),
                "Sec-WebSocket-Version" => json!({"const": "13"}),
                _ => json!({"type": "string"}),
            };
            let described = json!({"required": true, "schema": schema});
            ((*name).to_owned(), described)
        })
        .collect::<Map<_, _>>()
        .into()
}
