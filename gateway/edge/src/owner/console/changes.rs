//! What a session or a receipt changed in the project's files, all in all.

use axum::extract::{Path, State};
use http::StatusCode;
use maud::{Markup, html};
use postern_proto::ledger::v1::{Receipt, State as ReceiptState};

use super::{
    Answer,
    layout::{self, Page, Place},
    receipts::percent_encoded,
    text, undo,
};
use crate::{
    owner,
    undo::{Diff, FileDiff, Net, Refused, TOOL, Undo},
};

/// Lines that are shown of one page's diffs.
const LINES: usize = 4000;
/// Bytes of a line that are shown.
const LINE_BYTES: usize = 2000;

/// `GET /sessions/{id}`
pub(super) async fn session(
    State(state): State<owner::State>,
    Path(session): Path<String>,
) -> Answer {
    let encoded = percent_encoded(&session);
    let net = state.undo.net_of_session(&session).await;
    let content = html! {
        h1 { "What a session changed" }
        p { "All in all, and not undone, by session " code { (text::line(&session)) } ". "
            a href=(format!("/receipts?session={encoded}")) { "Its receipts" } }
        h2 { "Files" }
        (shown(&state, net, &format!("/owner/v1/sessions/{encoded}/diff?format=patch")).await)
        (undo::of_session(&session))
    };
    let page = Page {
        title: "What a session changed",
        place: Place::Sessions,
        path: &format!("/sessions/{encoded}"),
        refreshes: false,
    };
    let page = layout::whole(&state, page, content).await;
    Ok(super::page(StatusCode::OK, page))
}

/// The diff of a receipt that changed files.
pub(super) async fn of_receipt(state: &owner::State, receipt: &Receipt) -> Markup {
    let is_done = receipt.state() == ReceiptState::Completed && receipt.outcome == "ok";
    let changes =
        receipt.tool == TOOL || owner::sessions::CHANGING_TOOLS.contains(&receipt.tool.as_str());
    if !is_done || !changes {
        return html! {};
    }
    let patch = format!("/owner/v1/receipts/{}/diff?format=patch", receipt.id);
    html! {
        h2 { "What it changed" }
        (shown(state, Undo::net_of_receipt(receipt), &patch).await)
    }
}

async fn shown(state: &owner::State, net: Result<Net, Refused>, patch: &str) -> Markup {
    let diff = match net {
        Ok(net) => state.undo.diff(net).await,
        Err(refused) => Err(refused),
    };
    match diff {
        Ok(diff) => told(&diff, patch),
        Err(refused) => html! { p .notice { (text::line(&refused.problem.message)) } },
    }
}

fn told(diff: &Diff, patch: &str) -> Markup {
    let mut left = LINES;
    html! {
        @if diff.files.is_empty() {
            p .none { "No file is another than before." }
        } @else {
            p { a href=(patch) download="changes.patch" { "As a patch for git apply" } }
        }
        @for note in &diff.notes { p .notice { (text::line(note)) } }
        @for file in &diff.files {
            section {
                h3 { code { (text::line(&file.path)) } " " (layout::pill(file.change, file.change)) }
                (changed(file, &mut left))
            }
        }
    }
}

fn changed(file: &FileDiff, left: &mut usize) -> Markup {
    let Some(diff) = &file.diff else {
        return html! { p .none { @if file.binary { "Its content is no text." } @else { "Its content is not shown." } } };
    };
    let lines: Vec<&str> = diff.lines().collect();
    // Below the first place, a sign alone says what a line is: a removed `-- x` looks like a header.
    let headers = lines.iter().position(|line| line.starts_with("@@"));
    let headers = headers.unwrap_or(lines.len());
    let (start, rest) = lines.split_at(lines.len().min(*left));
    *left -= start.len();
    html! {
        pre .patch { @for (number, line) in start.iter().enumerate() { (row(line, number < headers)) } }
        @if !rest.is_empty() { p .notice { (rest.len()) " lines more are in the patch." } }
    }
}

/// A line of a unified diff. The signs stay, so that the colours say nothing that the text does not.
fn row(line: &str, is_header: bool) -> Markup {
    let class = match line.as_bytes().first() {
        _ if is_header => "place",
        Some(b'@') => "place",
        Some(b'+') => "new",
        Some(b'-') => "old",
        _ => "same",
    };
    let (start, cut) = text::start(line, LINE_BYTES);
    html! {
        span class=(class) {
            (text::line(start))
            @if cut > 0 { span .odd { "… " (cut) " bytes more" } }
        }
        "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, diff: Option<&str>) -> FileDiff {
        FileDiff {
            path: path.to_owned(),
            change: "changed",
            before: None,
            after: None,
            binary: false,
            diff: diff.map(str::to_owned),
        }
    }

    #[test]
    fn what_was_added_and_taken_away_is_marked_and_nothing_of_it_is_markup() {
        let diff = Diff {
            files: vec![file(
                "<b>.txt",
                Some("--- a/b\n+++ b/b\n@@ -1 +1 @@\n-<script>\n+\u{202e}new\n same\n"),
            )],
            notes: vec!["<i>".to_owned()],
        };
        let page = told(&diff, "/p").into_string();
        assert!(page.contains("&lt;b&gt;.txt"), "{page}");
        assert!(page.contains("&lt;i&gt;"), "{page}");
        assert!(
            !page.contains("<script>") && !page.contains('\u{202e}'),
            "{page}"
        );
        for class in ["old", "new", "same", "place"] {
            assert!(
                page.contains(&format!("<span class=\"{class}\">")),
                "{page}"
            );
        }
    }

    #[test]
    fn a_removed_line_that_looks_like_a_header_is_a_removed_line() {
        let sql = "--- a/q.sql\n+++ b/q.sql\n@@ -1,2 +1,2 @@\n--- the old\n+++ the new\n same\n";
        let diff = Diff {
            files: vec![file("q.sql", Some(sql))],
            notes: Vec::new(),
        };
        let page = told(&diff, "/p").into_string();
        for row in [
            "<span class=\"old\"><bdi>--- the old</bdi></span>",
            "<span class=\"new\"><bdi>+++ the new</bdi></span>",
            "<span class=\"place\"><bdi>--- a/q.sql</bdi></span>",
        ] {
            assert!(page.contains(row), "{page}");
        }
    }

    #[test]
    fn a_long_diff_is_cut_and_says_so() {
        let long = format!("@@\n{}", "+a\n".repeat(LINES + 6));
        let diff = Diff {
            files: vec![
                file("a", Some(&long)),
                file("b", Some("@@\n")),
                file("c", None),
            ],
            notes: Vec::new(),
        };
        let page = told(&diff, "/p").into_string();
        assert!(page.contains("7 lines more"), "{page}");
        assert!(page.contains("1 lines more"), "{page}");
        assert!(page.contains("not shown"), "{page}");
        assert_eq!(page.matches("class=\"new\"").count(), LINES - 1);
    }
}
