//! What an edge is told at its start.

use std::{fmt, path::PathBuf, sync::Arc, time::Duration};

use postern_types::{Id, Intention, Mode};

use crate::owner_tools::ToolServer;

/// The channel token. It has no text form, so that it reaches no log, error or span.
#[derive(Clone)]
pub struct Token(Arc<str>);

impl Token {
    /// The token as read from its file, without white space around it.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(text.trim().into())
    }

    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl From<String> for Token {
    fn from(text: String) -> Self {
        Self::new(&text)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Token(…)")
    }
}

/// Which sessions are let in (CONTRACT.md, section 2).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Sessions {
    /// Every session, as it comes.
    #[default]
    Open,
    /// Each one once the owner has let it in.
    Ask,
}

/// What an edge is told at its start. [`Config::new`] fills in the contract's figures.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where the host is: `http:`, `https:`, `ws:` or `wss:`, a path before the endpoint allowed.
    pub host_url: String,
    /// The workspace.
    pub workspace_id: Id,
    /// The launch's intention.
    pub intention: Intention,
    /// The channel token.
    pub token: Token,
    /// Real path of the project's root, to be pinned.
    pub project_path: PathBuf,
    /// The same for the policy's rules, when the services of files and commands see the project under that path; absolute
    /// paths are left to the owner when it is absent.
    pub path_for_rules: Option<PathBuf>,
    /// Device of the root.
    pub device: u64,
    /// Inode of the root.
    pub inode: u64,
    /// Whether an existing pin that differs is replaced.
    pub repin: bool,
    /// Mode at the start.
    pub mode: Mode,
    /// Which sessions are let in.
    pub sessions: Sessions,
    /// Whether the token may travel in plaintext to a host that is not on loopback.
    pub allow_plaintext: bool,
    /// TLS settings for hosts with a private authority; the public web's roots when absent.
    pub tls: Option<Arc<rustls::ClientConfig>>,
    /// How long an approval or a question waits for the owner.
    pub approval_timeout: Duration,
    /// How long a connection may take, up to the host's answer to the upgrade.
    pub connect_timeout: Duration,
    /// How long the host may take to say ready.
    pub ready_timeout: Duration,
    /// Time between pings.
    pub ping_interval: Duration,
    /// Time with nothing received after which the host is gone.
    pub silence_limit: Duration,
    /// How long a service that is away is asked about an effect again before its call is answered `UNAVAILABLE`.
    /// With the hop's own deadline twice it stays below the 20 s within which a caller is answered.
    pub patience: Duration,
    /// Time that running effects have at the end.
    pub drain_limit: Duration,
    /// MCP servers whose tools the owner offers; [`ToolServer::check_all`] says whether they can be used.
    pub tools: Vec<ToolServer>,
}

impl Config {
    /// The contract's time for the host to say ready.
    pub const READY_TIMEOUT: Duration = Duration::from_secs(10);
    /// The contract's time between pings.
    pub const PING_INTERVAL: Duration = Duration::from_secs(20);
    /// The contract's time with nothing received after which the host is gone.
    pub const SILENCE_LIMIT: Duration = Duration::from_secs(60);

    /// A configuration with the contract's times (CONTRACT.md, sections 1 and 6).
    #[must_use]
    pub fn new(
        host_url: String,
        workspace_id: Id,
        intention: Intention,
        token: impl Into<Token>,
        project_path: impl Into<PathBuf>,
        device: u64,
        inode: u64,
    ) -> Self {
        Self {
            host_url,
            workspace_id,
            intention,
            token: token.into(),
            project_path: project_path.into(),
            path_for_rules: None,
            device,
            inode,
            repin: false,
            mode: Mode::default(),
            sessions: Sessions::default(),
            allow_plaintext: false,
            tls: None,
            approval_timeout: Duration::from_secs(600),
            connect_timeout: Duration::from_secs(10),
            ready_timeout: Self::READY_TIMEOUT,
            ping_interval: Self::PING_INTERVAL,
            silence_limit: Self::SILENCE_LIMIT,
            patience: Duration::from_secs(4),
            drain_limit: Duration::from_secs(10),
            tools: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_has_no_text_form() {
        let token = Token::new(" postern_channel_secret\n");
        assert_eq!(token.expose(), "postern_channel_secret");
        assert!(!format!("{token:?}").contains("secret"));
    }
}
