//! Files in memory.

use postern_kit::Failure;
use postern_proto::filesystem::v1::{self as fs, filesystem_server::Filesystem};
use postern_types::ErrorCode;
use tonic::{Request, Response, Status, async_trait, codegen::BoxStream};

use super::{World, failed, sha256};

#[async_trait]
impl Filesystem for World {
    async fn describe(
        &self,
        _: Request<fs::DescribeRequest>,
    ) -> Result<Response<fs::DescribeResponse>, Status> {
        Ok(Response::new(fs::DescribeResponse {
            name: "project".to_owned(),
            instructions: self.instructions.lock().expect("instructions").clone(),
        }))
    }

    async fn list(
        &self,
        _: Request<fs::ListRequest>,
    ) -> Result<Response<fs::ListResponse>, Status> {
        let listing = self.listing.lock().expect("listing").clone();
        Ok(Response::new(listing.unwrap_or_default()))
    }

    async fn read(
        &self,
        request: Request<fs::ReadRequest>,
    ) -> Result<Response<fs::ReadResponse>, Status> {
        let path = request.into_inner().path;
        if let Some(page) = self.page.lock().expect("page").clone() {
            return Ok(Response::new(page));
        }
        let act = || {
            self.note(format!("read {path}"));
            self.get(&path)
                .ok_or_else(|| Failure::new(ErrorCode::NotFound, "There is no such file."))
        };
        let content = self.effect(act).await?;
        Ok(Response::new(fs::ReadResponse {
            path,
            bytes: content.len() as u64,
            size: content.len() as u64,
            sha256: sha256(&content),
            line_ending: fs::LineEnding::None.into(),
            content,
            ..fs::ReadResponse::default()
        }))
    }

    async fn image(
        &self,
        _: Request<fs::ImageRequest>,
    ) -> Result<Response<fs::ImageResponse>, Status> {
        let image = self.image.lock().expect("image").clone();
        Ok(Response::new(image.unwrap_or_default()))
    }

    async fn document(
        &self,
        request: Request<fs::DocumentRequest>,
    ) -> Result<Response<fs::DocumentResponse>, Status> {
        let fs::DocumentRequest { path, page, .. } = request.into_inner();
        Ok(Response::new(fs::DocumentResponse {
            path,
            page,
            page_count: 3,
            text: format!("page {page}"),
            sha256: sha256("document"),
            ..fs::DocumentResponse::default()
        }))
    }

    async fn plan(
        &self,
        request: Request<fs::PlanRequest>,
    ) -> Result<Response<fs::PlanResponse>, Status> {
        let request = request.into_inner();
        let expected = request.expected_sha256.as_deref();
        let change = request.change.expect("change");
        let place = request.path.clone();
        if matches!(change, fs::plan_request::Change::Look(_)) {
            return Ok(Response::new(fs::PlanResponse {
                place,
                ..fs::PlanResponse::default()
            }));
        }
        let before = self.expect(&request.path, expected, &change)?;
        let mut response = fs::PlanResponse {
            previous_sha256: before,
            place,
            keeps: true,
            ..fs::PlanResponse::default()
        };
        if let fs::plan_request::Change::Patch(patch) = change {
            let content = self.get(&request.path).unwrap_or_default();
            if content.matches(&patch.old_text).count() != 1 {
                return Err(Failure::new(ErrorCode::NoMatch, "The text does not occur.").into());
            }
            let after = content.replacen(&patch.old_text, &patch.new_text, 1);
            let offset = content.find(&patch.old_text).unwrap_or_default();
            let lines = content[..offset].matches('\n').count();
            response.patch = Some(fs::PlannedPatch {
                sha256: sha256(&after),
                offset: u64::try_from(offset).unwrap_or_default(),
                line: u64::try_from(lines + 1).unwrap_or_default(),
            });
        }
        Ok(Response::new(response))
    }

    async fn write(
        &self,
        request: Request<fs::WriteRequest>,
    ) -> Result<Response<fs::WriteResponse>, Status> {
        let request = request.into_inner();
        let act = || {
            let before = self.expect(
                &request.path,
                request.expected_sha256.as_deref(),
                &fs::plan_request::Change::Write(fs::PlanWrite {}),
            )?;
            self.note(format!("write {}", request.path));
            let sha256 = self.put(&request.path, &request.content);
            Ok(fs::WriteResponse {
                path: request.path.clone(),
                sha256,
                bytes: request.content.len() as u64,
                created: before.is_none(),
                previous_sha256: before,
                resolved_path: None,
            })
        };
        Ok(Response::new(self.effect(act).await?))
    }

    async fn patch(
        &self,
        request: Request<fs::PatchRequest>,
    ) -> Result<Response<fs::PatchResponse>, Status> {
        let request = request.into_inner();
        let act = || {
            let before = self.expect(
                &request.path,
                request.expected_sha256.as_deref(),
                &fs::plan_request::Change::Patch(fs::PlanPatch::default()),
            )?;
            self.note(format!("patch {}", request.path));
            let content = self.get(&request.path).unwrap_or_default();
            let offset = content.find(&request.old_text).unwrap_or_default();
            let after = content.replacen(&request.old_text, &request.new_text, 1);
            Ok(fs::PatchResponse {
                path: request.path.clone(),
                sha256: self.put(&request.path, &after),
                bytes: after.len() as u64,
                previous_sha256: before.unwrap_or_default(),
                offset: offset as u64,
                line: 1,
                resolved_path: None,
            })
        };
        Ok(Response::new(self.effect(act).await?))
    }

    async fn delete(
        &self,
        request: Request<fs::DeleteRequest>,
    ) -> Result<Response<fs::DeleteResponse>, Status> {
        let request = request.into_inner();
        let act = || {
            let before = self.expect(
                &request.path,
                request.expected_sha256.as_deref(),
                &fs::plan_request::Change::Delete(fs::PlanDelete {}),
            )?;
            self.note(format!("delete {}", request.path));
            self.files.lock().expect("files").remove(&request.path);
            Ok(fs::DeleteResponse {
                path: request.path.clone(),
                previous_sha256: before.unwrap_or_default(),
            })
        };
        Ok(Response::new(self.effect(act).await?))
    }

    async fn inspect(
        &self,
        request: Request<fs::InspectRequest>,
    ) -> Result<Response<fs::InspectResponse>, Status> {
        self.reachable()?;
        let path = request.into_inner().path;
        if *self.not_durable.lock().expect("flag") {
            return Err(failed(ErrorCode::Uncertain));
        }
        self.note(format!("inspect {path}"));
        let content = self.get(&path);
        Ok(Response::new(fs::InspectResponse {
            sha256: content.as_deref().map(sha256),
            size: content.map(|content| content.len() as u64),
            path,
            resolved_path: None,
        }))
    }

    type BeforeStream = BoxStream<fs::BeforeResponse>;

    async fn before(
        &self,
        _: Request<fs::BeforeRequest>,
    ) -> Result<Response<Self::BeforeStream>, Status> {
        Err(failed(ErrorCode::NotFound))
    }

    async fn restore(
        &self,
        request: Request<fs::RestoreRequest>,
    ) -> Result<Response<fs::RestoreResponse>, Status> {
        self.reachable()?;
        self.note(format!("restore {:?}", request.into_inner().step()));
        Ok(Response::new(fs::RestoreResponse::default()))
    }
}
