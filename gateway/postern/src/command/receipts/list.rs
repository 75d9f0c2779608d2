//! `postern receipts list`.

mod follow;

use std::io::stdout;

use postern_types::{printable, printable_start};
use serde_json::Value;

use super::super::owner::percent_encoded;
use crate::{cli::List, error::Error, output, remote::Api};

/// Receipts asked for at a time, as many as the API gives.
const PAGE: usize = 1000;
/// Columns of a table that goes to no terminal.
const COLUMNS: usize = 160;
/// Columns that a summary has at least, and the line is broken rather than it.
const SUMMARY_COLUMNS: usize = 12;

/// Lists receipts, newest first, page after page until there are enough; or follows them.
pub(super) fn run(api: &Api, wanted: &List, json: bool) -> Result<(), Error> {
    let mut table = Table::new(json);
    if wanted.follow {
        return follow::run(api, wanted, &mut table);
    }
    pages(api, wanted, |item| table.put(item))?;
    if table.is_empty && !json {
        output::text_line("there are no such receipts");
    }
    Ok(())
}

/// What is printed.
struct Table {
    json: bool,
    columns: usize,
    is_empty: bool,
}

impl Table {
    fn new(json: bool) -> Self {
        let columns = rustix::termios::tcgetwinsize(stdout())
            .ok()
            .map(|size| usize::from(size.ws_col))
            .filter(|columns| *columns > 0)
            .unwrap_or(COLUMNS);
        Self {
            json,
            columns,
            is_empty: true,
        }
    }

    fn put(&mut self, item: &Value) {
        if std::mem::take(&mut self.is_empty) && !self.json {
            output::text_line(&head());
        }
        output::either(self.json, item, &line(item, self.columns));
    }
}

/// Visits the wanted receipts, newest first.
fn pages(api: &Api, wanted: &List, mut visit: impl FnMut(&Value)) -> Result<(), Error> {
    let mut left = if wanted.all { usize::MAX } else { wanted.limit };
    let mut after = String::new();
    while left > 0 {
        // Of those that ended otherwise as many have to be looked at as there are.
        let page = match &wanted.outcome {
            Some(_) => PAGE,
            None => left.min(PAGE),
        };
        let answer = api.get(&address(wanted, page, &after))?;
        let items = answer["items"].as_array().map(Vec::as_slice);
        for item in items.unwrap_or_default() {
            if left > 0 && ended_so(wanted, item) {
                visit(item);
                left -= 1;
            }
        }
        match answer["next"].as_str() {
            Some(next) => next.clone_into(&mut after),
            None => break,
        }
    }
    Ok(())
}

/// Whether a receipt has the wanted outcome, which the API does not look for.
fn ended_so(wanted: &List, receipt: &Value) -> bool {
    let wanted = wanted.outcome.as_deref();
    wanted.is_none_or(|outcome| receipt["outcome"] == outcome)
}

fn address(wanted: &List, limit: usize, after: &str) -> String {
    let after = Some(after.to_owned()).filter(|after| !after.is_empty());
    let filters = [
        ("session", &wanted.session),
        ("tool", &wanted.tool),
        ("state", &wanted.state),
        ("since", &wanted.since),
        ("until", &wanted.until),
        ("after", &after),
    ];
    let mut address = format!("/owner/v1/receipts?limit={limit}");
    for (name, value) in filters {
        if let Some(value) = value {
            address.push_str(&format!("&{name}={}", percent_encoded(value)));
        }
    }
    address
}

fn head() -> String {
    format!(
        "{:<24}  {:<36}  {:<14}  {:<18}  {:<10}  SUMMARY",
        "CREATED", "ID", "STATE", "TOOL", "OUTCOME"
    )
}

/// A receipt on a line of `columns` columns, as far as its summary can give way.
fn line(receipt: &Value, columns: usize) -> String {
    let text = |field: &str| printable(receipt[field].as_str().unwrap_or("-"));
    let start = format!(
        "{:<24}  {:<36}  {:<14}  {:<18}  {:<10}  ",
        text("createdAt"),
        text("id"),
        text("state"),
        text("tool"),
        text("outcome"),
    );
    let room = columns.saturating_sub(start.chars().count());
    let summary = receipt["summary"].as_str().unwrap_or_default();
    let summary = fitting(summary, room.max(SUMMARY_COLUMNS));
    format!("{start}{summary}").trim_end().to_owned()
}

/// The beginning of a text that takes at most `columns`. Wide characters take two; all that are not Latin, Greek or Cyrillic
/// are taken for wide, so that a line is rather too short than broken.
fn fitting(text: &str, columns: usize) -> String {
    let mut limit = columns;
    loop {
        let start = printable_start(text, limit);
        let width: usize = start
            .chars()
            .map(|c| if c < '\u{1100}' || c == '…' { 1 } else { 2 })
            .sum();
        if width <= columns {
            return start;
        }
        limit -= (width - columns).div_ceil(2);
    }
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;
    use serde_json::json;

    use super::*;

    fn wanted() -> List {
        List {
            session: Some("a&b=c é".to_owned()),
            tool: None,
            state: None,
            since: Some("2026-11-30T18:00:00+01:00".to_owned()),
            until: None,
            limit: 100,
            all: false,
            outcome: None,
            follow: false,
        }
    }

    #[test]
    fn filters_are_encoded() {
        assert_eq!(
            address(&wanted(), 7, "x"),
            "/owner/v1/receipts?limit=7&session=a%26b%3Dc%20%C3%A9&since=2026-11-30T18%3A00%3A00%2B01%3A00&after=x"
        );
    }

    #[test]
    fn a_line_fits_and_cannot_steer_the_terminal() {
        let receipt = json!({
            "createdAt": "2026-11-30T18:00:00.123Z", "id": "0".repeat(36), "state": "completed",
            "tool": "workspace_exec", "outcome": "ok", "summary": format!("\u{1b}]0;{}", "日本".repeat(100)),
        });
        for columns in [130, 160, 200] {
            let line = line(&receipt, columns);
            let width: usize = line
                .chars()
                .map(|c| if c < '\u{1100}' || c == '…' { 1 } else { 2 })
                .sum();
            assert!(
                width <= columns && width + 3 > columns,
                "{width} of {columns}: {line}"
            );
            assert!(!line.contains('\u{1b}') && line.ends_with('…'), "{line}");
        }
        assert_eq!(fitting("short", 12), "short");
    }
}
