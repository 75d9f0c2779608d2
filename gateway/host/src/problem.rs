//! Errors of the HTTP API: RFC 9457 problem details with a stable `code`.

use std::time::Duration;

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use http::{HeaderName, HeaderValue, StatusCode, header};
use serde_json::json;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

/// What a caller is told to wait before it asks an unavailable part again.
const RETRY: Duration = Duration::from_secs(1);

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

    /// A part that the request needs does not answer.
    pub(crate) fn unavailable() -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "unavailable",
            "The identity service does not answer. Try again.",
        )
        .retry_after(RETRY)
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

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = json!({
            "type": "about:blank",
            "title": self.status.canonical_reason().unwrap_or("Error"),
            "status": self.status.as_u16(),
            "code": self.code,
            "detail": self.detail,
        });
        let mut response = Response::new(Body::from(body.to_string()));
        *response.status_mut() = self.status;
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

/// The host's reading of a status of the identity service: its reason as `code`, and the HTTP status of its gRPC code.
impl From<Status> for Problem {
    fn from(status: Status) -> Self {
        let reason = status
            .get_details_error_info()
            .filter(|info| info.domain == "postern")
            .map(|info| info.reason);
        let (http, fallback) = match status.code() {
            Code::InvalidArgument | Code::OutOfRange => (StatusCode::BAD_REQUEST, "invalid_request"),
            Code::Unauthenticated => (StatusCode::UNAUTHORIZED, "unauthorized"),
            Code::PermissionDenied => (StatusCode::FORBIDDEN, "forbidden"),
            Code::NotFound => (StatusCode::NOT_FOUND, "not_found"),
            Code::AlreadyExists | Code::FailedPrecondition | Code::Aborted => {
                (StatusCode::CONFLICT, "conflict")
            }
            Code::ResourceExhausted => (StatusCode::TOO_MANY_REQUESTS, "too_many_requests"),
            Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled => {
                return Self::unavailable();
            }
            Code::Ok
            | Code::Unknown
            | Code::Unimplemented
            | Code::Internal
            | Code::DataLoss => {
                tracing::error!(code = ?status.code(), message = status.message(), "the identity service failed");
                return Self::new(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "internal",
                    "The request failed. The host's log tells more.",
                );
            }
        };
        match reason {
            Some(reason) => Self::new(http, reason, status.message()),
            None => Self::new(http, fallback, "The identity service refused the request."),
        }
    }
}
