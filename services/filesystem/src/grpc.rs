//! The service as gRPC: decode, call, encode.

use std::sync::Arc;

use postern_kit::{Clock, Failure, transport::MESSAGE_LIMIT};
use postern_proto::filesystem::v1::{
    DeleteRequest, DeleteResponse, DescribeRequest, DescribeResponse, Effect, InspectRequest,
    InspectResponse, ListRequest, ListResponse, PatchRequest, PatchResponse, PlanPatchRequest,
    PlanPatchResponse, ReadRequest, ReadResponse, WriteRequest, WriteResponse,
    filesystem_server::{Filesystem, FilesystemServer},
};
use postern_types::Sha256;
use tonic::{Request, Response, Status};

use crate::{
    Config, Error,
    change::{Done, Kind, Order},
    guard::Receipt,
    list,
    plan::Plan,
    project::Project,
    refusal,
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
        path: String,
        expected: Option<&str>,
        kind: Kind,
    ) -> Result<Done, Failure> {
        let order = Order {
            receipt: receipt(effect)?,
            path,
            expected: revision(expected)?,
            kind,
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
        let listed = self.0.jobs.run(move || list::list(&project.root, &request));
        Ok(Response::new(listed.await??))
    }

    async fn read(&self, request: Request<ReadRequest>) -> Result<Response<ReadResponse>, Status> {
        Ok(Response::new(self.0.read(request.into_inner()).await?))
    }

    async fn plan_patch(
        &self,
        request: Request<PlanPatchRequest>,
    ) -> Result<Response<PlanPatchResponse>, Status> {
        let request = request.into_inner();
        let plan = Plan {
            expected: revision(request.expected_sha256.as_deref())?,
            path: request.path,
            old: request.old_text,
            new: request.new_text,
        };
        Ok(Response::new(self.0.plan(plan).await?))
    }

    async fn write(
        &self,
        request: Request<WriteRequest>,
    ) -> Result<Response<WriteResponse>, Status> {
        let request = request.into_inner();
        let expected = request.expected_sha256.as_deref();
        let kind = Kind::Write {
            content: request.content,
        };
        let done = self
            .change(request.effect, request.path, expected, kind)
            .await?;
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
        let expected = request.expected_sha256.as_deref();
        let kind = Kind::Patch {
            old: request.old_text,
            new: request.new_text,
        };
        let done = self
            .change(request.effect, request.path, expected, kind)
            .await?;
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
        let expected = request.expected_sha256.as_deref();
        let done = self
            .change(request.effect, request.path, expected, Kind::Delete)
            .await?;
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
}

fn receipt(effect: Option<Effect>) -> Result<Receipt, Failure> {
    let effect = effect
        .filter(|effect| effect.incarnation > 0)
        .ok_or_else(|| {
            refusal::invalid("/effect", "A change needs its receipt and incarnation.")
        })?;
    Ok(Receipt {
        workspace: effect
            .workspace_id
            .parse()
            .map_err(|rule: postern_types::InvalidText| {
                refusal::invalid("/effect/workspaceId", rule.0)
            })?,
        id: effect
            .receipt_id
            .parse()
            .map_err(|rule: postern_types::InvalidText| {
                refusal::invalid("/effect/receiptId", rule.0)
            })?,
        incarnation: effect.incarnation,
    })
}

fn revision(text: Option<&str>) -> Result<Option<Sha256>, Failure> {
    text.map(str::parse)
        .transpose()
        .map_err(|rule: postern_types::InvalidText| refusal::invalid("/expectedSha256", rule.0))
}
