//! Answers of the identity API: fields as in the contract, times in RFC 3339.

use postern_proto::identity::v1 as api;
use postern_types::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::body::Role;
use crate::{openapi::schema, problem::Problem};

/// Greatest version of a resource that every client reads exactly.
const MAX_VERSION: u64 = (1 << 53) - 1;

/// The caller's workspaces.
#[derive(JsonSchema, Serialize)]
pub(super) struct WorkspaceList {
    /// The one that the token is for; null when it is for none.
    #[schemars(with = "Option<schema::Uuid>")]
    active_workspace_id: Option<String>,
    /// Ordered by creation.
    workspaces: Vec<Membership>,
}

/// A workspace as one of its members sees it.
#[derive(JsonSchema, Serialize)]
struct Membership {
    /// Id.
    #[schemars(with = "schema::Uuid")]
    id: String,
    /// Unique in its organization.
    slug: String,
    /// Name.
    name: String,
    /// What the caller may do there.
    role: Role,
    /// Counts changes; only when asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64", range(min = 1, max = MAX_VERSION))]
    version: Option<u64>,
}

/// What was created, or was by the same idempotency key before.
#[derive(JsonSchema, Serialize)]
pub(super) struct WorkspaceCreated {
    /// The workspace.
    workspace: Workspace,
}

/// A workspace.
#[derive(JsonSchema, Serialize)]
struct Workspace {
    /// Id.
    #[schemars(with = "schema::Uuid")]
    id: String,
    /// Organization.
    #[schemars(with = "schema::Uuid")]
    organization_id: String,
    /// Unique in its organization.
    slug: String,
    /// Name.
    name: String,
    /// When it was made.
    #[schemars(with = "schema::Time")]
    created_at: Timestamp,
}

/// What was created.
#[derive(JsonSchema, Serialize)]
pub(super) struct LaunchCreated {
    /// The launch.
    launch: CreatedLaunch,
}

/// A new launch.
#[derive(JsonSchema, Serialize)]
struct CreatedLaunch {
    /// Id.
    #[schemars(with = "schema::Uuid")]
    id: String,
    /// Workspace.
    #[schemars(with = "schema::Uuid")]
    workspace_id: String,
    /// What the agent is to do there.
    intention: String,
    /// Where the owner's edge opens the channel.
    endpoint: String,
    /// Channel token that opens it.
    #[schemars(with = "schema::Uuid")]
    token_id: String,
    /// That token's secret, told this once; null when the launch was added to a token.
    token: Option<String>,
    /// When it was made.
    #[schemars(with = "schema::Time")]
    created_at: Timestamp,
    /// When it ends; null for never.
    #[schemars(with = "Option<schema::Time>")]
    expires_at: Option<Timestamp>,
}

/// Launches.
#[derive(JsonSchema, Serialize)]
pub(super) struct LaunchList {
    /// Ordered by creation.
    launches: Vec<Launch>,
}

/// A launch that was revoked, now or before.
#[derive(JsonSchema, Serialize)]
pub(super) struct LaunchRevoked {
    /// The launch.
    launch: Launch,
}

/// A launch.
#[derive(JsonSchema, Serialize)]
struct Launch {
    /// Id.
    #[schemars(with = "schema::Uuid")]
    id: String,
    /// Workspace.
    #[schemars(with = "schema::Uuid")]
    workspace_id: String,
    /// What the agent is to do there.
    intention: String,
    /// Channel token that opens it.
    #[schemars(with = "schema::Uuid")]
    token_id: String,
    /// When it was made.
    #[schemars(with = "schema::Time")]
    created_at: Timestamp,
    /// When it ends; null for never.
    #[schemars(with = "Option<schema::Time>")]
    expires_at: Option<Timestamp>,
    /// When it was revoked; null while it was not.
    #[schemars(with = "Option<schema::Time>")]
    revoked_at: Option<Timestamp>,
}

/// A token that was minted.
#[derive(JsonSchema, Serialize)]
pub(super) struct TokenCreated {
    /// The token, with its secret.
    token: MintedToken,
}

/// A token with its secret, which is told this once.
#[derive(JsonSchema, Serialize)]
struct MintedToken {
    /// What the agent sends as its bearer token.
    secret: String,
    #[serde(flatten)]
    token: Token,
}

/// A token that was revoked, now or before.
#[derive(JsonSchema, Serialize)]
pub(super) struct TokenRevoked {
    /// The token.
    token: Token,
}

/// The tokens of the caller's organization.
#[derive(JsonSchema, Serialize)]
pub(super) struct TokenList {
    /// Ordered by creation.
    tokens: Vec<Token>,
}

/// A token without its secret.
#[derive(JsonSchema, Serialize)]
struct Token {
    /// Id.
    #[schemars(with = "schema::Uuid")]
    id: String,
    /// Which doors it opens.
    kind: Kind,
    /// What it may ask of this API.
    scopes: Vec<String>,
    /// Who acts by it.
    #[schemars(with = "schema::Uuid")]
    principal_id: String,
    /// Organization.
    #[schemars(with = "schema::Uuid")]
    organization_id: String,
    /// Agent: the workspace it works in. Channel: those whose channel it opens.
    #[schemars(with = "Vec<schema::Uuid>")]
    workspace_ids: Vec<String>,
    /// What an agent may do in its workspace; null for other kinds.
    role: Option<Role>,
    /// When it was made.
    #[schemars(with = "schema::Time")]
    created_at: Timestamp,
    /// When it ends; null for never.
    #[schemars(with = "Option<schema::Time>")]
    expires_at: Option<Timestamp>,
    /// When it was revoked; null while it was not.
    #[schemars(with = "Option<schema::Time>")]
    revoked_at: Option<Timestamp>,
}

/// Kind of a token: admin opens all of this API, agent the tools of one workspace, channel the channels of its workspaces, owner
/// nothing of a host.
#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Admin,
    Agent,
    Channel,
    Owner,
    /// Of a newer version.
    Unknown,
}

impl From<api::TokenKind> for Kind {
    fn from(kind: api::TokenKind) -> Self {
        match kind {
            api::TokenKind::Unspecified => Self::Unknown,
            api::TokenKind::Admin => Self::Admin,
            api::TokenKind::Agent => Self::Agent,
            api::TokenKind::Channel => Self::Channel,
            api::TokenKind::Owner => Self::Owner,
        }
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
                role: Role::of(workspace.role()).ok_or_else(incomplete)?,
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
            launch: CreatedLaunch {
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

impl LaunchList {
    pub(super) fn new(answer: api::ListLaunchesResponse) -> Self {
        Self {
            launches: answer.launches.into_iter().map(Launch::from).collect(),
        }
    }
}

impl LaunchRevoked {
    pub(super) fn new(answer: api::RevokeLaunchResponse) -> Result<Self, Problem> {
        Ok(Self {
            launch: answer.launch.ok_or_else(incomplete)?.into(),
        })
    }
}

impl From<api::Launch> for Launch {
    fn from(launch: api::Launch) -> Self {
        Self {
            id: launch.id,
            workspace_id: launch.workspace_id,
            intention: launch.intention,
            token_id: launch.token_id,
            created_at: Timestamp::from_millis(launch.created_at_ms),
            expires_at: launch.expires_at_ms.map(Timestamp::from_millis),
            revoked_at: launch.revoked_at_ms.map(Timestamp::from_millis),
        }
    }
}

impl TokenCreated {
    pub(super) fn new(answer: api::CreateTokenResponse) -> Result<Self, Problem> {
        Ok(Self {
            token: MintedToken {
                secret: answer.secret,
                token: answer.token.ok_or_else(incomplete)?.into(),
            },
        })
    }
}

impl TokenRevoked {
    pub(super) fn new(answer: api::RevokeTokenResponse) -> Result<Self, Problem> {
        Ok(Self {
            token: answer.token.ok_or_else(incomplete)?.into(),
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
            kind: token.kind().into(),
            role: Role::of(token.role()),
            id: token.id,
            scopes: token.scopes,
            principal_id: token.principal_id,
            organization_id: token.organization_id,
            workspace_ids: token.workspace_ids,
            created_at: Timestamp::from_millis(token.created_at_ms),
            expires_at: token.expires_at_ms.map(Timestamp::from_millis),
            revoked_at: token.revoked_at_ms.map(Timestamp::from_millis),
        }
    }
}
