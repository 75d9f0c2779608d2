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
    routing::{MethodRouter, get},
};
use http::{HeaderValue, header};
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
            router.route(operation.path, handler)
        })
        .layer(Extension(document))
        .with_state(shared)
}

/// The document that describes some routes of a host at a URL.
pub(crate) fn document(routes: &[Route], public_url: &str) -> Value {
    let operations: Vec<_> = routes.iter().map(|(operation, _)| *operation).collect();
    document::of(&operations, public_url)
}
