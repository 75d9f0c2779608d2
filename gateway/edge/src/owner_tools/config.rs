//! What the owner says of one tool server: the `[[tools]]` tables of his configuration.

use std::{collections::BTreeMap, fmt, path::PathBuf, time::Duration};

use http::{HeaderName, HeaderValue, Uri, header};
use serde::{Deserialize, Serialize};

/// Servers of one edge.
pub const MAX_TOOL_SERVERS: usize = 16;
/// Characters of a server's name.
const NAME_CHARS: usize = 32;
/// Seconds that a call may take when the owner does not say.
const DEFAULT_TIMEOUT: u64 = 60;
/// Most seconds that he may say.
const MAX_TIMEOUT: u64 = 3600;

/// One MCP server whose tools the owner offers.
#[derive(Clone, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ToolServer {
    /// Name: 1 to 32 of `a-z`, `0-9` and `-`. Its tools are offered as `name__tool`.
    pub name: String,
    /// A program and its arguments, spoken to through its standard input and output, in the sandbox of commands.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// The program's directory, in the project; the root when empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cwd: String,
    /// Variables of the program, besides those of commands.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Names of variables that commands do not get and this program does.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env_pass: Vec<String>,
    /// Instead of a program: the URL of a server that speaks streamable HTTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Headers of each request to the URL.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// File with a bearer token for the URL. It is read at each connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,
    /// Seconds that a call may take without a sign of progress, 1 to 3600.
    #[serde(default = "default_timeout")]
    pub timeout: u64,
    /// The server's tools that are offered; all when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub only: Vec<String>,
    /// Tools that are not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub except: Vec<String>,
    /// Directories or files outside the project that the program may write; relative ones are meant from the root.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sandbox_write: Vec<String>,
    /// Whether it is used.
    #[serde(default = "enabled")]
    pub enabled: bool,
}

/// What is wrong with the owner's tool servers, and what would be right.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("tools: {0}")]
pub struct InvalidTools(String);

const fn default_timeout() -> u64 {
    DEFAULT_TIMEOUT
}

const fn enabled() -> bool {
    true
}

impl ToolServer {
    /// A server that is a program, with the defaults.
    #[must_use]
    pub fn program(name: &str, command: Vec<String>) -> Self {
        Self {
            command,
            ..Self::named(name)
        }
    }

    /// A server at a URL, with the defaults.
    #[must_use]
    pub fn at(name: &str, url: &str) -> Self {
        Self {
            url: Some(url.to_owned()),
            ..Self::named(name)
        }
    }

    fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            command: Vec::new(),
            cwd: String::new(),
            env: BTreeMap::new(),
            env_pass: Vec::new(),
            url: None,
            headers: BTreeMap::new(),
            token_file: None,
            timeout: DEFAULT_TIMEOUT,
            only: Vec::new(),
            except: Vec::new(),
            sandbox_write: Vec::new(),
            enabled: true,
        }
    }

    /// Refuses a list of servers that cannot be used as it is written.
    ///
    /// # Errors
    /// [`InvalidTools`], which names the server and says what would be right.
    pub fn check_all(servers: &[Self]) -> Result<(), InvalidTools> {
        if servers.len() > MAX_TOOL_SERVERS {
            return Err(InvalidTools(format!(
                "there are {} servers; at most {MAX_TOOL_SERVERS} may be named",
                servers.len()
            )));
        }
        for (index, server) in servers.iter().enumerate() {
            server.check()?;
            if servers[..index]
                .iter()
                .any(|other| other.name == server.name)
            {
                return Err(InvalidTools(format!(
                    "two servers are named '{}'; give each a name of its own",
                    server.name
                )));
            }
        }
        Ok(())
    }

    fn check(&self) -> Result<(), InvalidTools> {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if !(1..=NAME_CHARS).contains(&self.name.len()) || !self.name.chars().all(plain) {
            return Err(InvalidTools(format!(
                "{:?} is no server's name; write 1 to {NAME_CHARS} of a-z, 0-9 and '-'",
                self.name.chars().take(64).collect::<String>()
            )));
        }
        let refuse = |what: String| Err(InvalidTools(format!("'{}': {what}", self.name)));
        if !(1..=MAX_TIMEOUT).contains(&self.timeout) {
            return refuse(format!("`timeout` is 1 to {MAX_TIMEOUT} seconds"));
        }
        match (&self.url, self.command.is_empty()) {
            (Some(_), false) => refuse("give `command` or `url`, not both".to_owned()),
            (None, true) => refuse("give a `command` or a `url`".to_owned()),
            (None, false) => self.check_program().or_else(refuse),
            (Some(url), true) => self.check_url(url).or_else(refuse),
        }
    }

    fn check_program(&self) -> Result<(), String> {
        if self.command[0].is_empty() {
            return Err("the program's name is empty".to_owned());
        }
        if !self.headers.is_empty() || self.token_file.is_some() {
            return Err("`headers` and `token_file` go with a `url`".to_owned());
        }
        let all = self.env.keys().chain(&self.env_pass);
        for name in all {
            if name.is_empty() || name.contains(['=', '\0']) {
                return Err(format!("{name:?} is no variable's name"));
            }
            if name.starts_with("POSTERN_") {
                return Err(format!(
                    "'{name}' is a variable of Postern's own, which no server gets"
                ));
            }
        }
        Ok(())
    }

    fn check_url(&self, url: &str) -> Result<(), String> {
        let of_programs = self.env.is_empty()
            && self.env_pass.is_empty()
            && self.cwd.is_empty()
            && self.sandbox_write.is_empty();
        if !of_programs {
            return Err(
                "`cwd`, `env`, `env_pass` and `sandbox_write` go with a `command`".to_owned(),
            );
        }
        let uri: Uri = url
            .parse()
            .map_err(|_| "the `url` cannot be read; write https://host/path".to_owned())?;
        match (uri.scheme_str(), uri.host()) {
            (Some("https"), Some(_)) => {}
            (Some("http"), Some(host)) if is_loopback(host) => {}
            (Some("http"), Some(_)) => {
                return Err(
                    "plain http goes to this machine alone; write https:// for others".to_owned(),
                );
            }
            _ => return Err("write the `url` as https://host/path".to_owned()),
        }
        if uri.authority().is_some_and(|it| it.as_str().contains('@')) {
            return Err("the `url` holds credentials; put a token into a `token_file`".to_owned());
        }
        self.header_map().map(drop)
    }

    /// The headers of each request. Values are never told.
    pub(super) fn header_map(&self) -> Result<Vec<(HeaderName, HeaderValue)>, String> {
        let mut all = Vec::new();
        for (name, value) in &self.headers {
            let parsed: HeaderName = name
                .parse()
                .map_err(|_| format!("{name:?} is no header's name"))?;
            let is_own = RESERVED.contains(&parsed) || parsed.as_str().starts_with("mcp-");
            if is_own {
                return Err(format!(
                    "the header '{name}' is set by the protocol; leave it out"
                ));
            }
            let mut value = HeaderValue::from_str(value)
                .map_err(|_| format!("the value of the header '{name}' cannot be sent"))?;
            value.set_sensitive(true);
            all.push((parsed, value));
        }
        Ok(all)
    }

    /// How long a call may take without progress.
    pub(super) const fn call_timeout(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }

    /// Whether a tool of this name is offered.
    pub(super) fn offers(&self, tool: &str) -> bool {
        let named = |list: &[String]| list.iter().any(|name| name == tool);
        (self.only.is_empty() || named(&self.only)) && !named(&self.except)
    }
}

/// Headers that belong to the protocol.
const RESERVED: [HeaderName; 7] = [
    header::ACCEPT,
    header::CONTENT_TYPE,
    header::CONTENT_LENGTH,
    header::CONNECTION,
    header::HOST,
    header::TRANSFER_ENCODING,
    HeaderName::from_static("last-event-id"),
];

/// Whether a URL's host is this machine, written so that no look-up of a name decides.
pub(super) fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost"
        || bare
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

/// Values of variables and headers may be secrets; they are not shown.
impl fmt::Debug for ToolServer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |map: &BTreeMap<String, String>| map.keys().cloned().collect::<Vec<_>>();
        formatter
            .debug_struct("ToolServer")
            .field("name", &self.name)
            .field("command", &self.command)
            .field("env", &names(&self.env))
            .field("url", &self.url)
            .field("headers", &names(&self.headers))
            .field("enabled", &self.enabled)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    fn refusal(change: impl FnOnce(&mut ToolServer)) -> String {
        let mut server = ToolServer::program("fs", vec!["node".to_owned()]);
        change(&mut server);
        ToolServer::check_all(&[server])
            .expect_err("refused")
            .to_string()
    }

    #[test]
    fn what_cannot_be_used_is_refused_with_what_would_be_right() {
        for (told, part) in [
            (refusal(|it| it.name = "Fs".into()), "a-z, 0-9"),
            (refusal(|it| it.name = "a__b".into()), "a-z, 0-9"),
            (refusal(|it| it.name = "x".repeat(33)), "1 to 32"),
            (refusal(|it| it.command.clear()), "`command` or a `url`"),
            (refusal(|it| it.url = Some("https://x".into())), "not both"),
            (refusal(|it| it.timeout = 0), "1 to 3600"),
            (
                refusal(|it| drop(it.env.insert("POSTERN_X".into(), "1".into()))),
                "Postern's own",
            ),
            (
                refusal(|it| it.token_file = Some("t".into())),
                "go with a `url`",
            ),
        ] {
            assert!(told.contains(part), "{told}");
        }
        for (url, part) in [
            ("http://example.com/mcp", "this machine alone"),
            ("http://localhost.example.com/", "this machine alone"),
            ("ftp://x/", "https://host/path"),
            ("nonsense", "https://host/path"),
            ("https://me:secret@example.com/", "token_file"),
        ] {
            let told = ToolServer::check_all(&[ToolServer::at("web", url)]).expect_err(url);
            assert!(told.to_string().contains(part), "{told}");
            assert!(!told.to_string().contains("secret"), "{told}");
        }
        for url in [
            "http://127.0.0.1:9/mcp",
            "http://[::1]/",
            "https://example.com/mcp",
        ] {
            ToolServer::check_all(&[ToolServer::at("web", url)]).expect(url);
        }
        let twice = vec![ToolServer::at("web", "https://x"); 2];
        let told = ToolServer::check_all(&twice)
            .expect_err("twice")
            .to_string();
        assert!(told.contains("two servers are named 'web'"), "{told}");
    }

    #[test]
    fn headers_are_checked_and_their_values_never_shown() {
        let with = |name: &str, value: &str| {
            let mut server = ToolServer::at("web", "https://example.com");
            server.headers.insert(name.to_owned(), value.to_owned());
            server
        };
        for (name, value) in [
            ("Mcp-Session-Id", "x"),
            ("Host", "x"),
            ("a b", "x"),
            ("X", "a\n"),
        ] {
            ToolServer::check_all(&[with(name, value)]).expect_err(name);
        }
        let server = with("X-Api-Key", "secret");
        ToolServer::check_all(std::slice::from_ref(&server)).expect("fine");
        assert!(!format!("{server:?}").contains("secret"));
    }

    #[test]
    fn a_filter_names_the_servers_own_tools() {
        let mut server = ToolServer::at("web", "https://example.com");
        let offered = |server: &ToolServer| ["a", "b"].map(|tool| server.offers(tool));
        assert_eq!(offered(&server), [true, true]);
        server.only = vec!["a".to_owned()];
        assert_eq!(offered(&server), [true, false]);
        server.only.clear();
        server.except = vec!["a".to_owned()];
        assert_eq!(offered(&server), [false, true]);
    }
}
