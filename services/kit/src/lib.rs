//! What every Postern process shares: transports between services, listeners, failures as gRPC statuses, the root of a
//! project, tasks, clock and telemetry.
//!
//! Invariants:
//! - A client does not know whether its server is in the same process, behind a Unix socket or across a network.
//! - A failure keeps its code of the public contract across every hop.
//! - Every task is named, and joined or aborted at shutdown.
//!
//! Deliberately not here: anything of one service alone.

mod callers;
mod clock;
mod failure;
#[cfg(feature = "fault-points")]
pub mod fault;
pub mod health;
pub mod http;
mod incoming;
mod key;
pub mod listened;
mod machine;
pub mod metrics;
mod problem;
pub mod readiness;
pub mod root;
pub mod serve;
pub mod task;
pub mod telemetry;
pub mod tls;
pub mod trace;
pub mod transport;
mod unheard;

pub use clock::Clock;
pub use failure::{Effect, Failure};
pub use key::{InvalidKey, Key};
pub use machine::boot_id;
pub use problem::Problem;

/// A place where the fault suite may end this process. Nothing at all without the feature `fault-points`.
#[cfg(feature = "fault-points")]
#[macro_export]
macro_rules! fault_point {
    ($point:expr) => {
        $crate::fault::reach($point)
    };
}

/// A place where the fault suite may end this process. Nothing at all without the feature `fault-points`.
#[cfg(not(feature = "fault-points"))]
#[macro_export]
macro_rules! fault_point {
    ($point:expr) => {};
}

/// The table of a crate's fault points: a constant each, and `ALL` of them.
#[cfg(feature = "fault-points")]
#[macro_export]
macro_rules! fault_points {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        $($(#[$doc])* pub(crate) const $name: &str = $text;)*
        /// Every fault point of this crate.
        pub const ALL: &[&str] = &[$($text),*];
    };
}
