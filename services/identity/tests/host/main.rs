//! The host's identity through its real server.
#![expect(clippy::expect_used, reason = "a test fails by panicking")]

mod away;
mod conversations;
mod founding;
mod harness;
mod launches;
mod migration;
mod recovery;
mod revoked_launches;
mod shared;
mod tokens;
mod workspaces;
