//! The command line of `postern policy`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use postern_types::Mode;

/// `postern policy`
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  postern policy check
  postern policy test --policies ~/rules
  postern policy explain call.json --mode edit
  echo '{\"tool\":\"workspace_exec\",\"args\":{\"command\":\"make test\"}}' | postern policy explain -
  postern policy defaults > ~/rules/defaults.cedar")]
pub(crate) struct Policy {
    /// Folder of Cedar files [default: `policies` in the data directory]
    #[arg(long, value_name = "DIR", env = "POSTERN_POLICIES", global = true)]
    pub(crate) policies: Option<PathBuf>,
    /// The edge's data directory [default: the one of `postern up` in the current directory]
    #[arg(long, value_name = "DIR", env = "POSTERN_DATA_DIR", global = true)]
    pub(crate) data_dir: Option<PathBuf>,
    /// What to do
    #[command(subcommand)]
    pub(crate) action: PolicyAction,
}

/// What to do with the rules.
#[derive(Debug, Subcommand)]
pub(crate) enum PolicyAction {
    /// Read every file and say whether they can be used
    Check,
    /// Try every example, and tell how each came out
    Test,
    /// Tell what becomes of a call, and why
    Explain {
        /// File with `{"tool": …, "args": {…}}`, or a call frame of the channel; `-` is standard input
        call: PathBuf,
        /// The owner's mode [default: that of the edge that runs, or else `ask`]
        #[arg(long, env = "POSTERN_MODE")]
        mode: Option<Mode>,
        /// The project's root, in which links are followed
        #[arg(long, value_name = "DIR", env = "POSTERN_PROJECT", default_value = ".")]
        project: PathBuf,
    },
    /// Print the rules that a data directory starts with
    ///
    /// A missing folder `policies` is made again with them; empty the folder to have no rules.
    Defaults,
}
