//! Client configurations that start `postern mcp`, ready to paste.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::{
    cli::{Mcp, McpClient, Profile},
    error::Error,
};

/// The configuration of a client, with this program and these options.
pub(super) fn for_client(client: McpClient, arguments: &Mcp) -> Result<String, Error> {
    let program = std::env::current_exe()
        .map_err(|problem| Error::failed("this program's own path is unknown", problem))?;
    let words = words(arguments)?;
    let server = json!({"command": program.display().to_string(), "args": words});
    Ok(match client {
        McpClient::ClaudeCode => pretty(&json!({"mcpServers": {"postern": typed(server)}})),
        McpClient::ClaudeDesktop | McpClient::Cursor => {
            pretty(&json!({"mcpServers": {"postern": server}}))
        }
        McpClient::Vscode => pretty(&json!({"servers": {"postern": typed(server)}})),
        McpClient::Codex => codex(&program, &words),
    })
}

fn typed(mut server: Value) -> Value {
    server["type"] = "stdio".into();
    server
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

/// TOML, whose basic strings are written as JSON's.
fn codex(program: &Path, words: &[String]) -> String {
    let quoted = |text: &str| Value::from(text).to_string();
    let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
    format!(
        "[mcp_servers.postern]\ncommand = {}\nargs = [{}]",
        quoted(&program.display().to_string()),
        words.join(", ")
    )
}

/// The command line; a client starts its servers in a directory of its own, so paths are whole.
fn words(arguments: &Mcp) -> Result<Vec<String>, Error> {
    let mut words = vec![
        "mcp".to_owned(),
        "--host".to_owned(),
        arguments.access.host.clone(),
        "--token-file".to_owned(),
        whole(&arguments.access.token_file)?.display().to_string(),
    ];
    if arguments.profile == Profile::Full {
        words.extend(["--profile".to_owned(), "full".to_owned()]);
    }
    if let Some(root) = &arguments.upload_root {
        words.extend([
            "--upload-root".to_owned(),
            whole(root)?.display().to_string(),
        ]);
    }
    if arguments.access.allow_plaintext {
        words.push("--allow-plaintext".to_owned());
    }
    Ok(words)
}

fn whole(path: &Path) -> Result<PathBuf, Error> {
    std::path::absolute(path).map_err(|problem| {
        Error::Usage(format!(
            "the path '{}' cannot be used: {problem}",
            path.display()
        ))
    })
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;
    use crate::cli::HostAccess;

    fn arguments() -> Mcp {
        Mcp {
            access: HostAccess {
                host: "http://127.0.0.1:7300".to_owned(),
                token_file: "/run/a \"token\"".into(),
                allow_plaintext: false,
            },
            profile: Profile::Full,
            upload_root: Some("/srv/up".into()),
            print_config: None,
        }
    }

    #[test]
    fn every_client_is_told_the_same_command() {
        let expected = json!([
            "mcp",
            "--host",
            "http://127.0.0.1:7300",
            "--token-file",
            "/run/a \"token\"",
            "--profile",
            "full",
            "--upload-root",
            "/srv/up"
        ]);
        for (client, pointer) in [
            (McpClient::ClaudeCode, "/mcpServers/postern"),
            (McpClient::ClaudeDesktop, "/mcpServers/postern"),
            (McpClient::Cursor, "/mcpServers/postern"),
            (McpClient::Vscode, "/servers/postern"),
        ] {
            let text = for_client(client, &arguments()).expect("configuration");
            let value: Value = serde_json::from_str(&text).expect("JSON");
            let server = value.pointer(pointer).expect("server");
            assert_eq!(server["args"], expected, "{client:?}");
            assert!(
                server["command"]
                    .as_str()
                    .is_some_and(|it| it.starts_with('/'))
            );
        }
        let text = for_client(McpClient::Codex, &arguments()).expect("configuration");
        assert!(
            text.starts_with("[mcp_servers.postern]\ncommand = \"/"),
            "{text}"
        );
        assert!(text.contains(r#""/run/a \"token\"""#), "{text}");
    }
}
