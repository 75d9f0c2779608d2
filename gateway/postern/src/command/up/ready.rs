//! What `postern up` says once the door is open.

use std::path::Path;

use postern_edge::Event;
use postern_types::Mode;
use serde_json::json;
use tokio::sync::mpsc;

use super::provision::{AGENT_TOKEN_FILE, Provision};
use crate::{
    cli::{Profile, Up},
    command::edge::Running,
    data_dir::DataDir,
    output,
};

/// Everything that an agent or the owner needs to come in.
pub(crate) struct Ready {
    /// MCP endpoint.
    pub(crate) mcp_url: String,
    /// Token for it.
    pub(crate) agent_token: String,
    /// Owner's console.
    pub(crate) console_url: String,
    /// One-time link to it, for a browser.
    pub(crate) console_link: Option<postern_edge::owner::Link>,
    /// Token for it.
    pub(crate) owner_token: String,
    /// Page of figures, when there is one.
    pub(crate) metrics: Option<String>,
    /// Workspace.
    pub(crate) workspace_id: String,
    /// Intention.
    pub(crate) intention: String,
    /// Where state lies.
    pub(crate) data_dir: String,
    /// Which tools the printed configuration asks for.
    pub(crate) profile: Profile,
    /// The owner's mode.
    pub(crate) mode: Mode,
}

impl Ready {
    /// What is told of one start.
    pub(crate) fn new(
        url: &str,
        metrics: Option<String>,
        provision: &Provision,
        running: &Running,
        data: &DataDir,
        arguments: &Up,
    ) -> Self {
        Self {
            mcp_url: format!("{url}/mcp"),
            metrics,
            agent_token: provision.agent_token.clone(),
            console_url: running.console_url.clone().unwrap_or_default(),
            console_link: running.console_link(),
            owner_token: running.owner_token.clone(),
            workspace_id: provision.workspace.to_string(),
            intention: provision.intention.to_string(),
            data_dir: data.path().display().to_string(),
            profile: arguments.profile,
            mode: arguments.owner.mode,
        }
    }

    /// Says once that everything is ready, and then what becomes of the channel.
    pub(crate) async fn tell(self, mut events: mpsc::Receiver<Event>, json: bool) {
        let mut said = false;
        while let Some(event) = events.recv().await {
            match event {
                Event::Connected if !said => {
                    said = true;
                    output::either(json, &self.json(), &self.text());
                }
                Event::Connected => {
                    output::either(json, &json!({"event": "connected"}), "connected again");
                }
                Event::Disconnected { reason } => {
                    output::either(
                        json,
                        &json!({"event": "disconnected", "reason": reason}),
                        &format!("disconnected: {reason}"),
                    );
                }
            }
        }
    }

    fn url(&self) -> String {
        match self.profile {
            Profile::Core => self.mcp_url.clone(),
            Profile::Full => format!("{}?profile=full", self.mcp_url),
        }
    }

    fn json(&self) -> serde_json::Value {
        let mut line = json!({
            "event": "ready",
            "mcpUrl": self.url(),
            "agentToken": self.agent_token,
            "consoleUrl": self.console_url,
            "consoleLink": self.console_link.as_ref().map(|link| &link.url),
            "ownerToken": self.owner_token,
            "workspaceId": self.workspace_id,
            "intention": self.intention,
            "dataDir": self.data_dir,
        });
        // Who did not ask for a page gets the fields of the contract.
        if let Some(url) = &self.metrics {
            line["metrics"] = json!(url);
        }
        line
    }

    /// The command line that prints a configuration in a client's own form.
    fn other_clients(&self) -> String {
        let host = self.mcp_url.trim_end_matches("/mcp");
        let token = Path::new(&self.data_dir).join(AGENT_TOKEN_FILE);
        let token = shell_word(&token.display().to_string());
        let profile = match self.profile {
            Profile::Core => "",
            Profile::Full => " --profile full",
        };
        format!("postern mcp --host {host} --token-file {token}{profile} --print-config CLIENT")
    }

    fn text(&self) -> String {
        let client = json!({"mcpServers": {"postern": {
            "type": "http",
            "url": self.url(),
            "headers": {"Authorization": format!("Bearer {}", self.agent_token)},
        }}});
        let client = serde_json::to_string_pretty(&client).unwrap_or_default();
        let waits = match self.mode {
            Mode::ReadOnly => "agents can read, nothing else",
            Mode::Ask => "each change and command waits for you: postern inbox",
            Mode::Edit => "file changes go ahead, commands wait for you: postern inbox",
            Mode::Full => "everything goes ahead",
        };
        // The plain commands find the data directory of `up` in the current directory alone.
        let how = format!("POSTERN_DATA_DIR={}", shell_word(&self.data_dir));
        let other = self.other_clients();
        let (console, warning) = match &self.console_link {
            Some(link) => (&link.url, link.warning.unwrap_or_default()),
            None => (&self.console_url, ""),
        };
        let warning = match warning {
            "" => String::new(),
            warning => format!("           {warning}\n"),
        };
        format!(
            "The door is open.\n\n  agents   {}\n  console  {console}\n           (works once, for five minutes; another one: postern console)\n{warning}  mode     {} ({waits})\n  data     {}\n\nMCP client configuration:\n\n{client}\n\nOther forms (CLIENT: claude-desktop, codex, vscode …):\n{other}\n\nIn another terminal: export {how}\nthen: postern inbox, postern mode MODE, postern receipts list\n\nCtrl-C closes the door.",
            self.url(),
            self.mode,
            self.data_dir,
        )
    }
}

/// A word as a shell reads it.
fn shell_word(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+=:,@".contains(&byte);
    if text.bytes().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_pasted_into_a_shell_is_one_word() {
        assert_eq!(shell_word("/home/me/x-1.2"), "/home/me/x-1.2");
        assert_eq!(shell_word("/a b/it's"), "'/a b/it'\\''s'");
    }
}
