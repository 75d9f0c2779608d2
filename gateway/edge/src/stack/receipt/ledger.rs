//! The ledger as the layers use it.

use std::{future::Future, time::Duration};

use bytes::Bytes;
use postern_kit::{Failure, transport::Transport};
use postern_proto::ledger::v1::{
    self as ledger, AbandonRequest, BeginRequest, BeginResponse, CompleteRequest, DecideRequest,
    Decision, GetRequest, ListRequest, ListResponse, LookupRequest, Question, Receipt,
    RecordRequest, RefuseRequest, StartRequest, State, WatchRequest, WatchResponse,
    begin_response::Outcome, ledger_client::LedgerClient,
};
use postern_types::ErrorCode;
use tokio::time::Instant;
use tonic::{Response, Status, Streaming};

use super::{present, unexpected};
use crate::{
    call::Call,
    clients::{Clients, hop, hop_within},
    config::Config,
    control::Control,
    reply::Reply,
};

/// Wait between two offers.
const COMPLETE_PAUSE: Duration = Duration::from_millis(100);
/// How long one offer of what the owner did is repeated.
const OWNER_PATIENCE: Duration = Duration::from_secs(10);
/// Why the ledger refuses an edge that another one has replaced (`postern.ledger.v1`).
const FENCED: &str = "fenced";
/// Why the ledger cannot record for now, as an agent is told it.
const DISK_FULL: &str = "disk_full";

#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    client: LedgerClient<Transport>,
    workspace_id: String,
    incarnation: u64,
    control: Control,
    patience: Duration,
}

impl Ledger {
    pub(in crate::stack) fn new(config: &Config, clients: &Clients, control: &Control) -> Self {
        Self {
            client: clients.ledger.clone(),
            workspace_id: config.workspace_id.to_string(),
            incarnation: control.incarnation(),
            control: control.clone(),
            patience: config.patience,
        }
    }

    /// For what the owner does himself.
    pub(crate) fn of_owner(clients: &Clients, control: &Control) -> Self {
        Self {
            client: clients.ledger.clone(),
            workspace_id: control.workspace_id().to_string(),
            incarnation: control.incarnation(),
            control: control.clone(),
            patience: OWNER_PATIENCE,
        }
    }

    pub(crate) async fn lookup(&self, call: &Call) -> Result<Outcome, Failure> {
        let request = LookupRequest {
            call: Some(call.to_ledger()),
            incarnation: self.incarnation,
        };
        self.outcome(self.client.clone().lookup(request)).await
    }

    pub(crate) async fn begin(
        &self,
        call: &Call,
        plan_json: Bytes,
        question: Option<Question>,
        policy_id: String,
    ) -> Result<Outcome, Failure> {
        let request = BeginRequest {
            call: Some(call.to_ledger()),
            incarnation: self.incarnation,
            plan_json,
            question,
            policy_id,
        };
        postern_kit::fault_point!(crate::fault_points::BEGIN_BEFORE);
        let outcome = self.outcome(self.client.clone().begin(request)).await;
        postern_kit::fault_point!(crate::fault_points::BEGIN_AFTER);
        outcome
    }

    pub(super) async fn refuse(
        &self,
        call: &Call,
        reply: &Reply,
        policy_id: String,
    ) -> Result<Outcome, Failure> {
        let request = RefuseRequest {
            call: Some(call.to_ledger()),
            incarnation: self.incarnation,
            outcome: reply.outcome().to_owned(),
            result: Bytes::copy_from_slice(reply.body().as_bytes()),
            policy_id,
            unkeyed: false,
        };
        self.outcome(self.client.clone().refuse(request)).await
    }

    /// Keeps a refusal in the pinned workspace's chain, whatever workspace the call named: a host cannot start chains of
    /// workspaces that are not this edge's.
    pub(in crate::stack) async fn refuse_unkeyed(
        &self,
        call: &Call,
        reply: &Reply,
    ) -> Result<(), Failure> {
        let request = RefuseRequest {
            call: Some(ledger::Call {
                workspace_id: self.workspace_id.clone(),
                ..call.to_ledger()
            }),
            incarnation: self.incarnation,
            outcome: reply.outcome().to_owned(),
            result: Bytes::copy_from_slice(reply.body().as_bytes()),
            policy_id: String::new(),
            unkeyed: true,
        };
        self.outcome(self.client.clone().refuse(request))
            .await
            .map(drop)
    }

    pub(in crate::stack) async fn start(
        &self,
        receipt_id: &str,
        plan_json: Bytes,
    ) -> Result<(), Failure> {
        let request = StartRequest {
            receipt_id: receipt_id.to_owned(),
            incarnation: self.incarnation,
            plan_json,
        };
        postern_kit::fault_point!(crate::fault_points::OWNER_START_BEFORE);
        let started = self.asked(hop(self.client.clone().start(request)).await);
        postern_kit::fault_point!(crate::fault_points::OWNER_START_AFTER);
        started.map(drop)
    }

    /// Records an end, offering it again for a while when the ledger is away: the effect has happened. Afterwards the
    /// receipt stays executing, and the same ids are resolved by inspection.
    pub(crate) async fn complete(
        &self,
        receipt_id: &str,
        state: State,
        reply: &Reply,
    ) -> Result<(), Failure> {
        let request = CompleteRequest {
            receipt_id: receipt_id.to_owned(),
            incarnation: self.incarnation,
            state: state.into(),
            outcome: reply.outcome().to_owned(),
            result: Bytes::copy_from_slice(reply.body().as_bytes()),
        };
        let deadline = Instant::now() + self.patience;
        postern_kit::fault_point!(crate::fault_points::COMPLETE_BEFORE);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let offered = hop_within(left, self.client.clone().complete(request.clone())).await;
            match self.asked(offered) {
                Ok(_) => {
                    postern_kit::fault_point!(crate::fault_points::COMPLETE_AFTER);
                    return Ok(());
                }
                Err(failure) => {
                    let again = failure.code == ErrorCode::Unavailable
                        && !self.control.fenced().is_cancelled()
                        && Instant::now() + COMPLETE_PAUSE < deadline;
                    if !again {
                        tracing::warn!(%failure, "a result could not be recorded, so it is not told");
                        return Err(not_recorded());
                    }
                }
            }
            tokio::time::sleep(COMPLETE_PAUSE).await;
        }
    }

    pub(crate) async fn abandon(&self, receipt_id: &str) -> Result<(), Failure> {
        let request = AbandonRequest {
            receipt_id: receipt_id.to_owned(),
            incarnation: self.incarnation,
        };
        postern_kit::fault_point!(crate::fault_points::ABANDON_BEFORE);
        let abandoned = self.asked(hop(self.client.clone().abandon(request)).await);
        postern_kit::fault_point!(crate::fault_points::ABANDON_AFTER);
        abandoned.map(drop)
    }

    /// What the ledger is to be told of a finished reading call.
    pub(super) fn record_of(
        &self,
        call: &Call,
        reply: &Reply,
        started_at_ms: i64,
        finished_at_ms: i64,
    ) -> RecordRequest {
        RecordRequest {
            call: Some(call.to_ledger()),
            incarnation: self.incarnation,
            outcome: reply.outcome().to_owned(),
            started_at_ms,
            finished_at_ms,
        }
    }

    pub(super) async fn record(&self, request: RecordRequest) -> Result<(), Failure> {
        self.asked(hop(self.client.clone().record(request)).await)
            .map(drop)
    }

    pub(super) async fn get(&self, receipt_id: &str) -> Result<Receipt, Failure> {
        let receipt_id = receipt_id.to_owned();
        let found = hop(self.client.clone().get(GetRequest { receipt_id })).await;
        present(self.asked(found)?.receipt)
    }

    pub(super) async fn watch(&self) -> Result<Streaming<WatchResponse>, Failure> {
        let workspace_id = self.workspace_id.clone();
        let watched = hop(self.client.clone().watch(WatchRequest { workspace_id })).await;
        self.asked(watched)
    }

    /// One page of what awaits the owner.
    pub(super) async fn awaiting(&self, after: String) -> Result<ListResponse, Failure> {
        let request = ListRequest {
            workspace_id: self.workspace_id.clone(),
            state: State::AwaitingOwner.into(),
            after,
            ..ListRequest::default()
        };
        self.asked(hop(self.client.clone().list(request)).await)
    }

    /// Waits until another edge has taken this workspace over.
    pub(super) async fn fenced(&self) {
        self.control.fenced().cancelled().await;
    }

    /// Says that nobody decided in time; what was decided before counts.
    pub(super) async fn expire(&self, receipt_id: &str) -> Result<Receipt, Failure> {
        let request = DecideRequest {
            receipt_id: receipt_id.to_owned(),
            decision: Decision::Expire.into(),
            answer: String::new(),
            decided_by: "timeout".to_owned(),
        };
        let decided = hop(self.client.clone().decide(request)).await;
        present(self.asked(decided)?.receipt)
    }

    async fn outcome(
        &self,
        call: impl Future<Output = Result<Response<BeginResponse>, Status>>,
    ) -> Result<Outcome, Failure> {
        self.asked(hop(call).await)?
            .outcome
            .ok_or_else(|| unexpected("an answer without an outcome"))
    }

    /// Notes when the ledger says that this edge has been replaced.
    fn asked<T>(&self, answer: Result<T, Failure>) -> Result<T, Failure> {
        answer.map_err(|failure| {
            if failure.details.get("reason").and_then(|reason| reason.as_str()) == Some(FENCED) {
                self.control.fenced().cancel();
                return Failure::new(
                    ErrorCode::Unavailable,
                    "Another edge has taken this workspace over. Send the call again with the same id.",
                );
            }
            if failure.code == ErrorCode::DiskFull {
                // Nothing was recorded, so it is no outcome: the host must not keep it, and the same ids may act later.
                return Failure {
                    code: ErrorCode::Unavailable,
                    ..failure
                }
                .with("reason", DISK_FULL);
            }
            failure
        })
    }
}

fn not_recorded() -> Failure {
    Failure::new(
        ErrorCode::Unavailable,
        "The call was made, but its result could not be recorded. Send it again with the same id; nothing is done twice.",
    )
}
