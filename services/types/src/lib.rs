//! Ids, digests, times, error codes and receipts: the words that every part of Postern shares.
//!
//! Invariants:
//! - A value of these types is valid; text is parsed once, at the boundary.
//! - The same arguments have the same digest whatever their key order and white space.
//! - An event's hash covers all of its content and the hash of the event before it.
//!
//! Deliberately not here: anything that waits, opens or connects.

mod code;
mod digest;
mod event;
mod ids;
mod mode;
mod text;
mod time;
mod trace;

pub use code::ErrorCode;
pub use digest::{InvalidArgs, Sha256, args_sha256};
pub use event::{EventKind, ReceiptEvent};
pub use ids::{Id, Intention, InvalidText, ReceiptId};
pub use mode::{InvalidMode, Mode};
pub use text::{is_invisible, printable, printable_start};
pub use time::Timestamp;
pub use trace::{root_span_id, trace_id};
