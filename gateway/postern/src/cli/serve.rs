//! `postern serve` and the places of services.

use std::{path::PathBuf, str::FromStr};

use clap::{Args, Subcommand};
use postern_kit::transport::{Address, InvalidAddress};

use super::{KeepArgs, LimitArgs, MetricsArgs, SandboxArgs, TlsArg};

/// `postern serve`
#[derive(Debug, Subcommand)]
pub(crate) enum Serve {
    /// Pins and admitted sessions of an edge
    Identity(ServeStore),
    /// Schema checks and permission
    Policy(ServePolicy),
    /// Files of one project
    Filesystem(ServeFilesystem),
    /// Commands of one project
    Exec(Box<ServeExec>),
    /// Receipts
    Ledger(ServeStore),
}

impl Serve {
    /// As what it tells of itself in traces.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Identity(_) => "postern-identity",
            Self::Policy(_) => "postern-policy",
            Self::Filesystem(_) => "postern-filesystem",
            Self::Exec(_) => "postern-exec",
            Self::Ledger(_) => "postern-ledger",
        }
    }
}

/// Where a service listens.
#[derive(Args, Debug)]
pub(crate) struct ListenArg {
    /// host:port or unix:/path; port 0 picks a free one
    #[arg(long, value_name = "ADDRESS", env = "POSTERN_LISTEN")]
    pub(crate) listen: Address,
    /// Its figures
    #[command(flatten)]
    pub(crate) metrics: MetricsArgs,
    /// Its certificates
    #[command(flatten)]
    pub(crate) tls: TlsArg,
}

/// A service with a store.
#[derive(Args, Debug)]
pub(crate) struct ServeStore {
    /// Where it listens
    #[command(flatten)]
    pub(crate) listen: ListenArg,
    /// sqlite:///path/to/file.db or postgres://user@host/database
    #[arg(
        long,
        value_name = "URL",
        env = "POSTERN_DATABASE",
        hide_env_values = true
    )]
    pub(crate) database: String,
}

/// The policy service.
#[derive(Args, Debug)]
pub(crate) struct ServePolicy {
    /// Where it listens
    #[command(flatten)]
    pub(crate) listen: ListenArg,
    /// Folder of Cedar files that narrow the mode
    #[arg(long, value_name = "DIR", env = "POSTERN_POLICIES")]
    pub(crate) policies: Option<PathBuf>,
}

/// The filesystem service.
#[derive(Args, Debug)]
pub(crate) struct ServeFilesystem {
    /// Where it listens
    #[command(flatten)]
    pub(crate) listen: ListenArg,
    /// The project's root
    #[arg(long, value_name = "DIR", env = "POSTERN_PROJECT")]
    pub(crate) project: PathBuf,
    /// Folder for what files were before changes, so that these can be taken back [default: nothing is kept]
    #[arg(long, value_name = "DIR", env = "POSTERN_BEFORE")]
    pub(crate) before: Option<PathBuf>,
    /// How much of it is kept
    #[command(flatten)]
    pub(crate) keep: KeepArgs,
}

/// The exec worker.
#[derive(Args, Debug)]
pub(crate) struct ServeExec {
    /// Where it listens
    #[command(flatten)]
    pub(crate) listen: ListenArg,
    /// The project's root
    #[arg(long, value_name = "DIR", env = "POSTERN_PROJECT")]
    pub(crate) project: PathBuf,
    /// Folder for the output of commands
    #[arg(long, value_name = "DIR", env = "POSTERN_SPOOL")]
    pub(crate) spool: PathBuf,
    /// File with the key that callers must show. The edge that starts a worker itself names one
    #[arg(long, value_name = "FILE", env = "POSTERN_KEY_FILE", hide = true)]
    pub(crate) key_file: Option<PathBuf>,
    /// Running commands at most
    #[arg(long, value_name = "N", env = "POSTERN_CAPACITY", default_value_t = 64)]
    pub(crate) capacity: u32,
    /// How the worker is found by others
    #[command(flatten)]
    pub(crate) registered: RegisteredArgs,
    /// What each command may take
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
    /// What commands may reach
    #[command(flatten)]
    pub(crate) sandbox: SandboxArgs,
}

/// A worker among others.
#[derive(Args, Debug)]
pub(crate) struct RegisteredArgs {
    /// Ledger to register with, for an edge with --exec ledger; all workers of it share the project and the spool
    #[arg(long, value_name = "ADDRESS", env = "POSTERN_LEDGER")]
    pub(crate) ledger: Option<Address>,
    /// Seconds without a word to the ledger after which the worker's commands are lost
    #[arg(long, value_name = "S", env = "POSTERN_LEASE", default_value_t = 10,
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) lease: u64,
    /// Address under which others reach the worker [default: that of --listen, with this machine's name for one of no
    /// interface in particular]
    #[arg(long, value_name = "ADDRESS", env = "POSTERN_ADVERTISE")]
    pub(crate) advertise: Option<Address>,
    /// Seconds that running commands have at SIGTERM before they are stopped
    #[arg(long, value_name = "S", env = "POSTERN_DRAIN", default_value_t = 30,
          value_parser = clap::value_parser!(u64).range(..=86_400))]
    pub(crate) drain: u64,
}

/// Where commands run.
#[derive(Clone, Debug)]
pub(crate) enum ExecPlace {
    /// On the workers that are registered with the edge's ledger.
    Ledger,
    /// On one worker.
    At(Address),
}

impl FromStr for ExecPlace {
    type Err = InvalidAddress;

    fn from_str(text: &str) -> Result<Self, InvalidAddress> {
        match text {
            "ledger" => Ok(Self::Ledger),
            address => address.parse().map(Self::At),
        }
    }
}

/// Services that do not run in the edge's process.
#[derive(Args, Debug, Default)]
pub(crate) struct RemoteServices {
    /// Identity service elsewhere [default: in this process]
    #[arg(long, value_name = "ADDRESS", env = "POSTERN_IDENTITY")]
    pub(crate) identity: Option<Address>,
    /// Policy service elsewhere [default: in this process]
    #[arg(long, value_name = "ADDRESS", env = "POSTERN_POLICY")]
    pub(crate) policy: Option<Address>,
    /// Filesystem service elsewhere [default: in this process]
    #[arg(long, value_name = "ADDRESS", env = "POSTERN_FILESYSTEM")]
    pub(crate) filesystem: Option<Address>,
    /// Exec worker elsewhere, or "ledger" for those that are registered with --ledger [default: a child process]
    #[arg(long, value_name = "ADDRESS", env = "POSTERN_EXEC")]
    pub(crate) exec: Option<ExecPlace>,
    /// Ledger elsewhere [default: in this process]
    #[arg(long, value_name = "ADDRESS", env = "POSTERN_LEDGER")]
    pub(crate) ledger: Option<Address>,
    /// Certificates to reach them with
    #[command(flatten)]
    pub(crate) tls: TlsArg,
}
