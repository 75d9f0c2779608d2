//! Ledger service: durable receipts in a hash chain.
//!
//! Every call that may have an effect leaves events here: that it waits for the owner, what he decided, that it executes,
//! how it ended. Events are appended to one chain a workspace and never rewritten; a receipt is the fold of its events.
//!
//! Invariants:
//! - What an answer says is on disk before the answer is sent, except for recorded reading calls.
//! - Of all requests to begin a call with the same ids, exactly one is told that it started.
//! - Nothing of an incarnation that a later one has followed changes anything.
//! - Each event's hash covers its content, the digests of what is stored beside it and the hash before it.
//! - A batch is on disk as a whole or not at all, and a failed one leaves nothing behind in memory.
//! - The end of an exec worker's lease is final, and durable before anybody acts on it.
//! - Of all ledgers on one database one writes, and none adds to a chain that it has not seen the end of.
//! - On a server that lacks what was acknowledged nothing is written until its owner has accepted that.
//!
//! Deliberately not here: what a call does, whether it may, and when waiting ends (the edge calls, the ledger records).

mod command;
mod copy;
mod decide;
mod entries;
mod error;
mod event;
#[cfg(feature = "fault-points")]
mod fault_points;
mod fold;
mod grpc;
mod known;
mod lead;
mod lease;
mod observe;
mod page;
mod pending;
mod postgres;
mod reader;
mod receipt;
mod service;
mod sqlite;
mod store;
mod verify;
mod wire;
mod workers;
mod writer;

pub use copy::{Copied, Progress, copy};
pub use error::{Apart, Error, Lost};
#[cfg(feature = "fault-points")]
pub use fault_points::ALL as FAULT_POINTS;
pub use postern_database::{Database, InvalidDatabase};
pub use service::{
    Config, Service, accept_loss, verify_database, verify_file, verify_file_past, walk_file,
};
pub use verify::{Beside, Checkpoint, Fault, Link, Verification, Walker};
