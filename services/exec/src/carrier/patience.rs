//! What is done when the wrapper does not end a command whose time is over.

use std::time::{Duration, Instant};

use super::KILL_AFTER;
use crate::{
    command::Link,
    wrapper::{GRACE, KILL_LIMIT},
};

/// What is done when the wrapper does not end a command whose time is over.
pub(super) struct Patience {
    wake: Option<Instant>,
    kill: Option<Instant>,
}

impl Patience {
    pub(super) fn new(wake_after: Duration, timeout: Duration) -> Self {
        let now = Instant::now();
        let kill = now + timeout + GRACE + KILL_LIMIT + KILL_AFTER;
        Self {
            wake: Some(kill.min(now + wake_after)),
            kill: Some(kill),
        }
    }

    pub(super) fn next_instant(&self) -> Option<Instant> {
        self.wake.or(self.kill)
    }

    /// Wakes the wrapper when it is time; tells, once, when it is to be killed.
    pub(super) fn is_over(&mut self, link: &Link) -> bool {
        let now = Instant::now();
        if self.wake.take_if(|at| *at <= now).is_some() {
            link.handle.wake();
        }
        self.kill.take_if(|at| *at <= now).is_some()
    }
}
