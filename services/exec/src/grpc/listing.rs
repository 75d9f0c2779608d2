//! Which commands there are.

use postern_kit::Failure;
use postern_proto::exec::v1::{ListRequest, ListResponse, ListedCommand};
use postern_types::ReceiptId;
use tonic::Status;

use super::{invalid, state};
use crate::{
    Service,
    service::{PAGE, Told},
};

pub(super) async fn list(service: &Service, request: ListRequest) -> Result<ListResponse, Status> {
    if !request.command_id.is_empty() {
        let id = command(&request.command_id, "/commandId")?;
        let told = service.list_one(id).await.map_err(Failure::from)?;
        return Ok(ListResponse {
            commands: told.map(|told| listed(id, told)).into_iter().collect(),
            next: String::new(),
        });
    }
    let after = match request.after.as_str() {
        "" => None,
        after => Some(command(after, "/after")?),
    };
    let limit = match request.limit {
        0 => PAGE,
        limit => usize::try_from(limit).unwrap_or(PAGE),
    };
    let (commands, next) = service.list(after, limit).await.map_err(Failure::from)?;
    Ok(ListResponse {
        commands: commands
            .into_iter()
            .map(|(id, told)| listed(id, told))
            .collect(),
        next: next.map(|id| id.to_string()).unwrap_or_default(),
    })
}

fn command(text: &str, pointer: &'static str) -> Result<ReceiptId, Status> {
    text.parse()
        .map_err(|_| invalid(pointer, "format", "A command's id is a UUID in lower case."))
}

fn listed(id: ReceiptId, told: Told) -> ListedCommand {
    ListedCommand {
        command_id: id.to_string(),
        state: Some(state(&told)),
        session_id: told.meta.session_id,
        command: told.meta.command,
        cut: told.meta.command_cut,
        cwd: told.meta.cwd,
        total_bytes: told.total,
        worker_id: told.meta.worker,
    }
}
