//! The edge from outside: a scripted host on one side, scripted services on the other.

#![expect(
    clippy::expect_used,
    reason = "a test that cannot go on says why and stops"
)]

mod approvals;
mod channel;
mod diff;
mod effects;
mod host;
mod ledger;
mod order;
mod orphans;
mod reading;
mod real;
mod rig;
mod services;
mod stops;
mod tool_failures;
mod tool_servers;
mod tools;
mod tools_http;
mod undo;
mod undo_resume;
mod undo_sessions;
mod undo_slow;
