//! Two versions of a text, side by side.

use std::time::Duration;

use maud::{Markup, html};
use similar::{Algorithm, DiffOp, TextDiff};

use super::text;

/// Lines around a change that are shown with it.
const CONTEXT: usize = 3;
/// Rows that are shown at most.
const ROWS: usize = 2000;
/// Bytes of a line that are shown.
const LINE_BYTES: usize = 2000;
/// Time after which the comparison settles for a coarser one.
const PATIENCE: Duration = Duration::from_millis(300);

/// One row: the old line and the new one, each with its number.
struct Row<'a> {
    old: Option<(usize, &'a str)>,
    new: Option<(usize, &'a str)>,
    is_changed: bool,
}

/// The changes from one text to another, with some lines around each. It takes time that grows with the texts.
pub(super) fn side_by_side(old: &str, new: &str) -> Markup {
    let diff = TextDiff::configure()
        .algorithm(Algorithm::Myers)
        .timeout(PATIENCE)
        .diff_lines(old, new);
    let groups = diff.grouped_ops(CONTEXT);
    let (old, new): (Vec<&str>, Vec<&str>) = (
        diff.iter_old_slices().collect(),
        diff.iter_new_slices().collect(),
    );
    let mut left = ROWS;
    let mut cut = false;
    let mut shown = Vec::new();
    for group in &groups {
        let mut rows: Vec<Row<'_>> = group.iter().flat_map(|op| rows(op, &old, &new)).collect();
        cut |= rows.len() > left;
        rows.truncate(left);
        left -= rows.len();
        shown.push(rows);
    }
    html! {
        @if groups.is_empty() {
            p .none { "Both are the same." }
        } @else {
            table .diff {
                colgroup { col .number; col; col .number; col; }
                thead { tr { td .number {} th scope="col" { "Now" } td .number {} th scope="col" { "Then" } } }
                @for group in shown.iter().filter(|group| !group.is_empty()) {
                    tbody { @for row in group { (row.markup()) } }
                }
            }
            @if cut { p .notice { "There is more than is shown here." } }
        }
    }
}

fn rows<'a>(op: &DiffOp, old: &[&'a str], new: &[&'a str]) -> Vec<Row<'a>> {
    let (before, after) = (op.old_range(), op.new_range());
    let is_changed = !matches!(op, DiffOp::Equal { .. });
    let line = |lines: &[&'a str], number: Option<usize>| {
        number.and_then(|number| lines.get(number).map(|line| (number + 1, *line)))
    };
    let count = before.len().max(after.len());
    (0..count)
        .map(|index| Row {
            old: line(old, before.clone().nth(index)),
            new: line(new, after.clone().nth(index)),
            is_changed,
        })
        .collect()
}

impl Row<'_> {
    fn markup(&self) -> Markup {
        let side = |side: Option<(usize, &str)>, class: &str, sign: &str| {
            let class = match (self.is_changed, side.is_some()) {
                (true, true) => class,
                (true, false) => "absent",
                (false, _) => "same",
            };
            html! {
                td .number { @if let Some((number, _)) = side { (number) } }
                td class=(class) {
                    @if let Some((_, line)) = side {
                        @if self.is_changed { span .hidden { (sign) } }
                        (shown(line))
                    }
                }
            }
        };
        html! { tr {
            (side(self.old, "old", "removed: "))
            (side(self.new, "new", "added: "))
        } }
    }
}

/// A line without its end, unless that is an odd one or is missing where others have it.
fn shown(line: &str) -> Markup {
    let (line, has_end) = match line.strip_suffix('\n') {
        Some(line) => (line, true),
        None => (line, false),
    };
    let (start, left) = text::start(line, LINE_BYTES);
    html! {
        (text::block(start))
        @if left > 0 { span .odd { "… " (left) " bytes more" } }
        @if !has_end { span .odd title="no end of line" { "⌁" } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_stand_side_by_side_with_their_lines() {
        let old: String = (1..=20).map(|line| format!("line {line}\n")).collect();
        let new = old.replace("line 10\n", "line <ten>\n");
        let shown = side_by_side(&old, &new).into_string();
        assert!(
            shown.contains("removed: </span><bdi>line 10</bdi>"),
            "{shown}"
        );
        assert!(shown.contains("<bdi>line &lt;ten&gt;</bdi>"), "{shown}");
        assert!(shown.contains("<bdi>line 7</bdi>"), "{shown}");
        assert!(!shown.contains("<bdi>line 6</bdi>"), "{shown}");
    }

    #[test]
    fn ends_of_lines_that_differ_are_seen() {
        let shown = side_by_side("a\n", "a\r\n").into_string();
        assert!(shown.contains("␍"), "{shown}");
        let shown = side_by_side("a\n", "a").into_string();
        assert!(shown.contains("⌁"), "{shown}");
    }

    #[test]
    fn what_is_much_is_cut_and_said_to_be() {
        let new: String = (0..ROWS * 2).map(|line| format!("{line}\n")).collect();
        let shown = side_by_side("", &new).into_string();
        assert_eq!(shown.matches("<tr>").count(), ROWS + 1);
        assert!(shown.contains("There is more"));
        let long = side_by_side("", &"x".repeat(10 * LINE_BYTES)).into_string();
        assert!(long.len() < 2 * LINE_BYTES, "{}", long.len());
    }
}
