//! How things stand: the channel, the mode, what is under way.

use axum::{extract::State, response::Response};
use http::StatusCode;
use maud::{Markup, html};
use postern_types::Mode;

use super::{
    Answer, commands,
    layout::{self, Page, Place},
    receipts, text,
};
use crate::{CallInFlight, ChannelState, ToolServerStatus, owner, owner_tools::Running};

/// Receipts that are shown as the latest.
const LATEST: u32 = 8;

/// `GET /`
pub(super) async fn page(State(state): State<owner::State>) -> Answer {
    let latest = owner::receipts::Filter {
        limit: Some(LATEST),
        ..owner::receipts::Filter::default()
    };
    let (latest, running, waiting) = tokio::join!(
        owner::receipts::page(&state, latest),
        commands::running(&state),
        owner::inbox::count(&state),
    );
    let latest = latest?;
    let waiting = waiting?;
    let content = html! {
        h1 { "Now" }
        div #state data-live {
            @for warning in &state.control.status().warnings { p .notice role="alert" { (text::line(warning)) } }
            (channel(&state))
            @if waiting > 0 {
                p .notice { a href="/inbox" {
                    (waiting) @if waiting == 1 { " call waits" } @else { " calls wait" } " for you"
                } }
            }
        }
        section aria-labelledby="mode-title" {
            h2 #mode-title { "Mode" }
            div #mode data-live { (modes(state.control.mode())) }
        }
        section aria-labelledby="calls-title" {
            h2 #calls-title { "Calls under way" }
            div #calls data-live { (calls(&state.control.calls())) }
        }
        section aria-labelledby="commands-title" {
            h2 #commands-title { "Commands" }
            div #commands data-live data-keep { (running) }
        }
        @let servers = state.control.tools();
        @if !servers.is_empty() {
            section aria-labelledby="tools-title" {
                h2 #tools-title { "Your tools" }
                div #tools data-live { (tools(&servers)) }
            }
        }
        section aria-labelledby="latest-title" {
            h2 #latest-title { "Latest receipts" }
            div #latest data-live { (receipts::table(&latest.receipts)) }
            p { a href="/receipts" { "All receipts" } }
        }
    };
    let page = Page {
        title: "Now",
        place: Place::Now,
        path: "/",
        refreshes: true,
    };
    Ok(respond(layout::whole(&state, page, content).await))
}

fn respond(page: Markup) -> Response {
    super::page(StatusCode::OK, page)
}

fn channel(state: &owner::State) -> Markup {
    let status = state.control.status();
    let sandbox = status.sandbox;
    let host = html! { code { (text::line(state.control.host())) } };
    html! {
        dl .facts {
            dt { "Door" }
            dd { @match (status.open, status.channel) {
                (false, _) => { span .pill.refused { "closed" } " by you. Nothing new starts." }
                (true, ChannelState::Connected { since }) => {
                    span .pill.completed { "open" } " The agent host " (host) " is connected since " (layout::time(since.as_millis())) "."
                }
                (true, ChannelState::Connecting) => { span .pill.executing { "open" } " Connecting to the agent host " (host) "…" }
                (true, ChannelState::Waiting | ChannelState::Closed) => {
                    span .pill.uncertain { "open" } " The agent host " (host) " is not connected; the next attempt comes by itself."
                }
            } }
            dt { "Intention" }
            dd { (text::block(state.control.intention().as_str())) }
            dt { "Sandbox" }
            dd { @match sandbox {
                None => "The exec worker does not tell.",
                Some(sandbox) => {
                    (text::line(&sandbox.level))
                    @if !sandbox.missing.is_empty() { ", without " (text::line(&sandbox.missing.join(", "))) }
                }
            } }
        }
    }
}

/// What each mode means, in a few words.
const fn meaning(mode: Mode) -> &'static str {
    match mode {
        Mode::ReadOnly => "agents read, nothing else",
        Mode::Ask => "every change and command asks you",
        Mode::Edit => "file changes go ahead, commands ask you",
        Mode::Full => "everything goes ahead",
    }
}

fn modes(current: Mode) -> Markup {
    html! {
        form .modes method="post" action="/console/mode" {
            @for mode in Mode::ALL {
                button #{"mode-" (mode.as_str())} name="mode" value=(mode.as_str()) aria-pressed=(mode == current) {
                    strong { (mode.as_str()) } span { (meaning(mode)) }
                }
            }
        }
    }
}

fn calls(calls: &[CallInFlight]) -> Markup {
    if calls.is_empty() {
        return html! { p .none { "No call is under way." } };
    }
    html! {
        table {
            thead { tr { th { "Tool" } th { "About" } th { "Session" } th { "Since" } th { "State" } } }
            tbody { @for call in calls { tr {
                td .name data-label="Tool" { code { (text::line(&call.tool)) } }
                td data-label="About" { code { (text::line(&call.summary)) } }
                td .tight data-label="Session" { (layout::session(&call.session_id)) }
                td .tight data-label="Since" { (layout::time(call.started_at.as_millis())) }
                td .words data-label="State" { @match (&call.receipt_id, call.waiting) {
                    (Some(id), true) => a href=(format!("/inbox/{id}")) { "waits for you" },
                    (Some(id), false) => a href=(format!("/receipts/{id}")) { "running" },
                    (None, _) => "running",
                } }
            } } }
        }
    }
}

fn tools(servers: &[ToolServerStatus]) -> Markup {
    html! {
        table {
            thead { tr { th { "Server" } th { "State" } th { "Tools" } th { "Calls under way" } th { "Problem" } } }
            tbody { @for server in servers { tr {
                td .name data-label="Server" { code { (text::line(&server.server)) } }
                td .tight data-label="State" { (layout::pill(server.state, server.state)) }
                td .tight data-label="Tools" { (server.tools) }
                td data-label="Calls under way" { @for call in &server.calls { p { (under_way(call)) } } }
                td data-label="Problem" { (text::line(server.problem.as_deref().unwrap_or_default())) }
            } } }
        }
    }
}

/// A call of an owner's tool, with what its server says of it.
fn under_way(call: &Running) -> Markup {
    html! {
        code { (text::line(&call.tool)) }
        @if let Some(progress) = call.progress {
            " " (progress) @if let Some(total) = call.total { " of " (total) }
        }
        @if let Some(message) = &call.message { " " (text::line(message)) }
    }
}
