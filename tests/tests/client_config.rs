//! Configurations of clients as the program prints them: each is read as its client reads it, and the server that it names
//! is started, or reached, exactly so.
#![expect(clippy::expect_used, reason = "tests fail by panicking")]

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use postern_tests::{Ended, Program, World, binary, client, text_of};
use pretty_assertions::assert_eq;
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::process::Command;

/// One command line, on a loaded machine.
const LIMIT: Duration = Duration::from_secs(60);

/// Whatever a file system takes and a configuration or a shell could trip over.
const AWKWARD: &str = r#"it's "awkward" \ $HOME `x` #1 漢"#;

/// A copy of the program in an awkward place.
fn awkward_program(world: &World) -> PathBuf {
    let folder = world.outside().join(AWKWARD);
    fs::create_dir(&folder).expect("a directory");
    let program = folder.join("postern");
    // A link that is no symbolic one: the program looks up where it really lies.
    if fs::hard_link(binary(), &program).is_err() {
        fs::copy(binary(), &program).expect("a copy");
    }
    program
}

async fn told(world: &World, program: &Path, arguments: &[OsString]) -> Ended {
    let mut command = Command::new(program);
    command.args(arguments);
    let ended = world.run_client(command, LIMIT).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    ended
}

/// The server in the configuration of a client.
async fn server(world: &World, client: &str, text: &str) -> Value {
    if client == "codex" {
        let parser = "import json, sys, tomllib; print(json.dumps(tomllib.loads(sys.argv[1])))";
        let arguments = ["-c", parser, text].map(OsString::from);
        let parsed = told(world, &client::python(), &arguments).await;
        let value: Value = serde_json::from_str(&parsed.stdout).expect("JSON");
        return value["mcp_servers"]["postern"].clone();
    }
    let value: Value = serde_json::from_str(text).expect("JSON");
    let list = match client {
        "vscode" => "servers",
        _ => "mcpServers",
    };
    value[list]["postern"].clone()
}

/// The tools of a server that a client starts.
async fn tools(world: &World, server: &Value) -> usize {
    let words = server["args"].as_array().expect("arguments");
    let words: Vec<String> = words
        .iter()
        .map(|word| word.as_str().expect("a word").to_owned())
        .collect();
    let mut bridge = world.bridge_by(Path::new(&text_of(server, "command")), &words);
    bridge.handshake("2025-11-25").await;
    bridge.ask(1, "tools/list", json!({})).await;
    let listed = bridge.answer(1).await;
    bridge.close();
    assert_eq!(bridge.ended(LIMIT).await, (Some(0), Vec::new()));
    listed["result"]["tools"].as_array().expect("tools").len()
}

#[tokio::test]
async fn every_client_starts_the_server_that_it_is_told_of() {
    let world = World::new();
    let door = world.up("full").await;
    let program = awkward_program(&world);
    let folder = world.outside().join(AWKWARD);
    let token = folder.join("token");
    fs::write(&token, &door.ready.agent_token).expect("a token");
    for client in ["claude-code", "claude-desktop", "codex", "cursor", "vscode"] {
        let host = door.ready.mcp_url.trim_end_matches("/mcp");
        let mut arguments: Vec<OsString> = ["mcp", "--profile", "full", "--host", host]
            .iter()
            .map(OsString::from)
            .collect();
        arguments.extend(["--print-config", client, "--token-file"].map(OsString::from));
        arguments.push(token.clone().into());
        arguments.push("--upload-root".into());
        arguments.push(folder.clone().into());
        let printed = told(&world, &program, &arguments).await.stdout;
        let server = server(&world, client, &printed).await;
        assert_eq!(text_of(&server, "command"), program.to_str().expect("text"));
        let kind = match client {
            "claude-desktop" | "codex" => Value::Null,
            _ => json!("stdio"),
        };
        assert_eq!(server["type"], kind, "{client}");
        // The 15 tools of the workspace, the two of the host, and the upload.
        assert_eq!(tools(&world, &server).await, 18, "{client}");
    }
    assert_eq!(door.stop().await.code, Some(0));
}

/// `up` as a person starts it, in a world whose data lies in an awkward place.
async fn up(world: &World) -> (Program, String) {
    let mut arguments = world.up_arguments("full", &["--profile", "full"]);
    arguments.retain(|word| word != "--json" && word != world.data().as_os_str());
    let data = arguments.iter().position(|word| word == "--data-dir");
    let data = data.expect("a data directory") + 1;
    arguments.insert(data, world.outside().join(AWKWARD).into());
    let mut program = world.start(&arguments);
    let text = program.text_until("Ctrl-C", LIMIT).await;
    (program, text)
}

#[tokio::test]
async fn what_up_prints_works_when_it_is_pasted() {
    let world = World::new();
    let (program, text) = up(&world).await;

    // The endpoint, by a client that reads such a file.
    let block = text.find("\n{").expect("a configuration");
    let rest = &text[block..];
    let block = &rest[..rest.find("\n}").expect("its end") + 2];
    let file = world.outside().join("mcp.json");
    fs::write(&file, block).expect("a file");
    let mut inspector = client::node(client::INSPECTOR);
    inspector
        .args(["--cli", "--format", "json", "--method", "tools/list"])
        .args(["--server", "postern", "--config"])
        .arg(&file)
        .env("MCP_INSPECTOR_SECRET_STORE", "memory");
    let listed = world.run_client(inspector, LIMIT).await;
    assert_eq!(listed.code, Some(0), "{listed:?}");
    let listed: Value = serde_json::from_str(&listed.stdout).expect("JSON");
    let count = listed["result"]["tools"].as_array().map(Vec::len);
    assert_eq!(count, Some(17), "the full profile");

    // The other forms, by a shell.
    let line = text
        .lines()
        .find(|line| line.starts_with("postern mcp "))
        .expect("a command line")
        .replace("CLIENT", "codex");
    let mut shell = Command::new("/bin/sh");
    let path = binary().with_file_name("").display().to_string();
    shell
        .args(["-c", &line])
        .env("PATH", format!("{path}:/usr/bin:/bin"));
    let printed = world.run_client(shell, LIMIT).await;
    assert_eq!(printed.code, Some(0), "{line}: {printed:?}");
    let server = server(&world, "codex", &printed.stdout).await;
    assert_eq!(tools(&world, &server).await, 17);

    program.signal(Signal::TERM);
    assert_eq!(program.ended(LIMIT).await.code, Some(0));
}
