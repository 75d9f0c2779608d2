//! Who gets an answer: `Host` and `Origin` of this machine, and the owner's token.

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use http::{HeaderMap, HeaderValue, header};
use postern_kit::Problem;
use subtle::ConstantTimeEq as _;
use tonic::Code;

use super::reply::Refusal;

/// Names under which this listener is reached. A page of another site that resolves its own name to this machine sends that
/// name, and a proxy has no business here.
const NAMES: [&str; 3] = ["127.0.0.1", "localhost", "[::1]"];

/// On an answer: the request had the owner's token.
#[derive(Clone, Copy, Debug)]
struct Owned;

/// Refuses requests that come under a foreign name or from a foreign page. Only the owner keeps a connection after its answer:
/// anyone else's would hold a place that could be used.
pub(super) async fn demand_here(port: u16, request: Request, next: Next) -> Response {
    let headers = request.headers();
    let host = headers
        .get(header::HOST)
        .is_some_and(|host| is_here(host.as_bytes(), port));
    let origin = headers.get(header::ORIGIN).is_none_or(|origin| {
        origin
            .as_bytes()
            .strip_prefix(b"http://")
            .is_some_and(|host| is_here(host, port))
    });
    if !host || !origin {
        let problem = Problem::new(
            Code::PermissionDenied,
            "foreign_origin",
            "The owner's API answers pages and programs of this machine only.",
        );
        return closing(Refusal(problem).into_response());
    }
    let mut response = next.run(request).await;
    if response.extensions().get::<Owned>().is_none() {
        response = closing(response);
    }
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    headers.insert(
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'"),
    );
    response
}

fn closing(mut response: Response) -> Response {
    let close = HeaderValue::from_static("close");
    response.headers_mut().insert(header::CONNECTION, close);
    response
}

fn is_here(authority: &[u8], port: u16) -> bool {
    let Ok(authority) = std::str::from_utf8(authority) else {
        return false;
    };
    NAMES.iter().any(|name| {
        authority
            .strip_prefix(name)
            .is_some_and(|rest| rest == format!(":{port}") || (rest.is_empty() && port == 80))
    })
}

/// Refuses requests without the owner's token.
pub(super) async fn demand_token(
    State(state): State<super::State>,
    request: Request,
    next: Next,
) -> Response {
    if bearer(request.headers())
        .is_some_and(|token| bool::from(token.as_bytes().ct_eq(state.token.as_bytes())))
    {
        let mut response = next.run(request).await;
        response.extensions_mut().insert(Owned);
        return response;
    }
    let problem = Problem::new(
        Code::Unauthenticated,
        "unauthorized",
        "The owner's token is needed: Authorization: Bearer <token>. It lies in the data directory as owner-token.",
    );
    let mut response = Refusal(problem).into_response();
    response
        .headers_mut()
        .insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    response
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers
        .get(header::AUTHORIZATION)?
        .to_str()
        .ok()?
        .split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}
