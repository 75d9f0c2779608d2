//! Commands and what they say.

use axum::extract::{Path, Query, State};
use http::StatusCode;
use maud::{Markup, html};
use postern_proto::exec::v1::{ListedCommand, PollResponse, Status};
use serde::Deserialize;

use super::{
    Answer,
    layout::{self, Page, Place},
    plain, text,
};
use crate::{owner, tools::command_status};

/// Commands that the first page shows.
const RECENT: u32 = 20;
/// Of those, ended ones.
const RECENT_ENDED: usize = 5;
/// Bytes of output that are shown of a running command, the last ones.
const TAIL_BYTES: u64 = 4 * 1024;
/// The same on a command's own page.
const PAGE_BYTES: u64 = 64 * 1024;
/// Pages of output in one text at most: what the spool keeps of a command, 64 MiB.
const WHOLE_PAGES: usize = 1024;

/// The commands that run, each with the end of its output, and some that have ended.
pub(super) async fn running(state: &owner::State) -> Markup {
    let part = owner::commands::Part {
        limit: Some(RECENT),
        ..owner::commands::Part::default()
    };
    let listed = match owner::commands::page(state, part).await {
        Ok(listed) => listed.commands,
        Err(refusal) => {
            return html! { p .notice { "The commands cannot be listed: " (text::line(&refusal.0.message)) } };
        }
    };
    let (running, ended): (Vec<_>, Vec<_>) = listed.into_iter().partition(runs);
    let mut shown = Vec::new();
    for command in &running {
        shown.push(card(state, command).await);
    }
    html! {
        @if running.is_empty() { p .none { "No command runs." } }
        @for card in &shown { (card) }
        @if !ended.is_empty() {
            h3 { "Ended" }
            ul .rows { @for command in ended.iter().take(RECENT_ENDED) {
                li { a href=(format!("/commands/{}", command.command_id)) { (words(command)) } " " (end(command)) }
            } }
        }
    }
}

fn runs(command: &ListedCommand) -> bool {
    status(command) == Status::Running
}

fn status(command: &ListedCommand) -> Status {
    command
        .state
        .as_ref()
        .map_or(Status::Unspecified, |state| state.status())
}

async fn card(state: &owner::State, command: &ListedCommand) -> Markup {
    let id = &command.command_id;
    let offset = command.total_bytes.saturating_sub(TAIL_BYTES);
    let page = owner::commands::poll(state, command, offset, 0).await;
    html! {
        article .card #{"command-" (id)} {
            h3 { a href=(format!("/commands/{id}")) { (words(command)) } }
            p .facts { "in " code { (text::line(&command.cwd)) } ", session " (layout::session(&command.session_id)) ", since " (started(command)) }
            @match page {
                Ok(page) => { (output(&page)) }
                Err(refusal) => { p .notice { (text::line(&refusal.0.message)) } }
            }
            (stop(id, "/"))
        }
    }
}

/// What a command runs, on one line.
fn words(command: &ListedCommand) -> Markup {
    html! {
        code .command {
            @if command.command.is_empty() { "(a command from before)" }
            (text::line(&command.command))
            @if command.cut { "…" }
        }
    }
}

fn started(command: &ListedCommand) -> Markup {
    layout::time(
        command
            .state
            .as_ref()
            .map_or(0, |state| state.started_at_ms),
    )
}

fn end(command: &ListedCommand) -> Markup {
    let code = command.state.as_ref().and_then(|state| state.exit_code);
    let name = command_status(status(command));
    let class = match code {
        Some(code) if code != 0 => "failed",
        Some(_) | None => name,
    };
    html! {
        span class=(format!("pill {class}")) { (name.replace('_', " ")) @if let Some(code) = code { " " (code) } }
    }
}

fn stop(id: &str, back: &str) -> Markup {
    html! {
        form method="post" action=(format!("/commands/{id}/stop")) {
            input type="hidden" name="back" value=(back);
            button .danger { "Stop" span .hidden { " this command" } }
        }
    }
}

/// Output that a script goes on writing.
fn output(page: &PollResponse) -> Markup {
    let id = &page.command_id;
    html! {
        pre .output #{"output-" (id)} tabindex="0" role="log" aria-label="Output"
            data-output=(format!("/owner/v1/commands/{id}/output")) data-offset=(page.next_offset) {
            (text::block(&page.output))
        }
    }
}

/// `GET /commands/{id}`
pub(super) async fn show(State(state): State<owner::State>, Path(command): Path<String>) -> Answer {
    let command = owner::commands::find(&state, &command).await?;
    let offset = command.total_bytes.saturating_sub(PAGE_BYTES);
    let page = owner::commands::poll(&state, &command, offset, 0).await?;
    let id = &command.command_id;
    let path = format!("/commands/{id}");
    let content = html! {
        h1 { "Command" }
        pre .command { (text::block(&command.command)) @if command.cut { "…" } }
        div #status data-live {
            dl .facts {
                dt { "State" } dd { (end(&command)) }
                dt { "Directory" } dd { code { (text::line(&command.cwd)) } }
                dt { "Session" } dd { code { (text::line(&command.session_id)) } }
                dt { "Started" } dd { (started(&command)) }
                dt { "Output" } dd {
                    (command.total_bytes) " bytes, "
                    a href=(format!("{path}/output.txt")) { "as plain text" }
                }
                dt { "Receipt" } dd { a href=(format!("/receipts/{id}")) { code { (id) } } }
            }
            @if runs(&command) { (stop(id, &path)) }
        }
        h2 { "Output" }
        @if let Some(gap) = page.gap { p .notice { "Bytes " (gap.from) " to " (gap.to) " were not kept." } }
        @if offset > 0 { p .none { "The last " (PAGE_BYTES / 1024) " KiB." } }
        (output(&page))
    };
    let page = Page {
        title: "Command",
        place: Place::Now,
        path: &path,
        refreshes: runs(&command),
    };
    let page = layout::whole(&state, page, content).await;
    Ok(super::page(StatusCode::OK, page))
}

/// From where on.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct From {
    offset: u64,
}

/// `GET /commands/{id}/output.txt?offset`: what is kept, page by page as it is read.
pub(super) async fn whole(
    State(state): State<owner::State>,
    Path(command): Path<String>,
    Query(from): Query<From>,
) -> Answer {
    let command = owner::commands::find(&state, &command).await?;
    let pages = futures_util::stream::unfold(
        (state, command, Some(from.offset), WHOLE_PAGES),
        |(state, command, offset, left)| async move {
            let offset = offset.filter(|_| left > 0)?;
            let page = owner::commands::poll(&state, &command, offset, 0).await;
            let page = page.map_err(|refusal| std::io::Error::other(refusal.0));
            let next = page
                .as_ref()
                .ok()
                .map(|page| page.next_offset)
                .filter(|next| *next > offset);
            let text = page.map(|page| page.output);
            Some((text, (state, command, next, left - 1)))
        },
    );
    Ok(plain(axum::body::Body::from_stream(pages)))
}
