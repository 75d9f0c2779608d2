//! The identity API over HTTP: workspaces, launches and tokens (CONTRACT.md, section 5).
//!
//! The functions that two MCP tools share with it take the tool's arguments as JSON text, since that is what both have.

use std::{sync::Arc, time::Duration};

use axum::{
    Json,
    body::Body,
    extract::{Request, State},
    response::{IntoResponse as _, Response},
    routing::post,
};
use http::{HeaderValue, StatusCode, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use postern_kit::http::TimeoutError;
use postern_proto::identity::v1 as api;
use serde::Serialize;

use crate::{host::Shared, identity::Identity, openapi::Route, problem::Problem};

mod body;
mod operations;
mod view;

pub(crate) use operations::{BODY_REFUSALS, TOKEN_REFUSALS};

/// Largest body of the identity API, in bytes: an intention of 4000 escaped characters and some names.
const MAX_BODY_BYTES: usize = 64 * 1024;

/// Scope of agents.
const SCOPE_AGENT: &str = "agent:operate";
/// Scope that makes, lists and revokes launches.
const SCOPE_LAUNCH: &str = "launch:create";
/// Scope that makes, lists and revokes tokens.
const SCOPE_TOKEN: &str = "token:create";

/// The routes of the identity API.
pub(crate) fn routes() -> Vec<Route> {
    vec![
        (operations::LIST_WORKSPACES, post(list_workspaces)),
        (operations::CREATE_WORKSPACE, post(create_workspace)),
        (operations::CREATE_LAUNCH, post(create_launch)),
        (operations::LIST_LAUNCHES, post(list_launches)),
        (operations::REVOKE_LAUNCH, post(revoke_launch)),
        (operations::CREATE_TOKEN, post(create_token)),
        (operations::LIST_TOKENS, post(list_tokens)),
        (operations::REVOKE_TOKEN, post(revoke_token)),
    ]
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
    let identity = &shared.identity;
    let list = |token: api::Token, text: String| async move {
        workspace_list(identity, &token.id, &text).await
    };
    answer(&shared, request, SCOPE_AGENT, list).await
}

async fn create_workspace(
    State(shared): State<Arc<Shared>>,
    request: Request,
) -> Result<Response, Problem> {
    let identity = &shared.identity;
    let create = |token: api::Token, text: String| async move {
        let role = (token.kind() != api::TokenKind::Admin).then(|| token.role());
        workspace_create(identity, &token.id, role, &text).await
    };
    answer(&shared, request, SCOPE_AGENT, create).await
}

async fn create_launch(
    State(shared): State<Arc<Shared>>,
    request: Request,
) -> Result<Response, Problem> {
    let (identity, public_url) = (&shared.identity, &shared.config.public_url);
    let create = |token: api::Token, text: String| async move {
        let body: body::LaunchCreate = body::parse(&text)?;
        let created = identity.create_launch(body.into_request(token.id)?).await?;
        view::LaunchCreated::new(created, public_url)
    };
    answer(&shared, request, SCOPE_LAUNCH, create).await
}

async fn list_launches(
    State(shared): State<Arc<Shared>>,
    request: Request,
) -> Result<Response, Problem> {
    let identity = &shared.identity;
    let list = |token: api::Token, text: String| async move {
        let body: body::LaunchList = body::parse(&text)?;
        let listed = identity.list_launches(&token.id, body.into_workspace_id()?);
        Ok(view::LaunchList::new(listed.await?))
    };
    answer(&shared, request, SCOPE_LAUNCH, list).await
}

async fn revoke_launch(
    State(shared): State<Arc<Shared>>,
    request: Request,
) -> Result<Response, Problem> {
    let identity = &shared.identity;
    let revoke = |token: api::Token, text: String| async move {
        let body: body::Revoke = body::parse(&text)?;
        view::LaunchRevoked::new(identity.revoke_launch(&token.id, body.into_id()?).await?)
    };
    answer(&shared, request, SCOPE_LAUNCH, revoke).await
}

async fn create_token(
    State(shared): State<Arc<Shared>>,
    request: Request,
) -> Result<Response, Problem> {
    let identity = &shared.identity;
    let create = |token: api::Token, text: String| async move {
        let body: body::TokenCreate = body::parse(&text)?;
        view::TokenCreated::new(identity.create_token(body.into_request(token.id)?).await?)
    };
    answer(&shared, request, SCOPE_TOKEN, create).await
}

async fn list_tokens(
    State(shared): State<Arc<Shared>>,
    request: Request,
) -> Result<Response, Problem> {
    let identity = &shared.identity;
    let list = |token: api::Token, text: String| async move {
        let body::TokenList {} = body::parse(&text)?;
        Ok(view::TokenList::new(identity.list_tokens(&token.id).await?))
    };
    answer(&shared, request, SCOPE_TOKEN, list).await
}

async fn revoke_token(
    State(shared): State<Arc<Shared>>,
    request: Request,
) -> Result<Response, Problem> {
    let identity = &shared.identity;
    let revoke = |token: api::Token, text: String| async move {
        let body: body::Revoke = body::parse(&text)?;
        view::TokenRevoked::new(identity.revoke_token(&token.id, body.into_id()?).await?)
    };
    answer(&shared, request, SCOPE_TOKEN, revoke).await
}

/// Checks who asks, reads the body and answers with what `work` makes of both. The token is checked before a byte of the body
/// is read.
async fn answer<F, A>(
    shared: &Shared,
    request: Request,
    scope: &str,
    work: impl FnOnce(api::Token, String) -> F,
) -> Result<Response, Problem>
where
    F: Future<Output = Result<A, Problem>>,
    A: Serialize,
{
    let token = shared.access.token(request.headers()).await?;
    demand_scope(&token, scope)?;
    demand_json(request.headers())?;
    let limit = shared.config.limits.request_timeout;
    let text = read_body(request.into_body(), limit).await?;
    let answer = work(token, text).await.map_err(|problem| {
        // It was revoked, or came to its end, since it was shown.
        if problem.status == StatusCode::UNAUTHORIZED {
            shared.access.unauthorized()
        } else {
            problem
        }
    })?;
    let mut response = Json(answer).into_response();
    response
        .headers_mut()
        .insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
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
    let whole = Limited::new(body, MAX_BODY_BYTES).collect();
    let bytes = match tokio::time::timeout(limit, whole).await {
        Ok(Ok(whole)) => whole.to_bytes(),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            return Err(Problem::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                "body_too_large",
                format!("A body has at most {MAX_BODY_BYTES} bytes."),
            ));
        }
        // The listener's own limit, for a body that stands still.
        Ok(Err(error)) if is_timeout(error.as_ref()) => return Err(too_slow()),
        Ok(Err(_)) => return Err(body::invalid("The body broke off.")),
        Err(_) => return Err(too_slow()),
    };
    String::from_utf8(bytes.into()).map_err(|_| body::invalid("The body is not UTF-8."))
}

fn is_timeout(error: &(dyn std::error::Error + 'static)) -> bool {
    std::iter::successors(Some(error), |error| error.source())
        .any(|error| error.is::<TimeoutError>())
}

fn too_slow() -> Problem {
    Problem::new(
        StatusCode::REQUEST_TIMEOUT,
        "body_too_slow",
        "The body did not arrive in time.",
    )
}
