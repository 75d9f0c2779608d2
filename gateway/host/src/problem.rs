//! Errors of the HTTP API: RFC 9457 problem details with a stable `code`.

use std::time::Duration;

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use http::{HeaderName, HeaderValue, StatusCode, header};
use schemars::JsonSchema;
use serde::Serialize;
use tonic::Status;

/// What a caller is told to wait before it asks an unavailable part again.
pub(crate) const RETRY: Duration = Duration::from_secs(1);

/// A refused request. The detail is constant text or names what the caller sent wrong; it never holds a token.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    pub(crate) status: StatusCode,
    pub(crate) code: String,
    pub(crate) detail: String,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl Problem {
    pub(crate) fn new(
        status: StatusCode,
        code: impl Into<String>,
        detail: impl Into<String>,
    ) -> Self {
        Self {
            status,
            code: code.into(),
            detail: detail.into(),
            headers: Vec::new(),
        }
    }

    /// One text for every token that opens nothing, whatever the reason.
    pub(crate) fn unauthorized(challenge: HeaderValue) -> Self {
        Self::new(
            StatusCode::UNAUTHORIZED,
            "unauthorized",
            "A valid token is needed: Authorization: Bearer <token>.",
        )
        .with(header::WWW_AUTHENTICATE, challenge)
    }

    /// A fault of the host or of a service behind it.
    pub(crate) fn internal() -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "internal",
            "The request failed. The host's log tells more.",
        )
    }

    pub(crate) fn with(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    pub(crate) fn retry_after(self, wait: Duration) -> Self {
        self.with(
            header::RETRY_AFTER,
            HeaderValue::from(wait.as_secs().max(1)),
        )
    }
}

/// Problem details of RFC 9457.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Problem")]
pub(crate) struct Details {
    /// The code says more.
    r#type: &'static str,
    /// The status in words.
    title: &'static str,
    /// The status.
    #[schemars(range(min = 400, max = 599))]
    status: u16,
    /// What a program goes by.
    code: String,
    /// What was wrong and what to do next.
    detail: String,
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = self.status;
        let details = Details {
            r#type: "about:blank",
            title: status.canonical_reason().unwrap_or("Error"),
            status: status.as_u16(),
            code: self.code,
            detail: self.detail,
        };
        let mut response = Response::new(Body::from(json(&details)));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/problem+json"),
        );
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.extend(
            self.headers
                .into_iter()
                .map(|(name, value)| (Some(name), value)),
        );
        response
    }
}

fn json(details: &Details) -> String {
    #[expect(clippy::expect_used, reason = "an object of texts and a number")]
    serde_json::to_string(details).expect("it is JSON")
}

impl From<Status> for Problem {
    fn from(status: Status) -> Self {
        let refusal = postern_kit::Problem::from(status);
        let problem = Self::new(refusal.http_status(), refusal.code, refusal.message);
        if problem.status == StatusCode::SERVICE_UNAVAILABLE {
            return problem.retry_after(RETRY);
        }
        problem
    }
}
