//! Identity service. On the host: organizations, workspaces, roles, tokens, launches and conversations. On the edge: what is
//! pinned, and the sessions that were admitted.
//!
//! Invariants:
//! - Of a token only the SHA-256 digest is kept; the secret is told once, to whoever asked for it.
//! - A revoked token is refused, by the process that revoked it, from the moment its revocation is answered, and by others on
//!   the same database when they next look (half a second; 5 s when the database is slow). Whoever watches hears of it.
//! - With an idempotency key a request acts once, whatever number of callers send it at once.
//! - A pin is changed by nothing but an explicit repin; an unreadable pin admits nobody.
//!
//! Deliberately not here: HTTP, channels, and permission of single tools.

pub mod edge;
mod error;
#[cfg(feature = "fault-points")]
mod fault_points;
pub mod host;
mod recent;
pub mod secret;

pub use error::Error;
#[cfg(feature = "fault-points")]
pub use fault_points::ALL as FAULT_POINTS;
pub use postern_database::{Database, InvalidDatabase};
