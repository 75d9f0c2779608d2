//! Taking changes back, from the pages.

use axum::{
    extract::{Path, State},
    response::{IntoResponse as _, Redirect, Response},
};
use maud::{Markup, html};
use postern_proto::ledger::v1::{Receipt, State as ReceiptState};

use super::{Answer, layout, receipts::percent_encoded, text};
use crate::{
    owner,
    undo::{Refused, TOOL, Undone, undone_receipts},
};

/// `POST /receipts/{id}/undo`
pub(super) async fn receipt(
    State(state): State<owner::State>,
    Path(receipt): Path<String>,
) -> Answer {
    let found = owner::receipts::find(&state, &receipt).await?;
    let undone = state.undo.receipt(found.receipt.unwrap_or_default()).await;
    Ok(answer(undone))
}

/// `POST /sessions/{id}/undo`
pub(super) async fn session(
    State(state): State<owner::State>,
    Path(session): Path<String>,
) -> Answer {
    Ok(answer(state.undo.session(session).await))
}

/// The undo's own receipt; or why there is none, for each file that is in the way.
fn answer(undone: Result<Undone, Refused>) -> Response {
    let refused = match undone {
        Ok(undone) => {
            let address = format!("/receipts/{}", undone.receipt.id);
            return Redirect::to(&address).into_response();
        }
        Err(refused) => refused,
    };
    let content = html! {
        h1 { "Not undone" }
        p { (text::line(&refused.problem.message)) }
        @if !refused.files.is_empty() {
            ul .rows { @for file in &refused.files { li {
                code { (text::line(file["path"].as_str().unwrap_or_default())) }
                @if let Some(why) = file["message"].as_str().or_else(|| file["reason"].as_str()) { ": " (text::line(why)) }
            } } }
        }
        p { a href="/receipts" { "Receipts" } " · " a href="/sessions" { "Sessions" } }
    };
    let page = layout::bare("Not undone · Postern", content);
    super::page(refused.problem.http_status(), page)
}

/// The button by which a receipt is taken back, where it changed something that is not taken back yet; and what it took back
/// itself.
pub(super) fn of_receipt(receipt: &Receipt, undone_by: Option<&str>) -> Markup {
    let undoes = undone_receipts(receipt);
    let is_done = receipt.state() == ReceiptState::Completed && receipt.outcome == "ok";
    let is_undo = receipt.tool == TOOL;
    let changes = is_undo || owner::sessions::CHANGING_TOOLS.contains(&receipt.tool.as_str());
    html! {
        @if !undoes.is_empty() {
            h2 { "Takes back" }
            ul .rows { @for id in &undoes { li { a href=(format!("/receipts/{id}")) { code { (id) } } } } }
        }
        @if let Some(by) = undone_by {
            p { "Taken back by " a href=(format!("/receipts/{by}")) { code { (by) } } "." }
        } @else if is_done && changes {
            form method="post" action=(format!("/receipts/{}/undo", receipt.id)) {
                button .danger { @if is_undo { "Do it again" } @else { "Undo this change" } }
            }
        }
    }
}

/// The button by which all that a session changed is taken back.
pub(super) fn of_session(session: &str) -> Markup {
    html! {
        form method="post" action=(format!("/sessions/{}/undo", percent_encoded(session))) {
            button .danger.quiet { "Undo all" span .hidden { " changes of session " (text::line(session)) } }
        }
    }
}
