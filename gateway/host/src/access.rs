//! Who asks, and from where: bearer tokens, and the `Host` and `Origin` of a request.

use std::{net::IpAddr, sync::Arc};

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use postern_proto::identity::v1::{Role, Token, TokenKind};
use tonic::Code;

use crate::{
    config::Config,
    error::Error,
    openapi::Refusal,
    problem::Problem,
    tokens::{Credentials, Shown, Tokens},
};

/// Longest bearer token that is looked at, in bytes.
const MAX_SECRET_BYTES: usize = 512;

/// How a request from a foreign web page is refused, by every operation.
pub(crate) const SITE_REFUSALS: &[Refusal] = &[
    Refusal::new(
        403,
        "host_not_allowed",
        "There is no Host header, or it names another site.",
    ),
    Refusal::new(
        403,
        "origin_not_allowed",
        "The Origin header names a site whose pages may not call the host.",
    ),
];

/// How a request that takes a token is refused.
pub(crate) const TOKEN_REFUSALS: &[Refusal] = &[
    Refusal::new(
        401,
        "unauthorized",
        "There is no bearer token, or it is unknown, expired or revoked.",
    )
    .with(&["WWW-Authenticate"]),
    Refusal::new(
        500,
        "internal",
        "The host or a service behind it failed; its log tells more.",
    ),
    Refusal::new(
        503,
        "unavailable",
        "A service that the request needs does not answer.",
    )
    .with(&["Retry-After"]),
];

/// An agent that has shown its token.
#[derive(Clone, Debug)]
pub(crate) struct AgentToken {
    /// The token, and its active workspace.
    pub(crate) credentials: Credentials,
    /// What it may do there.
    pub(crate) role: Role,
}

impl AgentToken {
    /// The token's id; not its secret.
    pub(crate) fn id(&self) -> &str {
        &self.credentials.token_id
    }

    /// The token's active workspace.
    pub(crate) fn workspace_id(&self) -> &str {
        &self.credentials.workspace_id
    }
}

/// Answers who asks.
#[derive(Clone)]
pub(crate) struct Access {
    tokens: Tokens,
    challenge: HeaderValue,
    hosts: Arc<[String]>,
    origins: Arc<[String]>,
}

impl Access {
    /// # Errors
    /// [`Error::PublicUrl`] when the public URL has no scheme and host.
    pub(crate) fn new(config: &Config, tokens: Tokens) -> Result<Self, Error> {
        let unusable = || Error::PublicUrl(config.public_url.clone());
        let public: Uri = config.public_url.parse().map_err(|_| unusable())?;
        let (Some("http" | "https"), Some(host)) = (public.scheme_str(), public.host()) else {
            return Err(unusable());
        };
        let challenge = format!(
            "Bearer resource_metadata=\"{}/.well-known/oauth-protected-resource/mcp\"",
            config.public_url
        );
        let lower = |text: &String| text.to_ascii_lowercase();
        let mut hosts: Vec<_> = config.allowed_hosts.iter().map(lower).collect();
        hosts.push(host.to_ascii_lowercase());
        let mut origins: Vec<_> = config.allowed_origins.iter().map(lower).collect();
        origins.push(config.public_url.to_ascii_lowercase());
        Ok(Self {
            tokens,
            challenge: challenge.try_into().map_err(|_| unusable())?,
            hosts: hosts.into(),
            origins: origins.into(),
        })
    }

    /// The agent of a request to `/mcp`: an agent token, and nothing else.
    ///
    /// # Errors
    /// 401 for no valid token, 403 for a token of another kind, 503 when identity is away.
    pub(crate) async fn agent(&self, headers: &HeaderMap) -> Result<Arc<AgentToken>, Problem> {
        let shown = self.shown(headers).await?;
        let active = shown.token.workspace_ids.first();
        let credentials = active.and_then(|workspace_id| shown.opens(workspace_id));
        match (shown.token.kind(), credentials) {
            (TokenKind::Agent, Some(credentials)) => Ok(Arc::new(AgentToken {
                credentials,
                role: shown.token.role(),
            })),
            _ => Err(wrong_kind("an agent token")),
        }
    }

    /// The token of a request, of any kind.
    ///
    /// # Errors
    /// 401 for no valid token, 503 when identity is away.
    pub(crate) async fn token(&self, headers: &HeaderMap) -> Result<Token, Problem> {
        Ok(self.shown(headers).await?.token)
    }

    /// The token of a request, and what it can be asked after again by.
    ///
    /// # Errors
    /// 401 for no valid token, 503 when identity is away.
    pub(crate) async fn shown(&self, headers: &HeaderMap) -> Result<Shown, Problem> {
        let secret = bearer(headers).ok_or_else(|| self.unauthorized())?;
        match self.tokens.show(secret).await {
            Ok(shown) => Ok(shown),
            Err(status) if status.code() == Code::Unauthenticated => Err(self.unauthorized()),
            Err(status) => Err(status.into()),
        }
    }

    /// The refusal of a request that has no valid token, or no longer.
    pub(crate) fn unauthorized(&self) -> Problem {
        Problem::unauthorized(self.challenge.clone())
    }

    /// Refuses what a web page of another site could send: a foreign `Origin`, and a `Host` that only a rebound name
    /// makes reach this machine. An IP address as `Host` cannot be rebound.
    fn check_site(&self, request: &Request) -> Result<(), Problem> {
        let host = request
            .uri()
            .authority()
            .map(|authority| authority.as_str())
            .or_else(|| text(request.headers(), header::HOST));
        if !host.is_some_and(|host| self.is_ours(host)) {
            return Err(Problem::new(
                StatusCode::FORBIDDEN,
                "host_not_allowed",
                "The Host header names another site.",
            ));
        }
        let mut origins = request.headers().get_all(header::ORIGIN).iter();
        if origins.all(|origin| origin.to_str().is_ok_and(|text| self.is_our_origin(text))) {
            return Ok(());
        }
        Err(Problem::new(
            StatusCode::FORBIDDEN,
            "origin_not_allowed",
            "Pages of this origin may not call the host.",
        ))
    }

    fn is_ours(&self, authority: &str) -> bool {
        let name = without_port(authority).to_ascii_lowercase();
        let address = name.trim_start_matches('[').trim_end_matches(']');
        address.parse::<IpAddr>().is_ok() || name == "localhost" || self.hosts.contains(&name)
    }

    fn is_our_origin(&self, origin: &str) -> bool {
        let origin = origin.to_ascii_lowercase();
        let loopback = origin
            .split_once("://")
            .filter(|(scheme, _)| matches!(*scheme, "http" | "https"))
            .is_some_and(|(_, authority)| is_loopback(without_port(authority)));
        loopback || self.origins.contains(&origin)
    }
}

fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || address.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Host of `host`, `host:port` or `[v6]:port`.
fn without_port(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    }
}

fn text(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

/// The secret of `Authorization: Bearer`, sent once and of a sane size.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return None;
    };
    let (scheme, secret) = value.to_str().ok()?.split_once(' ')?;
    let secret = secret.trim();
    let plausible = (1..=MAX_SECRET_BYTES).contains(&secret.len())
        && secret.bytes().all(|byte| byte.is_ascii_graphic());
    (scheme.eq_ignore_ascii_case("bearer") && plausible).then_some(secret)
}

/// A token that opens another door.
pub(crate) fn wrong_kind(needed: &str) -> Problem {
    Problem::new(
        StatusCode::FORBIDDEN,
        "wrong_token",
        format!("This takes {needed}."),
    )
}

/// Stands before every route: `Host` and `Origin` are checked before anything is read or done.
pub(crate) async fn guard(State(access): State<Access>, request: Request, next: Next) -> Response {
    match access.check_site(&request) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}
