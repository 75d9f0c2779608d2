//! The service as its callers see it: a client in the same process on the real server.
#![expect(clippy::expect_used, reason = "what is expected is what is tested")]

mod changes;
mod disk;
mod fences;
mod listing;
mod paths;
mod places;
mod project;
mod properties;
mod races;
mod reading;
mod swaps;
mod watch;
