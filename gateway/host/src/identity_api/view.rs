//! Answers of the identity API: fields as in the contract, times in RFC 3339.

use postern_proto::identity::v1 as api;
use postern_types::Timestamp;
use serde::Serialize;

use crate::problem::Problem;

#[derive(Serialize)]
pub(super) struct WorkspaceList {
    active_workspace_id: Option<String>,
    workspaces: Vec<Membership>,
}

/// A workspace as one of its members sees it.
#[derive(Serialize)]
struct Membership {
    id: String,
    slug: String,
    name: String,
    role: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<u64>,
}

#[derive(Serialize)]
pub(super) struct WorkspaceCreated {
    workspace: Workspace,
}

#[derive(Serialize)]
struct Workspace {
    id: String,
    organization_id: String,
    slug: String,
    name: String,
    created_at: Timestamp,
}

#[derive(Serialize)]
pub(super) struct LaunchCreated {
    launch: Launch,
}

#[derive(Serialize)]
struct Launch {
    id: String,
    workspace_id: String,
    intention: String,
    endpoint: String,
    token_id: String,
    token: Option<String>,
    created_at: Timestamp,
    expires_at: Option<Timestamp>,
}

#[derive(Serialize)]
pub(super) struct TokenAnswer {
    token: Token,
}

#[derive(Serialize)]
pub(super) struct TokenList {
    tokens: Vec<Token>,
}

#[derive(Serialize)]
struct Token {
    id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    secret: Option<String>,
    kind: &'static str,
    scopes: Vec<String>,
    workspace_ids: Vec<String>,
    role: Option<&'static str>,
    created_at: Timestamp,
    expires_at: Option<Timestamp>,
    revoked_at: Option<Timestamp>,
}

const fn role(role: api::Role) -> Option<&'static str> {
    match role {
        api::Role::Unspecified => None,
        api::Role::Owner => Some("owner"),
        api::Role::Editor => Some("editor"),
        api::Role::Reviewer => Some("reviewer"),
        api::Role::Viewer => Some("viewer"),
    }
}

const fn kind(kind: api::TokenKind) -> &'static str {
    match kind {
        api::TokenKind::Unspecified => "unknown",
        api::TokenKind::Admin => "admin",
        api::TokenKind::Agent => "agent",
        api::TokenKind::Channel => "channel",
        api::TokenKind::Owner => "owner",
    }
}

fn incomplete() -> Problem {
    tracing::error!("the identity service left out a part of its answer");
    Problem::internal()
}

/// URL of a workspace's channel.
fn endpoint(public_url: &str, workspace_id: &str) -> String {
    let base = public_url
        .strip_prefix("http")
        .map(|rest| format!("ws{rest}"));
    format!(
        "{}/api/ai-gateway/v1/workspaces/{workspace_id}/channel",
        base.as_deref().unwrap_or(public_url)
    )
}

impl WorkspaceList {
    pub(super) fn new(
        answer: api::ListWorkspacesResponse,
        with_version: bool,
    ) -> Result<Self, Problem> {
        let workspaces = answer.workspaces.into_iter().map(|workspace| {
            Ok(Membership {
                role: role(workspace.role()).ok_or_else(incomplete)?,
                id: workspace.id,
                slug: workspace.slug,
                name: workspace.name,
                version: with_version.then_some(workspace.version),
            })
        });
        Ok(Self {
            active_workspace_id: answer.active_workspace_id,
            workspaces: workspaces.collect::<Result<_, Problem>>()?,
        })
    }
}

impl WorkspaceCreated {
    pub(super) fn new(answer: api::CreateWorkspaceResponse) -> Result<Self, Problem> {
        let workspace = answer.workspace.ok_or_else(incomplete)?;
        Ok(Self {
            workspace: Workspace {
                id: workspace.id,
                organization_id: workspace.organization_id,
                slug: workspace.slug,
                name: workspace.name,
                created_at: Timestamp::from_millis(workspace.created_at_ms),
            },
        })
    }
}

impl LaunchCreated {
    pub(super) fn new(
        answer: api::CreateLaunchResponse,
        public_url: &str,
    ) -> Result<Self, Problem> {
        let launch = answer.launch.ok_or_else(incomplete)?;
        Ok(Self {
            launch: Launch {
                endpoint: endpoint(public_url, &launch.workspace_id),
                id: launch.id,
                workspace_id: launch.workspace_id,
                intention: launch.intention,
                token_id: launch.token_id,
                token: answer.secret,
                created_at: Timestamp::from_millis(launch.created_at_ms),
                expires_at: launch.expires_at_ms.map(Timestamp::from_millis),
            },
        })
    }
}

impl TokenAnswer {
    pub(super) fn created(answer: api::CreateTokenResponse) -> Result<Self, Problem> {
        let token = answer.token.ok_or_else(incomplete)?;
        Ok(Self {
            token: Token {
                secret: Some(answer.secret),
                ..token.into()
            },
        })
    }

    pub(super) fn revoked(answer: api::RevokeTokenResponse) -> Result<Self, Problem> {
        let token = answer.token.ok_or_else(incomplete)?;
        Ok(Self {
            token: token.into(),
        })
    }
}

impl TokenList {
    pub(super) fn new(answer: api::ListTokensResponse) -> Self {
        Self {
            tokens: answer.tokens.into_iter().map(Token::from).collect(),
        }
    }
}

impl From<api::Token> for Token {
    fn from(token: api::Token) -> Self {
        Self {
            kind: kind(token.kind()),
            role: role(token.role()),
            id: token.id,
            secret: None,
            scopes: token.scopes,
            workspace_ids: token.workspace_ids,
            created_at: Timestamp::from_millis(token.created_at_ms),
            expires_at: token.expires_at_ms.map(Timestamp::from_millis),
            revoked_at: token.revoked_at_ms.map(Timestamp::from_millis),
        }
    }
}
