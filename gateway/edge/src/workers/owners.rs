//! Which worker has which command, as far as it is remembered. The spool knows the rest.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Commands that are remembered.
const REMEMBERED: usize = 16_384;

/// Workers by command.
#[derive(Debug, Default)]
pub(super) struct Owners(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    workers: HashMap<String, String>,
    /// The oldest first.
    order: VecDeque<String>,
}

impl Owners {
    /// Remembers who has a command, or was asked to start it.
    pub(super) fn note(&self, command: &str, worker: &str) {
        let mut known = self.known();
        let before = known.workers.insert(command.to_owned(), worker.to_owned());
        if before.is_none() {
            known.order.push_back(command.to_owned());
        }
        if known.order.len() > REMEMBERED
            && let Some(oldest) = known.order.pop_front()
        {
            known.workers.remove(&oldest);
        }
    }

    /// Who has a command.
    pub(super) fn of(&self, command: &str) -> Option<String> {
        self.known().workers.get(command).cloned()
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    #[test]
    fn the_oldest_are_forgotten_and_the_newest_word_counts() {
        let owners = Owners::default();
        owners.note("first", "one");
        owners.note("first", "two");
        assert_eq!(owners.of("first"), Some("two".to_owned()));
        for number in 0..REMEMBERED {
            owners.note(&number.to_string(), "one");
        }
        assert_eq!(owners.of("first"), None);
        assert_eq!(owners.of("0"), Some("one".to_owned()));
        let known = owners.known();
        assert_eq!(known.order.len(), known.workers.len());
    }
}
