//! A ledger in a temporary directory with a clock that tests move.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use postern_kit::{Clock, Failure, task::Tasks, transport};
use postern_ledger::{Config, Service};
use postern_proto::ledger::v1::{
    BeginRequest, BeginResponse, Call, CompleteRequest, GetRequest, InboxKind, ListRequest,
    LookupRequest, OpenIncarnationRequest, Question, Receipt, State, VerifyRequest, VerifyResponse,
    begin_response::Outcome, ledger_client::LedgerClient,
};
use postern_types::{Sha256, Timestamp, trace_id};
use tempfile::TempDir;
use tonic::Status;

pub(crate) const WORKSPACE: &str = "3f1c2d44-0000-7000-8000-000000000001";
pub(crate) const START_MS: i64 = 1_800_000_000_000;

pub(crate) type Client = LedgerClient<transport::Transport>;

pub(crate) struct Rig {
    directory: Arc<TempDir>,
    tasks: Tasks,
    pub(crate) client: Client,
    pub(crate) now_ms: Arc<AtomicI64>,
}

impl Rig {
    pub(crate) async fn new() -> Self {
        let directory = Arc::new(TempDir::new().expect("temporary directory"));
        Self::start(directory).await
    }

    pub(crate) async fn start(directory: Arc<TempDir>) -> Self {
        let now_ms = Arc::new(AtomicI64::new(START_MS));
        let tasks = Tasks::new();
        let held = Arc::clone(&now_ms);
        let clock = Clock::from_fn(move || Timestamp::from_millis(held.load(Ordering::Relaxed)));
        let path = directory.path().join("ledger.db");
        let service = Service::open(Config { path }, clock, &tasks)
            .await
            .expect("the ledger opens");
        Self {
            directory,
            tasks,
            client: client(service),
            now_ms,
        }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("ledger.db")
    }

    /// Ends the ledger and leaves its files.
    pub(crate) async fn stop(self) -> Arc<TempDir> {
        assert!(self.tasks.shutdown(Duration::from_secs(5)).await);
        self.directory
    }

    pub(crate) async fn restart(self) -> Self {
        Self::start(self.stop().await).await
    }

    pub(crate) fn advance(&self, millis: i64) {
        self.now_ms.fetch_add(millis, Ordering::Relaxed);
    }

    pub(crate) async fn incarnation(&self) -> u64 {
        open(&mut self.client.clone()).await.0
    }

    pub(crate) async fn begin(&self, call: &Call, incarnation: u64) -> Outcome {
        let request = request(call, incarnation);
        outcome(self.client.clone().begin(request).await).expect("begin")
    }

    pub(crate) async fn lookup(&self, call: &Call, incarnation: u64) -> Outcome {
        let request = LookupRequest {
            call: Some(call.clone()),
            incarnation,
        };
        outcome(self.client.clone().lookup(request).await).expect("lookup")
    }

    pub(crate) async fn ask(&self, call: &Call, incarnation: u64, kind: InboxKind) -> Receipt {
        let request = BeginRequest {
            question: Some(Question {
                kind: kind.into(),
                proposal_json: br#"{"why":"?"}"#.as_slice().into(),
                expires_at_ms: START_MS + 600_000,
            }),
            ..request(call, incarnation)
        };
        started(outcome(self.client.clone().begin(request).await).expect("begin"))
    }

    pub(crate) async fn complete(
        &self,
        receipt: &Receipt,
        incarnation: u64,
        state: State,
        result: &str,
    ) -> Result<Receipt, Failure> {
        let request = CompleteRequest {
            receipt_id: receipt.id.clone(),
            incarnation,
            state: state.into(),
            outcome: "ok".to_owned(),
            result: result.to_owned().into(),
        };
        match self.client.clone().complete(request).await {
            Ok(response) => Ok(response.into_inner().receipt.expect("receipt")),
            Err(status) => Err(status.into()),
        }
    }

    pub(crate) async fn get(&self, id: &str) -> Receipt {
        let request = GetRequest {
            receipt_id: id.to_owned(),
        };
        let response = self.client.clone().get(request).await.expect("get");
        response.into_inner().receipt.expect("receipt")
    }

    pub(crate) async fn list(&self, request: ListRequest) -> Vec<Receipt> {
        let response = self.client.clone().list(request).await.expect("list");
        response.into_inner().receipts
    }

    pub(crate) async fn verify(&self) -> VerifyResponse {
        let request = VerifyRequest::default();
        let response = self.client.clone().verify(request).await.expect("verify");
        response.into_inner()
    }

    /// Fails unless every chain holds.
    pub(crate) async fn assert_valid(&self) {
        let found = self.verify().await;
        assert!(found.valid, "{found:?}");
    }
}

pub(crate) fn client(service: Service) -> Client {
    LedgerClient::new(transport::local(service.into_server()))
        .max_decoding_message_size(transport::MESSAGE_LIMIT)
        .max_encoding_message_size(transport::MESSAGE_LIMIT)
}

pub(crate) async fn open(client: &mut Client) -> (u64, u64) {
    let request = OpenIncarnationRequest {
        workspace_id: WORKSPACE.to_owned(),
    };
    let opened = client.open_incarnation(request).await.expect("incarnation");
    (opened.get_ref().incarnation, opened.get_ref().orphans)
}

pub(crate) fn call(id: &str) -> Call {
    Call {
        workspace_id: WORKSPACE.to_owned(),
        session_id: "session-1".to_owned(),
        call_id: id.to_owned(),
        intention: "Mend the door".to_owned(),
        tool: "workspace_exec".to_owned(),
        args_sha256: Sha256::of(b"{}").to_string(),
        trace_id: trace_id(id),
        summary: format!("echo {id}"),
    }
}

pub(crate) fn request(call: &Call, incarnation: u64) -> BeginRequest {
    BeginRequest {
        call: Some(call.clone()),
        incarnation,
        plan_json: br#"{"path":"a"}"#.as_slice().into(),
        question: None,
        policy_id: "mode:full".to_owned(),
    }
}

pub(crate) fn outcome(
    response: Result<tonic::Response<BeginResponse>, Status>,
) -> Result<Outcome, Failure> {
    Ok(response?.into_inner().outcome.expect("an outcome is set"))
}

pub(crate) fn started(outcome: Outcome) -> Receipt {
    let Outcome::Started(receipt) = outcome else {
        panic!("{outcome:?}");
    };
    receipt
}

pub(crate) fn replayed(outcome: Outcome) -> (Receipt, String) {
    let Outcome::Replay(replay) = outcome else {
        panic!("{outcome:?}");
    };
    let result = String::from_utf8(replay.result.into()).expect("text");
    (replay.receipt.expect("receipt"), result)
}
