//! Client configurations that start `postern mcp`, ready to paste.

use std::path::Path;

use serde_json::{Value, json};

use crate::{
    cli::{Mcp, McpClient, Profile},
    error::Error,
};

/// How long Codex is to wait for a call, in seconds: an approval may take ten minutes. It gives up after one by itself.
const CODEX_PATIENCE: u64 = 660;

/// The configuration of a client, with this program and these options.
///
/// # Errors
/// When the client would read a path as something else than what it is.
pub(super) fn for_client(client: McpClient, arguments: &Mcp) -> Result<String, Error> {
    let program = std::env::current_exe()
        .map_err(|problem| Error::failed("this program's own path is unknown", problem))?;
    let program = text(&program)?;
    let words = words(arguments)?;
    for word in words.iter().chain([&program]) {
        demand_literal(client, word)?;
    }
    let server = json!({"type": "stdio", "command": program, "args": words});
    Ok(match client {
        McpClient::ClaudeCode | McpClient::Cursor => {
            pretty(&json!({"mcpServers": {"postern": server}}))
        }
        McpClient::ClaudeDesktop => {
            let server = json!({"command": program, "args": words});
            pretty(&json!({"mcpServers": {"postern": server}}))
        }
        McpClient::Vscode => pretty(&json!({"servers": {"postern": server}})),
        McpClient::Codex => codex(&program, &words),
    })
}

/// Some clients put variables into what they read, and have no way to write the mark of one as itself.
fn demand_literal(client: McpClient, word: &str) -> Result<(), Error> {
    let replaces = match client {
        McpClient::ClaudeCode | McpClient::Cursor | McpClient::Vscode => true,
        McpClient::ClaudeDesktop | McpClient::Codex => false,
    };
    if replaces && word.contains("${") {
        return Err(Error::Usage(format!(
            "this client would take '${{' in '{word}' for a variable; use a path without it"
        )));
    }
    Ok(())
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

/// TOML, whose basic strings are written as JSON's but for one character.
fn codex(program: &str, words: &[String]) -> String {
    let quoted = |text: &str| Value::from(text).to_string().replace('\u{7f}', "\\u007f");
    let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
    format!(
        "[mcp_servers.postern]\ncommand = {}\nargs = [{}]\ntool_timeout_sec = {CODEX_PATIENCE}",
        quoted(program),
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
        whole(&arguments.access.token_file)?,
    ];
    if arguments.profile == Profile::Full {
        words.extend(["--profile".to_owned(), "full".to_owned()]);
    }
    if let Some(root) = &arguments.upload_root {
        words.extend(["--upload-root".to_owned(), whole(root)?]);
    }
    if arguments.access.allow_plaintext {
        words.push("--allow-plaintext".to_owned());
    }
    Ok(words)
}

fn whole(path: &Path) -> Result<String, Error> {
    let path = std::path::absolute(path).map_err(|problem| {
        Error::Usage(format!(
            "the path '{}' cannot be used: {problem}",
            path.display()
        ))
    })?;
    text(&path)
}

/// A path as configurations hold it.
fn text(path: &Path) -> Result<String, Error> {
    path.to_str().map(str::to_owned).ok_or_else(|| {
        Error::Usage(format!(
            "the path '{}' is not UTF-8, which a configuration must be; use another one",
            path.display()
        ))
    })
}

#[cfg(test)]
mod tests {
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt as _};

    use clap::ValueEnum as _;
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

    #[test]
    fn a_path_that_a_client_would_read_as_another_is_refused() {
        let mut arguments = arguments();
        arguments.access.token_file = "/run/${HOME}/token".into();
        for client in McpClient::value_variants() {
            let refused = for_client(*client, &arguments).is_err();
            let literal = matches!(client, McpClient::ClaudeDesktop | McpClient::Codex);
            assert_eq!(refused, !literal, "{client:?}");
        }
        arguments.access.token_file = OsStr::from_bytes(b"/run/\xff").into();
        for client in McpClient::value_variants() {
            let refused = for_client(*client, &arguments).expect_err("not UTF-8");
            assert!(refused.to_string().contains("UTF-8"), "{refused}");
        }
    }
}
