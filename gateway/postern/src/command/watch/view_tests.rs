//! What is drawn, in windows of several sizes and with hostile texts.

use std::{sync::Arc, time::Instant};

use postern_types::Timestamp;
use ratatui::{Terminal, backend::TestBackend, style::Color};
use serde_json::{Value, json};

use super::{
    feed::Report,
    model::{Item, Snapshot},
    state::{Pane, State},
    view::{Theme, draw},
};

/// What steers terminals, hides text, or turns it around.
const HOSTILE: &str = "\u{1b}[2J\u{1b}]0;owned\u{7}\u{9b}31m\u{202e}\r\u{200b}\u{ad}";
/// A window's columns and rows.
const SIZES: [(u16, u16); 7] = [
    (80, 24),
    (40, 10),
    (200, 60),
    (72, 16),
    (24, 7),
    (10, 3),
    (1, 1),
];

fn snapshot(text: &str) -> Snapshot {
    let item = |id: &str, kind: &str, asked: Value| {
        let value = json!({"id": id, "kind": kind, "tool": "workspace_exec", "sessionId": text, "summary": text,
            "expiresAt": "2026-12-01T00:01:05.000Z", "proposal": asked, "question": asked});
        Arc::new(Item::parse(&value).expect("an item"))
    };
    let parse = |value: Value| serde_json::from_value(value).expect("a status");
    let list = |value: Value| serde_json::from_value(value).expect("receipts");
    let commands = json!([{"commandId": "c", "sessionId": text, "command": text, "cwd": text, "status": "running"}]);
    Snapshot {
        status: parse(
            json!({"mode": "ask", "intention": text, "channel": {"open": true, "connected": true}, "waiting": 2,
            "calls": [{"sessionId": text, "callId": text, "tool": text, "summary": null, "waiting": true}], "warnings": [text]}),
        ),
        items: vec![
            item(
                "r1",
                "approval",
                json!({"arguments": {"command": format!("make {text}\n{text}")}}),
            ),
            item("r2", "question", json!(text)),
        ],
        receipts: list(
            json!([{"id": "r0", "tool": text, "summary": text, "state": "completed", "outcome": text, "createdAt": text}]),
        ),
        commands: serde_json::from_value(commands).expect("commands"),
    }
}

fn known(text: &str) -> State {
    let mut state = State::new();
    state.report(Report::Here(Box::new(snapshot(text))), Instant::now());
    state
}

/// What a window of this size shows.
fn drawn(state: &mut State, (columns, rows): (u16, u16), colours: bool) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).expect("a terminal");
    let now = Timestamp::parse("2026-12-01T00:00:00.000Z").expect("a time");
    terminal
        .draw(|frame| draw(frame, state, Theme { colours }, now))
        .expect("drawn");
    terminal
}

fn text(terminal: &Terminal<TestBackend>) -> String {
    terminal.backend().to_string()
}

#[test]
fn everything_is_at_hand_in_an_ordinary_window() {
    let shown = text(&drawn(&mut known("build it"), (80, 24), true));
    for part in [
        "● open, connected  mode ask  2 waiting  1 calls  build it",
        "▶ 1 Inbox (2)",
        "2 Now (2)",
        "3 Receipts (1)",
        "! 1:05 exec build it",
        "command:",
        "│ make build it",
        "a approve  s …for the session  d deny  q quit",
        "c close door",
        "m mode",
    ] {
        assert!(shown.contains(part), "no `{part}` in\n{shown}");
    }
}

#[test]
fn a_small_window_shows_one_list_and_what_is_chosen() {
    let mut state = known("build it");
    let shown = text(&drawn(&mut state, (40, 10), true));
    for part in [
        "▶ 1 Inbox (2)",
        "! 1:05 exec",
        "Details",
        "a approve",
        "of ",
    ] {
        assert!(shown.contains(part), "no `{part}` in\n{shown}");
    }
    assert!(!shown.contains("Receipts"), "{shown}");
    let shown = text(&drawn(&mut state, (10, 3), true));
    assert!(shown.contains("postern wa"), "{shown}");
}

#[test]
fn hostile_texts_steer_nothing_at_any_size() {
    for pane in Pane::ALL {
        for size in SIZES {
            let mut state = known(&format!("x{HOSTILE}y{}", "日本🚪e\u{301}".repeat(50)));
            state.pane = pane;
            let terminal = drawn(&mut state, size, true);
            for cell in terminal.backend().buffer().content() {
                let steers = |c: char| c.is_control() || HOSTILE.contains(c) && !c.is_ascii();
                assert!(!cell.symbol().chars().any(steers), "{:?}", cell.symbol());
            }
        }
    }
    let shown = text(&drawn(&mut known(HOSTILE), (200, 60), true));
    assert!(
        shown
            .contains("make \\u{1b}[2J\\u{1b}]0;owned\\u{7}\\u{9b}31m\\u{202e}\\r\\u{200b}\\u{ad}"),
        "{shown}"
    );
}

#[test]
fn without_colours_there_are_none() {
    let coloured = |colours: bool| {
        let terminal = drawn(&mut known("x"), (80, 24), colours);
        let cells = terminal.backend().buffer().content().iter();
        cells
            .filter(|cell| (cell.fg, cell.bg) != (Color::Reset, Color::Reset))
            .count()
    };
    assert_eq!(coloured(false), 0);
    assert!(coloured(true) > 0);
}

#[test]
fn a_long_proposal_is_read_to_its_end() {
    let mut state = State::new();
    let content: String = (0..500).map(|n| format!("line {n}\n")).collect();
    let value =
        json!({"id": "r", "kind": "approval", "proposal": {"arguments": {"content": content}}});
    let items = vec![Arc::new(Item::parse(&value).expect("an item"))];
    let snapshot = Snapshot {
        items,
        ..Snapshot::default()
    };
    state.report(Report::Here(Box::new(snapshot)), Instant::now());
    let shown = text(&drawn(&mut state, (80, 24), false));
    assert!(
        shown.contains(": PgUp/PgDn") && !shown.contains("line 499"),
        "{shown}"
    );
    state.scroll = usize::MAX;
    let shown = text(&drawn(&mut state, (80, 24), false));
    assert!(shown.contains("│ line 499"), "{shown}");
}

#[test]
fn an_edge_that_is_gone_is_said_to_be() {
    let mut state = known("x");
    state.report(Report::Gone("no edge runs".to_owned()), Instant::now());
    let shown = text(&drawn(&mut state, (80, 24), false));
    assert!(
        shown.contains("EDGE GONE, trying on") && shown.contains("no edge runs"),
        "{shown}"
    );
}

#[test]
fn a_patch_stands_side_by_side_where_there_is_room() {
    let mut state = known("x");
    let asked = json!({"arguments": {"path": "a.txt", "oldText": "before", "newText": "after"}});
    let value =
        json!({"id": "p", "kind": "approval", "tool": "workspace_patch", "proposal": asked});
    let item = Arc::new(Item::parse(&value).expect("an item"));
    let look = Snapshot {
        items: vec![item],
        ..snapshot("x")
    };
    state.report(Report::Here(Box::new(look)), Instant::now());
    let beside = |shown: &str| {
        let mut lines = shown.lines();
        lines.any(|line| line.contains("before") && line.contains(" | after"))
    };
    let wide = text(&drawn(&mut state, (220, 60), false));
    assert!(beside(&wide) && wide.contains("path: a.txt"), "{wide}");
    let narrow = text(&drawn(&mut state, (100, 40), false));
    assert!(!beside(&narrow), "{narrow}");
    assert!(narrow.contains("newText: after"), "{narrow}");
}
