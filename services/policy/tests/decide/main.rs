//! Decisions through the real server.
#![expect(clippy::expect_used, reason = "a test fails by panicking")]

mod arguments;
mod commands;
mod following;
mod harness;
mod modes;
mod rules;
