//! The service as gRPC: decode, call, encode.

use std::{str::FromStr, sync::Arc};

use postern_kit::{Clock, Failure, readiness, root::Place, task::Tasks, transport::MESSAGE_LIMIT};
use postern_proto::filesystem::v1::{
    BeforeRequest, BeforeResponse, DeleteRequest, DeleteResponse, DescribeRequest,
    DescribeResponse, DocumentRequest, DocumentResponse, Effect, ImageRequest, ImageResponse,
    InspectRequest, InspectResponse, ListRequest, ListResponse, PatchRequest, PatchResponse,
    PlanRequest, PlanResponse, PlannedPatch, ReadRequest, ReadResponse, RestoreFile,
    RestoreRequest, RestoreResponse, RestoreStep, WriteRequest, WriteResponse,
    filesystem_server::{Filesystem, FilesystemServer},
    plan_request,
};
use postern_types::{InvalidText, Sha256};
use tokio::sync::watch;
use tonic::{Request, Response, Status, codegen::BoxStream};

use crate::{
    Config, Error,
    before::{Change, Kind},
    change::{Done, Order},
    guard::Receipt,
    list,
    project::Project,
    refusal,
    restore::{Step, Wanted},
};

/// The filesystem service of one project.
#[derive(Clone, Debug)]
pub struct Service(Arc<Project>);

impl Service {
    /// Opens the project's root, once for the service's life.
    ///
    /// # Errors
    /// [`Error::Root`].
    pub fn open(config: Config, clock: Clock) -> Result<Self, Error> {
        Project::open(config, clock).map(|project| Self(Arc::new(project)))
    }

    /// Whether the project can be worked in: its root is where it was, and can be read. A disk that is full does not count, for
    /// files are read all the same and each change says so.
    #[must_use]
    pub fn readiness(&self, tasks: &Tasks) -> watch::Receiver<bool> {
        let project = Arc::clone(&self.0);
        readiness::follow(tasks, move || project.root.look())
    }

    /// As a gRPC server.
    #[must_use]
    pub fn into_server(self) -> FilesystemServer<Self> {
        FilesystemServer::new(self)
            .max_decoding_message_size(MESSAGE_LIMIT)
            .max_encoding_message_size(MESSAGE_LIMIT)
    }

    async fn change(
        &self,
        effect: Option<Effect>,
        change: Change,
        content: String,
    ) -> Result<Done, Failure> {
        let order = Order {
            receipt: receipt(effect)?,
            change,
            content,
        };
        self.0.change(order).await
    }
}

#[tonic::async_trait]
impl Filesystem for Service {
    async fn describe(
        &self,
        _request: Request<DescribeRequest>,
    ) -> Result<Response<DescribeResponse>, Status> {
        Ok(Response::new(DescribeResponse {
            name: self.0.root.name(),
            instructions: self.0.instructions().await?,
        }))
    }

    async fn list(&self, request: Request<ListRequest>) -> Result<Response<ListResponse>, Status> {
        let (project, request) = (Arc::clone(&self.0), request.into_inner());
        let listed = self.0.jobs.run(move || list::list(&project, &request));
        Ok(Response::new(listed.await??))
    }

    async fn read(&self, request: Request<ReadRequest>) -> Result<Response<ReadResponse>, Status> {
        Ok(Response::new(self.0.read(request.into_inner()).await?))
    }

    async fn image(
        &self,
        request: Request<ImageRequest>,
    ) -> Result<Response<ImageResponse>, Status> {
        Ok(Response::new(self.0.image(request.into_inner()).await?))
    }

    async fn document(
        &self,
        request: Request<DocumentRequest>,
    ) -> Result<Response<DocumentResponse>, Status> {
        Ok(Response::new(self.0.document(request.into_inner()).await?))
    }

    async fn plan(&self, request: Request<PlanRequest>) -> Result<Response<PlanResponse>, Status> {
        let request = request.into_inner();
        let kind = match request.change {
            Some(plan_request::Change::Write(_)) => Kind::Write,
            Some(plan_request::Change::Patch(patch)) => Kind::Patch {
                old: patch.old_text,
                new: patch.new_text,
            },
            Some(plan_request::Change::Delete(_)) => Kind::Delete,
            Some(plan_request::Change::Look(how)) => {
                let place = self.0.place(request.path, how, request.place).await?;
                return Ok(Response::new(planned_at(&place)));
            }
            None => {
                let message = "A plan needs the change that is planned.";
                return Err(refusal::invalid("/change", "required", message).into());
            }
        };
        let change = Change {
            path: request.path,
            expected: revision(request.expected_sha256.as_deref())?,
            place: request.place,
            kind,
        };
        let planned = self.0.plan(change).await?;
        Ok(Response::new(PlanResponse {
            previous_sha256: planned.previous.map(|sha256| sha256.to_string()),
            patch: planned.patch.map(|(sha256, occurrence)| PlannedPatch {
                sha256: sha256.to_string(),
                offset: occurrence.offset as u64,
                line: occurrence.line,
            }),
            previous_mode: planned.facts.map(|(mode, _)| mode),
            previous_size: planned.facts.map(|(_, size)| size),
            new_directories: planned.new_directories,
            keeps: planned.keeps,
            ..planned_at(&planned.place)
        }))
    }

    async fn write(
        &self,
        request: Request<WriteRequest>,
    ) -> Result<Response<WriteResponse>, Status> {
        let request = request.into_inner();
        let change = Change {
            path: request.path,
            expected: revision(request.expected_sha256.as_deref())?,
            place: request.place,
            kind: Kind::Write,
        };
        let done = self.change(request.effect, change, request.content).await?;
        let (sha256, bytes) = done.now.ok_or_else(refusal::internal)?;
        Ok(Response::new(WriteResponse {
            path: done.path,
            sha256: sha256.to_string(),
            bytes,
            created: done.previous.is_none(),
            previous_sha256: done.previous.map(|sha256| sha256.to_string()),
            resolved_path: done.resolved,
        }))
    }

    async fn patch(
        &self,
        request: Request<PatchRequest>,
    ) -> Result<Response<PatchResponse>, Status> {
        let request = request.into_inner();
        let change = Change {
            path: request.path,
            expected: revision(request.expected_sha256.as_deref())?,
            place: request.place,
            kind: Kind::Patch {
                old: request.old_text,
                new: request.new_text,
            },
        };
        let done = self.change(request.effect, change, String::new()).await?;
        let (sha256, bytes) = done.now.ok_or_else(refusal::internal)?;
        let occurrence = done.occurrence.ok_or_else(refusal::internal)?;
        Ok(Response::new(PatchResponse {
            path: done.path,
            sha256: sha256.to_string(),
            bytes,
            previous_sha256: done.previous.ok_or_else(refusal::internal)?.to_string(),
            offset: occurrence.offset as u64,
            line: occurrence.line,
            resolved_path: done.resolved,
        }))
    }

    async fn delete(
        &self,
        request: Request<DeleteRequest>,
    ) -> Result<Response<DeleteResponse>, Status> {
        let request = request.into_inner();
        let change = Change {
            path: request.path,
            expected: revision(request.expected_sha256.as_deref())?,
            place: request.place,
            kind: Kind::Delete,
        };
        let done = self.change(request.effect, change, String::new()).await?;
        Ok(Response::new(DeleteResponse {
            path: done.path,
            previous_sha256: done.previous.ok_or_else(refusal::internal)?.to_string(),
        }))
    }

    async fn inspect(
        &self,
        request: Request<InspectRequest>,
    ) -> Result<Response<InspectResponse>, Status> {
        let request = request.into_inner();
        let receipt = receipt(request.effect)?;
        Ok(Response::new(self.0.inspect(receipt, request.path).await?))
    }

    type BeforeStream = BoxStream<BeforeResponse>;

    async fn before(
        &self,
        request: Request<BeforeRequest>,
    ) -> Result<Response<Self::BeforeStream>, Status> {
        let request = request.into_inner();
        let sha256 = parse(&request.sha256, "/sha256")?;
        let path = (!request.path.is_empty()).then_some(request.path);
        Ok(Response::new(self.0.bytes_of(sha256, path)?))
    }

    async fn restore(
        &self,
        request: Request<RestoreRequest>,
    ) -> Result<Response<RestoreResponse>, Status> {
        let request = request.into_inner();
        let step = match request.step() {
            RestoreStep::Check => Step::Check,
            RestoreStep::Apply => Step::Apply,
            RestoreStep::Resume => Step::Resume,
            RestoreStep::Revert => Step::Revert,
            RestoreStep::Unspecified => {
                let message = "What is to be done about the files is missing.";
                return Err(refusal::invalid("/step", "required", message).into());
            }
        };
        let receipt = match step {
            Step::Check => None,
            Step::Apply | Step::Resume | Step::Revert => Some(receipt(request.effect)?),
        };
        let files = request.files.into_iter().map(wanted);
        let files = files.collect::<Result<_, Failure>>()?;
        Ok(Response::new(self.0.restore(receipt, step, files).await?))
    }
}

fn wanted(file: RestoreFile) -> Result<Wanted, Failure> {
    Ok(Wanted {
        expected: revision(file.expected_sha256.as_deref())?,
        wanted: revision(file.wanted_sha256.as_deref())?,
        path: file.path,
        mode: file.mode,
        directories: file.directories,
    })
}

fn planned_at(place: &Place) -> PlanResponse {
    PlanResponse {
        place: place.real(),
        resolved_path: place.resolved(),
        ..PlanResponse::default()
    }
}

fn receipt(effect: Option<Effect>) -> Result<Receipt, Failure> {
    let effect = effect
        .filter(|effect| effect.incarnation > 0)
        .ok_or_else(|| {
            let message = "A change needs its receipt and incarnation.";
            refusal::invalid("/effect", "required", message)
        })?;
    Ok(Receipt {
        workspace: parse(&effect.workspace_id, "/effect/workspaceId")?,
        id: parse(&effect.receipt_id, "/effect/receiptId")?,
        incarnation: effect.incarnation,
    })
}

fn revision(text: Option<&str>) -> Result<Option<Sha256>, Failure> {
    text.map(|text| parse(text, "/expectedSha256")).transpose()
}

fn parse<T: FromStr<Err = InvalidText>>(text: &str, pointer: &str) -> Result<T, Failure> {
    text.parse()
        .map_err(|rule: InvalidText| refusal::invalid(pointer, "pattern", rule.0))
}
