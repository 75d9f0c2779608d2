//! `postern console`, `inbox` and `mode`, and which edge an owner's command speaks to.

use std::path::PathBuf;

use clap::{Args, Subcommand, builder::FalseyValueParser};
use postern_types::Mode;

/// Which edge an owner's command speaks to.
#[derive(Args, Clone, Debug)]
pub(crate) struct OwnerAccess {
    /// The edge's data directory [default: the one of `postern up` in the current directory]
    #[arg(long, value_name = "DIR", env = "POSTERN_DATA_DIR", global = true)]
    pub(crate) data_dir: Option<PathBuf>,
}

/// `postern console`
#[derive(Args, Debug)]
pub(crate) struct Console {
    /// The edge
    #[command(flatten)]
    pub(crate) access: OwnerAccess,
    /// Lead to the address itself, for browsers that do not know names below localhost
    #[arg(long, env = "POSTERN_CONSOLE_PLAIN", value_parser = FalseyValueParser::new())]
    pub(crate) plain: bool,
}

/// `postern inbox`
#[derive(Args, Debug)]
pub(crate) struct Inbox {
    /// The edge
    #[command(flatten)]
    pub(crate) access: OwnerAccess,
    /// What to do [default: list]
    #[command(subcommand)]
    pub(crate) action: Option<InboxAction>,
}

/// What to do with the inbox.
#[derive(Debug, Subcommand)]
pub(crate) enum InboxAction {
    /// What waits
    List,
    /// One item, whole
    Show {
        /// Receipt
        id: String,
    },
    /// Let a call go ahead
    Approve {
        /// Receipt
        id: String,
        /// And those like it in this session, until the channel closes
        #[arg(long, env = "POSTERN_APPROVE_SESSION", value_parser = FalseyValueParser::new())]
        session: bool,
    },
    /// Refuse a call
    Deny {
        /// Receipt
        id: String,
        /// Words for the agent
        #[arg(long, value_name = "TEXT", env = "POSTERN_REASON")]
        reason: Option<String>,
    },
    /// Answer a question
    Answer {
        /// Receipt
        id: String,
        /// The answer
        text: String,
    },
}

/// `postern mode`
#[derive(Args, Debug)]
pub(crate) struct ModeArgs {
    /// The edge
    #[command(flatten)]
    pub(crate) access: OwnerAccess,
    /// read-only, ask, edit or full; without one, the present mode is shown
    pub(crate) mode: Option<Mode>,
}
