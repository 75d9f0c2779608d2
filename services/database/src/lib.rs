//! Databases of services: a SQLite file, or PostgreSQL by URL. Where they are, how connections to them are made and bounded,
//! and how tables are brought to the present schema.
//!
//! Invariants:
//! - What an address, an error or a log line shows holds no password.
//! - Nothing that is asked of PostgreSQL waits beyond a deadline, whether or not the server answers.
//! - A file is its owner's alone from its first byte on. One that another service or a newer program wrote is refused untouched.
//! - Processes that make the same tables at once take turns, and scripts only ever add.
//!
//! Deliberately not here: tables and statements of any service, and what an error means to a service's callers.

mod error;
mod location;
mod outage;
mod pool;
pub mod postgres;
mod schema;
pub mod sqlite;
mod statement;

pub use error::{Error, is_full};
pub use location::{Database, InvalidDatabase, Server};
pub use outage::Outage;
pub use pool::{Pool, Transaction};
pub use schema::Schema;
pub use statement::{Row, Value};
