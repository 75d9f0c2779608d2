//! End-to-end harness: the real binary, driven from outside as an agent, an owner or the other end of the channel.
//!
//! Invariants:
//! - Nothing of the product is linked in; what a test sees is what a user sees.
//! - Every process that a test starts, and whatever that process starts, carries the test's mark in its environment
//!   and is ended, by its id, when the test's [`World`] goes.
//! - Every wait has a limit, and says what it waited for.
//!
//! The harness builds nothing. It runs `$POSTERN_BIN`, or else the `postern` beside the test executable, which
//! `tests/run` builds first. A missing binary is a failure, never a skipped test.
//!
//! Deliberately not here: fakes of the services. Those are tested beside their own code.
#![expect(
    clippy::expect_used,
    reason = "a harness fails the test that uses it by panicking"
)]

mod agent;
mod alone;
mod apart;
mod authorizing;
mod browser;
pub mod client;
mod edge;
mod exposition;
mod fault;
mod host;
mod http_client;
mod owner;
mod peer;
pub mod process;
mod program;
pub mod proxy;
pub mod raw;
mod seed;
mod stack;
mod stdio;
mod terminal;
mod world;

pub use agent::{Agent, Answer, Era, Fault, Finished};
pub use alone::{Alone, Health, certificates};
pub use apart::{Apart, SERVICES, figures_at};
pub use authorizing::Authorizing;
pub use browser::{Browser, Look};
pub use edge::{
    CHANNEL_TOKEN, EDGE_INTENTION, WORKSPACE, call, edge_arguments, error_code, start_edge,
};
pub use exposition::{Exposition, Family, Sample};
pub use fault::{FaultPoints, Strike};
pub use host::RealHost;
pub use http_client::{Http, NoReply, Reply};
pub use owner::Owner;
pub use peer::{FakeEdge, FakeHost, HostSide};
pub use program::{Ended, Program, binary};
pub use seed::Seed;
pub use stack::{Stack, composed};
pub use stdio::Bridge;
pub use terminal::Terminal;
pub use world::{Door, INTENTION, Ready, World, text_of};

use std::{future::Future, time::Duration};

/// Pause between two looks at a condition that tells nobody when it comes true (a file, a process table).
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// Waits until `look` yields something, at most `limit`.
///
/// # Panics
/// When the limit passes; the message names `what`.
pub async fn wait_for<T, F>(what: &str, limit: Duration, mut look: impl FnMut() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    let waited = tokio::time::timeout(limit, async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    });
    match waited.await {
        Ok(found) => found,
        Err(_) => panic!("waited {limit:?} in vain for {what}"),
    }
}
