//! What keys decide, and what they do not.

use pretty_assertions::assert_eq;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde_json::{Value, json};

use super::*;

/// Longer than [`GUARD`].
const LATER: Duration = Duration::from_millis(600);
/// Shorter.
const SOON: Duration = Duration::from_millis(100);

fn item(id: &str, kind: &str) -> Arc<Item> {
    let value = json!({"id": id, "kind": kind, "tool": "workspace_write", "proposal": {}, "question": "Which?"});
    Arc::new(Item::parse(&value).expect("an item"))
}

/// How things are while these items wait.
fn here(items: &[(&str, &str)]) -> Report {
    Report::Here(Box::new(Snapshot {
        items: items.iter().map(|(id, kind)| item(id, kind)).collect(),
        ..Snapshot::default()
    }))
}

fn press(state: &mut State, key: char, now: Instant) -> Act {
    let act = state.key(KeyEvent::new(KeyCode::Char(key), KeyModifiers::NONE), now);
    if let Act::Wish(wish) = &act {
        state.handed_over(wish.clone(), true);
    }
    act
}

fn enter(state: &mut State, now: Instant) -> Act {
    state.key(KeyEvent::new(KeyCode::Enter, KeyModifiers::NONE), now)
}

fn decide(id: &str, body: Value) -> Act {
    let id = id.to_owned();
    Act::Wish(Wish::Decide { id, body })
}

const A: (&str, &str) = ("a", "approval");
const B: (&str, &str) = ("b", "approval");
const Q: (&str, &str) = ("q", "question");

/// A state that has shown these items for long enough.
fn shown(items: &[(&str, &str)]) -> (State, Instant) {
    let (mut state, now) = (State::new(), Instant::now());
    state.report(here(items), now);
    (state, now + LATER)
}

#[test]
fn a_key_decides_on_the_chosen_item() {
    let (mut state, now) = shown(&[A, B]);
    let approve = json!({"decision": "approve"});
    assert_eq!(press(&mut state, 'j', now), Act::Draw);
    assert_eq!(press(&mut state, 'a', now), decide("b", approve));
    // Once is enough.
    assert_eq!(press(&mut state, 'a', now), Act::Draw);
    assert_eq!(press(&mut state, 'k', now), Act::Draw);
    let session = json!({"decision": "approve_session"});
    assert_eq!(press(&mut state, 's', now), decide("a", session));
}

#[test]
fn what_comes_and_goes_above_moves_nothing() {
    let (mut state, now) = shown(&[A, B]);
    press(&mut state, 'j', now);
    state.report(here(&[Q, A, B]), now);
    assert_eq!(state.chosen(Pane::Inbox), Some(2));
    state.report(here(&[B]), now);
    assert_eq!(
        press(&mut state, 'a', now),
        decide("b", json!({"decision": "approve"}))
    );
}

#[test]
fn an_item_that_takes_anothers_place_is_not_decided_by_a_key_for_that() {
    let (mut state, now) = shown(&[A, B]);
    // The first is over, just as its key is pressed.
    state.report(here(&[B]), now);
    assert_eq!(press(&mut state, 'a', now + SOON), Act::Draw);
    assert!(state.note.as_ref().is_some_and(|note| note.bad));
    // A key that was too early counts the time from it.
    assert_eq!(press(&mut state, 'a', now + GUARD), Act::Draw);
    let approved = press(&mut state, 'a', now + LATER + LATER);
    assert_eq!(approved, decide("b", json!({"decision": "approve"})));
}

#[test]
fn a_new_item_is_not_decided_before_it_can_have_been_seen() {
    let (mut state, now) = shown(&[A]);
    state.report(here(&[A, B]), now);
    press(&mut state, 'j', now + SOON);
    assert_eq!(press(&mut state, 'a', now + SOON), Act::Draw);
    let (mut state, now) = (State::new(), Instant::now());
    state.report(here(&[A]), now);
    assert_eq!(press(&mut state, 'a', now + SOON), Act::Draw);
    assert_eq!(press(&mut state, 'd', now + SOON), Act::Draw);
    assert_eq!(state.prompt, None);
}

#[test]
fn a_key_that_is_held_down_decides_once() {
    let (mut state, mut now) = shown(&[A, B]);
    let mut wishes = Vec::new();
    for _ in 0..100 {
        if let Act::Wish(wish) = press(&mut state, 'a', now) {
            let done = Report::Done {
                wish: wish.clone(),
                failure: None,
            };
            state.report(done, now);
            wishes.push(wish);
        }
        now += SOON;
    }
    assert_eq!(wishes.len(), 1, "{wishes:?}");
    assert_eq!(state.items.len(), 1);
}

#[test]
fn a_denial_has_words_and_keeps_to_its_item() {
    let (mut state, now) = shown(&[A, B]);
    press(&mut state, 'd', now);
    for key in "no q".chars() {
        press(&mut state, key, now);
    }
    state.paste("a\r\nb");
    state.report(here(&[B, A]), now);
    let denied = json!({"decision": "deny", "answer": "no qa\nb"});
    assert_eq!(enter(&mut state, now), decide("a", denied));
    press(&mut state, 'd', now + LATER);
    state.report(here(&[B]), now);
    assert_eq!(state.prompt, None, "what it was for is over");
    assert!(state.note.as_ref().is_some_and(|note| note.bad));
}

#[test]
fn pasted_text_is_no_key() {
    let (mut state, _) = shown(&[A]);
    state.paste("aaaa\rq");
    assert_eq!((state.prompt, state.pending), (None, Vec::new()));
}

#[test]
fn a_question_is_answered_with_words_that_outlast_a_failure() {
    let (mut state, now) = shown(&[Q]);
    assert_eq!(press(&mut state, 'a', now), Act::Draw);
    assert!(state.note.as_ref().is_some_and(|note| note.bad));
    press(&mut state, 'r', now);
    assert_eq!(enter(&mut state, now), Act::Draw, "an answer needs words");
    press(&mut state, 'r', now);
    press(&mut state, 'x', now);
    let Act::Wish(wish) = enter(&mut state, now) else {
        panic!("no answer");
    };
    state.handed_over(wish.clone(), true);
    assert!(state.is_pending("q"));
    let failure = Some("it does not answer\u{1b}[2J".to_owned());
    state.report(Report::Done { wish, failure }, now);
    let text = "x".to_owned();
    assert_eq!(
        state.prompt,
        Some(Prompt::Answer {
            id: "q".to_owned(),
            text
        })
    );
    let note = state.note.expect("a note");
    assert_eq!(
        (note.text.as_str(), note.bad),
        ("it does not answer\\u{1b}[2J", true)
    );
}

#[test]
fn nothing_is_done_while_the_edge_is_gone() {
    let (mut state, now) = shown(&[A]);
    state.report(Report::Gone("gone".to_owned()), now);
    for key in "asdrxmoc".chars() {
        assert_eq!(press(&mut state, key, now), Act::Draw, "{key}");
        assert_eq!(state.prompt, None);
    }
    state.report(here(&[A]), now);
    assert_eq!(press(&mut state, 'c', now), Act::Wish(Wish::Open(false)));
    press(&mut state, 'm', now);
    let mode = Wish::Mode(postern_types::Mode::Edit);
    assert_eq!(press(&mut state, 'e', now), Act::Wish(mode));
}

#[test]
fn only_a_running_command_is_stopped_and_its_output_is_kept_in_bounds() {
    let command = |id: &str, status: &str| Command {
        command_id: id.to_owned(),
        status: Shown::from(status),
        ..Command::default()
    };
    let (mut state, now) = (State::new(), Instant::now());
    let snapshot = Snapshot {
        commands: vec![command("e", "exited"), command("r", "running")],
        ..Snapshot::default()
    };
    state.report(Report::Here(Box::new(snapshot)), now);
    let now = now + LATER;
    assert_eq!(press(&mut state, 'x', now), Act::Draw, "not in the inbox");
    press(&mut state, '2', now);
    let chunk = |command_id: &str, text: String| {
        let command_id = command_id.to_owned();
        Report::Output(Chunk {
            command_id,
            text,
            gap: false,
        })
    };
    state.report(chunk("e", "of another".to_owned()), now);
    assert_eq!(state.output_lines().0, [""; 0]);
    state.report(chunk("r", "é\n".repeat(OUTPUT_KEPT / 2)), now);
    let (lines, cut) = state.output_lines();
    assert!(cut && lines.len() <= OUTPUT_KEPT / 3 + 1, "{}", lines.len());
    assert!(lines.iter().all(|line| line == "é" || line.is_empty()));
    let stop = Wish::Stop { id: "r".to_owned() };
    assert_eq!(press(&mut state, 'x', now), Act::Wish(stop));
    press(&mut state, 'j', now);
    assert_eq!(press(&mut state, 'x', now), Act::Draw, "it has ended");
}
