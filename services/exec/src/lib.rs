//! Exec worker: commands with a terminal, a spool and a process tree (CONTRACT.md, section 3).
//!
//! A *worker* is one process that takes commands of one project. Around each command is a *wrapper*, a small process of its
//! own ([`wrapper_main`]) that starts the shell, keeps hold of everything the shell starts, and ends it. One wrapper waits
//! ready, so that a command starts at once. A thread of the worker carries the command's output into the *spool* on disk,
//! where every worker can read it, now and after this one is gone.
//!
//! A *program* is the owner's, not an agent's: it is spoken to by pipes for as long as a stream lives, in the same wrapper and
//! sandbox, and nothing of it is spooled.
//!
//! Invariants:
//! - A receipt starts a command at most once, whichever worker is asked and however often: its directory in the spool is
//!   made once. A start that was looked for and not found can never happen afterwards.
//! - An end is told only once all output before it can be read.
//! - What a command started is found and ended, whatever sessions and groups it made; a worker's end is the end of its
//!   commands.
//! - A command has no handle but its three, and no variable that is hidden.
//! - A command runs confined as the worker says, or not at all.
//! - What cannot be known is told as unknown: a command whose worker died is `lost`.
//! - The first end that was noted of a command stays. A worker whose lease has lapsed ends its commands, which are `lost`.
//!
//! Deliberately not here: who may run what, approvals, receipts, the placement of commands on workers. A worker only tells a
//! ledger that it is there.

mod carrier;
mod command;
mod config;
mod error;
#[cfg(feature = "fault-points")]
mod fault_points;
mod ground;
mod grpc;
mod lease;
mod limits;
mod pool;
mod program;
mod readiness;
pub mod sandbox;
mod service;
mod spool;
mod terminal;
mod tree;
mod wire;
mod wrapper;
mod wrappers;

pub use config::{Config, TELEMETRY_SECRETS};
pub use error::{Ended, Error};
#[cfg(feature = "fault-points")]
pub use fault_points::ALL as FAULT_POINTS;
pub use grpc::Adapter;
pub use lease::Registration;
pub use limits::{Controller, Limits};
pub use service::{Load, Service};
pub use wrapper::wrapper_main;

/// For the fuzz targets.
#[cfg(any(test, fuzzing))]
pub mod fuzzing {
    pub use crate::spool::fuzzing::check_pages;
}
