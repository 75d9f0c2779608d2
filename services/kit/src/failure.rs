//! Failures of calls, and their way through a gRPC status and back (CONTRACT.md, section 4).

use std::{collections::HashMap, fmt};

use postern_types::ErrorCode;
use serde_json::{Map, Value, json};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

/// Domain of the `google.rpc.ErrorInfo` of every refusal of ours (CONTRACT.md, section 4).
pub(crate) const DOMAIN: &str = "postern";
const DETAILS: &str = "details";

/// Whether a failed call may have had its effect.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Effect {
    /// It had none: the service that would have had it said so.
    None,
    /// It cannot be told from the failure alone.
    Unknown,
}

/// A failed call: what an agent is told. Holds no secret and no path outside the project.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Failure {
    /// Code of the public contract.
    pub code: ErrorCode,
    /// What was wrong and what to do next.
    pub message: String,
    /// Facts for a program.
    pub details: Map<String, Value>,
    /// Whether there may have been an effect.
    pub effect: Effect,
}

impl Failure {
    /// A failure without an effect and without details.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            details: Map::new(),
            effect: Effect::None,
        }
    }

    /// Adds one detail.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.details.insert(name.to_owned(), value.into());
        self
    }

    /// The failure's object in `structuredContent`: `{"error":{…}}`.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({"error": {
            "code": self.code.as_str(),
            "message": self.message,
            "retryable": self.code.retryable(),
            "details": self.details,
        }})
    }

    /// The failure as a status of a given gRPC code, where the code says more to generic clients (retry or not) than the
    /// one that usually goes with the failure's own code.
    #[must_use]
    pub fn into_status(self, code: Code) -> Status {
        let mut facts = HashMap::new();
        if !self.details.is_empty() {
            facts.insert(DETAILS.to_owned(), Value::Object(self.details).to_string());
        }
        if self.effect == Effect::Unknown {
            facts.insert("effect".to_owned(), "unknown".to_owned());
        }
        let details = ErrorDetails::with_error_info(self.code.as_str(), DOMAIN, facts);
        Status::with_error_details(code, self.message, details)
    }

    const fn grpc_code(&self) -> Code {
        match self.code {
            ErrorCode::InvalidArguments
            | ErrorCode::NotUtf8
            | ErrorCode::NoMatch
            | ErrorCode::AmbiguousMatch
            | ErrorCode::UnsupportedFormat
            | ErrorCode::NotAFile
            | ErrorCode::NotADirectory => Code::InvalidArgument,
            ErrorCode::UnknownTool => Code::Unimplemented,
            ErrorCode::PermissionDenied
            | ErrorCode::WrongWorkspace
            | ErrorCode::WrongIntention
            | ErrorCode::UnknownSession
            | ErrorCode::ApprovalDenied
            | ErrorCode::PathEscapesProject => Code::PermissionDenied,
            ErrorCode::ApprovalTimeout => Code::DeadlineExceeded,
            ErrorCode::NotFound | ErrorCode::UnknownCommand => Code::NotFound,
            ErrorCode::TooLarge | ErrorCode::NoSuchPage => Code::OutOfRange,
            ErrorCode::StaleRevision | ErrorCode::Uncertain | ErrorCode::NotApplied => {
                Code::Aborted
            }
            ErrorCode::AlreadyExists | ErrorCode::IdReused => Code::AlreadyExists,
            ErrorCode::CommandEnded => Code::FailedPrecondition,
            ErrorCode::TooManyCommands | ErrorCode::Busy | ErrorCode::DiskFull => {
                Code::ResourceExhausted
            }
            ErrorCode::Unavailable => Code::Unavailable,
            ErrorCode::Internal => Code::Internal,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.code, self.message)
    }
}

impl std::error::Error for Failure {}

impl From<Failure> for Status {
    fn from(failure: Failure) -> Self {
        let code = failure.grpc_code();
        failure.into_status(code)
    }
}

impl From<Status> for Failure {
    /// Reads a failure back. A status that no service of ours made is a fault of the hop: the service is away
    /// (`UNAVAILABLE`) or broken (`INTERNAL`), and the effect is unknown unless there was no connection at all.
    fn from(status: Status) -> Self {
        let info = status
            .get_details_error_info()
            .filter(|info| info.domain == DOMAIN);
        if let Some(info) = info {
            // A refusal that is no agent's call (`Problem`) has a reason of its own; its text is as public as a failure's.
            let code = info
                .reason
                .parse()
                .unwrap_or_else(|()| code_of(status.code()));
            let details = info
                .metadata
                .get(DETAILS)
                .and_then(|text| serde_json::from_str(text).ok())
                .unwrap_or_default();
            let effect = if info.metadata.contains_key("effect") {
                Effect::Unknown
            } else {
                Effect::None
            };
            return Self {
                code,
                message: status.message().to_owned(),
                details,
                effect,
            };
        }
        // What came over the wire has no source: a status with one was made here, because the connection broke.
        let hop_broke = std::error::Error::source(&status).is_some();
        let code = if hop_broke {
            ErrorCode::Unavailable
        } else {
            code_of(status.code())
        };
        let message = if code == ErrorCode::Unavailable {
            "A service that this call needs does not answer. Send the call again with the same id."
        } else {
            "A service that this call needs failed. The owner's log tells more."
        };
        tracing::warn!(code = ?status.code(), message = status.message(), "a service call failed");
        let effect = if was_never_sent(&status) {
            Effect::None
        } else {
            Effect::Unknown
        };
        Self {
            effect,
            ..Self::new(code, message)
        }
    }
}

/// What a status means for a call when no code of the contract says it.
const fn code_of(code: Code) -> ErrorCode {
    match code {
        Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled => ErrorCode::Unavailable,
        Code::Ok
        | Code::Unknown
        | Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::ResourceExhausted
        | Code::FailedPrecondition
        | Code::Aborted
        | Code::OutOfRange
        | Code::Unimplemented
        | Code::Internal
        | Code::DataLoss
        | Code::Unauthenticated => ErrorCode::Internal,
    }
}

/// Whether there was no connection to send the request on.
fn was_never_sent(status: &Status) -> bool {
    let mut cause = std::error::Error::source(status);
    while let Some(error) = cause {
        if error.is::<tonic::ConnectError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    #[test]
    fn every_code_survives_a_status() {
        for code in ErrorCode::ALL {
            let mut failure = Failure::new(*code, "what and why")
                .with("count", 2)
                .with("pointer", "/path");
            assert_eq!(Failure::from(Status::from(failure.clone())), failure);
            failure.effect = Effect::Unknown;
            assert_eq!(Failure::from(Status::from(failure.clone())), failure);
        }
    }

    #[test]
    fn the_text_of_a_problem_is_kept() {
        let problem = crate::Problem::new(Code::FailedPrecondition, "pin_differs", "add --repin");
        let failure = Failure::from(Status::from(problem));
        assert_eq!(
            (failure.code, failure.message.as_str(), failure.effect),
            (ErrorCode::Internal, "add --repin", Effect::None)
        );
        let away = crate::Problem::new(Code::Unavailable, "unavailable", "later");
        let failure = Failure::from(Status::from(away));
        assert_eq!(failure.code, ErrorCode::Unavailable);
    }

    #[test]
    fn a_foreign_status_leaves_the_effect_unknown() {
        let failure = Failure::from(Status::unavailable("connection refused to 10.0.0.1"));
        assert_eq!(
            (failure.code, failure.effect),
            (ErrorCode::Unavailable, Effect::Unknown)
        );
        assert!(!failure.message.contains("10.0.0.1"));
        assert_eq!(
            Failure::from(Status::internal("secret")).code,
            ErrorCode::Internal
        );
    }

    #[tokio::test]
    async fn a_connection_that_breaks_under_a_call_leaves_the_service_away_and_the_effect_unknown()
    {
        use postern_proto::ledger::v1::{AbandonRequest, ledger_client::LedgerClient};
        use tokio::io::AsyncReadExt as _;

        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("socket");
        let listener = tokio::net::UnixListener::bind(&path).expect("bound");
        let transport = crate::transport::connect(&crate::transport::Address::Unix(path));
        let mut client = LedgerClient::new(transport.expect("transport"));
        let dying = async {
            let (mut connection, _) = listener.accept().await.expect("a client");
            let mut preface = [0; 24];
            connection.read_exact(&mut preface).await.expect("HTTP/2");
        };
        let (answer, ()) = tokio::join!(client.abandon(AbandonRequest::default()), dying);
        let failure = Failure::from(answer.expect_err("nobody answered"));
        assert_eq!(
            (failure.code, failure.effect),
            (ErrorCode::Unavailable, Effect::Unknown)
        );
    }

    #[tokio::test]
    async fn a_request_that_found_no_connection_had_no_effect() {
        use postern_proto::ledger::v1::{AbandonRequest, ledger_client::LedgerClient};

        let directory = tempfile::tempdir().expect("directory");
        let nobody = crate::transport::Address::Unix(directory.path().join("nobody"));
        let transport = crate::transport::connect(&nobody).expect("transport");
        let status = LedgerClient::new(transport)
            .abandon(AbandonRequest::default())
            .await
            .expect_err("nobody listens");
        let failure = Failure::from(status);
        assert_eq!(
            (failure.code, failure.effect),
            (ErrorCode::Unavailable, Effect::None)
        );
    }
}
