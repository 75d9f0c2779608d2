//! What the state looks like.

use postern_types::Timestamp;
use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::{Color, Modifier, Style},
    text::{Line, Span},
    widgets::{Block, Borders, List, ListItem, ListState, Paragraph},
};

use super::{
    model::{Item, Kind, Receipt},
    state::{Busy, Pane, Prompt, State},
    text::{BESIDE, beside, columns, tail, wrap},
};

/// Columns and rows from which on the lists stand beside the details, all three at once.
const WIDE: (u16, u16) = (72, 16);
/// Columns and rows below which nothing sensible can be shown.
const SMALLEST: (u16, u16) = (24, 7);
/// Rows of a window from which on the keys may take two of them.
const KEYS_IN_TWO: u16 = 10;

/// Whether colours are used: what they say is said by words and signs too.
#[derive(Clone, Copy, Debug)]
pub(super) struct Theme {
    pub(super) colours: bool,
}

impl Theme {
    fn tone(self, colour: Color) -> Style {
        match self.colours {
            true => Style::new().fg(colour),
            false => Style::new(),
        }
    }

    /// What a list or the details stand in: a box where there is room, else below a line.
    fn block(self, title: String, focused: bool, boxed: bool) -> Block<'static> {
        let border = match focused {
            true => self.tone(Color::Cyan).patch(Self::strong()),
            false => Style::new(),
        };
        let borders = if boxed { Borders::ALL } else { Borders::TOP };
        let block = Block::new().borders(borders).border_style(border);
        block.title(title)
    }

    const fn strong() -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }
}

/// Draws everything.
pub(super) fn draw(frame: &mut Frame<'_>, state: &mut State, theme: Theme, now: Timestamp) {
    let area = frame.area();
    if area.width < SMALLEST.0 || area.height < SMALLEST.1 {
        frame.render_widget(
            Paragraph::new("postern watch: make this window larger"),
            area,
        );
        return;
    }
    let key_rows = if area.height < KEYS_IN_TWO { 1 } else { 2 };
    let keys = keys(state, usize::from(area.width), key_rows);
    let [head, body, note, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Min(3),
        Constraint::Length(1),
        Constraint::Length(u16::try_from(keys.len()).unwrap_or(1)),
    ])
    .areas(area);
    frame.render_widget(headline(state, theme), head);
    if is_wide(area) {
        let [lists, details] =
            Layout::horizontal([Constraint::Percentage(42), Constraint::Fill(1)]).areas(body);
        let panes: [Rect; 3] = Layout::vertical([Constraint::Fill(1); 3]).areas(lists);
        for (pane, area) in Pane::ALL.into_iter().zip(panes) {
            list(frame, state, theme, pane, area, now);
        }
        self::details(frame, state, theme, details, now);
    } else {
        let [lists, details] =
            Layout::vertical([Constraint::Fill(2), Constraint::Fill(3)]).areas(body);
        list(frame, state, theme, state.pane, lists, now);
        self::details(frame, state, theme, details, now);
    }
    frame.render_widget(message(state, theme, usize::from(note.width)), note);
    let dim = Style::new().add_modifier(Modifier::DIM);
    let rows: Vec<Line<'_>> = keys.into_iter().map(|row| Line::styled(row, dim)).collect();
    frame.render_widget(Paragraph::new(rows), foot);
}

const fn is_wide(area: Rect) -> bool {
    area.width >= WIDE.0 && area.height >= WIDE.1
}

fn headline(state: &State, theme: Theme) -> Line<'_> {
    let status = &state.status;
    let (door, colour) = match (&state.gone, state.known, status.channel) {
        (Some(_), ..) => ("EDGE GONE, trying on", Color::Red),
        (None, false, _) => ("looking for the edge", Color::Yellow),
        (None, true, channel) if !channel.open => ("DOOR CLOSED", Color::Red),
        (None, true, channel) if channel.connected => ("open, connected", Color::Green),
        (None, true, _) => ("open, not connected", Color::Yellow),
    };
    let waiting = status
        .waiting
        .map_or_else(|| "?".to_owned(), |n| n.to_string());
    Line::from(vec![
        Span::styled(
            format!("● {door}"),
            theme.tone(colour).patch(Theme::strong()),
        ),
        Span::styled(format!("  mode {}", status.mode.as_str()), Theme::strong()),
        Span::raw(format!("  {waiting} waiting  {} calls", status.calls.len())),
        Span::raw(format!("  {}", status.intention.as_str())),
    ])
}

fn list(
    frame: &mut Frame<'_>,
    state: &State,
    theme: Theme,
    pane: Pane,
    area: Rect,
    now: Timestamp,
) {
    let (name, rows): (_, Vec<Line<'_>>) = match pane {
        Pane::Inbox => (
            "1 Inbox",
            state
                .items
                .iter()
                .map(|item| item_row(state, item, theme, now))
                .collect(),
        ),
        Pane::Now => (
            "2 Now",
            state
                .busy
                .iter()
                .map(|busy| busy_row(busy, theme))
                .collect(),
        ),
        Pane::Receipts => (
            "3 Receipts",
            state
                .receipts
                .iter()
                .map(|it| receipt_row(it, theme))
                .collect(),
        ),
    };
    let focused = state.pane == pane;
    let title = match focused {
        true => format!("▶ {name} ({}) ", rows.len()),
        false => format!("{name} ({}) ", rows.len()),
    };
    let block = theme.block(title, focused, is_wide(frame.area()));
    let chosen = Style::new().add_modifier(match focused {
        true => Modifier::REVERSED,
        false => Modifier::UNDERLINED,
    });
    let rows = rows.into_iter().map(ListItem::new);
    let list = List::new(rows).block(block).highlight_style(chosen);
    let mut place = ListState::default().with_selected(state.chosen(pane));
    frame.render_stateful_widget(list, area, &mut place);
}

fn item_row<'a>(state: &State, item: &'a Item, theme: Theme, now: Timestamp) -> Line<'a> {
    let sign = match (state.is_pending(&item.id), item.kind) {
        (true, _) => "… ",
        (false, Kind::Question) => "? ",
        (false, Kind::Approval) => "! ",
    };
    Line::from(vec![
        Span::styled(sign, theme.tone(Color::Yellow)),
        Span::raw(format!("{} ", left(item, now))),
        Span::styled(short(item.tool.as_str()), Theme::strong()),
        Span::raw(" "),
        Span::raw(item.summary.as_str()),
    ])
}

/// The time that an item still waits.
fn left(item: &Item, now: Timestamp) -> String {
    item.expires_at.map_or_else(String::new, |end| {
        let seconds = (end.as_millis() - now.as_millis()).max(0) / 1000;
        format!("{}:{:02}", seconds / 60, seconds % 60)
    })
}

fn busy_row(busy: &Busy, theme: Theme) -> Line<'_> {
    match busy {
        Busy::Call(call) => Line::from(vec![
            Span::styled(
                if call.waiting {
                    "◦ call "
                } else {
                    "• call "
                },
                theme.tone(Color::Cyan),
            ),
            Span::styled(short(call.tool.as_str()), Theme::strong()),
            Span::raw(" "),
            Span::raw(call.summary.as_str()),
        ]),
        Busy::Command(command) => {
            let (sign, colour) = match command.runs() {
                true => ("▸ ", Color::Green),
                false => ("  ", Color::Reset),
            };
            let exit = command.exit_code.filter(|code| *code != 0);
            let exit = exit.map_or_else(String::new, |code| format!(" ({code})"));
            Line::from(vec![
                Span::styled(sign, theme.tone(colour)),
                Span::raw(format!("{}{exit} ", command.status.as_str())),
                Span::raw(command.command.as_str()),
            ])
        }
    }
}

fn receipt_row(receipt: &Receipt, theme: Theme) -> Line<'_> {
    let (sign, colour) = match receipt.state.as_str() {
        "completed" => ("✓", Color::Green),
        "refused" => ("✗", Color::Red),
        "uncertain" => ("?", Color::Magenta),
        "awaiting_owner" => ("!", Color::Yellow),
        _ => ("•", Color::Cyan),
    };
    Line::from(vec![
        Span::styled(sign, theme.tone(colour)),
        Span::raw(format!(" {} ", clock(receipt.created_at.as_str()))),
        Span::styled(short(receipt.tool.as_str()), Theme::strong()),
        Span::raw(" "),
        Span::raw(receipt.summary.as_str()),
    ])
}

/// A tool's name without what all of them have in common.
fn short(tool: &str) -> &str {
    tool.strip_prefix("workspace_").unwrap_or(tool)
}

/// The time of day of a point in time (`2026-11-30T18:00:00.000Z`).
fn clock(time: &str) -> &str {
    time.get(11..19).unwrap_or(time)
}

fn details(frame: &mut Frame<'_>, state: &mut State, theme: Theme, area: Rect, now: Timestamp) {
    let mut block = theme.block("Details ".to_owned(), false, is_wide(frame.area()));
    let inner = block.inner(area);
    let width = usize::from(inner.width).max(1);
    let height = usize::from(inner.height).max(1);
    let from_end = state.followed().is_some();
    let all = state.rows(width, |state| lines(state, now, width)).len();
    state.scroll = state.scroll.min(all.saturating_sub(height));
    let first = match from_end {
        true => all.saturating_sub(height + state.scroll),
        false => state.scroll,
    };
    let last = all.min(first + height);
    if all > height {
        let place = format!(" {}-{last} of {all}: PgUp/PgDn ", first + 1);
        block = block.title(Line::styled(place, theme.tone(Color::Yellow)).right_aligned());
    }
    let shown = state.rows(width, |state| lines(state, now, width));
    let shown: Vec<Line<'_>> = shown[first..last]
        .iter()
        .map(|row| Line::raw(row.as_str()))
        .collect();
    frame.render_widget(Paragraph::new(shown).block(block), area);
}

/// What is told of the chosen thing, where there are so many columns.
fn lines(state: &State, now: Timestamp, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    match state.pane {
        Pane::Inbox => match state.item() {
            Some(item) => item_lines(item, now, width, &mut lines),
            None => lines.push("Nothing waits for you.".to_owned()),
        },
        Pane::Now => match state.running() {
            Some(busy) => busy_lines(state, busy, &mut lines),
            None => lines.push("Nothing is under way.".to_owned()),
        },
        Pane::Receipts => match state.receipt() {
            Some(receipt) => receipt_lines(receipt, &mut lines),
            None => lines.push("There are no receipts yet.".to_owned()),
        },
    }
    if state.pane == Pane::Inbox {
        let warnings = state.status.warnings.iter();
        lines.extend(warnings.map(|warning| format!("WARNING: {}", warning.as_str())));
    }
    lines
}

fn fact(lines: &mut Vec<String>, name: &str, value: &str) {
    if !value.is_empty() {
        lines.push(format!("{name}: {value}"));
    }
}

fn item_lines(item: &Item, now: Timestamp, width: usize, lines: &mut Vec<String>) {
    let kind = match item.kind {
        Kind::Approval => "asks to be let go ahead",
        Kind::Question => "asks you",
    };
    lines.push(format!(
        "{} {kind}, for {} yet",
        item.tool.as_str(),
        left(item, now)
    ));
    fact(lines, "session", item.session_id.as_str());
    lines.push(String::new());
    match &item.sides {
        Some(sides) if width >= BESIDE => {
            lines.extend(sides.rest.iter().cloned());
            lines.push("what is there, and what it becomes:".to_owned());
            lines.extend(beside(&sides.old, &sides.new, width));
        }
        Some(_) | None => lines.extend(item.asked.iter().cloned()),
    }
}

fn busy_lines(state: &State, busy: &Busy, lines: &mut Vec<String>) {
    match busy {
        Busy::Call(call) => {
            fact(lines, "tool", call.tool.as_str());
            fact(lines, "about", call.summary.as_str());
            fact(lines, "session", call.session_id.as_str());
            fact(lines, "call", call.call_id.as_str());
            fact(lines, "since", call.started_at.as_str());
            fact(
                lines,
                "waits for you",
                if call.waiting { "yes" } else { "no" },
            );
        }
        Busy::Command(command) => {
            fact(lines, "command", command.command.as_str());
            fact(lines, "in", command.cwd.as_str());
            fact(lines, "session", command.session_id.as_str());
            fact(lines, "status", command.status.as_str());
            if let Some(code) = command.exit_code {
                fact(lines, "exit code", &code.to_string());
            }
            fact(lines, "since", command.started_at.as_str());
            fact(lines, "until", command.finished_at.as_str());
            lines.push(format!("output: {} bytes", command.total_bytes));
            let (output, cut) = state.output_lines();
            if cut {
                lines.push("… what came before is not shown".to_owned());
            }
            lines.extend(output.iter().map(|line| format!("│ {line}")));
        }
    }
}

fn receipt_lines(receipt: &Receipt, lines: &mut Vec<String>) {
    fact(lines, "tool", receipt.tool.as_str());
    fact(lines, "about", receipt.summary.as_str());
    fact(lines, "state", receipt.state.as_str());
    fact(lines, "outcome", receipt.outcome.as_str());
    fact(lines, "decision", receipt.decision.as_str());
    fact(lines, "by", receipt.decided_by.as_str());
    fact(lines, "rule", receipt.policy_id.as_str());
    fact(lines, "begun", receipt.created_at.as_str());
    fact(lines, "ended", receipt.finished_at.as_str());
    fact(lines, "session", receipt.session_id.as_str());
    fact(lines, "hash", receipt.hash.as_str());
    fact(lines, "trace", receipt.trace_id.as_str());
    lines.push(String::new());
    let id = postern_types::printable(&receipt.id);
    lines.push(format!("with its result: postern receipts show {id}"));
}

/// The line that the owner writes on, or what is to be told.
fn message(state: &State, theme: Theme, width: usize) -> Line<'static> {
    let told = |note: &str, bad: bool| {
        let colour = if bad { Color::Red } else { Color::Green };
        Line::styled(note.to_owned(), theme.tone(colour).patch(Theme::strong()))
    };
    let (label, text) = match (&state.note, &state.prompt) {
        // What went wrong with a text is told until the next key.
        (Some(note), _) => return told(&note.text, note.bad),
        (None, Some(Prompt::Mode)) => ("New mode: ", String::new()),
        (None, Some(Prompt::Deny { text, .. })) => ("Why not? ", postern_types::printable(text)),
        (None, Some(Prompt::Answer { text, .. })) => ("Answer: ", postern_types::printable(text)),
        (None, None) => {
            return match &state.gone {
                Some(why) => told(why, true),
                None => Line::default(),
            };
        }
    };
    let room = width.saturating_sub(columns(label) + 1);
    Line::from(vec![
        Span::styled(label, Theme::strong()),
        Span::raw(tail(&text, room).to_owned()),
        Span::styled(" ", Style::new().add_modifier(Modifier::REVERSED)),
    ])
}

/// The keys that do something now, in as few rows as they fit into.
fn keys(state: &State, width: usize, most: usize) -> Vec<String> {
    let (own, common): (&[&str], &[&str]) = match (&state.prompt, state.pane) {
        (Some(Prompt::Mode), _) => (
            &["r read-only", "a ask", "e edit", "f full", "Esc leave it"],
            &[],
        ),
        (Some(Prompt::Deny { .. }), _) => (&["Enter deny, with or without words", "Esc back"], &[]),
        (Some(Prompt::Answer { .. }), _) => (&["Enter answer", "Esc back"], &[]),
        (None, pane) => (
            match (pane, state.item().map(|item| item.kind)) {
                (Pane::Inbox, Some(Kind::Approval)) => {
                    &["a approve", "s …for the session", "d deny"]
                }
                (Pane::Inbox, Some(Kind::Question)) => &["r answer", "d deny"],
                (Pane::Now, _) => &["x stop"],
                (Pane::Inbox, None) | (Pane::Receipts, _) => &[],
            },
            &[
                "q quit",
                "c close door",
                "o open",
                "m mode",
                "Tab list",
                "↑↓ choose",
                "PgDn more",
            ],
        ),
    };
    let mut rows = vec![String::new()];
    for key in own.iter().chain(common) {
        let row = rows.last().map_or("", String::as_str);
        let gap = if row.is_empty() { "" } else { "  " };
        let longer = format!("{row}{gap}{key}");
        let fits = columns(&longer) <= width;
        if !fits && rows.len() == most {
            break;
        }
        match rows.last_mut().filter(|_| fits) {
            Some(row) => *row = longer,
            None => rows.push((*key).to_owned()),
        }
    }
    rows.into_iter()
        .flat_map(|row| wrap(&row, width))
        .take(most)
        .collect()
}
