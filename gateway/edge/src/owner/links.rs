//! One-time links: made for the terminal, used by a browser.

use axum::{
    Json,
    body::Bytes,
    extract::{Path, State},
    response::{IntoResponse as _, Redirect, Response},
};
use http::{HeaderMap, HeaderName, Method, header};
use postern_kit::Problem;
use serde::Deserialize;
use serde_json::json;
use tonic::Code;

use super::{
    access, console,
    logins::Link,
    reply::{Refusal, Reply, body},
};

/// How browsers tell that they only look ahead, which must not use a link up.
const PURPOSES: [HeaderName; 3] = [
    HeaderName::from_static("sec-purpose"),
    HeaderName::from_static("purpose"),
    HeaderName::from_static("x-moz"),
];

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Wish {
    /// Whether the link is to lead to the listener's address.
    plain: bool,
}

/// `POST /owner/v1/links`
pub(super) async fn create(State(state): State<super::State>, bytes: Bytes) -> Reply {
    let wish: Wish = match bytes.is_empty() {
        true => Wish::default(),
        false => body(&bytes)?,
    };
    let link = state.logins.link(wish.plain).map_err(no_randomness)?;
    let Link {
        url,
        expires_at,
        warning,
    } = link;
    Ok(Json(
        json!({"url": url, "expiresAt": expires_at, "warning": warning}),
    ))
}

/// `GET /link/{secret}`: opens a session and leads to the console.
pub(super) async fn redeem(
    State(state): State<super::State>,
    Path(secret): Path<String>,
    method: Method,
    headers: HeaderMap,
) -> Response {
    let looks_ahead = PURPOSES
        .iter()
        .any(|name| headers.get(name).is_some_and(|purpose| !purpose.is_empty()));
    if method != Method::GET || looks_ahead {
        return console::unused();
    }
    match state.logins.redeem(&secret) {
        Ok(Some(session)) => {
            let mut response = Redirect::to("/").into_response();
            let cookie = access::cookie(&state, Some(&session));
            response.headers_mut().insert(header::SET_COOKIE, cookie);
            response
        }
        Ok(None) => console::used(),
        Err(problem) => console::refused(&no_randomness(problem)),
    }
}

fn no_randomness(problem: getrandom::Error) -> Refusal {
    tracing::error!(%problem, "there is no randomness for a link");
    Refusal(Problem::new(
        Code::Internal,
        "no_randomness",
        "The system gives no random bytes, so there is no link. Try again.",
    ))
}
