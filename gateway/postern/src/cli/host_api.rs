//! What is asked of a host's identity API.

use std::path::PathBuf;

use clap::{ArgMatches, Args, Command, FromArgMatches, Subcommand, builder::FalseyValueParser};

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
#[command(after_help = "\
Examples:
  postern workspace create --token-file admin-token --name 'My app'
  postern workspace create --token-file admin-token --name 'My app' --idempotency-key 2026-11-30/my-app
  postern workspace list --host https://agents.example --token-file agent-token")]
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

const LAUNCH_EXAMPLES: &str = "\
Examples:
  postern launch --token-file admin-token --workspace 7f0c… --intention 'Fix the tests'
  postern launch --token-file admin-token --workspace 7f0c… --intention 'Fix the tests' --expires-in 86400
  postern launch list --token-file admin-token --workspace 7f0c…
  postern launch revoke --token-file admin-token 5d0f…";

/// `postern launch`: without an action it creates a launch.
#[derive(Debug)]
pub(crate) enum Launch {
    /// Creates one.
    Create(LaunchCreate),
    /// Works on those that there are.
    Existing(ExistingLaunch),
}

// Written by hand because a derived one reads the options of creating for an action too, as soon as one of their environment
// variables is set, and then misses the others.
impl FromArgMatches for Launch {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        if matches.subcommand_name().is_some() {
            return ExistingLaunch::from_arg_matches(matches).map(Self::Existing);
        }
        LaunchCreate::from_arg_matches(matches).map(Self::Create)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for Launch {
    fn augment_args(command: Command) -> Command {
        ExistingLaunch::augment_subcommands(LaunchCreate::augment_args(command))
            .args_conflicts_with_subcommands(true)
            .subcommand_negates_reqs(true)
            .after_help(LAUNCH_EXAMPLES)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

/// A launch to create.
#[derive(Args, Debug)]
pub(crate) struct LaunchCreate {
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

/// What to do with launches that there are.
#[derive(Debug, Subcommand)]
pub(crate) enum ExistingLaunch {
    /// List launches, valid or not
    List {
        /// The host
        #[command(flatten)]
        access: HostAccess,
        /// Only those of this workspace
        #[arg(long, value_name = "ID", env = "POSTERN_WORKSPACE")]
        workspace: Option<String>,
    },
    /// Revoke a launch and cut the channel that stands on it alone
    Revoke {
        /// The host
        #[command(flatten)]
        access: HostAccess,
        /// Launch
        id: String,
    },
}

/// `postern token`
#[derive(Debug, Subcommand)]
#[command(after_help = "\
Examples:
  postern token create --token-file admin-token --workspace 7f0c… --role editor
  postern token create --token-file admin-token --workspace 7f0c… --role viewer --expires-in 3600
  postern token list --token-file admin-token
  postern token revoke --token-file admin-token e2f1…")]
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

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::{Cli, Command as Word};

    #[test]
    fn a_launch_is_created_unless_an_action_is_named() {
        let parsed = |texts: &str| {
            let words = ["postern", "launch"]
                .into_iter()
                .chain(texts.split_whitespace());
            let Word::Launch(launch) = Cli::try_parse_from(words)?.command else {
                panic!("{texts} is no launch");
            };
            Ok(launch)
        };
        let refused = |texts: &str| {
            let parsed: Result<Launch, clap::Error> = parsed(texts);
            parsed.expect_err(texts).kind()
        };
        assert!(matches!(
            parsed("--token-file t --workspace w --intention i --expires-in 5"),
            Ok(Launch::Create(_))
        ));
        assert!(matches!(
            parsed("list --token-file t"),
            Ok(Launch::Existing(ExistingLaunch::List {
                workspace: None,
                ..
            }))
        ));
        assert!(matches!(
            parsed("revoke --token-file t an-id"),
            Ok(Launch::Existing(ExistingLaunch::Revoke { .. }))
        ));
        for incomplete in [
            "",
            "--token-file t --workspace w",
            "list",
            "revoke --token-file t",
        ] {
            assert_eq!(
                refused(incomplete),
                clap::error::ErrorKind::MissingRequiredArgument,
                "{incomplete}"
            );
        }
        assert_eq!(
            refused("--workspace w list --token-file t"),
            clap::error::ErrorKind::ArgumentConflict
        );
    }
}
