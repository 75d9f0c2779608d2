//! Bodies of the identity API as they are sent. Unknown fields are refused.

use postern_proto::identity::v1 as api;
use postern_types::{Intention, args_sha256};
use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use uuid::Uuid;

use crate::problem::Problem;

/// Longest name of a workspace, in characters.
const MAX_NAME_CHARS: usize = 120;
/// Length of an idempotency key, in characters.
const KEY_CHARS: std::ops::RangeInclusive<usize> = 8..=160;
/// Longest life of a token or launch, in seconds: ten years.
const MAX_LIFE_SECONDS: u64 = 10 * 366 * 24 * 3600;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WorkspaceList {
    #[serde(default, deserialize_with = "given")]
    pub(super) include_version: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WorkspaceCreate {
    name: String,
    #[serde(default, deserialize_with = "given")]
    organization_id: Option<String>,
    #[serde(default, deserialize_with = "given")]
    idempotency_key: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LaunchCreate {
    workspace_id: String,
    intention: String,
    #[serde(default, deserialize_with = "given")]
    expires_in: Option<u64>,
    #[serde(default, deserialize_with = "given")]
    token_id: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TokenCreate {
    workspace_id: String,
    role: Role,
    #[serde(default, deserialize_with = "given")]
    expires_in: Option<u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Role {
    Owner,
    Editor,
    Reviewer,
    Viewer,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TokenList {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TokenRevoke {
    pub(super) id: String,
}

/// An optional field is left out or has its type; `null` is neither.
fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
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
    serde_json::from_str(text).map_err(|error| invalid(format!("The body does not fit: {error}.")))
}

fn uuid(field: &str, text: String) -> Result<String, Problem> {
    match Uuid::try_parse(&text) {
        Ok(_) if text.len() == 36 => Ok(text.to_ascii_lowercase()),
        _ => Err(invalid(format!("{field} is a UUID."))),
    }
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
            name: self.name,
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
        let intention: Intention = self
            .intention
            .parse()
            .map_err(|_| invalid("intention is 1 to 4000 characters."))?;
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
        let role = match self.role {
            Role::Owner => api::Role::Owner,
            Role::Editor => api::Role::Editor,
            Role::Reviewer => api::Role::Reviewer,
            Role::Viewer => api::Role::Viewer,
        };
        Ok(api::CreateTokenRequest {
            token_id,
            workspace_id: uuid("workspace_id", self.workspace_id)?,
            role: role.into(),
            expires_in_seconds: life(self.expires_in)?,
        })
    }
}
