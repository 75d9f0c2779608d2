//! `postern ledger`.

use clap::{Args, Subcommand};

/// `postern ledger`
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  postern ledger copy --from sqlite:///var/lib/postern/ledger.db --to postgres://postern@db/postern
  postern receipts verify --database postgres://postern@db/postern")]
pub(crate) struct Ledger {
    /// What to do
    #[command(subcommand)]
    pub(crate) action: LedgerAction,
}

/// What to do with a ledger's database.
#[derive(Debug, Subcommand)]
pub(crate) enum LedgerAction {
    /// Copy every receipt into an empty database and verify both; an interrupted copy goes on where it stopped
    Copy(Copy),
}

/// From where to where.
#[derive(Args, Debug)]
pub(crate) struct Copy {
    /// The ledger: sqlite:///path/to/file.db or postgres://user@host/database. Nothing may run on it
    #[arg(long, value_name = "URL", env = "POSTERN_FROM", hide_env_values = true)]
    pub(crate) from: String,
    /// An empty database
    #[arg(long, value_name = "URL", env = "POSTERN_TO", hide_env_values = true)]
    pub(crate) to: String,
}
