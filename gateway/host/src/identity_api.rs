//! The identity API over HTTP: workspaces, launches and tokens (CONTRACT.md, section 5).
//!
//! The functions that two MCP tools share with it take the tool's arguments as JSON text, since that is what both have.

use std::{sync::Arc, time::Duration};

use axum::{
    Json, Router,
    body::Body,
    extract::{DefaultBodyLimit, Request, State},
    response::{IntoResponse as _, Response},
    routing::post,
};
use http::{HeaderValue, StatusCode, header};
use postern_proto::identity::v1 as api;
use serde::Serialize;

use crate::{host::Shared, identity::Identity, problem::Problem};

mod body;
mod view;

/// Largest body of the identity API, in bytes: an intention of 4000 escaped characters and some names.
const MAX_BODY_BYTES: usize = 64 * 1024;

/// Scope of agents.
const SCOPE_AGENT: &str = "agent:operate";
/// Scope that makes launches.
const SCOPE_LAUNCH: &str = "launch:create";
/// Scope that makes, lists and revokes tokens.
const SCOPE_TOKEN: &str = "token:create";

/// The routes of the identity API.
pub(crate) fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/identity-api/workspace/list", post(list_workspaces))
        .route("/identity-api/workspace/create", post(create_workspace))
        .route("/identity-api/launch/create", post(create_launch))
        .route("/identity-api/token/create", post(create_token))
        .route("/identity-api/token/list", post(list_tokens))
        .route("/identity-api/token/revoke", post(revoke_token))
        .layer(DefaultBodyLimit::disable())
        .with_state(shared)
}

/// `sosoapi_get_workspace_context` and `POST /identity-api/workspace/list`: the answer to `arguments`.
///
/// # Errors
/// What the arguments or the identity service refuse.
pub(crate) async fn workspace_list(
    identity: &Identity,
    token_id: &str,
    arguments: &str,
) -> Result<impl Serialize + use<>, Problem> {
    let body: body::WorkspaceList = body::parse(arguments)?;
    let answer = identity.list_workspaces(token_id).await?;
    view::WorkspaceList::new(answer, body.include_version.unwrap_or_default())
}

/// `sosoapi_create_workspace` and `POST /identity-api/workspace/create`: the answer to `arguments`. The role is that of an
/// agent's token; the admin token has none, as it is tied to no workspace.
///
/// # Errors
/// What the role, the arguments or the identity service refuse.
pub(crate) async fn workspace_create(
    identity: &Identity,
    token_id: &str,
    role: Option<api::Role>,
    arguments: &str,
) -> Result<impl Serialize + use<>, Problem> {
    if let Some(role) = role {
        demand_editor(role)?;
    }
    let body: body::WorkspaceCreate = body::parse(arguments)?;
    let request = body.into_request(token_id, arguments)?;
    let answer = identity.create_workspace(request).await?;
    view::WorkspaceCreated::new(answer)
}

async fn list_workspaces(
    State(shared): State<Arc<Shared>>,
    request: Request,
) -> Result<Response, Problem> {
    let (token, text) = read(&shared, request, SCOPE_AGENT).await?;
    answer(workspace_list(&shared.identity, &token.id, &text).await?)
}

async fn create_workspace(
    State(shared): State<Arc<Shared>>,
    request: Request,
) -> Result<Response, Problem> {
    let (token, text) = read(&shared, request, SCOPE_AGENT).await?;
    let role = (token.kind() != api::TokenKind::Admin).then(|| token.role());
    answer(workspace_create(&shared.identity, &token.id, role, &text).await?)
}

async fn create_launch(
    State(shared): State<Arc<Shared>>,
    request: Request,
) -> Result<Response, Problem> {
    let (token, text) = read(&shared, request, SCOPE_LAUNCH).await?;
    let body: body::LaunchCreate = body::parse(&text)?;
    let created = shared
        .identity
        .create_launch(body.into_request(token.id)?)
        .await?;
    answer(view::LaunchCreated::new(
        created,
        &shared.config.public_url,
    )?)
}

async fn create_token(
    State(shared): State<Arc<Shared>>,
    request: Request,
) -> Result<Response, Problem> {
    let (token, text) = read(&shared, request, SCOPE_TOKEN).await?;
    let body: body::TokenCreate = body::parse(&text)?;
    let created = shared
        .identity
        .create_token(body.into_request(token.id)?)
        .await?;
    answer(view::TokenAnswer::created(created)?)
}

async fn list_tokens(
    State(shared): State<Arc<Shared>>,
    request: Request,
) -> Result<Response, Problem> {
    let (token, text) = read(&shared, request, SCOPE_TOKEN).await?;
    let body::TokenList {} = body::parse(&text)?;
    answer(view::TokenList::new(
        shared.identity.list_tokens(&token.id).await?,
    ))
}

async fn revoke_token(
    State(shared): State<Arc<Shared>>,
    request: Request,
) -> Result<Response, Problem> {
    let (token, text) = read(&shared, request, SCOPE_TOKEN).await?;
    let body: body::TokenRevoke = body::parse(&text)?;
    let revoked = shared.identity.revoke_token(&token.id, body.id).await?;
    answer(view::TokenAnswer::revoked(revoked)?)
}

fn answer(body: impl Serialize) -> Result<Response, Problem> {
    let mut response = Json(body).into_response();
    response
        .headers_mut()
        .insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// Who asks, and the body. The token is checked before a byte of the body is read.
async fn read(
    shared: &Shared,
    request: Request,
    scope: &str,
) -> Result<(api::Token, String), Problem> {
    let token = shared.access.token(request.headers()).await?;
    demand_scope(&token, scope)?;
    demand_json(request.headers())?;
    let limit = shared.config.limits.request_timeout;
    Ok((token, read_body(request.into_body(), limit).await?))
}

/// The admin token has every scope of this host. A channel or owner token has none of the identity API.
fn demand_scope(token: &api::Token, scope: &str) -> Result<(), Problem> {
    let has = match token.kind() {
        api::TokenKind::Admin => true,
        api::TokenKind::Agent => token.scopes.iter().any(|held| held == scope),
        api::TokenKind::Unspecified | api::TokenKind::Channel | api::TokenKind::Owner => false,
    };
    if has {
        return Ok(());
    }
    Err(Problem::new(
        StatusCode::FORBIDDEN,
        "missing_scope",
        format!("This takes a token with the scope {scope}."),
    ))
}

/// Roles that only read make no workspaces.
fn demand_editor(role: api::Role) -> Result<(), Problem> {
    match role {
        api::Role::Owner | api::Role::Editor => Ok(()),
        api::Role::Reviewer | api::Role::Viewer | api::Role::Unspecified => Err(Problem::new(
            StatusCode::FORBIDDEN,
            "insufficient_role",
            "Your role reads only. Ask the workspace's owner for an editor's token.",
        )),
    }
}

fn demand_json(headers: &http::HeaderMap) -> Result<(), Problem> {
    let essence = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .and_then(|text| text.split(';').next())
        .map(str::trim);
    if essence.is_some_and(|essence| essence.eq_ignore_ascii_case("application/json")) {
        return Ok(());
    }
    Err(Problem::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "unsupported_media_type",
        "The body is JSON: Content-Type: application/json.",
    ))
}

async fn read_body(body: Body, limit: Duration) -> Result<String, Problem> {
    let whole = tokio::time::timeout(limit, axum::body::to_bytes(body, MAX_BODY_BYTES)).await;
    let bytes = match whole {
        Ok(Ok(bytes)) => bytes,
        Ok(Err(_)) => {
            return Err(Problem::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                "body_too_large",
                format!("A body has at most {MAX_BODY_BYTES} bytes."),
            ));
        }
        Err(_) => {
            return Err(Problem::new(
                StatusCode::REQUEST_TIMEOUT,
                "body_too_slow",
                "The body did not arrive in time.",
            ));
        }
    };
    String::from_utf8(bytes.into()).map_err(|_| body::invalid("The body is not UTF-8."))
}
