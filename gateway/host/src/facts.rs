//! What the host tells everybody: its health, the channel's description and where tokens are needed.

use std::sync::Arc;

use axum::{
    Json, Router,
    extract::State,
    response::{IntoResponse as _, Response},
    routing::get,
};
use http::{HeaderValue, StatusCode, header};
use postern_proto::catalogue::CHANNEL_CONTRACT;
use serde_json::{Value, json};

use crate::{host::Shared, problem::Problem};

/// The routes.
pub(crate) fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/healthz", get(health))
        .route("/api/ai-gateway/v1/protocol", get(protocol))
        .route("/.well-known/oauth-protected-resource", get(resource))
        .route("/.well-known/oauth-protected-resource/mcp", get(resource))
        .with_state(shared)
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
    if shared.calls.can_record() {
        return Json(json!({"status": "ok"})).into_response();
    }
    Problem::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "unavailable",
        "The host cannot record calls.",
    )
    .into_response()
}

/// The channel's description, to the letter of the contract.
async fn protocol() -> Response {
    let json = HeaderValue::from_static("application/json");
    ([(header::CONTENT_TYPE, json)], CHANNEL_CONTRACT).into_response()
}

/// RFC 9728. The host's tokens are given out by its owner, so there is no authorization server to name.
async fn resource(State(shared): State<Arc<Shared>>) -> Json<Value> {
    Json(json!({
        "resource": format!("{}/mcp", shared.config.public_url),
        "resource_name": "Postern",
        "bearer_methods_supported": ["header"],
        "scopes_supported": ["agent:operate"],
    }))
}
