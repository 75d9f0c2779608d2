//! `postern watch`: inbox, calls, commands and receipts of a running edge live in a terminal, through the owner API.
//!
//! The main thread draws and reads keys and does nothing else; what asks the edge runs on threads of its own ([`feed`]).

mod feed;
mod model;
mod screen;
mod state;
mod text;
mod view;
#[cfg(test)]
mod view_tests;

use std::{
    env,
    sync::mpsc::{RecvTimeoutError, TryRecvError},
    time::{Duration, Instant},
};

use postern_types::Timestamp;
use ratatui::crossterm::event::{self, Event, KeyEventKind};

use self::{
    feed::{Feed, Report},
    screen::Screen,
    state::{Act, State},
    view::Theme,
};
use super::owner;
use crate::{
    cli::{OwnerAccess, Watch},
    error::Error,
};

/// Longest time between a report and its being drawn.
const TICK: Duration = Duration::from_millis(50);
/// Time between two drawings when nothing happens: times that run down are told by the second.
const REDRAW: Duration = Duration::from_secs(1);
/// Keys that are taken in before the next drawing.
const KEYS: usize = 64;
/// Longest wait, at the end, for what was decided to be carried out.
const LEAVING: Duration = Duration::from_secs(3);

/// Runs `postern watch`.
pub(crate) fn run(arguments: &Watch, json: bool) -> Result<(), Error> {
    if json {
        return Err(Error::Usage(
            "`postern watch` draws on a terminal and prints no JSON; use `postern inbox --json`"
                .to_owned(),
        ));
    }
    // A wrong directory is told at once; an edge that goes later is waited for.
    let access = OwnerAccess {
        data_dir: Some(owner::directory(&arguments.access)?),
    };
    screen::demand_terminal()?;
    owner::owner_api(&access)?;
    let mut screen = Screen::take()?;
    let feed = Feed::start(&access)?;
    let theme = Theme {
        colours: env::var_os("NO_COLOR").is_none_or(|set| set.is_empty()),
    };
    let mut state = State::new();
    let ended = show(&mut screen, &feed, &mut state, theme);
    let left = finish(&feed, &mut state);
    drop(screen);
    ended.and(left)
}

/// Draws and takes in keys until the owner wants no more.
fn show(screen: &mut Screen, feed: &Feed, state: &mut State, theme: Theme) -> Result<(), Error> {
    let failed = |problem| Error::failed("the terminal is gone", problem);
    let mut followed = None;
    loop {
        let drawn = Instant::now();
        screen
            .terminal
            .draw(|frame| view::draw(frame, state, theme, Timestamp::now()))
            .map_err(failed)?;
        loop {
            let reports = take_in(feed, state)?;
            let target = state.followed().map(|command| command.command_id.clone());
            if target != followed {
                let wanted = state.followed();
                let wanted = wanted.map(|it| (it.command_id.clone(), it.total_bytes));
                if feed.follow(wanted) {
                    followed = target;
                }
            }
            if reports == Reports::Stop {
                return Ok(());
            }
            if event::poll(TICK).map_err(failed)? {
                match keys(feed, state).map_err(failed)? {
                    true => return Ok(()),
                    false => break,
                }
            }
            if reports == Reports::Some || drawn.elapsed() >= REDRAW {
                break;
            }
        }
    }
}

/// What came of the threads' reports.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Reports {
    None,
    Some,
    Stop,
}

fn take_in(feed: &Feed, state: &mut State) -> Result<Reports, Error> {
    let mut came = Reports::None;
    loop {
        match feed.reports.try_recv() {
            Ok(Report::Stop) => return Ok(Reports::Stop),
            Ok(report) => {
                state.report(report, Instant::now());
                came = Reports::Some;
            }
            Err(TryRecvError::Empty) => return Ok(came),
            Err(TryRecvError::Disconnected) => {
                return Err(Error::Failed("what asks the edge has ended".to_owned()));
            }
        }
    }
}

/// Takes in what was typed; true when the owner wants no more.
fn keys(feed: &Feed, state: &mut State) -> std::io::Result<bool> {
    for _ in 0..KEYS {
        let act = match event::read()? {
            Event::Key(key) if key.kind == KeyEventKind::Press => state.key(key, Instant::now()),
            Event::Paste(text) => {
                state.paste(&text);
                Act::Draw
            }
            // A new size is drawn like anything else.
            Event::Key(_)
            | Event::Mouse(_)
            | Event::FocusGained
            | Event::FocusLost
            | Event::Resize(..) => Act::Draw,
        };
        match act {
            Act::Draw => {}
            Act::Quit => return Ok(true),
            Act::Wish(wish) => {
                let taken = feed.wish(wish.clone());
                state.handed_over(wish, taken);
            }
        }
        if !event::poll(Duration::ZERO)? {
            break;
        }
    }
    Ok(false)
}

/// Waits for what was decided to be carried out.
fn finish(feed: &Feed, state: &mut State) -> Result<(), Error> {
    let end = Instant::now() + LEAVING;
    while !state.pending.is_empty() {
        match feed
            .reports
            .recv_timeout(end.saturating_duration_since(Instant::now()))
        {
            Ok(Report::Done {
                failure: Some(why), ..
            }) => return Err(Error::Failed(why)),
            Ok(report) => state.report(report, Instant::now()),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                return Err(Error::Failed(
                    "the edge did not say whether your last decision was carried out; look with `postern inbox`"
                        .to_owned(),
                ));
            }
        }
    }
    Ok(())
}
