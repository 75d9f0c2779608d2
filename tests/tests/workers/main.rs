//! Exec workers of one ledger: where commands are placed, and what becomes of them when workers, the ledger or the edge go.
#![expect(clippy::expect_used, reason = "tests fail by panicking")]

mod fleet;
mod going;
mod load;
mod network;
mod placing;
mod projects;
mod readiness;
mod restarts;
mod secured;
mod server;
