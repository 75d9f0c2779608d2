//! How long to wait before the next attempt: full jitter below an exponential ceiling.

use std::time::Duration;

/// Ceiling of the first wait.
const FIRST: Duration = Duration::from_millis(250);
/// Highest ceiling.
const LAST: Duration = Duration::from_secs(30);
/// Longest wait that a host can ask for with `Retry-After`.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(3600);
/// A channel that served for this long counts as a success, and the next attempts start from the first ceiling.
/// A host that accepts and drops at once is still met with growing waits.
pub(crate) const STEADY: Duration = Duration::from_secs(10);

/// The waits of one edge.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    attempt: u32,
}

impl Backoff {
    /// Starts from the first ceiling again.
    pub(crate) fn reset(&mut self) {
        self.attempt = 0;
    }

    /// The next wait, not shorter than the host asked for. `chance` lies between 0 and 1.
    pub(crate) fn next(&mut self, chance: f64, retry_after: Option<Duration>) -> Duration {
        let ceiling = FIRST
            .saturating_mul(2_u32.saturating_pow(self.attempt))
            .min(LAST);
        self.attempt = self.attempt.saturating_add(1);
        let asked = retry_after.unwrap_or_default().min(LONGEST_RETRY_AFTER);
        ceiling.mul_f64(chance.clamp(0.0, 1.0)).max(asked)
    }
}

/// A random number between 0 and 1. Without a source of randomness the longest wait is taken.
pub(crate) fn chance() -> f64 {
    getrandom::u32().map_or(1.0, |number| f64::from(number) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    #[test]
    fn the_ceiling_doubles_up_to_thirty_seconds() {
        let mut backoff = Backoff::default();
        let waits: Vec<_> = (0..9)
            .map(|_| backoff.next(1.0, None).as_millis())
            .collect();
        assert_eq!(
            waits,
            [250, 500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000]
        );
        for _ in 0..100 {
            backoff.next(1.0, None);
        }
        assert_eq!(backoff.next(0.5, None), LAST / 2);
        backoff.reset();
        assert_eq!(backoff.next(1.0, None), FIRST);
    }

    #[test]
    fn what_the_host_asks_for_is_obeyed_within_reason() {
        let mut backoff = Backoff::default();
        let asked = Duration::from_secs(7);
        assert_eq!(backoff.next(0.0, Some(asked)), asked);
        assert_eq!(
            backoff.next(0.0, Some(Duration::from_secs(u64::MAX))),
            LONGEST_RETRY_AFTER
        );
    }

    #[test]
    fn chance_is_a_fraction() {
        assert!((0..100).all(|_| (0.0..=1.0).contains(&chance())));
    }
}
