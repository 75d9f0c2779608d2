//! The services, as generated clients over their transports.

use std::{future::Future, time::Duration};

use postern_kit::{
    Effect, Failure,
    transport::{DEADLINE, LONG_DEADLINE, MESSAGE_LIMIT, Transport},
};
use postern_proto::{
    exec::v1::exec_client::ExecClient,
    filesystem::v1::filesystem_client::FilesystemClient,
    identity::v1::edge_identity_client::EdgeIdentityClient,
    ledger::v1::ledger_client::LedgerClient,
    policy::v1::{self as policy, policy_client::PolicyClient},
};
use postern_types::{ErrorCode, Mode};
use tonic::{Response, Status};

/// How the edge reaches each service.
#[derive(Clone, Debug)]
pub struct Services {
    /// Pins and sessions.
    pub identity: Transport,
    /// Decisions.
    pub policy: Transport,
    /// Files.
    pub filesystem: Transport,
    /// Commands.
    pub exec: Transport,
    /// Receipts.
    pub ledger: Transport,
}

/// The services' clients. Cloned for each call, as tonic's clients are meant to be.
#[derive(Clone, Debug)]
pub(crate) struct Clients {
    pub(crate) identity: EdgeIdentityClient<Transport>,
    pub(crate) policy: PolicyClient<Transport>,
    pub(crate) filesystem: FilesystemClient<Transport>,
    pub(crate) exec: ExecClient<Transport>,
    pub(crate) ledger: LedgerClient<Transport>,
}

macro_rules! limited {
    ($client:ident, $transport:expr) => {
        $client::new($transport)
            .max_decoding_message_size(MESSAGE_LIMIT)
            .max_encoding_message_size(MESSAGE_LIMIT)
    };
}

impl From<Services> for Clients {
    fn from(services: Services) -> Self {
        Self {
            identity: limited!(EdgeIdentityClient, services.identity),
            policy: limited!(PolicyClient, services.policy),
            filesystem: limited!(FilesystemClient, services.filesystem),
            exec: limited!(ExecClient, services.exec),
            ledger: limited!(LedgerClient, services.ledger),
        }
    }
}

/// Awaits one service call, at most for the hop's deadline. A hop that ran out leaves the effect unknown.
pub(crate) async fn hop<T>(
    call: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<T, Failure> {
    hop_within(DEADLINE, call).await
}

/// As [`hop`], for a call that works on many files. Its request must be one [`within`](postern_kit::transport::within) that time.
pub(crate) async fn long_hop<T>(
    call: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<T, Failure> {
    hop_within(LONG_DEADLINE, call).await
}

pub(crate) async fn hop_within<T>(
    limit: Duration,
    call: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<T, Failure> {
    match tokio::time::timeout(limit, call).await {
        Ok(answer) => Ok(answer?.into_inner()),
        Err(_elapsed) => Err(Failure {
            effect: Effect::Unknown,
            ..Failure::new(
                ErrorCode::Unavailable,
                "A service that this call needs did not answer in time. Send the call again with the same id.",
            )
        }),
    }
}

/// Whether a failure says nothing of the call itself: neither ledger nor host keeps it, and the id stays free.
pub(crate) const fn is_passing(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::Unavailable | ErrorCode::Busy)
}

/// A mode as the policy service is told it.
pub(crate) const fn policy_mode(mode: Mode) -> policy::Mode {
    match mode {
        Mode::ReadOnly => policy::Mode::ReadOnly,
        Mode::Ask => policy::Mode::Ask,
        Mode::Edit => policy::Mode::Edit,
        Mode::Full => policy::Mode::Full,
    }
}
