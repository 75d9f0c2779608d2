//! What the owner holds in his hand: the mode, and whether the channel is open.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use postern_kit::metrics;
use postern_types::{Id, Intention, Mode, Sha256, Timestamp};
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    call::{Call, Key},
    owner_tools::{Following, OwnerTools, ToolServerStatus},
};

/// Warnings that are kept.
const WARNINGS: usize = 16;

/// Where the channel stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ChannelState {
    /// The owner closed it, or the edge has not started or has ended.
    Closed,
    /// A connection is being made.
    Connecting,
    /// Open since then; the host has said ready.
    Connected {
        /// When the host said ready.
        since: Timestamp,
    },
    /// The connection was lost or refused; the next attempt comes by itself.
    Waiting,
}

/// The edge at one moment.
#[derive(Clone, Debug)]
pub struct Status {
    /// Mode in force.
    pub mode: Mode,
    /// Whether the owner lets the channel be open.
    pub open: bool,
    /// Where the channel stands.
    pub channel: ChannelState,
    /// Whether a channel is connected and the host has said ready.
    pub connected: bool,
    /// Calls in flight.
    pub in_flight: usize,
    /// What commands may reach; `None` while the exec worker does not tell.
    pub sandbox: Option<Sandbox>,
    /// What the owner must know, in sentences.
    pub warnings: Vec<String>,
}

/// The sandbox of commands, as the exec worker has it in force.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Sandbox {
    /// `off`, `project` or `required`.
    pub level: String,
    /// Protections that the worker's kernel does not offer, in short names.
    pub missing: Vec<String>,
}

/// A call that is in flight.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CallInFlight {
    /// Session of the call.
    pub session_id: String,
    /// Id of the call.
    pub call_id: String,
    /// Tool of the call.
    pub tool: String,
    /// What it is about, once it has a receipt.
    pub summary: String,
    /// Its receipt, once there is one.
    pub receipt_id: Option<String>,
    /// When it came.
    pub started_at: Timestamp,
    /// Whether it waits for the owner.
    pub waiting: bool,
}

/// What decides whether an effect may start, and a number that changes whenever it does.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Wish {
    pub(crate) mode: Mode,
    pub(crate) open: bool,
    version: u64,
}

#[derive(Debug)]
struct Inner {
    workspace_id: Id,
    intention: Intention,
    host: String,
    incarnation: u64,
    wish: watch::Sender<Wish>,
    channel: watch::Sender<(ChannelState, u64)>,
    in_flight: watch::Sender<Vec<(Key, CallInFlight)>>,
    sandbox: watch::Sender<Option<Sandbox>>,
    warnings: watch::Sender<Vec<String>>,
    leaving: CancellationToken,
    left: OnceLock<Instant>,
    fenced: CancellationToken,
    owner_tools: OnceLock<OwnerTools>,
    undo_turn: Arc<tokio::sync::Mutex<()>>,
}

/// The owner's hold on a running edge. Clones stand for the same edge.
#[derive(Clone, Debug)]
pub struct Control(Arc<Inner>);

impl Control {
    pub(crate) fn new(
        workspace_id: Id,
        intention: Intention,
        host: String,
        incarnation: u64,
        mode: Mode,
    ) -> Self {
        Self(Arc::new(Inner {
            workspace_id,
            intention,
            host,
            incarnation,
            wish: watch::Sender::new(Wish {
                mode,
                open: true,
                version: 0,
            }),
            channel: watch::Sender::new((ChannelState::Closed, 0)),
            in_flight: watch::Sender::default(),
            sandbox: watch::Sender::new(None),
            warnings: watch::Sender::new(Vec::new()),
            leaving: CancellationToken::new(),
            left: OnceLock::new(),
            fenced: CancellationToken::new(),
            owner_tools: OnceLock::new(),
            undo_turn: Arc::default(),
        }))
    }

    /// The turn of undos: of those that are gone on with at the start, and of those that the owner wishes.
    pub(crate) fn undo_turn(&self) -> Arc<tokio::sync::Mutex<()>> {
        Arc::clone(&self.0.undo_turn)
    }

    /// The workspace.
    #[must_use]
    pub fn workspace_id(&self) -> &Id {
        &self.0.workspace_id
    }

    /// The pinned intention.
    #[must_use]
    pub fn intention(&self) -> &Intention {
        &self.0.intention
    }

    /// To whom the channel goes: the agent host's `name:port`.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.0.host
    }

    /// Incarnation of this edge.
    #[must_use]
    pub fn incarnation(&self) -> u64 {
        self.0.incarnation
    }

    /// The mode in force.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.0.wish.borrow().mode
    }

    /// Puts a mode in force, before the next effect starts.
    pub fn set_mode(&self, mode: Mode) {
        self.change(|wish| wish.mode = mode);
    }

    /// Opens or closes the channel. Once closed no further effect starts; running ones end, and their results are kept.
    pub fn set_open(&self, open: bool) {
        self.change(|wish| wish.open = open);
    }

    fn change(&self, change: impl FnOnce(&mut Wish)) {
        self.0.wish.send_if_modified(|wish| {
            let before = *wish;
            change(wish);
            let changed = before != *wish;
            if changed {
                wish.version += 1;
            }
            changed
        });
    }

    /// The edge at this moment.
    #[must_use]
    pub fn status(&self) -> Status {
        let wish = self.wish();
        let channel = self.0.channel.borrow().0;
        Status {
            mode: wish.mode,
            open: wish.open,
            channel,
            connected: matches!(channel, ChannelState::Connected { .. }),
            in_flight: self.0.in_flight.borrow().len(),
            sandbox: self.0.sandbox.borrow().clone(),
            warnings: self.0.warnings.borrow().clone(),
        }
    }

    /// Waits until mode, openness, channel, calls in flight or warnings change, and tells how the edge stands then.
    /// Changes between two calls of this are seen if `seen` is the status that the first one gave.
    pub async fn changed(&self, seen: &Status) -> Status {
        let (mut wish, mut channel, mut in_flight, mut warnings) = (
            self.0.wish.subscribe(),
            self.0.channel.subscribe(),
            self.0.in_flight.subscribe(),
            self.0.warnings.subscribe(),
        );
        // The senders live in `self`, so a wait ends by a change alone.
        tokio::select! {
            _ = wish.wait_for(|wish| (wish.mode, wish.open) != (seen.mode, seen.open)) => {}
            _ = channel.wait_for(|(state, _)| *state != seen.channel) => {}
            _ = in_flight.wait_for(|calls| calls.len() != seen.in_flight) => {}
            _ = warnings.wait_for(|warnings| *warnings != seen.warnings) => {}
        }
        self.status()
    }

    /// Tells the owner something that he must know; the status says it from now on. Only the first few are kept.
    pub fn warn(&self, warning: String) {
        self.0.warnings.send_if_modified(|warnings| {
            let new = warnings.len() < WARNINGS && !warnings.contains(&warning);
            if new {
                warnings.push(warning);
            }
            new
        });
    }

    pub(crate) fn wish(&self) -> Wish {
        *self.0.wish.borrow()
    }

    pub(crate) async fn wait_open(&self, open: bool) {
        let mut wish = self.0.wish.subscribe();
        let _ = wish.wait_for(|wish| wish.open == open).await;
    }

    pub(crate) fn set_channel(&self, state: ChannelState) {
        let is_open = matches!(state, ChannelState::Connected { .. });
        metrics::CHANNELS.set([], is_open.into());
        self.0.channel.send_modify(|(current, generation)| {
            if *current != state {
                *current = state;
                *generation += 1;
            }
        });
    }

    /// A number that is another one for each channel; `None` while none is connected.
    pub(crate) fn connected_generation(&self) -> Option<u64> {
        match *self.0.channel.borrow() {
            (ChannelState::Connected { .. }, generation) => Some(generation),
            (ChannelState::Closed | ChannelState::Connecting | ChannelState::Waiting, _) => None,
        }
    }

    /// The calls in flight, in the order in which they came.
    #[must_use]
    pub fn calls(&self) -> Vec<CallInFlight> {
        let calls = self.0.in_flight.borrow();
        calls.iter().map(|(_, call)| call.clone()).collect()
    }

    /// Follows the calls in flight.
    pub(crate) fn follow_calls(&self) -> watch::Receiver<Vec<(Key, CallInFlight)>> {
        self.0.in_flight.subscribe()
    }

    pub(crate) fn enter(&self, call: &Call, started_at: Timestamp) {
        self.0.in_flight.send_modify(|calls| {
            let entered = CallInFlight {
                session_id: call.session_id.clone(),
                call_id: call.call_id.clone(),
                tool: call.tool.clone(),
                summary: String::new(),
                receipt_id: None,
                started_at,
                waiting: false,
            };
            calls.push((call.key(), entered));
        });
    }

    pub(crate) fn leave_flight(&self, key: &Key) {
        self.0
            .in_flight
            .send_modify(|calls| calls.retain(|(other, _)| other != key));
    }

    /// Notes under which receipt a call goes on, and whether it waits for the owner.
    pub(crate) fn note_receipt(&self, call: &Call, receipt_id: &str, waiting: bool) {
        self.0.in_flight.send_if_modified(|calls| {
            let key = call.key();
            let found = calls.iter_mut().find(|(other, _)| *other == key);
            let Some((_, noted)) = found else {
                return false;
            };
            let is_news =
                noted.waiting != waiting || noted.receipt_id.as_deref() != Some(receipt_id);
            call.summary().clone_into(&mut noted.summary);
            noted.receipt_id = Some(receipt_id.to_owned());
            noted.waiting = waiting;
            is_news
        });
    }

    /// The owner's tool servers; once.
    pub(crate) fn set_owner_tools(&self, tools: OwnerTools) {
        // Only the start of the edge sets them.
        let _once = self.0.owner_tools.set(tools);
    }

    /// Where each of the owner's tool servers stands.
    #[must_use]
    pub fn tools(&self) -> Vec<ToolServerStatus> {
        let started = self.0.owner_tools.get();
        started.map_or_else(Vec::new, OwnerTools::status)
    }

    /// Follows where the owner's tool servers stand.
    pub(crate) fn follow_tools(&self) -> Following {
        let started = self.0.owner_tools.get();
        started.map_or_else(Following::default, OwnerTools::follow)
    }

    /// The digest of how the owner's tool of this name is described now; `None` while there is none.
    pub(crate) fn tool_described(&self, name: &str) -> Option<Sha256> {
        self.0.owner_tools.get()?.described(name)
    }

    /// What the exec worker told with its last sign of life.
    pub(crate) fn set_sandbox(&self, sandbox: Option<Sandbox>) {
        self.0.sandbox.send_replace(sandbox);
    }

    /// Cancelled when the edge ends: whoever waits for the owner stops waiting, and his question stays in the inbox.
    pub(crate) fn leaving(&self) -> &CancellationToken {
        &self.0.leaving
    }

    /// Says that the edge ends, and tells until when running effects have time: `limit` from the first time it is said.
    pub(crate) fn leave(&self, limit: Duration) -> Instant {
        self.0.leaving.cancel();
        *self.0.left.get_or_init(|| Instant::now() + limit)
    }

    /// Cancelled when the ledger says that another edge has taken this workspace over.
    pub(crate) fn fenced(&self) -> &CancellationToken {
        &self.0.fenced
    }

    /// Waits until no call is in flight.
    pub(crate) async fn idle(&self) {
        let mut in_flight = self.0.in_flight.subscribe();
        let _ = in_flight.wait_for(Vec::is_empty).await;
    }
}

#[cfg(test)]
pub(crate) fn test_control(mode: Mode) -> Control {
    Control::new(
        "w".parse().expect("id"),
        "i".parse().expect("intention"),
        "agents.example:443".to_owned(),
        1,
        mode,
    )
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    #[test]
    fn each_change_of_the_wish_is_another_wish() {
        let control = test_control(Mode::Full);
        let before = control.wish();
        control.set_mode(Mode::Full);
        assert_eq!(control.wish(), before);
        control.set_mode(Mode::ReadOnly);
        control.set_mode(Mode::Full);
        assert_eq!(control.mode(), Mode::Full);
        assert_ne!(control.wish(), before);
    }

    #[tokio::test]
    async fn a_change_is_seen_even_when_it_came_before_the_wait() {
        let control = test_control(Mode::Full);
        let seen = control.status();
        control.set_open(false);
        assert!(!control.changed(&seen).await.open);
    }

    #[test]
    fn each_channel_has_its_own_generation() {
        let control = test_control(Mode::Full);
        assert_eq!(control.connected_generation(), None);
        let since = Timestamp::from_millis(1);
        control.set_channel(ChannelState::Connected { since });
        let first = control.connected_generation();
        control.set_channel(ChannelState::Waiting);
        control.set_channel(ChannelState::Connected { since });
        assert!(first.is_some());
        assert_ne!(control.connected_generation(), first);
    }
}
