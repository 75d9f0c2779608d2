//! Contracts of Postern: the gRPC services, the channel's frames and the tool catalogue.
//!
//! Invariants:
//! - The generated code under `generated/` is what the `.proto` files say (a test regenerates and compares).
//! - The catalogue is read from `contract/*.json` alone; no other place spells a tool's schema.
//! - A frame is bounded and checked for duplicate keys before any of it is believed.
//!
//! Deliberately not here: transports, retries, permission.

pub mod catalogue;
pub mod channel;
mod generated;

pub use generated::{DESCRIPTORS, exec, filesystem, identity, ledger, policy};
