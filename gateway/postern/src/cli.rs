//! The command line (CONTRACT.md, section 7).

mod doctor;
mod healthcheck;
mod host_api;
mod ledger;
mod limits;
mod mcp;
mod metrics;
mod notice;
mod owner;
mod policy;
mod receipts;
mod reference;
mod sandbox;
mod serve;
mod tls;
mod undo;
mod watch;

use std::{path::PathBuf, time::Duration};

use clap::{
    Args, Parser, Subcommand, ValueEnum,
    builder::{FalseyValueParser, RangedU64ValueParser},
};
use postern_edge::ToolServer;
use postern_kit::telemetry;
use postern_types::{Id, Intention, Mode};

pub(crate) use self::{
    doctor::Doctor,
    healthcheck::Healthcheck,
    host_api::{ExistingLaunch, HostAccess, Launch, LaunchCreate, Token, Workspace},
    ledger::{AcceptLoss, Copy, Ledger, LedgerAction},
    limits::LimitArgs,
    mcp::{Mcp, McpClient},
    metrics::MetricsArgs,
    notice::{NoticeArgs, Notify},
    owner::{Console, Inbox, InboxAction, ModeArgs, OwnerAccess},
    policy::{Policy, PolicyAction},
    receipts::{Export, List, Place, Receipts, ReceiptsAction},
    reference::{Language, Reference},
    sandbox::SandboxArgs,
    serve::{ExecPlace, ListenArg, RegisteredArgs, RemoteServices, Serve, ServeExec},
    tls::{Certs, CertsDir, CertsInit, CertsRenew, CertsTerms, RotateCa, RotateSwitch, TlsArg},
    undo::{KeepArgs, Session, SessionAction},
    watch::Watch,
};
use crate::{error::Error, net};

const EXAMPLES: &str = "\
Examples:
  postern up                                   open the door to the current directory, each effect asks you
  postern up --project ~/code/app --mode edit  file changes go ahead, commands ask you
  postern inbox                                what waits for you
  postern watch                                the same and what goes on, live
  postern inbox approve 0193a0e4-…             let one call go ahead
  postern mode read-only                       stop every effect, at once

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 unauthorized or refused by the other side, 4 superseded.";

/// Postern opens a door from your project to an AI agent hosted elsewhere, and keeps a receipt of everything that comes through it.
#[derive(Debug, Parser)]
#[command(name = "postern", version, propagate_version = true, after_help = EXAMPLES)]
pub(crate) struct Cli {
    /// Print one JSON object a line on standard output
    #[arg(long, global = true, env = "POSTERN_JSON", value_parser = FalseyValueParser::new())]
    pub(crate) json: bool,
    /// What to log on standard error, such as `info` or `warn,postern_edge=debug` [default: warn]
    #[arg(long, global = true, value_name = "FILTER", env = "POSTERN_LOG")]
    pub(crate) log: Option<String>,
    /// How to log
    #[arg(
        long,
        global = true,
        value_enum,
        default_value_t,
        env = "POSTERN_LOG_FORMAT"
    )]
    pub(crate) log_format: LogFormat,
    /// What to do
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// How logs are written.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people
    #[default]
    Text,
    /// One JSON object a line
    Json,
}

impl From<LogFormat> for telemetry::LogFormat {
    fn from(format: LogFormat) -> Self {
        match format {
            LogFormat::Text => Self::Text,
            LogFormat::Json => Self::Json,
        }
    }
}

/// What the program does.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Everything for one project from one command: agent host, edge, services and console
    Up(Up),
    /// The agent host: agents by MCP on one side, owners' channels on the other
    Host(Host),
    /// The owner's instance: opens a channel to a host and works in one project
    Edge(Box<Edge>),
    /// One service alone, by gRPC
    #[command(subcommand)]
    Serve(Serve),
    /// Certificates for services on several machines: a private authority, and one for each
    #[command(subcommand)]
    Certs(Certs),
    /// One look at a service: exit code 0 when it is ready, 1 when it is not
    Healthcheck(Healthcheck),
    /// Workspaces of a host
    #[command(subcommand)]
    Workspace(Workspace),
    /// Tie a workspace to an intention and mint the channel token for it; list and revoke what was tied
    Launch(Launch),
    /// Agent tokens of a host
    #[command(subcommand)]
    Token(Token),
    /// MCP over standard input and output, for clients that start their servers themselves
    Mcp(Mcp),
    /// A link to the console, for a browser on this machine
    Console(Console),
    /// What waits for the owner
    Inbox(Inbox),
    /// Receipts of what agents did
    Receipts(Receipts),
    /// Move a ledger's receipts to another database
    Ledger(Ledger),
    /// Conversations of agents: what each changed, and taking it back
    Session(Session),
    /// Show or change how far calls go unattended
    Mode(ModeArgs),
    /// Inbox, calls, commands and receipts live in this terminal, with the same decisions
    Watch(Watch),
    /// The owner's rules: check them, try their examples, ask what becomes of a call
    Policy(Policy),
    /// Write the reference of the tools, one Markdown page a tool
    Reference(Reference),
    /// Check what this machine offers, and tell what to do
    Doctor(Doctor),
}

impl Command {
    /// Whether it draws on the whole terminal, where a line of the log would be in the way.
    pub(crate) const fn draws(&self) -> bool {
        matches!(self, Self::Watch(_))
    }

    /// As what service it tells of itself in traces, if it is one.
    pub(crate) const fn service(&self) -> Option<&'static str> {
        match self {
            Self::Up(_) => Some("postern"),
            Self::Host(_) => Some("postern-host"),
            Self::Edge(_) => Some("postern-edge"),
            Self::Serve(service) => Some(service.name()),
            Self::Workspace(_)
            | Self::Launch(_)
            | Self::Token(_)
            | Self::Mcp(_)
            | Self::Console(_)
            | Self::Inbox(_)
            | Self::Receipts(_)
            | Self::Session(_)
            | Self::Mode(_)
            | Self::Watch(_)
            | Self::Policy(_)
            | Self::Reference(_)
            | Self::Ledger(_)
            | Self::Certs(_)
            | Self::Healthcheck(_)
            | Self::Doctor(_) => None,
        }
    }

    /// Whether the configuration is to be told rather than used.
    pub(crate) fn dumps_config(&self) -> bool {
        if let Self::Up(Up { owner, .. }) = self {
            return owner.dump_config;
        }
        if let Self::Edge(edge) = self {
            return edge.owner.dump_config;
        }
        false
    }
}

/// The owner's choices for one project.
#[derive(Args, Debug)]
pub(crate) struct OwnerArgs {
    /// How far calls go unattended: read-only, ask, edit or full
    #[arg(long, value_name = "MODE", env = "POSTERN_MODE", default_value_t)]
    pub(crate) mode: Mode,
    /// Address of the owner's console; port 0 picks a free one
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "POSTERN_CONSOLE",
        value_parser = net::parse_address,
        default_value = "127.0.0.1:7301"
    )]
    pub(crate) console: String,
    /// Let --console be an address beyond this machine's loopback: for a container whose port is published on the machine's loopback alone. The console speaks plaintext
    #[arg(long, env = "POSTERN_CONSOLE_PUBLISHED", value_parser = FalseyValueParser::new())]
    pub(crate) console_published: bool,
    /// Where traces are shown, for links from receipts: a URL with {traceId} in it
    #[arg(long, value_name = "URL", env = "POSTERN_TRACE_URL", value_parser = net::parse_trace_url)]
    pub(crate) trace_url: Option<String>,
    /// Seconds that an approval or question waits for the owner
    #[arg(
        long,
        value_name = "SECONDS",
        env = "POSTERN_APPROVAL_TIMEOUT",
        default_value_t = 600
    )]
    pub(crate) approval_timeout: u64,
    /// Folder of Cedar files that narrow the mode [default: `policies` in the data directory, made with some to start with]
    #[arg(long, value_name = "DIR", env = "POSTERN_POLICIES")]
    pub(crate) policies: Option<PathBuf>,
    /// How the owner hears that something waits
    #[command(flatten)]
    pub(crate) notice: NoticeArgs,
    /// What is kept for undo
    #[command(flatten)]
    pub(crate) keep: KeepArgs,
    /// What commands may reach
    #[command(flatten)]
    pub(crate) sandbox: SandboxArgs,
    /// Which conversations are let in: each as it comes, or each once you say so
    #[arg(long, value_enum, env = "POSTERN_SESSIONS", default_value_t)]
    pub(crate) sessions: Sessions,
    /// MCP servers whose tools are offered, each as JSON: what `[[tools]]` of the configuration file comes to
    #[arg(long, value_name = "JSON", env = "POSTERN_TOOLS", value_parser = parse_tool_server, hide = true)]
    pub(crate) tools: Vec<ToolServer>,
    /// Configuration file [default: `postern.toml` in the data directory]
    #[arg(long, value_name = "FILE", env = "POSTERN_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// Print what is in force, and where each value comes from, instead of starting
    #[arg(long, env = "POSTERN_DUMP_CONFIG", value_parser = FalseyValueParser::new())]
    pub(crate) dump_config: bool,
    /// Accept another project or intention than the pinned one, and pin it
    #[arg(long, env = "POSTERN_REPIN", value_parser = FalseyValueParser::new())]
    pub(crate) repin: bool,
}

impl OwnerArgs {
    /// Refuses a console that others reach by the network, unless it is said to be published with care.
    pub(crate) fn demand_private_console(&self) -> Result<(), Error> {
        if self.console_published {
            return Ok(());
        }
        net::demand_loopback(&self.console, "the console").map_err(|refused| {
            let hint = "in a container whose port is published on 127.0.0.1 alone, add --console-published";
            Error::Usage(format!("{refused} ({hint})"))
        })
    }
}

fn parse_tool_server(text: &str) -> Result<ToolServer, String> {
    let server: ToolServer = serde_json::from_str(text).map_err(|problem| problem.to_string())?;
    ToolServer::check_all(std::slice::from_ref(&server)).map_err(|problem| problem.to_string())?;
    Ok(server)
}

/// Which conversations are let in.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum Sessions {
    /// Each as it comes
    #[default]
    Open,
    /// Each once the owner has let it in
    Ask,
}

impl From<Sessions> for postern_edge::Sessions {
    fn from(sessions: Sessions) -> Self {
        match sessions {
            Sessions::Open => Self::Open,
            Sessions::Ask => Self::Ask,
        }
    }
}

/// `postern up`
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  postern up
  postern up --project ~/code/app --intention 'Fix the failing tests' --mode edit
  postern up --listen 127.0.0.1:0 --console 127.0.0.1:0 --json
  postern up --dump-config                     what is in force, as a postern.toml
Options can stand in postern.toml of the data directory: sandbox_write = [\"~/.cargo\"] for --sandbox-write.")]
pub(crate) struct Up {
    /// The project's root
    #[arg(long, value_name = "DIR", env = "POSTERN_PROJECT", default_value = ".")]
    pub(crate) project: PathBuf,
    /// What the agent is to do here; the last one by default
    #[arg(long, value_name = "TEXT", env = "POSTERN_INTENTION")]
    pub(crate) intention: Option<Intention>,
    /// Where state lies [default: a folder for this project below ~/.local/state/postern]
    #[arg(long, value_name = "DIR", env = "POSTERN_DATA_DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// Address for agents (MCP); port 0 picks a free one
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "POSTERN_LISTEN",
        value_parser = net::parse_address,
        default_value = "127.0.0.1:7300"
    )]
    pub(crate) listen: String,
    /// Which tools the printed client configuration asks for
    #[arg(long, value_enum, env = "POSTERN_PROFILE", default_value_t)]
    pub(crate) profile: Profile,
    /// Figures
    #[command(flatten)]
    pub(crate) metrics: MetricsArgs,
    /// The owner's choices
    #[command(flatten)]
    pub(crate) owner: OwnerArgs,
}

/// Which tools an agent sees. It permits nothing.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, ValueEnum)]
pub(crate) enum Profile {
    /// The workspace tools and the workspace context
    #[default]
    Core,
    /// Those and creating workspaces
    Full,
}

/// `postern host`
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  postern host --listen 127.0.0.1:7300 --data-dir /var/lib/postern-host
  postern workspace create --host http://127.0.0.1:7300 --token-file /var/lib/postern-host/admin-token --name app")]
pub(crate) struct Host {
    /// Address for agents and owners; port 0 picks a free one
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "POSTERN_LISTEN",
        value_parser = net::parse_address,
        default_value = "127.0.0.1:7300"
    )]
    pub(crate) listen: String,
    /// Where state lies; the first start writes the admin token there
    #[arg(long, value_name = "DIR", env = "POSTERN_DATA_DIR")]
    pub(crate) data_dir: PathBuf,
    /// Where identity lies: sqlite:///path/to/file.db or postgres://user@host/database [default: a file in the data directory]
    #[arg(
        long,
        value_name = "URL",
        env = "POSTERN_DATABASE",
        hide_env_values = true
    )]
    pub(crate) database: Option<String>,
    /// URL by which agents and owners reach this host [default: http:// and the address]
    #[arg(long, value_name = "URL", env = "POSTERN_PUBLIC_URL", value_parser = net::parse_url)]
    pub(crate) public_url: Option<String>,
    /// Further names under which it is reached, such as that of a container; IP addresses, localhost and the public URL's always are
    #[arg(
        long,
        value_name = "NAME",
        value_delimiter = ',',
        env = "POSTERN_ALLOWED_HOSTS"
    )]
    pub(crate) allowed_hosts: Vec<String>,
    /// Its figures
    #[command(flatten)]
    pub(crate) metrics: MetricsArgs,
}

/// `postern edge`
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  postern edge --host https://agents.example --workspace 7f0c… --intention 'Fix the tests' \\
      --token-file channel-token --project ~/code/app --data-dir ~/.local/state/postern/app")]
pub(crate) struct Edge {
    /// URL of the agent host
    #[arg(long, value_name = "URL", env = "POSTERN_HOST", value_parser = net::parse_url)]
    pub(crate) host: String,
    /// Workspace that this project serves
    #[arg(long, value_name = "ID", env = "POSTERN_WORKSPACE")]
    pub(crate) workspace: Id,
    /// Intention of the launch, word for word
    #[arg(long, value_name = "TEXT", env = "POSTERN_INTENTION")]
    pub(crate) intention: Intention,
    /// File with the channel token
    #[arg(long, value_name = "FILE", env = "POSTERN_TOKEN_FILE")]
    pub(crate) token_file: PathBuf,
    /// The project's root
    #[arg(long, value_name = "DIR", env = "POSTERN_PROJECT", default_value = ".")]
    pub(crate) project: PathBuf,
    /// Where state lies
    #[arg(long, value_name = "DIR", env = "POSTERN_DATA_DIR")]
    pub(crate) data_dir: PathBuf,
    /// Open no console
    #[arg(long, env = "POSTERN_LISTEN_NONE", value_parser = FalseyValueParser::new(), conflicts_with = "console")]
    pub(crate) listen_none: bool,
    /// Send the token over http: to a host that is not on this machine
    #[arg(long, env = "POSTERN_ALLOW_PLAINTEXT", value_parser = FalseyValueParser::new())]
    pub(crate) allow_plaintext: bool,
    /// Services elsewhere
    #[command(flatten)]
    pub(crate) remote: RemoteServices,
    /// The channel's times
    #[command(flatten)]
    pub(crate) times: ChannelTimes,
    /// Figures
    #[command(flatten)]
    pub(crate) metrics: MetricsArgs,
    /// The owner's choices
    #[command(flatten)]
    pub(crate) owner: OwnerArgs,
}

/// The channel's times where they are shorter than the protocol's own, never longer: for networks that forget quiet connections
/// sooner, and for trying out what takes a minute otherwise (docs/adr/0008-channel-times-only-get-shorter.md).
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct ChannelTimes {
    /// Milliseconds between pings
    #[arg(long, value_name = "MS", env = "POSTERN_PING_INTERVAL_MS", hide = true, value_parser = up_to(postern_edge::Config::PING_INTERVAL))]
    pub(crate) ping_interval_ms: Option<u64>,
    /// Milliseconds with nothing received after which the host is gone
    #[arg(long, value_name = "MS", env = "POSTERN_SILENCE_LIMIT_MS", hide = true, value_parser = up_to(postern_edge::Config::SILENCE_LIMIT))]
    pub(crate) silence_limit_ms: Option<u64>,
    /// Milliseconds that the host has to say ready
    #[arg(long, value_name = "MS", env = "POSTERN_READY_TIMEOUT_MS", hide = true, value_parser = up_to(postern_edge::Config::READY_TIMEOUT))]
    pub(crate) ready_timeout_ms: Option<u64>,
}

/// Milliseconds of at least one, and of no more than the contract's time.
fn up_to(limit: Duration) -> RangedU64ValueParser {
    let limit = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
    RangedU64ValueParser::new().range(1..=limit)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    /// B39: a channel that is gone is noticed within the contract's times, whatever the command line says.
    #[test]
    fn channel_times_only_get_shorter() {
        let parsed = |option: &str, value: &str| {
            let texts = "postern edge --host http://127.0.0.1:1 --intention i --token-file t \
                --data-dir d --workspace 0b6c3f52-7c1e-4a7b-9a53-1d2e3f405162";
            Cli::try_parse_from(texts.split_whitespace().chain([option, value]))
        };
        for (option, limit) in [
            ("--ping-interval-ms", 20_000),
            ("--silence-limit-ms", 60_000),
            ("--ready-timeout-ms", 10_000),
        ] {
            for value in [1, limit] {
                parsed(option, &value.to_string()).expect(option);
            }
            for value in [0, limit + 1] {
                let problem = parsed(option, &value.to_string()).expect_err(option);
                let limit = limit.to_string();
                assert!(problem.to_string().contains(&limit), "{problem}");
            }
        }
    }

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_option_has_an_environment_variable() {
        fn walk(command: &clap::Command) {
            for argument in command
                .get_arguments()
                .filter(|argument| !argument.is_positional())
            {
                let name = argument.get_id().as_str();
                if !matches!(name, "help" | "version") {
                    let variable = argument
                        .get_env()
                        .map(|name| name.to_string_lossy().into_owned());
                    assert!(
                        variable.is_some_and(|name| name.starts_with("POSTERN_")),
                        "--{name} of {}",
                        command.get_name()
                    );
                }
            }
            command.get_subcommands().for_each(walk);
        }
        walk(&Cli::command());
    }
}
