//! Commands of every session, as the owner sees and stops them.

use axum::{
    Json,
    extract::{Path, Query, State, rejection::QueryRejection},
};
use postern_kit::Problem;
use postern_proto::exec::v1::{
    ListRequest, ListResponse, ListedCommand, PollRequest, PollResponse, StopResponse,
};
use postern_types::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use tonic::Code;

use super::{
    receipts,
    reply::{Refusal, Reply},
};
use crate::{clients::hop, stops, tools::command_status};

/// Longest wait for output, in milliseconds, as the exec service has it.
const WAIT_LIMIT_MS: u32 = 2000;
/// Commands a page at most, as the exec service has it.
const PAGE_LIMIT: u32 = 100;

/// Which commands.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Part {
    pub(super) after: String,
    pub(super) limit: Option<u32>,
}

/// Which output.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Wanted {
    offset: u64,
    wait: u32,
}

/// `GET /owner/v1/commands`
pub(super) async fn list(
    State(state): State<super::State>,
    part: Result<Query<Part>, QueryRejection>,
) -> Reply {
    let Query(part) = part.map_err(|problem| Refusal::bad_request(problem.body_text()))?;
    let page = page(&state, part).await?;
    let items: Vec<Value> = page.commands.iter().map(to_json).collect();
    let next = (!page.next.is_empty()).then_some(page.next);
    Ok(Json(json!({"items": items, "next": next})))
}

/// One page of commands, newest first.
pub(super) async fn page(state: &super::State, part: Part) -> Result<ListResponse, Refusal> {
    let limit = part.limit.unwrap_or(PAGE_LIMIT);
    if !(1..=PAGE_LIMIT).contains(&limit) {
        return Err(Refusal::bad_request(format!(
            "`limit` is 1 to {PAGE_LIMIT}."
        )));
    }
    let after = match part.after.as_str() {
        "" => String::new(),
        after => receipts::id(after)?,
    };
    let request = ListRequest {
        after,
        limit,
        command_id: String::new(),
    };
    Ok(hop(state.exec.clone().list(request)).await?)
}

/// One command of this workspace's. Its id is its receipt's.
pub(super) async fn find(state: &super::State, id: &str) -> Result<ListedCommand, Refusal> {
    let receipt = receipts::find(state, id).await?.receipt;
    let request = ListRequest {
        command_id: receipt.unwrap_or_default().id,
        ..ListRequest::default()
    };
    let listed = hop(state.exec.clone().list(request)).await?;
    listed.commands.into_iter().next().ok_or_else(unknown)
}

/// `GET /owner/v1/commands/{id}/output?offset&wait`
pub(super) async fn output(
    State(state): State<super::State>,
    Path(command): Path<String>,
    wanted: Result<Query<Wanted>, QueryRejection>,
) -> Reply {
    let Query(wanted) = wanted.map_err(|problem| Refusal::bad_request(problem.body_text()))?;
    if wanted.wait > WAIT_LIMIT_MS {
        return Err(Refusal::bad_request(format!(
            "`wait` is at most {WAIT_LIMIT_MS} milliseconds."
        )));
    }
    let command = find(&state, &command).await?;
    let page = poll(&state, &command, wanted.offset, wanted.wait).await?;
    let status = page.state.unwrap_or_default();
    Ok(Json(json!({
        "commandId": page.command_id,
        "status": command_status(status.status()),
        "exitCode": status.exit_code,
        "output": page.output,
        "offset": page.offset,
        "nextOffset": page.next_offset,
        "totalBytes": page.total_bytes,
        "gap": page.gap.map(|gap| json!({"from": gap.from, "to": gap.to})),
    })))
}

/// Output from an offset on.
pub(super) async fn poll(
    state: &super::State,
    command: &ListedCommand,
    offset: u64,
    wait_ms: u32,
) -> Result<PollResponse, Refusal> {
    let request = PollRequest {
        session_id: command.session_id.clone(),
        command_id: command.command_id.clone(),
        offset,
        wait_ms,
    };
    Ok(hop(state.exec.clone().poll(request)).await?)
}

/// `POST /owner/v1/commands/{id}/stop`
pub(super) async fn stop(State(state): State<super::State>, Path(command): Path<String>) -> Reply {
    let stopped = end(&state, &command).await?;
    Ok(Json(stops::to_json(&stopped)))
}

/// Ends a command with all that it started, under a receipt like any effect. Stopping an ended command tells its end.
pub(super) async fn end(state: &super::State, command: &str) -> Result<StopResponse, Refusal> {
    let command = find(state, command).await?;
    Ok(state.stops.stop(command).await?)
}

fn unknown() -> Refusal {
    Refusal(Problem::new(
        Code::NotFound,
        "no_such_command",
        "There is no such command.",
    ))
}

fn to_json(command: &ListedCommand) -> Value {
    let state = command.state.clone().unwrap_or_default();
    json!({
        "commandId": command.command_id,
        "sessionId": command.session_id,
        "command": command.command,
        "cut": command.cut,
        "cwd": command.cwd,
        "status": command_status(state.status()),
        "exitCode": state.exit_code,
        "startedAt": Timestamp::from_millis(state.started_at_ms),
        "finishedAt": state.finished_at_ms.map(Timestamp::from_millis),
        "totalBytes": command.total_bytes,
    })
}
