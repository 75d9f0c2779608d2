//! `postern doctor`

use std::path::PathBuf;

use clap::{Args, builder::RangedU64ValueParser};
use postern_kit::tls::Role;

use super::{SandboxArgs, TlsArg, tls};
use crate::net;

/// `postern doctor`
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  postern doctor                                       what 'postern up' would find here
  postern doctor --project ~/code/app --sandbox required --sandbox-write ~/.cache/app
  postern doctor --database postgres://postern@db/postern
  postern doctor --tls-dir certs/ledger                are these certificates good for a ledger, and how long
  postern doctor --certs-dir certs                     the same of an authority and all that it issued
  postern doctor --json | jq -r 'select(.state != \"ok\") | .advice'

One line a check: ok, warn (it works, with less) or fail. Exit code 1 when a check failed. Nothing is left behind.")]
pub(crate) struct Doctor {
    /// The project's root
    #[arg(long, value_name = "DIR", env = "POSTERN_PROJECT", default_value = ".")]
    pub(crate) project: PathBuf,
    /// Where state would lie [default: the folder that `postern up` would use]
    #[arg(long, value_name = "DIR", env = "POSTERN_DATA_DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// Address for agents (MCP) that must be free
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "POSTERN_LISTEN",
        value_parser = net::parse_address,
        default_value = "127.0.0.1:7300"
    )]
    pub(crate) listen: String,
    /// Address of the owner's console that must be free
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "POSTERN_CONSOLE",
        value_parser = net::parse_address,
        default_value = "127.0.0.1:7301"
    )]
    pub(crate) console: String,
    /// URL of a Postgres server that must answer
    #[arg(
        long,
        value_name = "URL",
        env = "POSTERN_DATABASE",
        hide_env_values = true
    )]
    pub(crate) database: Option<String>,
    /// Certificates of the process that is to run here [default: those that postern.toml of the data directory names]
    #[command(flatten)]
    pub(crate) tls: TlsArg,
    /// Service that they must be for [default: the one that their folder is named after]
    #[arg(long, value_name = "ROLE", env = "POSTERN_TLS_ROLE", value_parser = tls::role)]
    pub(crate) tls_role: Option<Role>,
    /// Folder of an authority with all that it issued, as `postern certs init` makes it
    #[arg(long, value_name = "DIR", env = "POSTERN_CERTS_DIR")]
    pub(crate) certs_dir: Option<PathBuf>,
    /// Days before the end of a certificate from which on it should have been renewed
    #[arg(long, value_name = "DAYS", env = "POSTERN_CERTS_WITHIN", default_value_t = 30, value_parser = RangedU64ValueParser::<u64>::new().range(0..=3650))]
    pub(crate) within: u64,
    /// What commands may reach
    #[command(flatten)]
    pub(crate) sandbox: SandboxArgs,
}
