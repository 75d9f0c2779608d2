//! The ledger through its generated client, on the real store.

mod begin;
mod chain;
mod durability;
mod inbox;
mod load;
mod reading;
mod support;
