//! `postern receipts`.

use std::path::PathBuf;

use clap::{
    ArgMatches, Args, Command, Error as ClapError, FromArgMatches, Subcommand,
    builder::FalseyValueParser, parser::ValueSource,
};
use postern_kit::transport::Address;

use super::{OwnerAccess, TlsArg};

/// `postern receipts`
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  postern receipts list --state refused --since 2026-11-30T00:00:00Z
  postern receipts list --follow --tool workspace_exec
  postern receipts show 0193a0e4-…
  postern receipts export receipts.jsonl
  postern receipts verify receipts.jsonl --public-key 3b6a27bc…")]
pub(crate) struct Receipts {
    /// The edge
    #[command(flatten)]
    pub(crate) access: OwnerAccess,
    /// What to do
    #[command(subcommand)]
    pub(crate) action: ReceiptsAction,
}

/// What to do with receipts.
#[derive(Debug, Subcommand)]
pub(crate) enum ReceiptsAction {
    /// Newest first
    List(List),
    /// One receipt, with its result
    Show {
        /// Receipt
        id: String,
    },
    /// Take back what one receipt changed; of an undo's own receipt, do again what that took back
    Undo {
        /// Receipt
        id: String,
    },
    /// Prove that no receipt was changed or taken away; works while nothing runs, too
    Verify(Verify),
    /// Write every receipt to a file that `verify` checks anywhere; works while nothing runs, too
    Export(Export),
}

/// Which receipts to list.
#[derive(Args, Debug)]
pub(crate) struct List {
    /// Only this session
    #[arg(long, value_name = "ID", env = "POSTERN_SESSION")]
    pub(crate) session: Option<String>,
    /// Only this tool
    #[arg(long, env = "POSTERN_TOOL")]
    pub(crate) tool: Option<String>,
    /// awaiting_owner, executing, completed, refused or uncertain
    #[arg(long, env = "POSTERN_STATE")]
    pub(crate) state: Option<String>,
    /// How they ended: ok, or an error's code such as STALE_REVISION
    #[arg(long, env = "POSTERN_OUTCOME")]
    pub(crate) outcome: Option<String>,
    /// Only those begun at this time or later, such as 2026-11-30T18:00:00Z
    #[arg(long, value_name = "TIME", env = "POSTERN_SINCE")]
    pub(crate) since: Option<String>,
    /// Only those begun before this time
    #[arg(long, value_name = "TIME", env = "POSTERN_UNTIL")]
    pub(crate) until: Option<String>,
    /// Receipts at most
    #[arg(long, value_name = "N", env = "POSTERN_LIMIT", default_value_t = 100)]
    pub(crate) limit: usize,
    /// All of them
    #[arg(long, env = "POSTERN_ALL", value_parser = FalseyValueParser::new(), conflicts_with = "limit")]
    pub(crate) all: bool,
    /// Oldest first, and then each change of one as it happens, until interrupted
    #[arg(long, short, env = "POSTERN_FOLLOW", value_parser = FalseyValueParser::new(), conflicts_with_all = ["all", "until"])]
    pub(crate) follow: bool,
}

/// What to verify.
#[derive(Args, Debug)]
pub(crate) struct Verify {
    /// An exported file [default: what the options name, else the ledger of the data directory]
    pub(crate) file: Option<PathBuf>,
    /// Which ledger
    #[command(flatten)]
    pub(crate) place: Place,
    /// Certificates to ask it with
    #[command(flatten)]
    pub(crate) tls: TlsArg,
    /// The key that must have signed the file, 64 hexadecimal digits; the file itself tells only which one did
    #[arg(
        long,
        value_name = "HEX",
        env = "POSTERN_PUBLIC_KEY",
        requires = "file"
    )]
    pub(crate) public_key: Option<String>,
}

/// The options that name a ledger.
#[derive(Args, Debug)]
struct Named {
    /// The ledger in a database: sqlite:///path/to/file.db or postgres://user@host/database. With --data-dir, up to the checkpoints
    /// that the edge there has signed
    #[arg(
        long,
        value_name = "URL",
        env = "POSTERN_DATABASE",
        hide_env_values = true
    )]
    database: Option<String>,
    /// A running ledger, which verifies itself. With --data-dir, up to the checkpoints that the edge there has signed
    #[arg(long, value_name = "ADDRESS", env = "POSTERN_LEDGER")]
    ledger: Option<Address>,
}

/// Which ledger to verify.
#[derive(Debug)]
pub(crate) enum Place {
    /// That of the data directory.
    DataDirectory,
    /// The one in a database, by its URL.
    Database(String),
    /// One that runs.
    Running(Address),
    /// Two are named, and neither more than the other: both on the command line, or both by variables.
    Two,
}

impl FromArgMatches for Place {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, ClapError> {
        let written = |name| matches.value_source(name) == Some(ValueSource::CommandLine);
        let named = Named::from_arg_matches(matches)?;
        Ok(match (named.database, named.ledger) {
            (None, None) => Self::DataDirectory,
            (Some(url), None) => Self::Database(url),
            (None, Some(address)) => Self::Running(address),
            (Some(url), Some(address)) => match (written("database"), written("ledger")) {
                (true, false) => Self::Database(url),
                (false, true) => Self::Running(address),
                (true, true) | (false, false) => Self::Two,
            },
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), ClapError> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for Place {
    fn augment_args(command: Command) -> Command {
        Named::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Named::augment_args_for_update(command)
    }
}

/// What to export.
#[derive(Args, Debug)]
pub(crate) struct Export {
    /// File to write, which must not be there yet [default: standard output]
    pub(crate) file: Option<PathBuf>,
    /// With what calls were to change, what the owner was asked and answered, and results; without, their digests stand for them
    #[arg(long, env = "POSTERN_RESULTS", value_parser = FalseyValueParser::new())]
    pub(crate) results: bool,
}
