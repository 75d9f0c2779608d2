//! The edge from outside: a scripted host on one side, scripted services on the other.

mod approvals;
mod channel;
mod effects;
mod host;
mod ledger;
mod order;
mod orphans;
mod reading;
mod rig;
mod services;
