//! Files, through the filesystem service.

mod inspection;

use bytes::Bytes;
use postern_kit::Failure;
use postern_proto::filesystem::v1::{
    DeleteRequest, Effect, Entry, EntryType, LineEnding, ListRequest, ListResponse, PatchRequest,
    PlanDelete, PlanLook, PlanPatch, PlanRequest, PlanWrite, ReadRequest, WriteRequest,
    plan_request::Change,
};
use postern_types::{ErrorCode, Sha256, Timestamp};
use serde::{Deserialize, Serialize};

use super::{Location, Tools};
use crate::{
    args,
    call::Call,
    clients::hop,
    reply::{Answer, Reply},
    stack::Held,
};

/// What a change does to its file; the receipt keeps it.
#[derive(Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Plan {
    pub(crate) path: String,
    /// Where that leads.
    #[serde(flatten)]
    pub(crate) location: Location,
    /// Revision before; none where there is no file.
    pub(crate) before: Option<String>,
    /// Revision after; none where there is no file then.
    pub(crate) after: Option<String>,
    /// Permission bits before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) mode: Option<u32>,
    /// Directories that it makes on the way, the outermost first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) directories: Vec<String>,
    /// Whether the bytes before can be kept, so that it can be taken back. Only said when they cannot.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub(crate) kept: bool,
    /// For a patch: where.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    spot: Option<Spot>,
}

const fn yes() -> bool {
    true
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn is_yes(kept: &bool) -> bool {
    *kept
}

/// Where a patch replaces its text.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
struct Spot {
    offset: u64,
    line: u64,
}

impl Plan {
    fn to_bytes(&self) -> Bytes {
        // Strings always have a JSON form.
        serde_json::to_vec(self).unwrap_or_default().into()
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Listed {
    path: String,
    entries: Vec<ListedEntry>,
    total: u64,
    next_offset: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resolved_path: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ListedEntry {
    name: String,
    path: String,
    #[serde(rename = "type")]
    kind: &'static str,
    size: u64,
    modified_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name_bytes: Option<String>,
}

impl From<Entry> for ListedEntry {
    fn from(entry: Entry) -> Self {
        let target_type = entry.target_type.is_some().then(|| entry.target_type());
        Self {
            kind: kind(entry.r#type()),
            target_type: target_type.map(kind),
            name: entry.name,
            path: entry.path,
            size: entry.size,
            modified_at: Timestamp::from_millis(entry.modified_at_ms),
            target: entry.target,
            name_bytes: entry.name_bytes,
        }
    }
}

const fn kind(kind: EntryType) -> &'static str {
    match kind {
        EntryType::File => "file",
        EntryType::Directory => "directory",
        EntryType::Symlink => "symlink",
        EntryType::Other | EntryType::Unspecified => "other",
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Page {
    path: String,
    content: String,
    offset: u64,
    bytes: u64,
    next_offset: Option<u64>,
    size: u64,
    /// Null, like the line endings, while a file that takes long to hash is not hashed yet.
    sha256: Option<String>,
    line_ending: Option<&'static str>,
    bom: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    resolved_path: Option<String>,
}

const fn line_ending(ending: LineEnding) -> Option<&'static str> {
    match ending {
        LineEnding::Lf => Some("lf"),
        LineEnding::Crlf => Some("crlf"),
        LineEnding::Mixed => Some("mixed"),
        LineEnding::None => Some("none"),
        LineEnding::Unspecified => None,
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    path: String,
    sha256: String,
    bytes: u64,
    created: bool,
    previous_sha256: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resolved_path: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Patched {
    path: String,
    sha256: String,
    bytes: u64,
    previous_sha256: String,
    #[serde(flatten)]
    spot: Spot,
    #[serde(skip_serializing_if = "Option::is_none")]
    resolved_path: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Deleted {
    path: String,
    deleted: bool,
    previous_sha256: String,
}

/// The question that a change's plan answers, and for a write the revision that it would leave.
fn plan_request(call: &Call) -> Result<(PlanRequest, Option<String>), Failure> {
    let (path, expected_sha256, change, written) = match call.tool.as_str() {
        "workspace_write" => {
            let args: args::Write = args::read(call)?;
            let written = Sha256::of(args.content.as_bytes()).to_string();
            let change = Change::Write(PlanWrite {});
            (args.path, args.expected_sha256, change, Some(written))
        }
        "workspace_patch" => {
            let args: args::Patch = args::read(call)?;
            let change = Change::Patch(PlanPatch {
                old_text: args.old_text,
                new_text: args.new_text,
            });
            (args.path, args.expected_sha256, change, None)
        }
        _ => {
            let args: args::Delete = args::read(call)?;
            let change = Change::Delete(PlanDelete {});
            (args.path, args.expected_sha256, change, None)
        }
    };
    let request = PlanRequest {
        path,
        expected_sha256,
        change: Some(change),
        place: None,
    };
    Ok((request, written))
}

fn effect(held: Held) -> Option<Effect> {
    Some(Effect {
        workspace_id: held.workspace_id,
        receipt_id: held.receipt_id,
        incarnation: held.incarnation,
    })
}

impl Tools {
    pub(super) async fn list(&self, call: &Call, place: Option<String>) -> Answer {
        let args::List { path, offset } = args::read(call)?;
        let mut filesystem = self.0.clients.filesystem.clone();
        let page = hop(filesystem.list(ListRequest {
            path,
            offset,
            place,
        }))
        .await?;
        let place = page.resolved_path.clone();
        list_page(page, offset).map(|reply| reply.at(place.as_deref()))
    }

    pub(super) async fn read(&self, call: &Call, place: Option<String>) -> Answer {
        let args: args::Read = args::read(call)?;
        let request = ReadRequest {
            path: args.path,
            offset: args.offset,
            limit: u32::try_from(args.limit).unwrap_or(u32::MAX),
            place,
        };
        let page = hop(self.0.clients.filesystem.clone().read(request)).await?;
        let page = Page {
            line_ending: line_ending(page.line_ending()),
            path: page.path,
            content: page.content,
            offset: page.offset,
            bytes: page.bytes,
            next_offset: page.next_offset,
            size: page.size,
            sha256: (!page.sha256.is_empty()).then_some(page.sha256),
            bom: page.bom,
            resolved_path: page.resolved_path,
        };
        Ok(Reply::success(&page)?.at(page.resolved_path.as_deref()))
    }

    /// Where a path leads that is read.
    pub(super) async fn look(&self, path: String, place: Option<String>) -> Result<Bytes, Failure> {
        let location = self.locate(path, PlanLook::default(), place).await?;
        Ok(location.to_bytes())
    }

    /// Where a path leads, and with `place` whether there.
    pub(super) async fn locate(
        &self,
        path: String,
        how: PlanLook,
        place: Option<String>,
    ) -> Result<Location, Failure> {
        let request = PlanRequest {
            path,
            change: Some(Change::Look(how)),
            place,
            ..PlanRequest::default()
        };
        let planned = hop(self.0.clients.filesystem.clone().plan(request)).await?;
        Ok(Location {
            place: Some(planned.place),
            resolved_path: planned.resolved_path,
        })
    }

    pub(super) async fn write(&self, call: &Call, held: Held, place: Option<String>) -> Answer {
        let args: args::Write = args::read(call)?;
        let request = WriteRequest {
            effect: effect(held),
            path: args.path,
            content: args.content,
            expected_sha256: args.expected_sha256,
            place,
        };
        let written = hop(self.0.clients.filesystem.clone().write(request)).await?;
        Reply::success(&Written {
            path: written.path,
            sha256: written.sha256,
            bytes: written.bytes,
            created: written.created,
            previous_sha256: written.previous_sha256,
            resolved_path: written.resolved_path,
        })
    }

    /// What a change would find and leave. A change that could not be made now is refused here, so that what is recorded as
    /// the file's revision before is what the file was, not what the agent took it for.
    pub(super) async fn plan_change(
        &self,
        call: &Call,
        place: Option<String>,
    ) -> Result<Bytes, Failure> {
        let (mut request, written) = plan_request(call)?;
        request.place = place;
        let path = request.path.clone();
        let planned = hop(self.0.clients.filesystem.clone().plan(request)).await?;
        let (after, spot) = match &planned.patch {
            Some(patch) => {
                let spot = Spot {
                    offset: patch.offset,
                    line: patch.line,
                };
                (Some(patch.sha256.clone()), Some(spot))
            }
            None => (written, None),
        };
        let plan = Plan {
            mode: planned.previous_mode,
            directories: planned.new_directories,
            kept: planned.keeps,
            path,
            before: planned.previous_sha256,
            location: Location {
                place: Some(planned.place),
                resolved_path: planned.resolved_path,
            },
            after,
            spot,
        };
        Ok(plan.to_bytes())
    }

    pub(super) async fn patch(&self, call: &Call, held: Held, place: Option<String>) -> Answer {
        let args: args::Patch = args::read(call)?;
        let request = PatchRequest {
            effect: effect(held),
            path: args.path,
            old_text: args.old_text,
            new_text: args.new_text,
            expected_sha256: args.expected_sha256,
            place,
        };
        let patched = hop(self.0.clients.filesystem.clone().patch(request)).await?;
        Reply::success(&Patched {
            path: patched.path,
            sha256: patched.sha256,
            bytes: patched.bytes,
            previous_sha256: patched.previous_sha256,
            spot: Spot {
                offset: patched.offset,
                line: patched.line,
            },
            resolved_path: patched.resolved_path,
        })
    }

    pub(super) async fn delete(&self, call: &Call, held: Held, place: Option<String>) -> Answer {
        let args: args::Delete = args::read(call)?;
        let request = DeleteRequest {
            effect: effect(held),
            path: args.path,
            expected_sha256: args.expected_sha256,
            place,
        };
        let deleted = hop(self.0.clients.filesystem.clone().delete(request)).await?;
        Reply::success(&Deleted {
            path: deleted.path,
            deleted: true,
            previous_sha256: deleted.previous_sha256,
        })
    }
}

/// One page of a directory. Long paths can make 500 entries outgrow a frame; then the page ends earlier and says so.
fn list_page(page: ListResponse, offset: u64) -> Answer {
    let mut listed = Listed {
        path: page.path,
        entries: page.entries.into_iter().map(ListedEntry::from).collect(),
        total: page.total,
        next_offset: page.next_offset,
        resolved_path: page.resolved_path,
    };
    loop {
        match Reply::success(&listed) {
            Err(failure) if failure.code == ErrorCode::TooLarge && listed.entries.len() > 1 => {
                listed.entries.truncate(listed.entries.len() / 2);
                let shown = u64::try_from(listed.entries.len()).unwrap_or(u64::MAX);
                listed.next_offset = Some(offset.saturating_add(shown));
            }
            answer => return answer,
        }
    }
}
