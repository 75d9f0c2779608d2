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
    /// Go on with a PostgreSQL server that lacks what was acknowledged, once it is certain that what it lacks is lost for good
    AcceptLoss(AcceptLoss),
}

/// Whose loss.
#[derive(Args, Debug)]
pub(crate) struct AcceptLoss {
    /// The ledger: postgres://user@host/database. Ledgers that wait there go on by themselves
    #[arg(
        long,
        value_name = "URL",
        env = "POSTERN_DATABASE",
        hide_env_values = true
    )]
    pub(crate) database: String,
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
