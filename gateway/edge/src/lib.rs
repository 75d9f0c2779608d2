//! The owner's instance: it opens the channel to the agent host, checks every call and hands it to the services.
//!
//! Invariants:
//! - A call passes the layers of `stack` in one order, and that order is the security argument.
//! - No effect without a durable executing receipt, and no answer to it before its result is durable.
//! - An effect is done once for its (workspace, session, id); what cannot be known is said to be uncertain.
//! - The owner's wish wins: mode and channel are looked at again right before an effect starts.
//! - The channel token goes to the configured host alone, and is never written anywhere.
//!
//! Deliberately not here: any work of a service. The edge knows services through generated clients only.

mod args;
mod call;
mod channel;
mod clients;
mod config;
mod control;
mod edge;
#[cfg(feature = "fault-points")]
mod fault_points;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod left_behind;
pub mod owner;
mod owner_tools;
mod reply;
mod stack;
mod stops;
mod summary;
mod tools;
mod undo;
mod workers;

pub use clients::Services;
pub use config::{Config, Sessions, Token};
pub use control::{CallInFlight, ChannelState, Control, Sandbox, Status};
pub use edge::{Edge, End, Error, Event};
#[cfg(feature = "fault-points")]
pub use fault_points::ALL as FAULT_POINTS;
pub use owner_tools::{InvalidTools, MAX_TOOL_SERVERS, ToolServer, ToolServerStatus};
pub use workers::{Connect, Ground, workers_of};
