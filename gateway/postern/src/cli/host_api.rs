//! What is asked of a host's identity API.

use std::path::PathBuf;

use clap::{Args, Subcommand, builder::FalseyValueParser};

use crate::net;

/// How to reach a host's identity API.
#[derive(Args, Debug)]
pub(crate) struct HostAccess {
    /// URL of the host
    #[arg(
        long,
        value_name = "URL",
        env = "POSTERN_HOST",
        value_parser = net::parse_url,
        default_value = "http://127.0.0.1:7300"
    )]
    pub(crate) host: String,
    /// File with a token of the host
    #[arg(long, value_name = "FILE", env = "POSTERN_TOKEN_FILE")]
    pub(crate) token_file: PathBuf,
    /// Send the token over http: to a host that is not on this machine
    #[arg(long, env = "POSTERN_ALLOW_PLAINTEXT", value_parser = FalseyValueParser::new())]
    pub(crate) allow_plaintext: bool,
}

/// `postern workspace`
#[derive(Debug, Subcommand)]
pub(crate) enum Workspace {
    /// Create a workspace
    Create {
        /// The host
        #[command(flatten)]
        access: HostAccess,
        /// Name, 1 to 120 characters
        #[arg(long, env = "POSTERN_NAME")]
        name: String,
        /// Organization [default: your own]
        #[arg(long, value_name = "ID", env = "POSTERN_ORGANIZATION")]
        organization: Option<String>,
        /// Sending the same key again returns the first answer
        #[arg(long, value_name = "KEY", env = "POSTERN_IDEMPOTENCY_KEY")]
        idempotency_key: Option<String>,
    },
    /// List workspaces
    List {
        /// The host
        #[command(flatten)]
        access: HostAccess,
    },
}

/// `postern launch`
#[derive(Args, Debug)]
pub(crate) struct Launch {
    /// The host
    #[command(flatten)]
    pub(crate) access: HostAccess,
    /// Workspace
    #[arg(long, value_name = "ID", env = "POSTERN_WORKSPACE")]
    pub(crate) workspace: String,
    /// What the agent is to do, 1 to 4000 characters
    #[arg(long, value_name = "TEXT", env = "POSTERN_INTENTION")]
    pub(crate) intention: String,
    /// Life in seconds [default: without end]
    #[arg(long, value_name = "SECONDS", env = "POSTERN_EXPIRES_IN")]
    pub(crate) expires_in: Option<u64>,
    /// Add the workspace to this channel token instead of minting one
    #[arg(long, value_name = "ID", env = "POSTERN_TOKEN_ID")]
    pub(crate) token_id: Option<String>,
}

/// `postern token`
#[derive(Debug, Subcommand)]
pub(crate) enum Token {
    /// Mint an agent token
    Create {
        /// The host
        #[command(flatten)]
        access: HostAccess,
        /// Workspace that it works in
        #[arg(long, value_name = "ID", env = "POSTERN_WORKSPACE")]
        workspace: String,
        /// owner, editor, reviewer or viewer
        #[arg(long, env = "POSTERN_ROLE")]
        role: String,
        /// Life in seconds [default: without end]
        #[arg(long, value_name = "SECONDS", env = "POSTERN_EXPIRES_IN")]
        expires_in: Option<u64>,
    },
    /// Revoke a token of any kind and cut what it has open
    Revoke {
        /// The host
        #[command(flatten)]
        access: HostAccess,
        /// Token
        id: String,
    },
    /// List tokens, without their secrets
    List {
        /// The host
        #[command(flatten)]
        access: HostAccess,
    },
}
