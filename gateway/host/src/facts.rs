//! What the host tells everybody: its health, the channel's description and where tokens are needed.

use std::{collections::HashMap, sync::Arc};

use axum::{
    Json,
    extract::State,
    response::{IntoResponse as _, Response},
    routing::get,
};
use http::{HeaderValue, StatusCode, header};
use postern_proto::catalogue::CHANNEL_CONTRACT;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::{
    host::Shared,
    openapi::{Access, Content, Method, Operation, Refusal, Route},
    problem::{self, Problem},
};

const fn fact(
    id: &'static str,
    path: &'static str,
    summary: &'static str,
    gives: Content,
) -> Operation {
    Operation {
        id,
        method: Method::Get,
        path,
        summary,
        access: Access::Everybody,
        takes: None,
        gives,
        refusals: &[],
        links: &[],
    }
}

const HEALTH: Operation = Operation {
    refusals: &[Refusal::new(
        503,
        "unavailable",
        "The host cannot record calls, or its accounts are away.",
    )
    .with(&["Retry-After"])],
    ..fact(
        "getHealth",
        "/healthz",
        "Whether the host can work",
        Content::of::<Health>("It can.", r#"{"status": "ok"}"#),
    )
};
const PROTOCOL: Operation = fact(
    "getChannelProtocol",
    "/api/ai-gateway/v1/protocol",
    "The channel's description: frames, constraints, limits and tools",
    Content::of::<HashMap<String, Value>>("The description.", ""),
);
const RESOURCE: Operation = fact(
    "getProtectedResource",
    "/.well-known/oauth-protected-resource/mcp",
    "Where and how agents show their token (RFC 9728)",
    Content::of::<Resource>("The metadata of /mcp.", RESOURCE_EXAMPLE),
);
const RESOURCE_AT_ROOT: Operation = Operation {
    id: "getProtectedResourceAtRoot",
    path: "/.well-known/oauth-protected-resource",
    ..RESOURCE
};

const RESOURCE_EXAMPLE: &str = r#"{
    "resource": "https://agents.example/mcp",
    "resource_name": "Postern",
    "bearer_methods_supported": ["header"],
    "scopes_supported": ["agent:operate"]
}"#;

/// The routes.
pub(crate) fn routes() -> Vec<Route> {
    vec![
        (HEALTH, get(health)),
        (PROTOCOL, get(protocol)),
        (RESOURCE, get(resource)),
        (RESOURCE_AT_ROOT, get(resource)),
    ]
}

/// That the host can work.
#[derive(JsonSchema, Serialize)]
struct Health {
    /// The one thing that is ever said.
    status: Ok,
}

#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "lowercase")]
enum Ok {
    Ok,
}

/// Metadata of a protected resource.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "ProtectedResource")]
struct Resource {
    /// Where agents call tools.
    resource: String,
    /// Name.
    resource_name: &'static str,
    /// How they send their token.
    bearer_methods_supported: [&'static str; 1],
    /// What it must open.
    scopes_supported: [&'static str; 1],
}

/// A path that the host does not have.
pub(crate) async fn not_found() -> Problem {
    Problem::new(
        StatusCode::NOT_FOUND,
        "not_found",
        "There is nothing at this path.",
    )
}

/// A method that a path does not take.
pub(crate) async fn method_not_allowed() -> Problem {
    Problem::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "method_not_allowed",
        "This path does not take that method.",
    )
}

async fn health(State(shared): State<Arc<Shared>>) -> Response {
    let missing = if !shared.calls.can_record() {
        "The host cannot record calls."
    } else if !*shared.config.identity_ready.borrow() {
        "The host's accounts are away: its identity service has no database."
    } else {
        return Json(Health { status: Ok::Ok }).into_response();
    };
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", missing)
        .retry_after(problem::RETRY)
        .into_response()
}

/// The channel's description, to the letter of the contract.
async fn protocol() -> Response {
    let json = HeaderValue::from_static("application/json");
    ([(header::CONTENT_TYPE, json)], CHANNEL_CONTRACT).into_response()
}

/// RFC 9728. The host's tokens are given out by its owner, so there is no authorization server to name.
async fn resource(State(shared): State<Arc<Shared>>) -> Json<Resource> {
    Json(Resource {
        resource: format!("{}/mcp", shared.config.public_url),
        resource_name: "Postern",
        bearer_methods_supported: ["header"],
        scopes_supported: ["agent:operate"],
    })
}
