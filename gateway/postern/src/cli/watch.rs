//! `postern watch`.

use clap::Args;

use super::OwnerAccess;

/// `postern watch`
#[derive(Args, Debug)]
#[command(after_help = "\
The keys that do something are always on the last lines. Without colours: NO_COLOR=1. A log, if one is asked for by --log, goes to standard
error: `postern watch --log info 2>watch.log`.")]
pub(crate) struct Watch {
    /// The edge
    #[command(flatten)]
    pub(crate) access: OwnerAccess,
}
