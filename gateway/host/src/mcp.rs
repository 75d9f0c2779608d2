//! The MCP server at `/mcp`.

use std::sync::Arc;

use axum::Router;

use crate::host::Shared;

/// The routes of the MCP server.
pub(crate) fn router(shared: Arc<Shared>) -> Router {
    Router::new().with_state(shared)
}
