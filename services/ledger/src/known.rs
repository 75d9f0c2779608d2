//! A set of the keys that may be on record, so that a fresh call needs no look into the database.
//!
//! A Bloom filter: it may say "perhaps" of an unknown key, which costs a query, but never "no" of a known one.

use std::{
    collections::hash_map::RandomState,
    hash::BuildHasher as _,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use crate::receipt::Key;

/// Bits for each key that it is made for: about one false "perhaps" in four hundred.
const BITS_PER_KEY: u64 = 12;
/// Bits set for each key.
const PROBES: u64 = 4;
/// Least size, 128 KiB of bits: a false "perhaps" in a hundred at 100,000 keys.
const MIN_BITS: u64 = 1 << 20;
/// Largest size, 4 MiB: beyond some 3 million keys "perhaps" becomes common and only speed is lost.
const MAX_BITS: u64 = 1 << 25;

/// Keys that may be known. Filled and asked without locks.
#[derive(Debug)]
pub(crate) struct KnownKeys {
    words: Box<[AtomicU64]>,
    hasher: RandomState,
    complete: AtomicBool,
}

impl KnownKeys {
    /// For a store of about `count` keys, with room for as many again. Says "perhaps" to everything until [`Self::complete`].
    pub(crate) fn with_room_for(count: u64) -> Self {
        let bits = count
            .saturating_mul(2 * BITS_PER_KEY)
            .clamp(MIN_BITS, MAX_BITS)
            .next_power_of_two();
        Self {
            words: (0..bits / 64).map(|_| AtomicU64::new(0)).collect(),
            hasher: RandomState::new(),
            complete: AtomicBool::new(false),
        }
    }

    /// Adds a key by its parts.
    pub(crate) fn insert(&self, workspace: &str, session: &str, call: &str) {
        for (word, bit) in self.probes(workspace, session, call) {
            self.words[word].fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// Every key of the store has been added, so "no" may be said from now on.
    pub(crate) fn complete(&self) {
        self.complete.store(true, Ordering::Release);
    }

    /// False only when the key is certainly unknown.
    pub(crate) fn perhaps(&self, key: &Key) -> bool {
        !self.complete.load(Ordering::Acquire)
            || self
                .probes(
                    key.workspace.as_str(),
                    key.session.as_str(),
                    key.call.as_str(),
                )
                .all(|(word, bit)| self.words[word].load(Ordering::Relaxed) & bit != 0)
    }

    fn probes(
        &self,
        workspace: &str,
        session: &str,
        call: &str,
    ) -> impl Iterator<Item = (usize, u64)> {
        let hash = self.hasher.hash_one((workspace, session, call));
        let step = hash.rotate_right(32) | 1;
        let bits = self.words.len() as u64 * 64;
        (0..PROBES).map(move |probe| {
            let bit = hash.wrapping_add(probe.wrapping_mul(step)) & (bits - 1);
            (usize::try_from(bit / 64).unwrap_or(0), 1 << (bit % 64))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(call: usize) -> Key {
        Key {
            workspace: "workspace".parse().expect("id"),
            session: "session".parse().expect("id"),
            call: format!("call-{call}").parse().expect("id"),
        }
    }

    #[test]
    fn known_keys_are_never_denied_and_others_nearly_always() {
        let known = KnownKeys::with_room_for(0);
        assert!(
            known.perhaps(&key(0)),
            "nothing is certain before all keys are in"
        );
        known.complete();
        assert!(!known.perhaps(&key(0)));
        for call in 0..50_000 {
            let key = key(call);
            known.insert(
                key.workspace.as_str(),
                key.session.as_str(),
                key.call.as_str(),
            );
        }
        assert!((0..50_000).all(|call| known.perhaps(&key(call))));
        let mistaken = (50_000..60_000)
            .filter(|call| known.perhaps(&key(*call)))
            .count();
        assert!(mistaken < 100, "{mistaken} of 10,000");
    }
}
