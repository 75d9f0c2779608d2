//! The ledger through its generated client, on the real stores.

#[cfg(test)]
mod begin;
#[cfg(test)]
mod chain;
#[cfg(test)]
mod copy;
#[cfg(test)]
mod durability;
#[cfg(test)]
mod failover;
#[cfg(test)]
mod inbox;
#[cfg(test)]
mod load;
#[cfg(test)]
mod outage;
#[cfg(test)]
mod pages;
#[cfg(test)]
mod reading;
#[cfg(test)]
mod server;
#[cfg(test)]
mod sessions;
#[cfg(test)]
mod support;
#[cfg(test)]
mod takeover;
