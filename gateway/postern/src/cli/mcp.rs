//! The command line of `postern mcp`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{HostAccess, Profile};

/// `postern mcp`
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  postern mcp --host https://agents.example --token-file agent-token
  postern mcp --token-file agent-token --print-config claude-desktop
  postern mcp --token-file agent-token --upload-root ~/inbox")]
pub(crate) struct Mcp {
    /// The host, and a file with an agent token
    #[command(flatten)]
    pub(crate) access: HostAccess,
    /// Which tools are offered
    #[arg(long, value_enum, env = "POSTERN_PROFILE", default_value_t)]
    pub(crate) profile: Profile,
    /// Offer workspace_upload for text files beneath this directory
    #[arg(long, value_name = "DIR", env = "POSTERN_UPLOAD_ROOT")]
    pub(crate) upload_root: Option<PathBuf>,
    /// Print the configuration of a client that is to start this, and end
    #[arg(long, value_enum, value_name = "CLIENT", env = "POSTERN_PRINT_CONFIG")]
    pub(crate) print_config: Option<McpClient>,
}

/// Clients whose configuration is known.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum McpClient {
    /// `.mcp.json`
    ClaudeCode,
    /// `claude_desktop_config.json`
    ClaudeDesktop,
    /// `~/.codex/config.toml`
    Codex,
    /// `.cursor/mcp.json`
    Cursor,
    /// `.vscode/mcp.json`
    Vscode,
}
