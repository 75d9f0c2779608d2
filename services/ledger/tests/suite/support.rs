//! A ledger on a store of its own with a clock that tests move.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use postern_kit::{Clock, Failure, task::Tasks, transport};
use postern_ledger::{Config, Database, Service};
use postern_proto::ledger::v1::{
    BeginRequest, BeginResponse, Call, CompleteRequest, GetRequest, InboxKind, ListRequest,
    LookupRequest, OpenIncarnationRequest, Question, Receipt, State, VerifyRequest, VerifyResponse,
    begin_response::Outcome, ledger_client::LedgerClient,
};
use postern_test_postgres::Cluster;
use postern_types::{Sha256, Timestamp, trace_id};
use tempfile::TempDir;
use tonic::Status;

pub(crate) const WORKSPACE: &str = "3f1c2d44-0000-7000-8000-000000000001";
pub(crate) const START_MS: i64 = 1_800_000_000_000;

pub(crate) type Client = LedgerClient<transport::Transport>;

/// What a ledger lies on.
#[derive(Clone)]
pub(crate) enum Store {
    Sqlite(Arc<TempDir>),
    /// A database of the test's own, by its URL.
    Postgres(String),
}

impl Store {
    pub(crate) fn sqlite() -> Self {
        Self::Sqlite(Arc::new(TempDir::new().expect("temporary directory")))
    }

    pub(crate) fn postgres() -> Self {
        Self::Postgres(Cluster::shared().database())
    }

    pub(crate) fn database(&self) -> Database {
        match self {
            Self::Sqlite(_) => Database::Sqlite(self.path()),
            Self::Postgres(url) => url.parse().expect("a URL"),
        }
    }

    pub(crate) fn config(&self) -> Config {
        Config {
            database: self.database(),
        }
    }

    /// The file, if it is one.
    pub(crate) fn path(&self) -> PathBuf {
        match self {
            Self::Sqlite(directory) => directory.path().join("ledger.db"),
            Self::Postgres(_) => panic!("it is no file"),
        }
    }

    /// The database's URL, if it is on a server.
    pub(crate) fn url(&self) -> &str {
        match self {
            Self::Sqlite(_) => panic!("it is a file"),
            Self::Postgres(url) => url,
        }
    }
}

/// Makes two tests of each: one on SQLite, and one on PostgreSQL. They are told how to make a store.
macro_rules! on_both {
    ($($name:ident),* $(,)?) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name($crate::support::Store::sqlite).await;
            })*
        }
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name($crate::support::Store::postgres).await;
            })*
        }
    };
}
pub(crate) use on_both;

pub(crate) struct Rig {
    pub(crate) store: Store,
    pub(crate) tasks: Tasks,
    pub(crate) client: Client,
    pub(crate) service: Service,
    pub(crate) now_ms: Arc<AtomicI64>,
}

impl Rig {
    /// On a file.
    pub(crate) async fn new() -> Self {
        Self::on(Store::sqlite()).await
    }

    pub(crate) async fn on(store: Store) -> Self {
        let rig = Self::at_once(store).await;
        rig.becomes(true).await;
        rig
    }

    /// Whether or not it is ready.
    pub(crate) async fn at_once(store: Store) -> Self {
        let now_ms = Arc::new(AtomicI64::new(START_MS));
        let tasks = Tasks::new();
        let held = Arc::clone(&now_ms);
        let clock = Clock::from_fn(move || Timestamp::from_millis(held.load(Ordering::Relaxed)));
        let service = Service::open(store.config(), clock, &tasks)
            .await
            .expect("the ledger opens");
        Self {
            store,
            tasks,
            client: client(service.clone()),
            service,
            now_ms,
        }
    }

    /// Waits until the ledger is ready, or is not.
    pub(crate) async fn becomes(&self, ready: bool) {
        let mut readiness = self.service.readiness();
        let changed = readiness.wait_for(|is_ready| *is_ready == ready);
        let changed = tokio::time::timeout(Duration::from_secs(30), changed).await;
        drop(changed.expect("in time").expect("the service lives"));
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.store.path()
    }

    /// Ends the ledger and leaves its store.
    pub(crate) async fn stop(self) -> Store {
        assert!(self.tasks.shutdown(Duration::from_secs(5)).await);
        self.store
    }

    pub(crate) async fn restart(self) -> Self {
        Self::on(self.stop().await).await
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
