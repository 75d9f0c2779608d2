//! The bound on calls in flight.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use postern_kit::{Clock, Failure, metrics};
use postern_proto::catalogue::MAX_IN_FLIGHT;
use postern_types::ErrorCode;

use super::layer::{Inner, Stage};
use crate::{
    call::{Call, Key},
    control::Control,
    reply::Answer,
};

/// How often the same call may be asked for while it runs. Each holds a little memory until the one result is there.
const MAX_ASKED_AGAIN: usize = 8;

/// How often each call was asked for, and its place in the figures.
type Calls = HashMap<Key, (usize, metrics::Entered)>;

/// Calls in flight by their ids. A call asked for again while it runs takes no place of its own.
#[derive(Debug)]
pub(super) struct InFlight {
    calls: Arc<Mutex<Calls>>,
    control: Control,
    clock: Clock,
}

impl InFlight {
    pub(super) fn new(control: Control, clock: Clock) -> Self {
        Self {
            calls: Arc::default(),
            control,
            clock,
        }
    }

    fn enter(&self, call: &Call) -> Result<Place, Failure> {
        let key = call.key();
        let mut calls = lock(&self.calls);
        let count = calls.len();
        match calls.entry(key.clone()) {
            Entry::Occupied(mut entry) if entry.get().0 <= MAX_ASKED_AGAIN => {
                entry.get_mut().0 += 1;
            }
            Entry::Vacant(entry) if count < MAX_IN_FLIGHT => {
                entry.insert((1, metrics::CALLS_IN_FLIGHT.enter()));
                self.control.enter(call, self.clock.now());
            }
            Entry::Occupied(_) | Entry::Vacant(_) => {
                return Err(Failure::new(
                    ErrorCode::Busy,
                    "This workspace has as many calls in flight as it may. Wait for one to end, then send this call again.",
                )
                .with("limit", MAX_IN_FLIGHT));
            }
        }
        Ok(Place {
            key,
            calls: Arc::clone(&self.calls),
            control: self.control.clone(),
        })
    }
}

/// A poisoned lock holds a map that is whole: nothing under it can panic halfway.
fn lock(calls: &Mutex<Calls>) -> MutexGuard<'_, Calls> {
    calls.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The place of one call, given back when dropped.
#[derive(Debug)]
struct Place {
    key: Key,
    calls: Arc<Mutex<Calls>>,
    control: Control,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut calls = lock(&self.calls);
        if let Some((count, _)) = calls.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                calls.remove(&self.key);
                self.control.leave_flight(&self.key);
            }
        }
    }
}

impl Stage<Call> for InFlight {
    type Inner = Call;

    async fn handle<I: Inner<Call>>(&self, call: Call, inner: I) -> Answer {
        let _place = self.enter(&call)?;
        inner.answer(call).await
    }
}
