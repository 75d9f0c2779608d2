//! Conversations, and what each came to.

use axum::extract::{Query, State, rejection::QueryRejection};
use http::StatusCode;
use maud::{Markup, html};
use postern_proto::ledger::v1::Session;

use super::{
    Answer,
    layout::{self, Page, Place},
    receipts::percent_encoded,
    text, undo,
};
use crate::owner::{self, reply::Refusal};

/// Sessions a page. Of each shown one every receipt is counted, from an index.
const PAGE: u32 = 25;

/// `GET /sessions?after`
pub(super) async fn list(
    State(state): State<owner::State>,
    page: Result<Query<owner::sessions::Page>, QueryRejection>,
) -> Answer {
    let Query(wanted) = page.map_err(|problem| Refusal::bad_request(problem.body_text()))?;
    let is_first = wanted.after.is_empty();
    let wanted = owner::sessions::Page {
        limit: Some(PAGE),
        ..wanted
    };
    let page = owner::sessions::page(&state, wanted).await?;
    let content = html! {
        h1 { "Sessions" }
        p .hint { "Each conversation of an agent is a session. Those in which something happened last come first." }
        div #sessions data-live {
            (table(&page.sessions))
            nav .pages aria-label="Pages of sessions" {
                @if !is_first { a href="/sessions" { "Newest" } }
                @if !page.next.is_empty() {
                    a href=(format!("/sessions?after={}", percent_encoded(&page.next))) rel="next" { "Older" }
                }
            }
        }
    };
    let page = Page {
        title: "Sessions",
        place: Place::Sessions,
        path: "/sessions",
        refreshes: is_first,
    };
    let page = layout::whole(&state, page, content).await;
    Ok(super::page(StatusCode::OK, page))
}

fn table(sessions: &[Session]) -> Markup {
    if sessions.is_empty() {
        return html! { p .none { "No agent has called yet." } };
    }
    html! {
        table {
            thead { tr { th { "Session" } th { "Last" } th { "First" } th { "Receipts" } th { "Changes" } th { "States" } th { "Undo" } } }
            tbody { @for session in sessions { (row(session)) } }
        }
    }
}

fn row(session: &Session) -> Markup {
    let id = &session.session_id;
    html! { tr {
        td .name data-label="Session" { a href=(format!("/sessions/{}", percent_encoded(id))) { code { (text::line(id)) } } }
        td .tight data-label="Last" { (layout::time(session.last_at_ms)) }
        td .tight data-label="First" { (layout::time(session.first_at_ms)) }
        td .tight data-label="Receipts" { (session.receipts) }
        td .tight data-label="Changes" { (session.changes) }
        td .words data-label="States" { @for of in &session.states {
            @if let Some(name) = owner::receipts::state_name(of.state()) { (layout::pill(name, name)) " " (of.count) " " }
        } }
        td .tight data-label="Undo" { @if session.changes > 0 { (undo::of_session(id)) } @else { "–" } }
    } }
}
