//! The generated service's methods: decode, ask, encode.

mod walk;

use std::{
    fmt,
    pin::Pin,
    sync::{Arc, atomic::AtomicU64},
};

use postern_kit::trace::Place;
use postern_proto::ledger::v1::{self as proto, ledger_server::Ledger};
use postern_types::ReceiptId;
use tokio_stream::{
    Stream, StreamExt as _,
    wrappers::{BroadcastStream, errors::BroadcastStreamRecvError},
};
use tonic::{Request, Response, Status};

use crate::{
    Error,
    command::{Answer, Command},
    pending::Record,
    reader::Reader,
    receipt::Receipt,
    service::{Service, Shared},
    wire,
};

/// The adapter between the generated server and the ledger.
pub(crate) struct Grpc {
    service: Service,
}

impl fmt::Debug for Grpc {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Grpc")
    }
}

impl Grpc {
    pub(crate) const fn new(service: Service) -> Self {
        Self { service }
    }

    fn shared(&self) -> Result<Arc<Shared<Reader>>, Error> {
        self.service.ledger()
    }

    async fn found(&self, command: Command) -> Result<Response<proto::BeginResponse>, Status> {
        match self.shared()?.command(command).await? {
            Answer::Found(found) => Ok(Response::new(wire::found(found))),
            Answer::Receipt(_) | Answer::Decided { .. } => Err(mismatch()),
        }
    }

    async fn receipt(&self, command: Command) -> Result<proto::Receipt, Status> {
        match self.shared()?.command(command).await? {
            Answer::Receipt(receipt) => Ok(wire::receipt(receipt)),
            Answer::Found(_) | Answer::Decided { .. } => Err(mismatch()),
        }
    }
}

/// Each command has one kind of answer, so this is never sent.
fn mismatch() -> Status {
    Error::Corrupt("an answer to another request".to_owned()).into()
}

#[tonic::async_trait]
impl Ledger for Grpc {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<proto::WatchResponse, Status>> + Send>>;
    type WalkStream = walk::Walking;

    async fn open_incarnation(
        &self,
        request: Request<proto::OpenIncarnationRequest>,
    ) -> Result<Response<proto::OpenIncarnationResponse>, Status> {
        let workspace = wire::id("workspace_id", &request.get_ref().workspace_id)?;
        let opened = self.shared()?.open_incarnation(workspace).await?;
        Ok(Response::new(proto::OpenIncarnationResponse {
            incarnation: opened.incarnation,
            orphans: opened.orphans,
        }))
    }

    async fn begin(
        &self,
        request: Request<proto::BeginRequest>,
    ) -> Result<Response<proto::BeginResponse>, Status> {
        let request = request.into_inner();
        self.found(Command::Begin {
            call: Arc::new(wire::call(request.call)?),
            incarnation: request.incarnation,
            plan: wire::blob("plan_json", request.plan_json)?,
            question: wire::question(request.question)?,
            policy_id: wire::name("policy_id", request.policy_id)?,
        })
        .await
    }

    async fn lookup(
        &self,
        request: Request<proto::LookupRequest>,
    ) -> Result<Response<proto::BeginResponse>, Status> {
        let request = request.into_inner();
        let call = wire::call(request.call)?;
        let found = self.shared()?.lookup(call, request.incarnation).await?;
        Ok(Response::new(wire::found(found)))
    }

    async fn refuse(
        &self,
        request: Request<proto::RefuseRequest>,
    ) -> Result<Response<proto::BeginResponse>, Status> {
        let request = request.into_inner();
        self.found(Command::Refuse {
            call: Arc::new(wire::call(request.call)?),
            incarnation: request.incarnation,
            outcome: wire::outcome(request.outcome)?,
            result: wire::blob("result", request.result)?,
            policy_id: wire::name("policy_id", request.policy_id)?,
            unkeyed: request.unkeyed,
        })
        .await
    }

    async fn start(
        &self,
        request: Request<proto::StartRequest>,
    ) -> Result<Response<proto::StartResponse>, Status> {
        let request = request.into_inner();
        let command = Command::Start {
            receipt: wire::receipt_id(&request.receipt_id)?,
            incarnation: request.incarnation,
            plan: wire::blob("plan_json", request.plan_json)?,
        };
        let receipt = Some(self.receipt(command).await?);
        Ok(Response::new(proto::StartResponse { receipt }))
    }

    async fn complete(
        &self,
        request: Request<proto::CompleteRequest>,
    ) -> Result<Response<proto::CompleteResponse>, Status> {
        let request = request.into_inner();
        let command = Command::Complete {
            receipt: wire::receipt_id(&request.receipt_id)?,
            incarnation: request.incarnation,
            state: wire::end_state(request.state())?,
            outcome: wire::outcome(request.outcome)?,
            result: wire::blob("result", request.result)?,
        };
        let receipt = Some(self.receipt(command).await?);
        Ok(Response::new(proto::CompleteResponse { receipt }))
    }

    async fn abandon(
        &self,
        request: Request<proto::AbandonRequest>,
    ) -> Result<Response<proto::AbandonResponse>, Status> {
        let request = request.into_inner();
        self.receipt(Command::Abandon {
            receipt: wire::receipt_id(&request.receipt_id)?,
            incarnation: request.incarnation,
        })
        .await?;
        Ok(Response::new(proto::AbandonResponse {}))
    }

    async fn record(
        &self,
        request: Request<proto::RecordRequest>,
    ) -> Result<Response<proto::RecordResponse>, Status> {
        let request = request.into_inner();
        let record = Record {
            id: ReceiptId::generate(),
            call: Arc::new(wire::call(request.call)?),
            incarnation: request.incarnation,
            outcome: wire::outcome(request.outcome)?.into(),
            started_at_ms: wire::time("started_at_ms", request.started_at_ms)?,
            finished_at_ms: wire::time("finished_at_ms", request.finished_at_ms)?,
            place: Place::here(),
        };
        self.shared()?.record(record).await?;
        Ok(Response::new(proto::RecordResponse {}))
    }

    async fn decide(
        &self,
        request: Request<proto::DecideRequest>,
    ) -> Result<Response<proto::DecideResponse>, Status> {
        let request = request.into_inner();
        let command = Command::Decide {
            receipt: wire::receipt_id(&request.receipt_id)?,
            decision: wire::decision(request.decision())?,
            answer: wire::answer(request.answer)?,
            by: wire::name("decided_by", request.decided_by)?,
        };
        match self.shared()?.command(command).await? {
            Answer::Decided { counted, receipt } => Ok(Response::new(proto::DecideResponse {
                counted,
                receipt: Some(wire::receipt(receipt)),
            })),
            Answer::Found(_) | Answer::Receipt(_) => Err(mismatch()),
        }
    }

    async fn list(
        &self,
        request: Request<proto::ListRequest>,
    ) -> Result<Response<proto::ListResponse>, Status> {
        let filter = wire::filter(request.into_inner())?;
        let page = self.shared()?.list(&filter).await?;
        Ok(Response::new(wire::page(page)))
    }

    async fn sessions(
        &self,
        request: Request<proto::SessionsRequest>,
    ) -> Result<Response<proto::SessionsResponse>, Status> {
        let filter = wire::session_filter(request.into_inner())?;
        let page = self.shared()?.sessions(&filter).await?;
        Ok(Response::new(wire::session_page(page)))
    }

    async fn get(
        &self,
        request: Request<proto::GetRequest>,
    ) -> Result<Response<proto::GetResponse>, Status> {
        let id = wire::receipt_id(&request.get_ref().receipt_id)?;
        let receipt = self.shared()?.get(id).await?;
        Ok(Response::new(proto::GetResponse {
            result: receipt.result.clone(),
            receipt: Some(wire::receipt(receipt)),
        }))
    }

    async fn watch(
        &self,
        request: Request<proto::WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let workspace = wire::optional_id("workspace_id", &request.get_ref().workspace_id)?;
        let wanted = move |receipt: &Receipt| {
            workspace
                .as_ref()
                .is_none_or(|id| *id == receipt.call.key.workspace)
        };
        let changes = BroadcastStream::new(self.shared()?.watch()?).filter_map(move |change| {
            match change {
                Ok(receipt) => wanted(&receipt).then(|| {
                    Ok(proto::WatchResponse {
                        receipt: Some(wire::receipt(receipt)),
                    })
                }),
                // A status ends the stream.
                Err(BroadcastStreamRecvError::Lagged(_)) => Some(Err(Error::Lagged.into())),
            }
        });
        Ok(Response::new(Box::pin(changes)))
    }

    async fn head(
        &self,
        request: Request<proto::HeadRequest>,
    ) -> Result<Response<proto::HeadResponse>, Status> {
        let request = request.into_inner();
        let workspace = wire::id("workspace_id", &request.workspace_id)?;
        let (head, hash) = self.shared()?.head(&workspace, request.sequence).await?;
        Ok(Response::new(wire::head(&workspace, head, hash)))
    }

    async fn verify(
        &self,
        request: Request<proto::VerifyRequest>,
    ) -> Result<Response<proto::VerifyResponse>, Status> {
        let request = request.into_inner();
        let workspace = wire::optional_id("workspace_id", &request.workspace_id)?;
        let checkpoints = wire::checkpoints(request.checkpoints)?;
        let found = self
            .shared()?
            .verify(workspace.as_ref(), checkpoints, &AtomicU64::new(0))
            .await?;
        Ok(Response::new(wire::verification(found)))
    }

    async fn walk(
        &self,
        request: Request<proto::VerifyRequest>,
    ) -> Result<Response<Self::WalkStream>, Status> {
        let request = request.into_inner();
        let workspace = wire::optional_id("workspace_id", &request.workspace_id)?;
        let checkpoints = wire::checkpoints(request.checkpoints)?;
        let (shared, walked) = (self.shared()?, Arc::new(AtomicU64::new(0)));
        let counted = Arc::clone(&walked);
        let walk = async move {
            shared
                .verify(workspace.as_ref(), checkpoints, &counted)
                .await
        };
        Ok(Response::new(walk::Walking::new(walk, walked)))
    }
}
