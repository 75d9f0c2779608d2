//! Chance that can be repeated.

use std::{
    env,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// The variable that sets the seed.
const SEED: &str = "HARNESS_SEED";

/// A reproducible sequence (splitmix64).
#[derive(Clone, Debug)]
pub struct Seed {
    started: u64,
    state: u64,
}

impl Default for Seed {
    fn default() -> Self {
        Self::new()
    }
}

impl Seed {
    /// From the variable `HARNESS_SEED`, or from the time.
    #[must_use]
    pub fn new() -> Self {
        let chosen = env::var(SEED).ok().and_then(|text| text.parse().ok());
        Self::of(chosen.unwrap_or_else(|| {
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            now.map_or(1, |since| since.as_secs() ^ u64::from(since.subsec_nanos()))
        }))
    }

    /// A given one.
    #[must_use]
    pub const fn of(started: u64) -> Self {
        Self {
            started,
            state: started,
        }
    }

    /// What it started from: given again, it repeats the sequence.
    #[must_use]
    pub const fn started(&self) -> u64 {
        self.started
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A moment before `limit`.
    pub fn moment(&mut self, limit: Duration) -> Duration {
        limit.mul_f64((self.next() % 10_000) as f64 / 10_000.0)
    }

    /// One of several.
    ///
    /// # Panics
    /// When there is none.
    pub fn one_of<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        let number = self.next() % choices.len() as u64;
        &choices[usize::try_from(number).expect("an index fits")]
    }

    /// Another order.
    ///
    /// # Panics
    /// Never: an index fits.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for end in (1..items.len()).rev() {
            let number = self.next() % (end as u64 + 1);
            items.swap(end, usize::try_from(number).expect("an index fits"));
        }
    }
}
