//! What the host's identity is about.

use std::time::Duration;

use postern_kit::Problem;
use postern_types::{Intention, Sha256, Timestamp};
use tonic::Code;

use crate::{Error, secret::Kind};

/// Longest life of a token or launch. Above it instants would leave the range that RFC 3339 can write.
const MAX_LIFE: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
/// Characters of a workspace's name at most (`identity-tools-v1.json`).
const MAX_NAME_CHARACTERS: usize = 120;

/// What a token may be used for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Scope {
    /// Acts as an agent.
    AgentOperate,
    /// Creates launches.
    LaunchCreate,
    /// Creates, lists and revokes tokens.
    TokenCreate,
    /// Opens channels.
    ChannelOpen,
}

impl Scope {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::AgentOperate => "agent:operate",
            Self::LaunchCreate => "launch:create",
            Self::TokenCreate => "token:create",
            Self::ChannelOpen => "channel:open",
        }
    }

    /// The scopes of a kind (CONTRACT.md, section 5): each kind opens its own doors only.
    pub(super) const fn of(kind: Kind) -> &'static [Self] {
        match kind {
            Kind::Admin => &[Self::AgentOperate, Self::LaunchCreate, Self::TokenCreate],
            Kind::Agent => &[Self::AgentOperate],
            Kind::Channel => &[Self::ChannelOpen],
            Kind::Owner => &[],
        }
    }
}

/// Role in a workspace.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Role {
    Owner,
    Editor,
    Reviewer,
    Viewer,
}

impl Role {
    const ALL: [Self; 4] = [Self::Owner, Self::Editor, Self::Reviewer, Self::Viewer];

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Owner => "owner",
            Self::Editor => "editor",
            Self::Reviewer => "reviewer",
            Self::Viewer => "viewer",
        }
    }

    pub(super) fn parse(text: &str) -> Result<Self, Error> {
        Self::ALL
            .into_iter()
            .find(|role| role.as_str() == text)
            .ok_or(Error::Corrupt("role"))
    }

    /// Refuses roles that only read.
    pub(super) fn must_change(self) -> Result<(), Error> {
        match self {
            Self::Owner | Self::Editor => Ok(()),
            Self::Reviewer | Self::Viewer => Err(Error::forbidden(
                "insufficient_role",
                "This takes the role owner or editor.",
            )),
        }
    }
}

/// A token without its secret.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Token {
    pub(super) id: String,
    pub(super) kind: Kind,
    pub(super) digest: Sha256,
    pub(super) principal_id: String,
    pub(super) organization_id: String,
    /// An agent's active workspace and its role there.
    pub(super) active: Option<(String, Role)>,
    pub(super) created_at: Timestamp,
    pub(super) expires_at: Option<Timestamp>,
    pub(super) revoked_at: Option<Timestamp>,
}

impl Token {
    pub(super) fn is_valid(&self, now: Timestamp) -> bool {
        self.revoked_at.is_none() && is_before(now, self.expires_at)
    }

    /// Refuses a token without the scope.
    pub(super) fn must_have(&self, scope: Scope) -> Result<(), Error> {
        if Scope::of(self.kind).contains(&scope) {
            return Ok(());
        }
        Err(Error::forbidden(
            "missing_scope",
            format!("The token does not have the scope {}.", scope.as_str()),
        ))
    }
}

/// Whether something that ends at `end`, or never, is not over.
pub(super) fn is_before(now: Timestamp, end: Option<Timestamp>) -> bool {
    end.is_none_or(|end| now < end)
}

/// A workspace as one principal sees it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Workspace {
    pub(super) id: String,
    pub(super) organization_id: String,
    pub(super) slug: String,
    pub(super) name: String,
    pub(super) created_at: Timestamp,
    pub(super) version: i64,
    pub(super) role: Role,
}

/// A launch.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Launch {
    pub(super) id: String,
    pub(super) workspace_id: String,
    pub(super) intention: Intention,
    pub(super) token_id: String,
    pub(super) created_at: Timestamp,
    pub(super) expires_at: Option<Timestamp>,
    pub(super) revoked_at: Option<Timestamp>,
}

/// What was revoked.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Revocation {
    /// The token, or that of the launch.
    pub(super) token_id: String,
    /// The launch's workspace; nothing when the token itself is revoked.
    pub(super) workspace_id: Option<String>,
}

/// An idempotency key and the digest of the body that came with it.
#[derive(Clone, Debug)]
pub(super) struct Idempotency {
    pub(super) key: String,
    pub(super) body: Sha256,
}

impl Idempotency {
    /// Reads both; no key means none.
    pub(super) fn parse(key: String, body_sha256: &str) -> Result<Option<Self>, Error> {
        if key.is_empty() {
            return Ok(None);
        }
        if !(8..=160).contains(&key.len()) || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(Error::invalid(
                "invalid_idempotency_key",
                "An idempotency key is 8 to 160 visible ASCII characters.",
            ));
        }
        let body = body_sha256.parse().map_err(|_| {
            Error::invalid(
                "invalid_body_digest",
                "An idempotency key comes with the SHA-256 of the request's body.",
            )
        })?;
        Ok(Some(Self { key, body }))
    }

    pub(super) fn reused() -> Error {
        Error::Refused(Problem::new(
            Code::AlreadyExists,
            "idempotency_key_reused",
            "This idempotency key was used for a request with another body. Use a new key.",
        ))
    }
}

/// A workspace's name.
pub(super) fn workspace_name(text: String) -> Result<String, Error> {
    let characters = text.chars().take(MAX_NAME_CHARACTERS + 1).count();
    // PostgreSQL stores no NUL, so neither store takes one.
    if (1..=MAX_NAME_CHARACTERS).contains(&characters) && !text.contains('\0') {
        return Ok(text);
    }
    Err(Error::invalid(
        "invalid_name",
        "A workspace's name is 1 to 120 characters, and none of them is NUL.",
    ))
}

/// The end of something that begins now and lives that long.
pub(super) fn expiry(now: Timestamp, seconds: Option<u64>) -> Result<Option<Timestamp>, Error> {
    let Some(seconds) = seconds else {
        return Ok(None);
    };
    if (1..=MAX_LIFE.as_secs()).contains(&seconds) {
        return Ok(Some(now.after(Duration::from_secs(seconds))));
    }
    Err(Error::invalid(
        "invalid_expiry",
        "A life is 1 second to 100 years long.",
    ))
}
