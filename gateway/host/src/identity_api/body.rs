//! Bodies of the identity API as they are sent. Unknown fields are refused.

use std::borrow::Cow;

use postern_proto::identity::v1 as api;
use postern_types::{Intention, args_sha256};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{DeserializeOwned, Error as _},
};
use uuid::Uuid;

use crate::{openapi::schema, problem::Problem};

/// Longest name of a workspace, in characters.
const MAX_NAME_CHARS: usize = 120;
/// Longest intention, in characters.
const MAX_INTENTION_CHARS: usize = 4000;
/// Length of an idempotency key, in characters.
const KEY_CHARS: std::ops::RangeInclusive<usize> = 8..=160;
/// Longest life of a token or launch, in seconds: ten years.
const MAX_LIFE_SECONDS: u64 = 10 * 366 * 24 * 3600;
/// Longest id that is looked for, in characters.
const MAX_ID_CHARS: usize = 200;
/// Longest description of what does not fit, in characters: it may name what was sent.
const MAX_MISFIT_CHARS: usize = 240;

/// Text without U+0000, which not every store can hold.
const NO_NUL: &str = "^[^\\u0000]*$";
/// Visible ASCII.
const VISIBLE: &str = "^[!-~]+$";

/// Which workspaces: the input of `sosoapi_get_workspace_context`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WorkspaceList {
    #[serde(default, deserialize_with = "given")]
    pub(super) include_version: Option<bool>,
}

impl JsonSchema for WorkspaceList {
    fn schema_name() -> Cow<'static, str> {
        "WorkspaceListRequest".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schema::tool_input("sosoapi_get_workspace_context")
    }
}

/// A workspace to create: the input of `sosoapi_create_workspace`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WorkspaceCreate {
    name: String,
    #[serde(default, deserialize_with = "given")]
    organization_id: Option<String>,
    #[serde(default, deserialize_with = "given")]
    idempotency_key: Option<String>,
}

impl JsonSchema for WorkspaceCreate {
    fn schema_name() -> Cow<'static, str> {
        "WorkspaceCreateRequest".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let mut schema = schema::tool_input("sosoapi_create_workspace");
        if let Some(name) = schema.pointer_mut("/properties/name") {
            name["pattern"] = NO_NUL.into();
        }
        schema
    }
}

/// A workspace to tie to an intention.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "LaunchCreateRequest")]
pub(super) struct LaunchCreate {
    /// Workspace.
    #[schemars(with = "schema::Uuid")]
    workspace_id: String,
    /// What the agent is to do there.
    #[schemars(length(min = 1, max = MAX_INTENTION_CHARS), regex(pattern = NO_NUL))]
    intention: String,
    /// Life in seconds; without it the launch has no end.
    #[serde(default, deserialize_with = "whole")]
    #[schemars(with = "u64", range(min = 1, max = MAX_LIFE_SECONDS))]
    expires_in: Option<u64>,
    /// Channel token to add the workspace to; without it one is minted.
    #[serde(default, deserialize_with = "given")]
    #[schemars(with = "schema::Uuid")]
    token_id: Option<String>,
}

/// An agent's token to mint.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "TokenCreateRequest")]
pub(super) struct TokenCreate {
    /// Workspace that the agent works in.
    #[schemars(with = "schema::Uuid")]
    workspace_id: String,
    /// What it may do there.
    role: Role,
    /// Life in seconds; without it the token has no end.
    #[serde(default, deserialize_with = "whole")]
    #[schemars(with = "u64", range(min = 1, max = MAX_LIFE_SECONDS))]
    expires_in: Option<u64>,
}

/// What a token may do in its workspace: owner and editor use every tool, reviewer and viewer the reading ones.
#[derive(Clone, Copy, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Role {
    Owner,
    Editor,
    Reviewer,
    Viewer,
}

/// No choice to make.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "TokenListRequest")]
pub(super) struct TokenList {}

/// Which launches.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "LaunchListRequest")]
pub(super) struct LaunchList {
    /// Only those of this workspace.
    #[serde(default, deserialize_with = "given")]
    #[schemars(with = "schema::Uuid")]
    workspace_id: Option<String>,
}

/// What to revoke.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "RevokeRequest")]
pub(super) struct Revoke {
    /// Its id.
    #[schemars(length(min = 1, max = MAX_ID_CHARS), regex(pattern = VISIBLE))]
    id: String,
}

/// An optional field is left out or has its type; `null` is neither.
fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// As [`given`], a whole number however it is written: to JSON, 60 and 6e1 are the same.
fn whole<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let number = serde_json::Number::deserialize(deserializer)?;
    let whole = number.as_u64().or_else(|| {
        let number = number.as_f64()?;
        // Far beyond every limit, and exact up to there.
        let exact = number.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&number);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is a whole number of that range"
        )]
        exact.then_some(number as u64)
    });
    let whole = whole.ok_or_else(|| D::Error::custom("expected a whole number, not negative"))?;
    Ok(Some(whole))
}

/// A body that does not have its form.
pub(super) fn invalid(detail: impl Into<String>) -> Problem {
    Problem::new(http::StatusCode::BAD_REQUEST, "invalid_request", detail)
}

pub(super) fn parse<T: DeserializeOwned>(text: &str) -> Result<T, Problem> {
    // A struct would be read from an array too; the contract's bodies are objects.
    if !text.trim_start().starts_with('{') {
        return Err(invalid("The body is one JSON object."));
    }
    serde_json::from_str(text).map_err(|error| {
        let misfit: String = error.to_string().chars().take(MAX_MISFIT_CHARS).collect();
        invalid(format!("The body does not fit: {misfit}."))
    })
}

/// Text that every store can hold.
fn storable(field: &str, text: String) -> Result<String, Problem> {
    if text.contains('\0') {
        return Err(invalid(format!("{field} holds U+0000.")));
    }
    Ok(text)
}

fn uuid(field: &str, text: String) -> Result<String, Problem> {
    match Uuid::try_parse(&text) {
        Ok(_) if text.len() == 36 => Ok(text.to_ascii_lowercase()),
        _ => Err(invalid(format!("{field} is a UUID."))),
    }
}

/// An id in whatever form; one that is not known is for identity to say.
fn id(field: &str, text: String) -> Result<String, Problem> {
    let visible = text.bytes().all(|byte| byte.is_ascii_graphic());
    if visible && (1..=MAX_ID_CHARS).contains(&text.len()) {
        return Ok(text);
    }
    Err(invalid(format!(
        "{field} is 1 to {MAX_ID_CHARS} visible ASCII characters."
    )))
}

fn life(seconds: Option<u64>) -> Result<Option<u64>, Problem> {
    match seconds {
        Some(seconds) if !(1..=MAX_LIFE_SECONDS).contains(&seconds) => Err(invalid(format!(
            "expires_in is 1 to {MAX_LIFE_SECONDS} seconds."
        ))),
        seconds => Ok(seconds),
    }
}

impl WorkspaceCreate {
    pub(super) fn into_request(
        self,
        token_id: &str,
        text: &str,
    ) -> Result<api::CreateWorkspaceRequest, Problem> {
        if !(1..=MAX_NAME_CHARS).contains(&self.name.chars().count()) {
            return Err(invalid(format!(
                "name is 1 to {MAX_NAME_CHARS} characters."
            )));
        }
        let organization = self.organization_id.map(|id| uuid("organization_id", id));
        let mut body_sha256 = String::new();
        if let Some(key) = &self.idempotency_key {
            let visible = key.bytes().all(|byte| byte.is_ascii_graphic());
            if !visible || !KEY_CHARS.contains(&key.len()) {
                return Err(invalid(
                    "idempotency_key is 8 to 160 visible ASCII characters.",
                ));
            }
            let digest = args_sha256(text).map_err(|_| invalid("The body is not JSON."))?;
            body_sha256 = digest.to_string();
        }
        Ok(api::CreateWorkspaceRequest {
            token_id: token_id.to_owned(),
            name: storable("name", self.name)?,
            organization_id: organization.transpose()?.unwrap_or_default(),
            idempotency_key: self.idempotency_key.unwrap_or_default(),
            body_sha256,
        })
    }
}

impl LaunchCreate {
    pub(super) fn into_request(
        self,
        token_id: String,
    ) -> Result<api::CreateLaunchRequest, Problem> {
        let intention: Intention =
            storable("intention", self.intention)?
                .try_into()
                .map_err(|_| {
                    invalid(format!(
                        "intention is 1 to {MAX_INTENTION_CHARS} characters."
                    ))
                })?;
        let channel_token = self.token_id.map(|id| uuid("token_id", id)).transpose()?;
        Ok(api::CreateLaunchRequest {
            token_id,
            workspace_id: uuid("workspace_id", self.workspace_id)?,
            intention: intention.into(),
            expires_in_seconds: life(self.expires_in)?,
            channel_token_id: channel_token.unwrap_or_default(),
        })
    }
}

impl TokenCreate {
    pub(super) fn into_request(self, token_id: String) -> Result<api::CreateTokenRequest, Problem> {
        Ok(api::CreateTokenRequest {
            token_id,
            workspace_id: uuid("workspace_id", self.workspace_id)?,
            role: api::Role::from(self.role).into(),
            expires_in_seconds: life(self.expires_in)?,
        })
    }
}

impl LaunchList {
    pub(super) fn into_workspace_id(self) -> Result<Option<String>, Problem> {
        self.workspace_id
            .map(|id| uuid("workspace_id", id))
            .transpose()
    }
}

impl Revoke {
    pub(super) fn into_id(self) -> Result<String, Problem> {
        id("id", self.id)
    }
}

impl From<Role> for api::Role {
    fn from(role: Role) -> Self {
        match role {
            Role::Owner => Self::Owner,
            Role::Editor => Self::Editor,
            Role::Reviewer => Self::Reviewer,
            Role::Viewer => Self::Viewer,
        }
    }
}

impl Role {
    /// The role, when there is one.
    pub(super) const fn of(role: api::Role) -> Option<Self> {
        match role {
            api::Role::Unspecified => None,
            api::Role::Owner => Some(Self::Owner),
            api::Role::Editor => Some(Self::Editor),
            api::Role::Reviewer => Some(Self::Reviewer),
            api::Role::Viewer => Some(Self::Viewer),
        }
    }
}
