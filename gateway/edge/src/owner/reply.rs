//! Answers: JSON, or an RFC 9457 problem.

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use postern_kit::{Failure, Problem};
use serde_json::{Value, json};
use tonic::{Code, Status};

use crate::undo::Refused;

/// Seconds after which a request that found no room or no service is worth another try.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("5");

/// A refused request.
#[derive(Debug)]
pub(super) struct Refusal(pub(super) Problem);

/// What a handler answers.
pub(super) type Reply = Result<axum::Json<Value>, Refusal>;

impl Refusal {
    /// The request does not have the form it should have.
    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self(Problem::new(
            Code::InvalidArgument,
            "invalid_request",
            message,
        ))
    }

    /// The answer, with something more for a program.
    pub(super) fn with(self, name: &str, facts: impl Into<Value>) -> Response {
        let Problem { code, message, .. } = &self.0;
        Self::respond_with(
            self.0.http_status(),
            code,
            message,
            Some((name, facts.into())),
        )
    }

    fn respond(status: StatusCode, code: &str, detail: &str) -> Response {
        Self::respond_with(status, code, detail, None)
    }

    fn respond_with(
        status: StatusCode,
        code: &str,
        detail: &str,
        more: Option<(&str, Value)>,
    ) -> Response {
        let mut body = json!({
            "type": "about:blank",
            "title": status.canonical_reason().unwrap_or("Error"),
            "status": status.as_u16(),
            "code": code,
            "detail": detail,
        });
        if let Some((name, facts)) = more {
            body[name] = facts;
        }
        let mut response = (status, body.to_string()).into_response();
        let headers = response.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/problem+json"),
        );
        if status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(header::RETRY_AFTER, RETRY_AFTER);
        }
        response
    }
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        Self(problem)
    }
}

impl From<Refused> for Refusal {
    fn from(refused: Refused) -> Self {
        Self(refused.problem)
    }
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Self {
        Self(status.into())
    }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Status::from(failure).into()
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        Self::respond(self.0.http_status(), &self.0.code, &self.0.message)
    }
}

/// What the framework refused before a handler was asked comes as a bare text; here it gets the form of every other refusal.
pub(super) fn readable(response: Response) -> Response {
    let status = response.status();
    let kind = response.headers().get(header::CONTENT_TYPE);
    if !status.is_client_error()
        || kind.is_none_or(|kind| !kind.as_bytes().starts_with(b"text/plain"))
    {
        return response;
    }
    let (code, detail) = match status {
        StatusCode::PAYLOAD_TOO_LARGE => {
            ("too_large", "The body is larger than this address takes.")
        }
        _ => (
            "invalid_request",
            "The address or what came with it cannot be read.",
        ),
    };
    let mut told = Refusal::respond(status, code, detail);
    *told.extensions_mut() = response.extensions().clone();
    told
}

/// There is no such address.
pub(super) async fn not_found() -> Response {
    Refusal::respond(
        StatusCode::NOT_FOUND,
        "not_found",
        "There is no such address.",
    )
}

/// There is no such method here.
pub(super) async fn method_not_allowed() -> Response {
    Refusal::respond(
        StatusCode::METHOD_NOT_ALLOWED,
        "method_not_allowed",
        "This address does not take that method.",
    )
}

/// Reads a JSON body.
pub(super) fn body<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T, Refusal> {
    serde_json::from_slice(bytes).map_err(|problem| {
        Refusal::bad_request(format!(
            "The body is not what this address takes: {problem}."
        ))
    })
}
