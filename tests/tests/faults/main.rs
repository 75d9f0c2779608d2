//! The fault suite: the real program, with fault points compiled in, killed at every step and at any moment, over channels
//! that break and disks that are full. What is checked is seen from outside: that an effect happened at most once, that an
//! answer that was given once is given again to the letter, that receipts say what the disk says, and that nothing is left
//! behind.
//!
//! `tests/faults` builds the program and runs the long form; `tests/run` the short one.
#![expect(clippy::expect_used, reason = "tests fail by panicking")]

mod channel;
mod disk;
mod intention;
mod load;
mod pair;
mod points;
mod rig;
mod strike;
mod trial;
mod undo;

use std::{env, time::Duration};

/// The variable that asks for the long form.
const LONG: &str = "HARNESS_LONG";

/// How much is done.
#[derive(Clone, Copy, Debug)]
struct Budget {
    /// Every point with every kind of call and every blow, as far as the time goes.
    is_long: bool,
    /// Time for that. Every point has had its turn before.
    points: Duration,
    /// Kills at any moment under load.
    waves: u32,
}

fn budget() -> Budget {
    if env::var_os(LONG).is_some_and(|value| value == "1") {
        Budget {
            is_long: true,
            points: Duration::from_secs(420),
            waves: 150,
        }
    } else {
        Budget {
            is_long: false,
            points: Duration::ZERO,
            waves: 12,
        }
    }
}
