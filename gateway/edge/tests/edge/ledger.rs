//! A ledger in memory, with the contract's rules as far as an edge relies on them.

use std::{collections::HashMap, pin::Pin, sync::Arc};

use postern_kit::Failure;
use postern_proto::ledger::v1::{
    self as proto, State, begin_response::Outcome, ledger_server::Ledger, *,
};
use postern_types::{ErrorCode, ReceiptId, Timestamp};
use tokio::sync::broadcast;
use tokio_stream::{Stream, StreamExt as _, wrappers::BroadcastStream};
use tonic::{Request, Response, Status, async_trait};

use crate::services::World;

type Key = (String, String, String);

#[derive(Debug)]
pub(crate) struct Book {
    pub(crate) incarnation: u64,
    pub(crate) receipts: Vec<Entry>,
    keys: HashMap<Key, usize>,
    changes: broadcast::Sender<Receipt>,
    /// While set every method answers `UNAVAILABLE`.
    pub(crate) away: bool,
    /// While set every method answers `DISK_FULL`.
    pub(crate) full: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) receipt: Receipt,
    pub(crate) result: bytes::Bytes,
    pub(crate) abandoned: bool,
    pub(crate) keyed: bool,
}

impl Default for Book {
    fn default() -> Self {
        Self {
            incarnation: 0,
            receipts: Vec::new(),
            keys: HashMap::new(),
            changes: broadcast::channel(64).0,
            away: false,
            full: false,
        }
    }
}

impl Book {
    fn outcome(&mut self, call: &proto::Call) -> Option<Outcome> {
        let incarnation = self.incarnation;
        let entry = &mut self.receipts[*self.keys.get(&key(call))?];
        let receipt = &mut entry.receipt;
        if receipt.tool != call.tool || receipt.args_sha256 != call.args_sha256 {
            return Some(Outcome::Conflict(receipt.clone()));
        }
        Some(match receipt.state() {
            State::Executing if receipt.incarnation == incarnation => {
                Outcome::Running(receipt.clone())
            }
            State::Executing => {
                receipt.incarnation = incarnation;
                Outcome::Orphaned(receipt.clone())
            }
            State::AwaitingOwner => Outcome::Awaiting(receipt.clone()),
            State::Completed | State::Refused | State::Uncertain | State::Unspecified => {
                Outcome::Replay(Replay {
                    receipt: Some(receipt.clone()),
                    result: entry.result.clone(),
                })
            }
        })
    }

    fn insert(&mut self, call: proto::Call, state: State, keyed: bool) -> &mut Entry {
        if keyed {
            self.keys.insert(key(&call), self.receipts.len());
        }
        let incarnation = self.incarnation;
        self.receipts.push(Entry {
            receipt: Receipt {
                id: ReceiptId::generate().to_string(),
                workspace_id: call.workspace_id,
                session_id: call.session_id,
                call_id: call.call_id,
                intention: call.intention,
                tool: call.tool,
                args_sha256: call.args_sha256,
                trace_id: call.trace_id,
                state: state.into(),
                incarnation,
                created_at_ms: Timestamp::now().as_millis(),
                ..Receipt::default()
            },
            result: bytes::Bytes::new(),
            abandoned: false,
            keyed,
        });
        self.receipts.last_mut().expect("just inserted")
    }

    fn find(&mut self, id: &str) -> Result<&mut Entry, Failure> {
        self.receipts
            .iter_mut()
            .find(|entry| entry.receipt.id == id)
            .ok_or_else(|| Failure::new(ErrorCode::NotFound, "no such receipt"))
    }

    /// Decides as the owner would.
    pub(crate) fn decide(&mut self, id: &str, decision: Decision, answer: &str) -> bool {
        let entry = self.find(id).expect("receipt");
        let first = entry.receipt.decision() == Decision::Unspecified;
        if first {
            let now = Timestamp::now().as_millis();
            let late = entry.receipt.expires_at_ms.is_some_and(|end| end <= now);
            let decision = if late { Decision::Expire } else { decision };
            entry.receipt.set_decision(decision);
            entry.receipt.answer = answer.to_owned();
            entry.receipt.decided_at_ms = Some(now);
        }
        let receipt = entry.receipt.clone();
        let _ = self.changes.send(receipt);
        first
    }

    /// The live receipt of a call id.
    pub(crate) fn of(&self, call_id: &str) -> Option<&Entry> {
        self.receipts
            .iter()
            .rev()
            .find(|entry| entry.receipt.call_id == call_id && !entry.abandoned)
    }
}

fn key(call: &proto::Call) -> Key {
    (
        call.workspace_id.clone(),
        call.session_id.clone(),
        call.call_id.clone(),
    )
}

pub(crate) struct FakeLedger(pub(crate) Arc<World>);

impl FakeLedger {
    fn open(&self, incarnation: u64) -> Result<std::sync::MutexGuard<'_, Book>, Status> {
        let book = self.0.book();
        if book.full {
            return Err(Failure::new(ErrorCode::DiskFull, "the disk is full").into());
        }
        if book.away {
            self.0.note("away".to_owned());
            return Err(Failure::new(ErrorCode::Unavailable, "the database is away").into());
        }
        if incarnation != book.incarnation {
            let fenced = Failure::new(ErrorCode::Internal, "fenced").with("reason", "fenced");
            return Err(fenced.into());
        }
        Ok(book)
    }
}

fn outcome(outcome: Outcome) -> Result<Response<BeginResponse>, Status> {
    Ok(Response::new(BeginResponse {
        outcome: Some(outcome),
    }))
}

#[async_trait]
impl Ledger for FakeLedger {
    async fn open_incarnation(
        &self,
        _: Request<OpenIncarnationRequest>,
    ) -> Result<Response<OpenIncarnationResponse>, Status> {
        let current = self.0.book().incarnation;
        let mut book = self.open(current)?;
        book.incarnation += 1;
        Ok(Response::new(OpenIncarnationResponse {
            incarnation: book.incarnation,
            orphans: 0,
        }))
    }

    async fn begin(
        &self,
        request: Request<BeginRequest>,
    ) -> Result<Response<BeginResponse>, Status> {
        let request = request.into_inner();
        let call = request.call.expect("call");
        let mut book = self.open(request.incarnation)?;
        if let Some(known) = book.outcome(&call) {
            return outcome(known);
        }
        self.0.note(format!("begin {}", call.tool));
        let state = if request.question.is_some() {
            State::AwaitingOwner
        } else {
            State::Executing
        };
        let entry = book.insert(call, state, true);
        entry.receipt.plan_json = request.plan_json;
        entry.receipt.policy_id = request.policy_id;
        if let Some(question) = request.question {
            entry.receipt.inbox_kind = question.kind;
            entry.receipt.proposal_json = question.proposal_json;
            entry.receipt.expires_at_ms = Some(question.expires_at_ms);
        }
        let receipt = entry.receipt.clone();
        let _ = book.changes.send(receipt.clone());
        drop(book);
        self.0.on_begin();
        outcome(Outcome::Started(receipt))
    }

    async fn lookup(
        &self,
        request: Request<LookupRequest>,
    ) -> Result<Response<BeginResponse>, Status> {
        let request = request.into_inner();
        let mut book = self.open(request.incarnation)?;
        let known = book.outcome(&request.call.expect("call"));
        outcome(known.unwrap_or(Outcome::Unknown(Unknown {})))
    }

    async fn refuse(
        &self,
        request: Request<RefuseRequest>,
    ) -> Result<Response<BeginResponse>, Status> {
        let request = request.into_inner();
        let call = request.call.expect("call");
        let mut book = self.open(request.incarnation)?;
        if !request.unkeyed
            && let Some(known) = book.outcome(&call)
        {
            return outcome(known);
        }
        self.0.note(format!("refuse {}", request.outcome));
        let entry = book.insert(call, State::Refused, !request.unkeyed);
        entry.result = request.result;
        entry.receipt.outcome = request.outcome;
        entry.receipt.policy_id = request.policy_id;
        outcome(Outcome::Started(entry.receipt.clone()))
    }

    async fn start(
        &self,
        request: Request<StartRequest>,
    ) -> Result<Response<StartResponse>, Status> {
        let request = request.into_inner();
        let mut book = self.open(request.incarnation)?;
        let incarnation = book.incarnation;
        let entry = book.find(&request.receipt_id)?;
        assert_eq!(entry.receipt.state(), State::AwaitingOwner, "start");
        entry.receipt.set_state(State::Executing);
        entry.receipt.incarnation = incarnation;
        entry.receipt.plan_json = request.plan_json;
        let receipt = Some(entry.receipt.clone());
        self.0.note("start".to_owned());
        Ok(Response::new(StartResponse { receipt }))
    }

    async fn complete(
        &self,
        request: Request<CompleteRequest>,
    ) -> Result<Response<CompleteResponse>, Status> {
        let request = request.into_inner();
        let mut book = self.open(request.incarnation)?;
        self.0.note(format!("complete {}", request.outcome));
        assert!(!matches!(request.outcome.as_str(), "BUSY" | "UNAVAILABLE"));
        let entry = book.find(&request.receipt_id)?;
        let from = entry.receipt.state();
        let allowed = match request.state() {
            State::Completed => {
                from == State::Executing || entry.receipt.decision() == Decision::Answer
            }
            State::Refused => from == State::AwaitingOwner,
            State::Uncertain => from == State::Executing,
            State::Unspecified | State::AwaitingOwner | State::Executing => false,
        };
        assert!(allowed, "{from:?} cannot become {:?}", request.state());
        entry.receipt.state = request.state;
        entry.receipt.outcome = request.outcome;
        entry.result = request.result;
        let receipt = Some(entry.receipt.clone());
        Ok(Response::new(CompleteResponse { receipt }))
    }

    async fn abandon(
        &self,
        request: Request<AbandonRequest>,
    ) -> Result<Response<AbandonResponse>, Status> {
        let request = request.into_inner();
        let mut book = self.open(request.incarnation)?;
        self.0.note("abandon".to_owned());
        let entry = book.find(&request.receipt_id)?;
        assert_eq!(entry.receipt.state(), State::Executing, "abandon");
        entry.abandoned = true;
        entry.receipt.set_state(State::Refused);
        let id = entry.receipt.id.clone();
        let index = book
            .receipts
            .iter()
            .position(|entry| entry.receipt.id == id);
        book.keys.retain(|_, at| Some(*at) != index);
        Ok(Response::new(AbandonResponse {}))
    }

    async fn record(
        &self,
        request: Request<RecordRequest>,
    ) -> Result<Response<RecordResponse>, Status> {
        let request = request.into_inner();
        let call = request.call.expect("call");
        let mut book = self.open(request.incarnation)?;
        self.0.note(format!("record {}", request.outcome));
        if book.outcome(&call).is_none() {
            let entry = book.insert(call, State::Completed, true);
            entry.receipt.outcome = request.outcome;
        }
        Ok(Response::new(RecordResponse {}))
    }

    async fn decide(
        &self,
        request: Request<DecideRequest>,
    ) -> Result<Response<DecideResponse>, Status> {
        let request = request.into_inner();
        let current = self.0.book().incarnation;
        let mut book = self.open(current)?;
        let decision = request.decision();
        let counted = book.decide(&request.receipt_id, decision, &request.answer);
        let receipt = Some(book.find(&request.receipt_id)?.receipt.clone());
        Ok(Response::new(DecideResponse { counted, receipt }))
    }

    async fn list(&self, request: Request<ListRequest>) -> Result<Response<ListResponse>, Status> {
        let wanted = request.into_inner().state();
        let current = self.0.book().incarnation;
        let book = self.open(current)?;
        let receipts = book.receipts.iter().map(|entry| &entry.receipt);
        let receipts = receipts.filter(|receipt| receipt.state() == wanted);
        Ok(Response::new(ListResponse {
            receipts: receipts.cloned().collect(),
            next: String::new(),
        }))
    }

    async fn get(&self, request: Request<GetRequest>) -> Result<Response<GetResponse>, Status> {
        let current = self.0.book().incarnation;
        let mut book = self.open(current)?;
        let entry = book.find(&request.into_inner().receipt_id)?;
        Ok(Response::new(GetResponse {
            receipt: Some(entry.receipt.clone()),
            result: entry.result.clone(),
        }))
    }

    type WatchStream = Pin<Box<dyn Stream<Item = Result<WatchResponse, Status>> + Send>>;

    async fn watch(&self, _: Request<WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let current = self.0.book().incarnation;
        let changes = self.open(current)?.changes.subscribe();
        let stream = BroadcastStream::new(changes).map(|change| {
            change
                .map(|receipt| WatchResponse {
                    receipt: Some(receipt),
                })
                .map_err(|_| Status::unavailable("lagged"))
        });
        Ok(Response::new(Box::pin(stream)))
    }

    async fn sessions(
        &self,
        _: Request<SessionsRequest>,
    ) -> Result<Response<SessionsResponse>, Status> {
        Err(Status::unimplemented("not asked for by an edge"))
    }

    async fn head(&self, _: Request<HeadRequest>) -> Result<Response<HeadResponse>, Status> {
        Err(Status::unimplemented("not asked for by an edge"))
    }

    type WalkStream = Pin<Box<dyn Stream<Item = Result<WalkResponse, Status>> + Send>>;

    async fn walk(&self, _: Request<VerifyRequest>) -> Result<Response<Self::WalkStream>, Status> {
        Err(Status::unimplemented("not asked for by an edge"))
    }

    async fn verify(&self, _: Request<VerifyRequest>) -> Result<Response<VerifyResponse>, Status> {
        Err(Status::unimplemented("not asked for by an edge"))
    }
}
