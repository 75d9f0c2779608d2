//! `postern doctor`

use std::path::PathBuf;

use clap::Args;

use super::SandboxArgs;
use crate::net;

/// `postern doctor`
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  postern doctor                                       what 'postern up' would find here
  postern doctor --project ~/code/app --sandbox required --sandbox-write ~/.cache/app
  postern doctor --database postgres://postern@db/postern
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
    /// What commands may reach
    #[command(flatten)]
    pub(crate) sandbox: SandboxArgs,
}
