//! The timeline of receipts, and each of them.

use axum::extract::{Path, Query, State, rejection::QueryRejection};
use http::StatusCode;
use maud::{Markup, html};
use postern_proto::ledger::v1::Receipt;
use serde_json::Value;

use super::{
    Answer, changes,
    layout::{self, Page, Place},
    plain, text, undo,
};
use crate::owner::{self, receipts::Filter, reply::Refusal};

/// Receipts a page.
const PAGE: u32 = 50;
/// Bytes of a result or plan that are shown.
const SHOWN_BYTES: usize = 64 * 1024;
/// States that can be asked for.
const STATES: [&str; 5] = [
    "awaiting_owner",
    "executing",
    "completed",
    "refused",
    "uncertain",
];

/// `GET /receipts?session&tool&state&since&until&after`
pub(super) async fn list(
    State(state): State<owner::State>,
    filter: Result<Query<Filter>, QueryRejection>,
) -> Answer {
    let Query(filter) = filter.map_err(|problem| Refusal::bad_request(problem.body_text()))?;
    // A form sends what was left open as an empty text.
    let given = |field: &Option<String>| field.clone().filter(|text| !text.is_empty());
    let wanted = Filter {
        limit: Some(PAGE),
        state: given(&filter.state),
        since: given(&filter.since),
        until: given(&filter.until),
        ..filter.clone()
    };
    let page = owner::receipts::page(&state, wanted).await?;
    let content = html! {
        h1 { "Receipts" }
        (filters(&filter))
        div #timeline data-live {
            (table(&page.receipts))
            nav .pages aria-label="Pages of receipts" {
                @if !filter.after.is_empty() { a href=(address(&filter, "")) { "Newest" } }
                @if !page.next.is_empty() { a href=(address(&filter, &page.next)) rel="next" { "Older" } }
            }
        }
    };
    let path = address(&filter, &filter.after);
    let page = Page {
        title: "Receipts",
        place: Place::Receipts,
        path: &path,
        refreshes: false,
    };
    let page = layout::whole(&state, page, content).await;
    Ok(super::page(StatusCode::OK, page))
}

/// The address of a page of the timeline with the same filters.
fn address(filter: &Filter, after: &str) -> String {
    let pairs = [
        ("session", filter.session.as_str()),
        ("tool", &filter.tool),
        ("state", filter.state.as_deref().unwrap_or_default()),
        ("since", filter.since.as_deref().unwrap_or_default()),
        ("until", filter.until.as_deref().unwrap_or_default()),
        ("after", after),
    ];
    let query: Vec<_> = pairs
        .iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| format!("{name}={}", percent_encoded(value)))
        .collect();
    match query.is_empty() {
        true => "/receipts".to_owned(),
        false => format!("/receipts?{}", query.join("&")),
    }
}

/// A text as a value in a query.
pub(super) fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

fn filters(filter: &Filter) -> Markup {
    let chosen = filter.state.as_deref().unwrap_or_default();
    html! {
        form .filters method="get" action="/receipts" role="search" aria-label="Filter receipts" {
            div { label for="session" { "Session" }
                input #session type="text" name="session" value=(filter.session) maxlength="200" autocomplete="off"; }
            div { label for="tool" { "Tool" }
                input #tool type="text" name="tool" value=(filter.tool) maxlength="200" autocomplete="off"; }
            div { label for="state" { "State" }
                select #state name="state" {
                    option value="" { "any" }
                    @for state in STATES { option value=(state) selected[state == chosen] { (state.replace('_', " ")) } }
                } }
            @for (name, value) in [("since", &filter.since), ("until", &filter.until)] {
                @if let Some(value) = value { input type="hidden" name=(name) value=(value); }
            }
            button { "Show" }
        }
    }
}

/// Receipts as rows.
pub(super) fn table(receipts: &[Receipt]) -> Markup {
    if receipts.is_empty() {
        return html! { p .none { "There are no such receipts." } };
    }
    html! {
        table .timeline {
            thead { tr { th { "When" } th { "Tool" } th { "About" } th { "State" } th { "Took" } th { "Session" } } }
            tbody { @for receipt in receipts { (row(receipt)) } }
        }
    }
}

fn row(receipt: &Receipt) -> Markup {
    html! { tr {
        td .tight data-label="When" { a href=(format!("/receipts/{}", receipt.id)) { (layout::time(receipt.created_at_ms)) } }
        td .name data-label="Tool" { code { (text::line(&receipt.tool)) } }
        td .about data-label="About" { code { (text::line(&receipt.summary)) } }
        td .words data-label="State" { (state(receipt)) }
        td .tight data-label="Took" { (took(receipt)) }
        td .tight data-label="Session" { (layout::session(&receipt.session_id)) }
    } }
}

fn state(receipt: &Receipt) -> Markup {
    let name = owner::receipts::state_name(receipt.state()).unwrap_or("unknown");
    let has_failed = !matches!(receipt.outcome.as_str(), "" | "ok");
    html! {
        (layout::pill(name, if has_failed { "failed" } else { name }))
        @if has_failed { " " code .outcome { (text::line(&receipt.outcome)) } }
    }
}

/// How long the call took once it might start.
fn took(receipt: &Receipt) -> String {
    match (receipt.started_at_ms, receipt.finished_at_ms) {
        (Some(start), Some(end)) => layout::length(end - start),
        _ => "–".to_owned(),
    }
}

/// `GET /receipts/{id}`
pub(super) async fn show(State(state): State<owner::State>, Path(receipt): Path<String>) -> Answer {
    let found = owner::receipts::find(&state, &receipt).await?;
    let receipt = found.receipt.unwrap_or_default();
    let path = format!("/receipts/{}", receipt.id);
    let changes = changes::of_receipt(&state, &receipt).await;
    let undone_by = state.undo.undone_by(&receipt).await;
    let undone_by = undone_by.map_err(Refusal::from)?;
    let content = html! {
        h1 { "Receipt" }
        div #receipt data-live {
            (facts(&state, &receipt))
            @if receipt.tool == "workspace_exec" && receipt.outcome == "ok" {
                p { a href=(format!("/commands/{}", receipt.id)) { "The command and its output" } }
            }
            (changes)
            (undo::of_receipt(&receipt, undone_by.as_deref()))
            (document("What it was to change", &receipt.plan_json, None))
            (document("What you were asked", &receipt.proposal_json, Some(&format!("/inbox/{}/proposal.txt", receipt.id))))
            (document("Result", &found.result, Some(&format!("{path}/result.txt"))))
        }
    };
    let page = Page {
        title: "Receipt",
        place: Place::Receipts,
        path: &path,
        refreshes: false,
    };
    let page = layout::whole(&state, page, content).await;
    Ok(super::page(StatusCode::OK, page))
}

fn facts(owner: &owner::State, receipt: &Receipt) -> Markup {
    let decision = owner::receipts::decision_name(receipt.decision());
    let optional = |time: Option<i64>| time.map(layout::time);
    html! {
        dl .facts {
            dt { "Tool" } dd { code { (text::line(&receipt.tool)) } }
            @if !receipt.summary.is_empty() { dt { "About" } dd { code { (text::line(&receipt.summary)) } } }
            dt { "State" } dd { (state(receipt)) }
            dt { "Asked" } dd { (layout::time(receipt.created_at_ms)) }
            @if let Some(time) = optional(receipt.started_at_ms) { dt { "Started" } dd { (time) } }
            @if let Some(time) = optional(receipt.finished_at_ms) { dt { "Finished" } dd { (time) ", took " (took(receipt)) } }
            @if let Some(decision) = decision {
                dt { "Decision" }
                dd { (decision.replace('_', " ")) " by " (text::line(&receipt.decided_by))
                    @if let Some(time) = optional(receipt.decided_at_ms) { ", " (time) } }
                @if !receipt.answer.is_empty() { dt { "Words" } dd { (text::block(&receipt.answer)) } }
            }
            @if !receipt.policy_id.is_empty() { dt { "Rule" } dd { code { (text::line(&receipt.policy_id)) } } }
            dt { "Session" }
            dd { a href=(format!("/receipts?session={}", percent_encoded(&receipt.session_id))) { code { (text::line(&receipt.session_id)) } } }
            dt { "Call" } dd { code { (text::line(&receipt.call_id)) } }
            dt { "Intention" } dd { (text::block(&receipt.intention)) }
            dt { "Trace" } dd { (trace(owner, &receipt.trace_id)) }
            dt { "Arguments' SHA-256" } dd { code .hash { (receipt.args_sha256) } }
            dt { "Previous hash" } dd { code .hash { (receipt.previous_hash) } }
            dt { "Hash" } dd { code .hash { (receipt.hash) } }
        }
    }
}

/// The trace's id, as a link where the owner has said what shows traces.
fn trace(owner: &owner::State, id: &str) -> Markup {
    let shown = html! { code { (text::line(id)) } };
    match &owner.trace_url {
        // An id is hexadecimal digits; anything else makes no link.
        Some(template) if id.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            let address = template.replace("{traceId}", id);
            html! { a href=(address) rel="noreferrer" { (shown) } }
        }
        Some(_) | None => shown,
    }
}

/// A JSON document, its beginning if it is long.
fn document(title: &str, json: &[u8], whole: Option<&str>) -> Markup {
    if json.is_empty() {
        return html! {};
    }
    let value: Option<Value> = serde_json::from_slice(json).ok();
    let shown = value
        .and_then(|value| serde_json::to_string_pretty(&value).ok())
        .unwrap_or_else(|| String::from_utf8_lossy(json).into_owned());
    let (start, left) = text::start(&shown, SHOWN_BYTES);
    html! {
        section {
            h2 { (title) }
            pre { (text::block(start)) }
            @if let Some(whole) = whole { p {
                @if left > 0 { (left) " bytes more: " }
                a href=(whole) { "as plain text" }
            } }
        }
    }
}

/// `GET /receipts/{id}/result.txt`: the stored result, whole, as it is.
pub(super) async fn whole(
    State(state): State<owner::State>,
    Path(receipt): Path<String>,
) -> Answer {
    let found = owner::receipts::find(&state, &receipt).await?;
    Ok(plain(found.result))
}
