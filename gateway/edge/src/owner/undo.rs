//! Undo, of a receipt or of a session.

use axum::{
    Json,
    extract::{Path, State},
    response::{IntoResponse as _, Response},
};
use serde_json::json;

use super::{receipts, reply::Refusal};
use crate::undo::{Refused, Undone};

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

/// The undo's own receipt, with the files and the directories that stay; or why not.
fn answer(undone: Result<Undone, Refused>) -> Response {
    match undone {
        Ok(undone) => {
            let mut value = receipts::to_json(&undone.receipt);
            value["files"] = json!(undone.files);
            value["keptDirectories"] = json!(undone.kept_directories);
            Json(value).into_response()
        }
        Err(refused) => Refusal(refused.problem).with("files", refused.files),
    }
}
