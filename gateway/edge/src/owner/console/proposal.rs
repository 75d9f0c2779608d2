//! What the owner is asked: the change side by side with what is there now, the command and where it will run, the question.

use maud::{Markup, html};
use postern_proto::{
    filesystem::v1::ReadRequest,
    ledger::v1::{InboxKind, Receipt},
};
use postern_types::ErrorCode;
use serde_json::Value;

use super::{diff, layout, receipts::percent_encoded, text};
use crate::{clients::hop, owner::State};

/// Largest text that is compared, in bytes.
const COMPARED_BYTES: usize = 512 * 1024;
/// Bytes of a text that are shown where it is not compared.
const SHOWN_BYTES: usize = 16 * 1024;
/// Pages that a file of that size is read in at most.
const PAGES: usize = COMPARED_BYTES / (128 * 1024) + 1;

/// What is in a file now.
enum Present {
    Text {
        content: String,
        sha256: String,
    },
    Absent,
    /// It cannot be shown, for this reason.
    Unknown(String),
}

/// What an item asks, for the owner to see before he decides.
pub(super) async fn shown(state: &State, receipt: &Receipt) -> Markup {
    let asked: Value = serde_json::from_slice(&receipt.proposal_json).unwrap_or_default();
    let id = &receipt.id;
    if receipt.inbox_kind() == InboxKind::Question {
        return html! { div .question { (long(id, string(&asked, "question"))) } };
    }
    let arguments = &asked["arguments"];
    match receipt.tool.as_str() {
        "workspace_write" => write(state, id, &asked).await,
        "workspace_patch" => patch(state, id, &asked).await,
        "workspace_delete" => delete(state, &asked).await,
        "workspace_exec" => exec(id, &asked),
        "workspace_input" => input(id, arguments),
        "session" => html! {
            p { "A conversation that was not here before asks to be let in:" }
            p { code { (text::line(&receipt.session_id)) } }
        },
        _ => html! {
            dl .facts {
                dt { "Tool" }
                dd { code { (text::line(arguments["name"].as_str().unwrap_or(&receipt.tool))) } }
            }
            (long(id, &pretty(arguments)))
        },
    }
}

/// What *approve for this session* would let go ahead unasked from now on.
pub(super) fn covers(receipt: &Receipt) -> Markup {
    let every = match receipt.tool.as_str() {
        "workspace_exec" => return covered_commands(receipt),
        "workspace_input" => "whatever is typed into this same command",
        "workspace_tool" => "this tool of yours as it is described now, with any arguments,",
        "workspace_write" => "every write of a file",
        "workspace_patch" => "every patch of a file",
        "workspace_delete" => "every deletion of a file",
        _ => "every call of this tool",
    };
    html! { (every) }
}

/// As the judge of calls has it: where the text says all that a command starts, the programs count.
fn covered_commands(receipt: &Receipt) -> Markup {
    let asked: Value = serde_json::from_slice(&receipt.proposal_json).unwrap_or_default();
    let command = &asked["command"];
    let programs = words(&command["programs"]);
    if command["understood"] != true || command["plain"] != true || programs.is_empty() {
        return html! { "this exact command in this directory" };
    }
    let writes = words(&command["writes"]);
    html! {
        "every command in this directory that starts only " (listed(&programs)) ", with any arguments, and redirects output to "
        @if writes.is_empty() { "no file" } @else { "nothing but " (listed(&writes)) } ","
    }
}

fn words(list: &Value) -> Vec<&str> {
    let words = list.as_array().into_iter().flatten();
    words.filter_map(Value::as_str).collect()
}

/// Words in one line.
fn listed(words: &[&str]) -> Markup {
    html! {
        @for (at, word) in words.iter().enumerate() {
            @if at > 0 { ", " }
            code { (text::line(word)) }
        }
    }
}

fn string<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

/// A text that may be huge: its beginning, and a link to the whole.
fn long(id: &str, content: &str) -> Markup {
    let (start, left) = text::start(content, SHOWN_BYTES);
    html! {
        pre { (text::block(start)) }
        @if left > 0 { p .notice {
            (left) " bytes more: " a href=(format!("/inbox/{id}/proposal.txt")) { "the whole as plain text" }
        } }
    }
}

async fn present(state: &State, path: &str) -> Present {
    let (mut content, mut offset) = (String::new(), 0);
    for _ in 0..PAGES {
        let request = ReadRequest {
            path: path.to_owned(),
            offset,
            limit: 0,
            place: None,
        };
        let page = match hop(state.filesystem.clone().read(request)).await {
            Ok(page) => page,
            Err(failure) if failure.code == ErrorCode::NotFound => return Present::Absent,
            Err(failure) => return Present::Unknown(failure.message),
        };
        if page.size > COMPARED_BYTES as u64 {
            let told = format!("It has {} bytes, too many to compare here.", page.size);
            return Present::Unknown(told);
        }
        content.push_str(&page.content);
        match page.next_offset {
            Some(next) => offset = next,
            None => {
                let sha256 = page.sha256;
                return Present::Text { content, sha256 };
            }
        }
    }
    Present::Unknown("It grows while it is read.".to_owned())
}

/// The file that is meant, and whether it is still what the call was made for.
fn file(asked: &Value, present: &Present) -> Markup {
    let path = string(&asked["arguments"], "path");
    let expected = asked["arguments"]["expectedSha256"].as_str();
    let is_stale = match (present, expected) {
        (Present::Text { sha256, .. }, Some(expected)) => sha256 != expected,
        (Present::Text { .. }, None) | (Present::Absent, Some(_)) => true,
        (Present::Absent, None) | (Present::Unknown(_), _) => false,
    };
    html! {
        dl .facts { dt { "File" } dd { code { (text::line(path)) } (place(asked)) } }
        @if is_stale { p .notice {
            "The file is not as it was when the agent asked: it was changed, made or deleted since. If you approve, nothing is changed and the agent is told."
        } }
    }
}

/// Where links lead the path of a call, if they do.
fn place(asked: &Value) -> Markup {
    html! {
        @if let Some(place) = asked["effect"]["resolvedPath"].as_str() {
            ", which is " code { (text::line(place)) }
        }
    }
}

/// Compares off the runtime: it may take some time.
async fn compared(old: String, new: String) -> Markup {
    let compared = tokio::task::spawn_blocking(move || diff::side_by_side(&old, &new)).await;
    compared.unwrap_or_else(|_| html! { p .notice { "The two cannot be compared." } })
}

async fn write(state: &State, id: &str, asked: &Value) -> Markup {
    let arguments = &asked["arguments"];
    let (path, content) = (string(arguments, "path"), string(arguments, "content"));
    let before = present(state, path).await;
    let file = file(asked, &before);
    let change = match before {
        _ if content.len() > COMPARED_BYTES => html! {
            p .notice { "The new content has " (content.len()) " bytes, too many to compare here." }
            (long(id, content))
        },
        Present::Text { content: old, .. } => compared(old, content.to_owned()).await,
        Present::Absent => html! {
            p { "There is no such file yet." }
            (compared(String::new(), content.to_owned()).await)
        },
        Present::Unknown(why) => html! {
            p .notice { "What is there now is not shown. " (text::line(&why)) }
            h3 { "The new content" }
            (long(id, content))
        },
    };
    html! { (file) (change) }
}

async fn patch(state: &State, id: &str, asked: &Value) -> Markup {
    let arguments = &asked["arguments"];
    let (old, new) = (string(arguments, "oldText"), string(arguments, "newText"));
    let before = present(state, string(arguments, "path")).await;
    let file = file(asked, &before);
    let change = match before {
        Present::Text { content, .. }
            if content.contains(old) && new.len() <= COMPARED_BYTES && !old.is_empty() =>
        {
            let after = content.replacen(old, new, 1);
            compared(content, after).await
        }
        Present::Text { .. } | Present::Absent | Present::Unknown(_) => html! {
            p .notice { "The place in the file is not shown." }
            h3 { "This text" } (long(id, old))
            h3 { "becomes" } (long(id, new))
        },
    };
    html! { (file) (change) }
}

async fn delete(state: &State, asked: &Value) -> Markup {
    let before = present(state, string(&asked["arguments"], "path")).await;
    let file = file(asked, &before);
    let change = match before {
        Present::Text { content, .. } => compared(content, String::new()).await,
        Present::Absent => html! {},
        Present::Unknown(why) => {
            html! { p .notice { "Its content is not shown. " (text::line(&why)) } }
        }
    };
    html! { (file) p { "The file would be deleted." } (change) }
}

fn exec(id: &str, asked: &Value) -> Markup {
    let (arguments, command) = (&asked["arguments"], &asked["command"]);
    let named = [
        ("Starts", "programs"),
        ("Writes", "writes"),
        ("Reads", "reads"),
    ];
    let directory = match string(arguments, "cwd") {
        "" => ".",
        directory => directory,
    };
    html! {
        (long(id, string(arguments, "command")))
        dl .facts {
            dt { "Runs in" } dd {
                code { (text::line(directory)) }
                (place(asked))
            }
            @for (name, field) in named {
                @let words = words(&command[field]);
                @if !words.is_empty() { dt { (name) } dd { (listed(&words)) } }
            }
            @if command["understood"] == false {
                dt { "Not all is known" } dd { "the text may start or write more than it says" }
            }
            @if let Some(limit) = arguments["timeoutMs"].as_i64() {
                dt { "For at most" } dd { (layout::length(limit)) }
            }
        }
    }
}

fn input(id: &str, arguments: &Value) -> Markup {
    let command = string(arguments, "commandId");
    html! {
        p { "To be typed into a running command:" }
        (long(id, string(arguments, "text")))
        dl .facts { dt { "Command" } dd { a href=(format!("/commands/{}", percent_encoded(command))) { code { (text::line(command)) } } } }
    }
}
