//! Who gets an answer: `Host` and `Origin` of this machine, and the owner, by his token or by the cookie of his browser.

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use postern_kit::Problem;
use subtle::ConstantTimeEq as _;
use tonic::Code;

use super::{
    console,
    logins::SESSION_LIFE,
    reply::{self, Refusal},
};

/// Names under which this listener is reached, beside the console's own. A page of another site that resolves its own name
/// to this machine sends that name, and a proxy has no business here.
const NAMES: [&str; 3] = ["127.0.0.1", "localhost", "[::1]"];
/// Name of the cookie. Browsers send one name to every port of a host, so the port is part of it.
const COOKIE: &str = "postern-console";
/// How a browser tells from where a request comes.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// On an answer: the request was the owner's.
#[derive(Clone, Copy, Debug)]
struct Owned;

/// By what the owner showed that it is him.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Caller {
    /// The token.
    Token,
    /// The cookie of a session.
    Console {
        /// The session's secret.
        session: String,
    },
}

impl Caller {
    /// What stands in a receipt as who decided.
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Token => "owner",
            Self::Console { .. } => "console",
        }
    }
}

/// Refuses requests that come under a foreign name or from a foreign page. Only the owner keeps a connection after its answer:
/// anyone else's would hold a place that could be used.
pub(super) async fn demand_here(
    State(state): State<super::State>,
    request: Request,
    next: Next,
) -> Response {
    let mut response = if is_from_here(&state, &request) {
        reply::readable(next.run(request).await)
    } else {
        foreign().into_response()
    };
    if response.extensions().get::<Owned>().is_none() {
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(header::CONNECTION, close);
    }
    let headers = response.headers_mut();
    headers
        .entry(header::CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-store"));
    for (name, value) in [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (
            HeaderName::from_static("cross-origin-resource-policy"),
            "same-origin",
        ),
        (
            HeaderName::from_static("cross-origin-opener-policy"),
            "same-origin",
        ),
        // With `no-referrer` a browser's forms would come without their origin.
        (header::REFERRER_POLICY, "same-origin"),
        (header::X_FRAME_OPTIONS, "DENY"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers
        .entry(header::CONTENT_SECURITY_POLICY)
        .or_insert(HeaderValue::from_static(
            "default-src 'none'; frame-ancestors 'none'",
        ));
    response
}

fn foreign() -> Refusal {
    Refusal(Problem::new(
        Code::PermissionDenied,
        "foreign_origin",
        "The owner's API answers pages and programs of this machine only.",
    ))
}

/// Whether every name under which the request comes, and the page that it comes from, are of this machine.
fn is_from_here(state: &super::State, request: &Request) -> bool {
    let headers = request.headers();
    let Ok(host) = only(headers, &header::HOST) else {
        return false;
    };
    let origin = only(headers, &header::ORIGIN).map(|origin| {
        origin.is_none_or(|origin| {
            let host = origin.as_bytes().strip_prefix(b"http://");
            host.is_some_and(|host| is_here(state, host))
        })
    });
    let target = request.uri().authority();
    host.is_some_and(|host| is_here(state, host.as_bytes()))
        && origin == Ok(true)
        && target.is_none_or(|target| is_here(state, target.as_str().as_bytes()))
}

/// A header that may come once. Of several nobody knows which one counts.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a HeaderValue>, Several> {
    let mut all = headers.get_all(name).iter();
    match (all.next(), all.next()) {
        (one, None) => Ok(one),
        (_, Some(_)) => Err(Several),
    }
}

/// A header came more than once.
#[derive(Debug, Eq, PartialEq)]
struct Several;

fn is_here(state: &super::State, authority: &[u8]) -> bool {
    let Ok(authority) = std::str::from_utf8(authority) else {
        return false;
    };
    let port = state.address.port();
    let is_shared = NAMES.iter().any(|name| {
        authority
            .strip_prefix(name)
            .is_some_and(|rest| rest == format!(":{port}") || (rest.is_empty() && port == 80))
    });
    is_shared || state.logins.place().is_named(authority)
}

/// Refuses requests of the API that are not the owner's.
pub(super) async fn demand_owner(
    State(state): State<super::State>,
    request: Request,
    next: Next,
) -> Response {
    match caller(&state, &request) {
        Ok(Some(caller)) => answer(caller, request, next).await,
        Ok(None) => unauthorized(),
        Err(refusal) => refusal.into_response(),
    }
}

/// Shows whoever is not the owner how to come in, instead of a page.
pub(super) async fn demand_owner_of_page(
    State(state): State<super::State>,
    request: Request,
    next: Next,
) -> Response {
    match caller(&state, &request) {
        Ok(Some(caller)) => answer(caller, request, next).await,
        Ok(None) => console::closed(request.uri()),
        Err(refusal) => console::refused(&refusal),
    }
}

/// Lets the owner keep a connection on which he asks for what anyone may have.
pub(super) async fn notice_owner(
    State(state): State<super::State>,
    request: Request,
    next: Next,
) -> Response {
    match caller(&state, &request) {
        Ok(Some(caller)) => answer(caller, request, next).await,
        Ok(None) | Err(_) => next.run(request).await,
    }
}

async fn answer(caller: Caller, mut request: Request, next: Next) -> Response {
    request.extensions_mut().insert(caller);
    let mut response = next.run(request).await;
    response.extensions_mut().insert(Owned);
    response
}

/// Who asks, if it is the owner. A token that is shown decides alone.
fn caller(state: &super::State, request: &Request) -> Result<Option<Caller>, Refusal> {
    let headers = request.headers();
    if headers.contains_key(header::AUTHORIZATION) {
        let is_his = bearer(headers)
            .is_some_and(|token| bool::from(token.as_bytes().ct_eq(state.token.as_bytes())));
        return Ok(is_his.then_some(Caller::Token));
    }
    let Some(session) = session(state, headers) else {
        return Ok(None);
    };
    if !is_of_the_console(request) {
        return Err(foreign());
    }
    Ok(Some(Caller::Console { session }))
}

/// Whether a request with the cookie comes from the console's own pages, or from the owner's own hand. A browser sends the
/// cookie for pages of the same host under any port, too.
fn is_of_the_console(request: &Request) -> bool {
    let headers = request.headers();
    let changes = !matches!(*request.method(), Method::GET | Method::HEAD);
    let own_origin = || {
        let host = headers.get(header::HOST)?.as_bytes();
        let origin = headers.get(header::ORIGIN)?.as_bytes();
        Some(origin.strip_prefix(b"http://")? == host)
    };
    let from_here = headers
        .get(FETCH_SITE)
        .is_none_or(|site| site == "same-origin" || (site == "none" && !changes));
    from_here && (!changes || own_origin() == Some(true))
}

fn session(state: &super::State, headers: &HeaderMap) -> Option<String> {
    let name = cookie_name(state);
    headers
        .get_all(header::COOKIE)
        .iter()
        .filter_map(|cookies| cookies.to_str().ok())
        .flat_map(|cookies| cookies.split(';'))
        .filter_map(|cookie| cookie.trim().split_once('='))
        .filter(|(named, _)| *named == name)
        .map(|(_, secret)| secret)
        .find(|secret| state.logins.is_open(secret))
        .map(str::to_owned)
}

fn cookie_name(state: &super::State) -> String {
    format!("{COOKIE}-{}", state.address.port())
}

/// The `Set-Cookie` of a session, or of its end.
pub(super) fn cookie(state: &super::State, session: Option<&str>) -> HeaderValue {
    let (secret, seconds) = match session {
        Some(secret) => (secret, SESSION_LIFE.as_secs()),
        None => ("", 0),
    };
    let name = cookie_name(state);
    let text = format!("{name}={secret}; HttpOnly; SameSite=Strict; Path=/; Max-Age={seconds}");
    // A secret is hexadecimal digits.
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static(""))
}

fn unauthorized() -> Response {
    let problem = Problem::new(
        Code::Unauthenticated,
        "unauthorized",
        "The owner's token is needed: Authorization: Bearer <token>. It lies in the data directory as owner-token; for a browser, `postern console` prints a link.",
    );
    let mut response = Refusal(problem).into_response();
    response
        .headers_mut()
        .insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    response
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = only(headers, &header::AUTHORIZATION)
        .ok()??
        .to_str()
        .ok()?
        .split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}
