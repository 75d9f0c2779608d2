//! What a receipt or a session changed, and taking it back.

use axum::{
    Json,
    extract::{Path, Query, State, rejection::QueryRejection},
    response::{IntoResponse as _, Response},
};
use http::{HeaderName, HeaderValue, header};
use serde::Deserialize;
use serde_json::json;

use super::{receipts, reply::Refusal};
use crate::undo::{Net, Refused, Undo, Undone};

/// `POST /owner/v1/receipts/{id}/undo`
pub(super) async fn receipt(
    State(state): State<super::State>,
    Path(receipt): Path<String>,
) -> Result<Response, Refusal> {
    let found = receipts::find(&state, &receipt).await?;
    let undone = state.undo.receipt(found.receipt.unwrap_or_default()).await;
    Ok(answer(undone))
}

/// `POST /owner/v1/sessions/{id}/undo`
pub(super) async fn session(
    State(state): State<super::State>,
    Path(session): Path<String>,
) -> Response {
    answer(state.undo.session(session).await)
}

/// Of a patch: how many files are not in it. Its first lines name them.
const LEFT_OUT: HeaderName = HeaderName::from_static("postern-left-out");

/// In which form a diff is told.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Wanted {
    format: Format,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Format {
    /// In parts, a file each.
    #[default]
    Json,
    /// As one patch.
    Patch,
}

/// `GET /owner/v1/receipts/{id}/diff`
pub(super) async fn receipt_diff(
    State(state): State<super::State>,
    Path(receipt): Path<String>,
    wanted: Result<Query<Wanted>, QueryRejection>,
) -> Result<Response, Refusal> {
    let found = receipts::find(&state, &receipt).await?;
    let net = Undo::net_of_receipt(&found.receipt.unwrap_or_default());
    told(&state, net, wanted).await
}

/// `GET /owner/v1/sessions/{id}/diff`
pub(super) async fn session_diff(
    State(state): State<super::State>,
    Path(session): Path<String>,
    wanted: Result<Query<Wanted>, QueryRejection>,
) -> Result<Response, Refusal> {
    let net = state.undo.net_of_session(&session).await;
    told(&state, net, wanted).await
}

async fn told(
    state: &super::State,
    net: Result<Net, Refused>,
    wanted: Result<Query<Wanted>, QueryRejection>,
) -> Result<Response, Refusal> {
    let Query(wanted) = wanted.map_err(|problem| Refusal::bad_request(problem.body_text()))?;
    let net = match net {
        Ok(net) => net,
        Err(refused) => return Ok(refusal(refused)),
    };
    let answer = match wanted.format {
        Format::Json => state
            .undo
            .diff(net)
            .await
            .map(|diff| Json(diff).into_response()),
        Format::Patch => state.undo.patch(net).await.map(|patch| {
            let headers = [
                (
                    header::CONTENT_TYPE,
                    HeaderValue::from_static("text/x-diff"),
                ),
                (LEFT_OUT, HeaderValue::from(patch.left_out)),
            ];
            (headers, patch.text).into_response()
        }),
    };
    Ok(answer.unwrap_or_else(refusal))
}

fn refusal(refused: Refused) -> Response {
    Refusal(refused.problem).with("files", refused.files)
}

/// The undo's own receipt, with the files and the directories that stay; or why not.
fn answer(undone: Result<Undone, Refused>) -> Response {
    match undone {
        Ok(undone) => {
            let mut value = receipts::to_json(&undone.receipt);
            value["files"] = json!(undone.files);
            value["keptDirectories"] = json!(undone.kept_directories);
            Json(value).into_response()
        }
        Err(refused) => refusal(refused),
    }
}
