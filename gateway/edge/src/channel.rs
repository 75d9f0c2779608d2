//! The channel to the agent host: connecting, serving, and connecting again (CONTRACT.md, section 1).

mod backoff;
mod connect;
mod endpoint;
mod session;

pub(crate) use backoff::{Backoff, STEADY, chance};
pub(crate) use connect::{Refusal, Socket, connect};
pub(crate) use endpoint::Endpoint;
pub(crate) use session::{Ended, Serving, serve};
