//! Images and documents, through the filesystem service.

use postern_proto::filesystem::v1::{DocumentRequest, ImageRequest};
use serde::Serialize;

use super::Tools;
use crate::{
    args,
    call::Call,
    clients::hop,
    reply::{Answer, Reply},
};

/// Sizes in pixels.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown<'a> {
    path: String,
    mime_type: &'a str,
    width: u32,
    height: u32,
    original_width: u32,
    original_height: u32,
    original_mime_type: String,
    scaled: bool,
    sha256: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    resolved_path: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Page {
    path: String,
    page: u32,
    page_count: u32,
    text: String,
    sha256: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    resolved_path: Option<String>,
}

impl Tools {
    pub(super) async fn image(&self, call: &Call, place: Option<String>) -> Answer {
        let args::Image { path } = args::read(call)?;
        let mut filesystem = self.0.clients.filesystem.clone();
        let image = hop(filesystem.image(ImageRequest { path, place })).await?;
        let facts = Shown {
            path: image.path,
            mime_type: &image.mime_type,
            width: image.width,
            height: image.height,
            original_width: image.original_width,
            original_height: image.original_height,
            original_mime_type: image.original_mime_type,
            scaled: image.scaled,
            sha256: image.sha256,
            resolved_path: image.resolved_path,
        };
        let reply = Reply::image(&image.mime_type, &image.data, &facts)?;
        Ok(reply.at(facts.resolved_path.as_deref()))
    }

    pub(super) async fn document(&self, call: &Call, place: Option<String>) -> Answer {
        let args::Document { path, page } = args::read(call)?;
        let page = u32::try_from(page).unwrap_or(u32::MAX);
        let mut filesystem = self.0.clients.filesystem.clone();
        let request = DocumentRequest { path, page, place };
        let page = hop(filesystem.document(request)).await?;
        let page = Page {
            path: page.path,
            page: page.page,
            page_count: page.page_count,
            text: page.text,
            sha256: page.sha256,
            resolved_path: page.resolved_path,
        };
        Ok(Reply::success(&page)?.at(page.resolved_path.as_deref()))
    }
}
