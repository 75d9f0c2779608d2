//! Lines of text for a terminal: what agents and commands wrote, harmless and whole.

use postern_types::printable;
use ratatui::text::Span;
use serde_json::Value;

/// Lines of one item that are kept. More is cut, and the last line says so.
const LINES_LIMIT: usize = 20_000;
/// What a line that goes on in the next row starts with there, so that it cannot pass for another line.
const CONTINUED: &str = "› ";
/// What each line of a text of several lines starts with, for the same reason.
const QUOTED: &str = "│ ";
/// What stands between two texts that are beside each other. In ASCII, a column each.
const BETWEEN: &str = " | ";
/// Columns in which two texts stand beside each other, at least.
pub(super) const BESIDE: usize = 100;
/// Spaces by which what belongs to a field stands further right.
const STEP: usize = 2;

/// JSON for people: a field a line, texts of several lines as they are, nothing left out. `whole` is how to see what is cut.
pub(super) fn of_json(value: &Value, whole: &str) -> Vec<String> {
    let mut lines = Vec::new();
    push(&mut lines, 0, None, value);
    if lines.len() > LINES_LIMIT {
        let left = lines.len() - LINES_LIMIT;
        lines.truncate(LINES_LIMIT);
        lines.push(format!("… {left} MORE LINES: {whole}"));
    }
    lines
}

fn push(lines: &mut Vec<String>, depth: usize, name: Option<&str>, value: &Value) {
    let indent = " ".repeat(depth * STEP);
    let head = name.map_or(indent.clone(), |name| {
        format!("{indent}{}:", printable(name))
    });
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            let depth = heading(lines, depth, name, head);
            for (name, value) in fields {
                push(lines, depth, Some(name), value);
            }
        }
        Value::Array(entries) if !entries.is_empty() => {
            let depth = heading(lines, depth, name, head);
            for (index, value) in entries.iter().enumerate() {
                push(lines, depth, Some(&format!("{}", index + 1)), value);
            }
        }
        Value::String(text) if text.contains('\n') => {
            let depth = heading(lines, depth, name, head);
            let indent = " ".repeat(depth * STEP);
            for line in text.split('\n') {
                lines.push(format!("{indent}{QUOTED}{}", printable(line)));
            }
        }
        Value::String(text) if !text.is_empty() => lines.push(joined(&head, &printable(text))),
        Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::String(_)
        | Value::Array(_)
        | Value::Object(_) => lines.push(joined(&head, &value.to_string())),
    }
}

/// The lines of a text, harmless; `None` for more than are kept of an item.
pub(super) fn quoted(text: &str) -> Option<Vec<String>> {
    let lines: Vec<String> = text.split('\n').map(printable).collect();
    (lines.len() <= LINES_LIMIT).then_some(lines)
}

/// Two texts beside each other in rows of at most `width` columns, both whole; each line of one stands beside the same line of the
/// other. It is not worth it in fewer columns than [`BESIDE`].
pub(super) fn beside(old: &[String], new: &[String], width: usize) -> Vec<String> {
    let side = width.saturating_sub(BETWEEN.len()) / 2;
    let mut rows = Vec::new();
    for line in 0..old.len().max(new.len()) {
        let of = |lines: &[String]| {
            lines
                .get(line)
                .map_or_else(Vec::new, |line| wrap(line, side))
        };
        let (left, right) = (of(old), of(new));
        for row in 0..left.len().max(right.len()) {
            let [left, right] =
                [&left, &right].map(|side| side.get(row).map_or("", String::as_str));
            let padding = " ".repeat(side.saturating_sub(columns(left)));
            rows.push(format!("{left}{padding}{BETWEEN}{right}"));
        }
    }
    rows
}

/// The line above what belongs to a field, and how deep that stands.
fn heading(lines: &mut Vec<String>, depth: usize, name: Option<&str>, head: String) -> usize {
    if name.is_none() {
        return depth;
    }
    lines.push(head);
    depth + 1
}

fn joined(head: &str, text: &str) -> String {
    match head {
        "" => text.to_owned(),
        head => format!("{head} {text}"),
    }
}

/// The lines of a command's output: a line that was written over shows what it was last; colours and cursor movements are
/// left out, other signs that steer a terminal are shown as escapes.
pub(super) fn of_output(output: &str) -> Vec<String> {
    let lines = output.split('\n').map(|line| {
        let line = line.trim_end_matches('\r');
        let last = line.rsplit('\r').next().unwrap_or(line);
        printable(&without_sequences(last)).replace("\\t", "    ")
    });
    let mut lines: Vec<String> = lines.collect();
    if lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    lines
}

/// Leaves out control sequences (ECMA-48, 5.4: `ESC [`, parameters, intermediates, one final byte).
fn without_sequences(line: &str) -> String {
    let mut kept = String::with_capacity(line.len());
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("\u{1b}[") {
        kept.push_str(before);
        let end = after.find(|c: char| !(' '..='?').contains(&c));
        match end.map(|end| (end, after[end..].chars().next())) {
            Some((end, Some('@'..='~'))) => rest = &after[end + 1..],
            // Cut off, or none.
            _ => {
                kept.push_str("\u{1b}[");
                rest = after;
            }
        }
    }
    kept.push_str(rest);
    kept
}

/// A line in rows of at most `width` columns, whole.
pub(super) fn wrap(line: &str, width: usize) -> Vec<String> {
    let mut rows = Vec::new();
    let mut row = String::new();
    let mut used = 0;
    for c in line.chars() {
        let before = row.len();
        row.push(c);
        // Signs can be wider together than each alone, so a row is measured whole, but for the plain ones.
        used = match c.is_ascii() {
            true => used + 1,
            false => columns(&row),
        };
        if used > width && before > CONTINUED.len() {
            row.truncate(before);
            rows.push(std::mem::replace(&mut row, format!("{CONTINUED}{c}")));
            used = columns(&row);
        }
    }
    rows.push(row);
    rows
}

/// The columns that a text takes.
pub(super) fn columns(text: &str) -> usize {
    Span::raw(text).width()
}

/// The end of a text that fits into `width` columns.
pub(super) fn tail(text: &str, width: usize) -> &str {
    let mut start = 0;
    while columns(&text[start..]) > width {
        start += text[start..].chars().next().map_or(1, char::len_utf8);
    }
    &text[start..]
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_proposal_is_shown_whole_and_harmless() {
        let proposal = json!({"arguments": {
            "content": "one\ntool: workspace_read\u{1b}[2J",
            "edits": [{"new": "x\u{202e}y", "old": ""}],
            "expectedSha256": null,
        }});
        assert_eq!(
            of_json(&proposal, "show r"),
            [
                "arguments:",
                "  content:",
                "    │ one",
                "    │ tool: workspace_read\\u{1b}[2J",
                "  edits:",
                "    1:",
                "      new: x\\u{202e}y",
                "      old: \"\"",
                "  expectedSha256: null",
            ]
        );
        assert_eq!(of_json(&json!("Which colour?"), ""), ["Which colour?"]);
    }

    #[test]
    fn what_is_cut_is_said_to_be() {
        let lines = of_json(&json!("x\n".repeat(LINES_LIMIT)), "show r");
        assert_eq!(lines.len(), LINES_LIMIT + 1);
        assert_eq!(lines[LINES_LIMIT], "… 1 MORE LINES: show r");
    }

    #[test]
    fn output_is_shown_without_what_steers() {
        assert_eq!(
            of_output(
                "\u{1b}[1;32mok\u{1b}[0m\r\n10%\r100%\r\na\tb\u{1b}]0;title\u{7}\n\u{1b}[é\u{1b}["
            ),
            [
                "ok",
                "100%",
                "a    b\\u{1b}]0;title\\u{7}",
                "\\u{1b}[é\\u{1b}[",
            ]
        );
    }

    #[test]
    fn rows_hold_the_whole_line_and_say_that_it_goes_on() {
        assert_eq!(wrap("abcdefgh", 5), ["abcde", "› fgh"]);
        assert_eq!(wrap("", 5), [""]);
        for line in [
            "日本語のテキスト",
            "❤\u{fe0f}❤\u{fe0f}❤\u{fe0f}❤\u{fe0f}❤\u{fe0f}",
            "naïve 🚪🚪🚪 text",
        ] {
            for width in 6..20 {
                let rows = wrap(line, width);
                assert!(rows.iter().all(|row| columns(row) <= width), "{rows:?}");
                let whole: String = rows
                    .iter()
                    .map(|row| row.strip_prefix(CONTINUED).unwrap_or(row))
                    .collect();
                assert_eq!(whole, line);
            }
        }
    }

    #[test]
    fn two_texts_stand_beside_each_other_whole() {
        let lines = |text: &str| quoted(text).expect("few lines");
        let (old, new) = (lines("one\ntwo two two\n"), lines("1\u{1b}[2J"));
        assert_eq!(
            beside(&old, &new, 23),
            [
                "one        | 1\\u{1b}[2J",
                "two two tw | ",
                "› o        | ",
                "           | ",
            ]
        );
        for row in beside(&lines("日本語のテキスト"), &lines("x"), 23) {
            assert!(columns(&row) <= 23, "{row}");
        }
        assert_eq!(quoted(&"x\n".repeat(LINES_LIMIT)), None);
    }

    #[test]
    fn the_end_of_a_long_answer_is_seen() {
        assert_eq!(tail("abcdef", 3), "def");
        assert_eq!(tail("日本語", 4), "本語");
        assert_eq!(tail("ab", 3), "ab");
    }
}
