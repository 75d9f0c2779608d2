//! Images and documents as callers of the service get them, with real decoding processes.
#![expect(clippy::expect_used, reason = "what is expected is what is tested")]

mod bombs;
mod documents;
mod leaks;
mod paths;
mod pdf;
mod pictures;
mod png;
mod rig;
