//! The agent host: channel server, call journal, MCP and identity HTTP API.
//!
//! Invariants:
//! - A call with an effect is in the journal before it is sent; a reading call is handed to it before, and not waited for. One (token,
//!   workspace, call id) is one call on the wire however often it is asked.
//! - A call sent again keeps its ids, session and intention.
//! - A workspace has one channel; a channel ends with the token or the launch that opened it, and a call that waits with its token.
//! - A refusal of the host itself (role, size, busy) comes before anything is sent.
//! - No token is in a log, an error or a span.
//!
//! Deliberately not here: who may do what (identity answers that) and what a call does (the edge answers that).

mod access;
mod calls;
mod channel;
mod config;
mod conversations;
mod error;
mod facts;
#[cfg(feature = "fault-points")]
mod fault_points;
mod host;
mod identity;
mod identity_api;
mod journal;
mod lane;
mod mcp;
mod openapi;
mod pending;
mod problem;
#[cfg(test)]
mod tests;
mod tokens;

pub use config::{Config, Limits};
pub use error::Error;
#[cfg(feature = "fault-points")]
pub use fault_points::ALL as FAULT_POINTS;
pub use host::Host;
pub use mcp::CONVERSATION_HEADER;
