//! Refusals of requests that are no agent's call: a code in `lower_snake`, carried by a gRPC status and told over HTTP as
//! the `code` of an RFC 9457 problem.

use std::{borrow::Cow, collections::HashMap, fmt};

use http::StatusCode;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use crate::failure::DOMAIN;

/// A refused request. Holds no secret.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Problem {
    /// Kind of the refusal.
    pub kind: Code,
    /// What a program goes by, such as `idempotency_key_reused`.
    pub code: Cow<'static, str>,
    /// What was wrong and what to do next.
    pub message: String,
}

impl Problem {
    /// A refusal.
    pub fn new(kind: Code, code: &'static str, message: impl Into<String>) -> Self {
        Self {
            kind,
            code: Cow::Borrowed(code),
            message: message.into(),
        }
    }

    /// The HTTP status that says the same.
    #[must_use]
    pub fn http_status(&self) -> StatusCode {
        match self.kind {
            Code::Ok => StatusCode::OK,
            Code::InvalidArgument | Code::OutOfRange => StatusCode::BAD_REQUEST,
            Code::Unauthenticated => StatusCode::UNAUTHORIZED,
            Code::PermissionDenied => StatusCode::FORBIDDEN,
            Code::NotFound => StatusCode::NOT_FOUND,
            Code::AlreadyExists | Code::FailedPrecondition | Code::Aborted => StatusCode::CONFLICT,
            Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
            Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Code::Unknown | Code::Unimplemented | Code::Internal | Code::DataLoss => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.code, self.message)
    }
}

impl std::error::Error for Problem {}

impl From<Problem> for Status {
    fn from(problem: Problem) -> Self {
        let details =
            ErrorDetails::with_error_info(problem.code.as_ref(), DOMAIN, HashMap::default());
        Self::with_error_details(problem.kind, problem.message, details)
    }
}

impl From<Status> for Problem {
    /// Reads a refusal back. A status that no service of ours made is a fault of the hop and tells nothing of it.
    fn from(status: Status) -> Self {
        let info = status
            .get_details_error_info()
            .filter(|info| info.domain == DOMAIN);
        if let Some(info) = info {
            return Self {
                kind: status.code(),
                code: Cow::Owned(info.reason),
                message: status.message().to_owned(),
            };
        }
        tracing::warn!(code = ?status.code(), message = status.message(), "a service request failed");
        if matches!(
            status.code(),
            Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled
        ) {
            Self::new(
                Code::Unavailable,
                "unavailable",
                "A service that this request needs does not answer. Try again.",
            )
        } else {
            Self::new(
                Code::Internal,
                "internal",
                "A service that this request needs failed. Its log tells more.",
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    #[test]
    fn a_problem_survives_a_status() {
        let problem = Problem::new(
            Code::AlreadyExists,
            "idempotency_key_reused",
            "another body",
        );
        assert_eq!(Problem::from(Status::from(problem.clone())), problem);
        assert_eq!(problem.http_status(), StatusCode::CONFLICT);
    }

    #[test]
    fn a_foreign_status_tells_nothing_of_itself() {
        let problem = Problem::from(Status::unavailable("refused by 10.0.0.1"));
        assert_eq!(
            (problem.kind, problem.code.as_ref()),
            (Code::Unavailable, "unavailable")
        );
        assert!(!problem.message.contains("10.0.0.1"));
        assert_eq!(
            Problem::from(Status::unknown("secret")).http_status(),
            StatusCode::INTERNAL_SERVER_ERROR
        );
    }
}
