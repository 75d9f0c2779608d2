//! One workspace as the host sees it: its channel, the calls that its edge works on, and those that wait for their turn.
//!
//! A lane holds up no other: each has its own queue towards its own socket, and its lock is never held over an `.await`.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use postern_kit::Failure;
use postern_proto::channel::close;
use postern_types::ErrorCode;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch},
    time::Instant,
};
use tokio_tungstenite::tungstenite::Utf8Bytes;

use crate::{access::AgentToken, config::Limits, pending::PendingCall};

/// Lanes kept at most before those that nobody uses are forgotten.
const MAX_IDLE_LANES: usize = 1024;

/// Whether the workspace can be reached.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Presence {
    /// It has a channel.
    Open,
    /// It has had none since then, or since the host started.
    Lost(Instant),
}

/// Why a channel is closed from this side.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Close {
    pub(crate) code: u16,
    pub(crate) reason: String,
}

impl Close {
    pub(crate) fn new(code: u16, reason: impl Into<String>) -> Self {
        Self {
            code,
            reason: reason.into(),
        }
    }
}

/// A call on its way: sent, or to be sent as soon as there is a channel. It keeps its turn until it is answered, since the
/// edge works on it whether or not anybody still waits.
pub(crate) struct Flight {
    pub(crate) session_id: String,
    pub(crate) frame: Utf8Bytes,
    pub(crate) call: Arc<PendingCall>,
    /// Who asked. On another channel it is sent again only while the token is valid.
    pub(crate) token: Arc<AgentToken>,
    pub(crate) turn: OwnedSemaphorePermit,
}

/// The lane's end of an open channel.
struct Attached {
    number: u64,
    outgoing: mpsc::Sender<Utf8Bytes>,
    closing: oneshot::Sender<Close>,
}

/// The channel's end. When it is dropped the channel is gone, however it ended.
pub(crate) struct Attachment {
    lane: Arc<Lane>,
    number: u64,
    pub(crate) outgoing: mpsc::Receiver<Utf8Bytes>,
    pub(crate) closing: oneshot::Receiver<Close>,
}

impl Drop for Attachment {
    fn drop(&mut self) {
        self.lane.detach(self.number);
    }
}

#[derive(Default)]
struct State {
    channel: Option<Attached>,
    /// At most `Limits::in_flight`, in the order of their first sending.
    flights: Vec<Flight>,
}

pub(crate) struct Lane {
    limits: Limits,
    turns: Arc<Semaphore>,
    waiting: AtomicUsize,
    presence: watch::Sender<Presence>,
    state: Mutex<State>,
}

impl Lane {
    fn new(limits: Limits, since: Instant) -> Self {
        Self {
            limits,
            turns: Arc::new(Semaphore::new(limits.in_flight)),
            waiting: AtomicUsize::new(0),
            presence: watch::Sender::new(Presence::Lost(since)),
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change under the lock is one step, so a panic elsewhere leaves nothing half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn presence(&self) -> watch::Receiver<Presence> {
        self.presence.subscribe()
    }

    /// Waits for a channel, for as long as the contract lets a call wait.
    ///
    /// # Errors
    /// `UNAVAILABLE` when there has been none for that long.
    pub(crate) async fn reach(&self) -> Result<(), Failure> {
        let mut presence = self.presence();
        loop {
            let since = match *presence.borrow_and_update() {
                Presence::Open => return Ok(()),
                Presence::Lost(since) => since,
            };
            tokio::select! {
                biased;
                _ = presence.changed() => {}
                () = tokio::time::sleep_until(since + self.limits.channel_wait) => return Err(out_of_reach()),
            }
        }
    }

    /// Waits for one of the workspace's turns, in order.
    ///
    /// # Errors
    /// `BUSY` when too many wait already, or none came in time.
    pub(crate) async fn turn(&self) -> Result<OwnedSemaphorePermit, Failure> {
        let turns = Arc::clone(&self.turns);
        if let Ok(turn) = Arc::clone(&turns).try_acquire_owned() {
            return Ok(turn);
        }
        let _place = Place::take(&self.waiting, self.limits.waiting)?;
        match tokio::time::timeout(self.limits.turn_wait, turns.acquire_owned()).await {
            Ok(Ok(turn)) => Ok(turn),
            Ok(Err(_)) | Err(_) => Err(busy(self.limits.turn_wait)),
        }
    }

    /// Sends a call, now or on the next channel.
    pub(crate) fn submit(&self, flight: Flight) {
        let mut state = self.state();
        let frame = flight.frame.clone();
        state.flights.push(flight);
        self.send(&mut state, frame);
    }

    fn send(&self, state: &mut State, frame: Utf8Bytes) {
        let Some(channel) = &state.channel else {
            return;
        };
        let sent = channel.outgoing.try_send(frame);
        // Only answers to calls that were not yet read can fill the queue.
        if matches!(sent, Err(mpsc::error::TrySendError::Full(_))) {
            let close = Close::new(close::POLICY_VIOLATION, "answers without calls");
            self.let_go(state, close);
        }
    }

    /// Closes the channel from this side. From here on the workspace has none.
    fn let_go(&self, state: &mut State, close: Close) {
        if let Some(channel) = state.channel.take() {
            let _gone = channel.closing.send(close);
            self.presence.send_replace(Presence::Lost(Instant::now()));
        }
    }

    /// The call that a result answers, if it waits for one. Its turn is free when it is dropped.
    pub(crate) fn take(&self, session_id: &str, call_id: &str) -> Option<Flight> {
        let mut state = self.state();
        let index = state.flights.iter().position(|flight| {
            flight.session_id == session_id && flight.call.key.call_id == call_id
        })?;
        Some(state.flights.remove(index))
    }

    /// A new channel takes over, unless one that was let in after it has done so: between being let in and this, channels may
    /// overtake each other. What was not answered is sent again on it, with the same ids and in the same order.
    pub(crate) fn attach(self: &Arc<Self>, number: u64) -> Attachment {
        // Every frame in the queue is of a flight, so twice their number is room enough for an edge that plays by the rules.
        let (outgoing, queue) = mpsc::channel(2 * self.limits.in_flight);
        let (closing, closed) = oneshot::channel();
        let mut state = self.state();
        let attached = Attached {
            number,
            outgoing,
            closing,
        };
        let is_newest = state
            .channel
            .as_ref()
            .is_none_or(|other| other.number < number);
        let older = if is_newest {
            state.channel.replace(attached)
        } else {
            Some(attached)
        };
        if let Some(older) = older {
            let _gone = older
                .closing
                .send(Close::new(close::SUPERSEDED, "superseded"));
        }
        if is_newest {
            let frames: Vec<_> = state
                .flights
                .iter()
                .map(|flight| flight.frame.clone())
                .collect();
            self.presence.send_replace(Presence::Open);
            for frame in frames {
                self.send(&mut state, frame);
            }
        }
        Attachment {
            lane: Arc::clone(self),
            number,
            outgoing: queue,
            closing: closed,
        }
    }

    /// The channel of that number is gone. A newer one stays.
    fn detach(&self, number: u64) {
        let mut state = self.state();
        if state
            .channel
            .as_ref()
            .is_some_and(|channel| channel.number == number)
        {
            state.channel = None;
            self.presence.send_replace(Presence::Lost(Instant::now()));
        }
    }

    /// Who asked for what is not answered, each token once.
    pub(crate) fn tokens(&self) -> Vec<Arc<AgentToken>> {
        let state = self.state();
        let mut tokens: Vec<Arc<AgentToken>> = Vec::new();
        for flight in &state.flights {
            if tokens.iter().all(|token| token.id() != flight.token.id()) {
                tokens.push(Arc::clone(&flight.token));
            }
        }
        tokens
    }

    /// Takes away what a token asked for and is not answered.
    pub(crate) fn give_up(&self, token_id: &str) -> Vec<Flight> {
        let mut state = self.state();
        let flights = &mut state.flights;
        flights
            .extract_if(.., |flight| flight.token.id() == token_id)
            .collect()
    }

    /// Calls that wait for their turn.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Calls that were sent and are not answered.
    #[cfg(test)]
    pub(crate) fn in_flight(&self) -> usize {
        self.state().flights.len()
    }

    fn is_idle(&self) -> bool {
        let state = self.state();
        let lost = match *self.presence.borrow() {
            Presence::Open => false,
            Presence::Lost(since) => since.elapsed() > self.limits.channel_wait,
        };
        lost && state.flights.is_empty()
    }
}

/// A place among those that wait for a turn.
struct Place<'a>(&'a AtomicUsize);

impl<'a> Place<'a> {
    fn take(waiting: &'a AtomicUsize, limit: usize) -> Result<Self, Failure> {
        let place = Self(waiting);
        if waiting.fetch_add(1, Ordering::Relaxed) < limit {
            return Ok(place);
        }
        Err(Failure::new(
            ErrorCode::Busy,
            format!(
                "{limit} calls of this workspace wait already. Try again when some have been answered."
            ),
        ))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn busy(waited: Duration) -> Failure {
    Failure::new(
        ErrorCode::Busy,
        format!(
            "The workspace is busy with other calls; this one waited {} s for its turn and was not sent. Try again.",
            waited.as_secs()
        ),
    )
}

fn out_of_reach() -> Failure {
    Failure::new(
        ErrorCode::Unavailable,
        "The workspace is not connected. Its owner may have closed the channel; the call can be sent again with the same id.",
    )
}

/// Every workspace that a channel or a call has named.
pub(crate) struct Lanes {
    limits: Limits,
    started: Instant,
    lanes: Mutex<HashMap<String, Arc<Lane>>>,
}

impl Lanes {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            started: Instant::now(),
            lanes: Mutex::default(),
        }
    }

    /// The lane of a workspace.
    pub(crate) fn of(&self, workspace_id: &str) -> Arc<Lane> {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lane) = lanes.get(workspace_id) {
            return Arc::clone(lane);
        }
        if lanes.len() >= MAX_IDLE_LANES {
            // A lane that only this table holds is used by nobody.
            lanes.retain(|_, lane| Arc::strong_count(lane) > 1 || !lane.is_idle());
        }
        let lane = Arc::new(Lane::new(self.limits, self.started));
        lanes.insert(workspace_id.to_owned(), Arc::clone(&lane));
        lane
    }
}

#[cfg(test)]
mod tests;
