//! The HTTP API as one list: each operation with what answers it, so that the routes and the document that describes them
//! (`GET /identity-api/openapi.json`, OpenAPI 3.1) cannot differ.
//!
//! Schemas are made from the types of bodies and answers, or are the contract's own. Deliberately not here: `/mcp`, whose requests
//! and answers MCP describes itself.

mod document;
mod operation;
pub(crate) mod schema;
#[cfg(test)]
mod tests;

use std::{collections::HashMap, sync::Arc};

use axum::{
    Extension, Router,
    body::Bytes,
    extract::Request,
    middleware::{self, Next},
    response::Response,
    routing::{MethodRouter, get},
};
use http::{HeaderValue, header};
use postern_kit::trace;
use serde_json::Value;

use crate::host::Shared;

pub(crate) use operation::{Access, Content, Link, Method, Operation, Refusal};

/// Where the document is.
const PATH: &str = "/identity-api/openapi.json";

/// An operation and what answers it.
pub(crate) type Route = (Operation, MethodRouter<Arc<Shared>>);

/// This document.
const DESCRIBE: Operation = Operation {
    id: "getOpenApi",
    method: Method::Get,
    path: PATH,
    summary: "This document",
    access: Access::Everybody,
    takes: None,
    gives: Content::of::<HashMap<String, Value>>(
        "What the API takes and answers, in OpenAPI 3.1.",
        "",
    ),
    refusals: &[],
    links: &[],
};

/// The route of the document.
pub(crate) fn route() -> Route {
    let answer = |Extension(document): Extension<Document>| async move {
        let json = HeaderValue::from_static("application/json");
        ([(header::CONTENT_TYPE, json)], document.0)
    };
    (DESCRIBE, get(answer))
}

/// The document as it is sent.
#[derive(Clone)]
struct Document(Bytes);

/// The routes, and what the document says of them.
pub(crate) fn router(routes: Vec<Route>, shared: Arc<Shared>) -> Router {
    let document = document(&routes, &shared.config.public_url);
    let document = Document(Bytes::from(document.to_string()));
    routes
        .into_iter()
        .fold(Router::new(), |router, (operation, handler)| {
            let layer = middleware::from_fn(move |request, next| traced(operation, request, next));
            router.route(operation.path, handler.layer(layer))
        })
        .layer(Extension(document))
        .with_state(shared)
}

/// Has a request in a span, in its sender's trace if it is in one.
async fn traced(operation: Operation, request: Request, next: Next) -> Response {
    let sender = trace::Agent::of(request.headers());
    let span = trace::request(operation.method.name(), operation.path, sender.as_ref());
    let response = span.run(next.run(request)).await;
    trace::answered(&span, response.status().as_u16());
    response
}

/// The document that describes some routes of a host at a URL.
pub(crate) fn document(routes: &[Route], public_url: &str) -> Value {
    let operations: Vec<_> = routes.iter().map(|(operation, _)| *operation).collect();
    document::of(&operations, public_url)
}
