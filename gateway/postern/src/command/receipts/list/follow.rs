//! `postern receipts list --follow`: what is there, oldest first, and then each change as it happens.

use std::{
    collections::HashSet,
    io::{BufRead as _, Read as _},
};

use postern_types::Timestamp;
use serde_json::Value;

use super::{Table, ended_so, pages};
use crate::{cli::List, error::Error, output, remote::Api};

/// Longest line of events, in bytes: a receipt's plan is not in it.
const LINE_BYTES: u64 = 1024 * 1024;

/// Prints until the edge ends, or whoever reads goes away.
pub(super) fn run(api: &Api, wanted: &List, table: &mut Table) -> Result<(), Error> {
    // Listened to before it is looked, so that nothing happens in between.
    let mut events = api.stream("/owner/v1/events")?;
    let mut listed = Vec::new();
    pages(api, wanted, |item| listed.push(item.clone()))?;
    let mut told: HashSet<Key> = listed.iter().filter_map(key).collect();
    for item in listed.iter().rev() {
        table.put(item);
    }
    loop {
        let mut line = String::new();
        let read = (&mut events).take(LINE_BYTES).read_line(&mut line);
        match read {
            Ok(0) => break,
            Err(problem) => return Err(Error::failed("the edge is gone", problem)),
            Ok(_) if output::is_unread() => return Ok(()),
            Ok(_) => {}
        }
        let Some(receipt) = receipt_of(&line) else {
            continue;
        };
        let Some(key) = key(&receipt) else { continue };
        // What happened while it was listed may come once more.
        if is_wanted(wanted, &receipt) && !told.remove(&key) {
            table.put(&receipt);
        }
    }
    Err(Error::Failed(
        "the edge has ended; what comes later is told by another `receipts list --follow`"
            .to_owned(),
    ))
}

/// What tells one change of a receipt from another: its id, its state and its decision.
type Key = (String, String, String);

fn key(receipt: &Value) -> Option<Key> {
    let text = |field: &str| receipt[field].as_str().map(str::to_owned);
    Some((
        text("id")?,
        text("state")?,
        text("decision").unwrap_or_default(),
    ))
}

/// The receipt in a line of events, if there is one: other events hold none.
fn receipt_of(line: &str) -> Option<Value> {
    let value: Value = serde_json::from_str(line.strip_prefix("data:")?.trim()).ok()?;
    value["argsSha256"].is_string().then_some(value)
}

/// Whether an event is of a receipt that a list with these filters would hold.
fn is_wanted(wanted: &List, receipt: &Value) -> bool {
    let filters = [
        ("sessionId", &wanted.session),
        ("tool", &wanted.tool),
        ("state", &wanted.state),
    ];
    let time = |text: &str| Timestamp::parse(text).ok().map(Timestamp::as_millis);
    let is_late_enough = wanted.since.as_deref().is_none_or(|since| {
        let created = receipt["createdAt"].as_str().and_then(time);
        created >= time(since)
    });
    let fits = filters.iter().all(|(field, wanted)| {
        wanted
            .as_ref()
            .is_none_or(|wanted| receipt[*field] == **wanted)
    });
    fits && is_late_enough && ended_so(wanted, receipt)
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;
    use serde_json::json;

    use super::*;

    fn everything() -> List {
        List {
            session: None,
            tool: None,
            state: None,
            outcome: None,
            since: None,
            until: None,
            limit: 1,
            all: false,
            follow: true,
        }
    }

    #[test]
    fn only_receipts_that_are_wanted_are_told_of() {
        let receipt = json!({
            "id": "r", "argsSha256": "0", "sessionId": "s", "tool": "workspace_exec", "state": "completed",
            "outcome": "ok", "createdAt": "2026-11-30T18:00:00.000Z",
        });
        let line = format!("data: {receipt}\n");
        assert_eq!(receipt_of(&line), Some(receipt.clone()));
        for other in ["event: receipt\n", "\n", "data: {\"waiting\":1}\n", ": x\n"] {
            assert_eq!(receipt_of(other), None);
        }
        assert!(is_wanted(&everything(), &receipt));
        let of = |change: fn(&mut List)| {
            let mut wanted = everything();
            change(&mut wanted);
            is_wanted(&wanted, &receipt)
        };
        assert!(of(|it| it.tool = Some("workspace_exec".to_owned())));
        assert!(!of(|it| it.tool = Some("workspace_read".to_owned())));
        assert!(!of(|it| it.session = Some("t".to_owned())));
        assert!(!of(|it| it.outcome = Some("UNCERTAIN".to_owned())));
        assert!(of(|it| it.since = Some("2026-11-30T18:00:00Z".to_owned())));
        assert!(!of(|it| it.since = Some("2026-11-30T18:00:01Z".to_owned())));
    }
}
