//! What waits for the owner, and the forms by which he decides.

use axum::extract::{Path, State};
use http::StatusCode;
use maud::{Markup, html};
use postern_proto::ledger::v1::{InboxKind, Receipt};

use super::{
    Answer,
    layout::{self, Page, Place},
    plain, proposal, text,
};
use crate::owner;

/// Items that the list shows whole, as many as can wait at once on one channel; the others are links.
const WHOLE: usize = 4;

/// `GET /inbox`
pub(super) async fn list(State(state): State<owner::State>) -> Answer {
    let (items, next) = owner::inbox::waiting(&state, String::new()).await?;
    let mut whole = Vec::new();
    for receipt in items.iter().take(WHOLE) {
        whole.push(card(&state, receipt, "/inbox").await);
    }
    let content = html! {
        h1 { "Inbox" }
        div #items data-live data-keep {
            @if items.is_empty() { p .none #none { "Nothing waits for you." } }
            @for card in &whole { (card) }
            @if items.len() > WHOLE {
                ul .rows #more { @for receipt in items.iter().skip(WHOLE) { li {
                    a href=(format!("/inbox/{}", receipt.id)) { (what(receipt)) }
                    " " (layout::session(&receipt.session_id)) " " (expiry(receipt))
                } } }
            }
            @if next.is_some() { p .notice #further { "There are more; they are shown once some of these are decided." } }
        }
    };
    let page = Page {
        title: "Inbox",
        place: Place::Inbox,
        path: "/inbox",
        // Where there is something to decide the owner may be typing.
        refreshes: items.is_empty(),
    };
    let page = layout::whole(&state, page, content).await;
    Ok(super::page(StatusCode::OK, page))
}

/// `GET /inbox/{id}`
pub(super) async fn show(State(state): State<owner::State>, Path(receipt): Path<String>) -> Answer {
    let found = owner::receipts::find(&state, &receipt).await?;
    let receipt = found.receipt.unwrap_or_default();
    let path = format!("/inbox/{}", receipt.id);
    let waits = receipt.inbox_kind() != InboxKind::Unspecified
        && owner::inbox::waits(&receipt, state.clock.now().as_millis());
    let content = if waits {
        html! { h1 { "Decide" } (card(&state, &receipt, &path).await) }
    } else {
        html! {
            h1 { "Decided" }
            p { "This does not wait for you any more. "
                a href=(format!("/receipts/{}", receipt.id)) { "Its receipt" } " tells what came of it." }
            p { a href="/inbox" { "Back to the inbox" } }
        }
    };
    let page = Page {
        title: "Inbox",
        place: Place::Inbox,
        path: &path,
        refreshes: false,
    };
    let page = layout::whole(&state, page, content).await;
    Ok(super::page(StatusCode::OK, page))
}

/// `GET /inbox/{id}/proposal.txt`: what is asked, whole, as JSON.
pub(super) async fn whole(
    State(state): State<owner::State>,
    Path(receipt): Path<String>,
) -> Answer {
    let found = owner::receipts::find(&state, &receipt).await?;
    let receipt = found.receipt.unwrap_or_default();
    if receipt.inbox_kind() == InboxKind::Unspecified {
        return Err(owner::receipts::unknown().into());
    }
    Ok(plain(receipt.proposal_json))
}

async fn card(state: &owner::State, receipt: &Receipt, back: &str) -> Markup {
    html! {
        article .card #{"item-" (receipt.id)} aria-labelledby={"title-" (receipt.id)} {
            h2 #{"title-" (receipt.id)} { (what(receipt)) }
            p .facts {
                "Session " (layout::session(&receipt.session_id)) ", asked " (layout::time(receipt.created_at_ms)) ", " (expiry(receipt))
                @if !receipt.policy_id.is_empty() { ", by rule " code { (text::line(&receipt.policy_id)) } }
            }
            (proposal::shown(state, receipt).await)
            @match receipt.inbox_kind() {
                InboxKind::Question => { (answer(receipt, back)) }
                InboxKind::Approval | InboxKind::Unspecified => { (approval(receipt, back)) }
            }
        }
    }
}

fn what(receipt: &Receipt) -> Markup {
    html! {
        @match receipt.tool.as_str() {
            "workspace_write" => { "Write a file" }
            "workspace_patch" => { "Change a file" }
            "workspace_delete" => { "Delete a file" }
            "workspace_exec" => { "Run a command" }
            "workspace_input" => { "Type into a command" }
            "workspace_ask" => { "A question to you" }
            "workspace_tool" => { "Use a tool of yours" }
            "session" => { "Let a conversation in" }
            tool => { code { (text::line(tool)) } }
        }
    }
}

fn expiry(receipt: &Receipt) -> Markup {
    html! {
        @if let Some(until) = receipt.expires_at_ms {
            "waits until " span data-until=(until) { (layout::time(until)) }
        }
    }
}

fn approval(receipt: &Receipt, back: &str) -> Markup {
    let id = &receipt.id;
    html! {
        form .decision method="post" action=(format!("/inbox/{id}/decision")) {
            input type="hidden" name="back" value=(back);
            div .buttons {
                button .yes name="decision" value="approve" { "Approve" }
                @if receipt.tool != "session" {
                    button name="decision" value="approve_session" aria-describedby={"covers-" (id)} { "Approve for this session" }
                }
            }
            @if receipt.tool != "session" {
                p .hint #{"covers-" (id)} {
                    "For this session lets " (proposal::covers(receipt)) " go ahead unasked, until the channel closes."
                }
            }
            div .deny {
                label for={"reason-" (id)} { "Words for the agent, if you deny" }
                input #{"reason-" (id)} type="text" name="answer" autocomplete="off" maxlength="2000";
                button .danger name="decision" value="deny" { "Deny" }
            }
        }
    }
}

fn answer(receipt: &Receipt, back: &str) -> Markup {
    let id = &receipt.id;
    html! {
        form .decision method="post" action=(format!("/inbox/{id}/decision")) {
            input type="hidden" name="back" value=(back);
            label for={"answer-" (id)} { "Your answer" }
            textarea #{"answer-" (id)} name="answer" rows="4" maxlength="16000" {}
            div .buttons {
                button .yes name="decision" value="answer" { "Answer" }
                button .danger name="decision" value="deny" { "Do not answer" }
            }
        }
    }
}
