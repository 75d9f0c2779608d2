//! The MCP bundle and its `server.json`, as `packaging/mcp/build` makes them.
#![expect(clippy::expect_used, reason = "tests fail by panicking")]

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use postern_tests::{Ended, Ready, World, binary, client, text_of};
use postern_types::Sha256;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use tokio::process::Command;

/// One command line, on a loaded machine.
const LIMIT: Duration = Duration::from_secs(60);

/// Runs the script over a program with this content.
async fn build_of(world: &World, out: &Path, content: &[u8], further: &[&str]) -> Ended {
    let program = world.outside().join("program");
    fs::write(&program, content).expect("a program");
    let mut build = Command::new("/usr/bin/python3");
    build
        .arg(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../packaging/mcp/build"
        ))
        .args(["--namespace", "org.example", "--program"])
        .arg(program)
        .arg("--out")
        .arg(out)
        .args(further);
    world.run_client(build, LIMIT).await
}

/// Runs the script. What it packs is not the program itself, which unoptimised takes long to pack, but a script that is
/// replaced by it.
async fn build(world: &World, out: &Path, url: &str) -> Ended {
    let script = format!("#!/bin/sh\nexec '{}' \"$@\"\n", binary().display());
    let further = ["--url", url, "--architecture", std::env::consts::ARCH];
    build_of(world, out, script.as_bytes(), &further).await
}

/// The head of a program for a machine, by its number in elf(5).
fn elf(machine: u16) -> Vec<u8> {
    let mut head = b"\x7fELF\x02\x01\x01".to_vec();
    head.resize(18, 0);
    head.extend(machine.to_le_bytes());
    head
}

#[tokio::test]
async fn the_bundle_is_named_after_what_the_program_runs_on() {
    let world = World::new();
    let out = world.outside().join("out");
    let url = ["--url", "https://example.org/releases/"];
    for (machine, name) in [(62, "x86_64"), (183, "aarch64")] {
        let ended = build_of(&world, &out, &elf(machine), &url).await;
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let told = ended.stdout.lines().next().unwrap_or_default();
        assert!(told.ends_with(&format!("-linux-{name}.mcpb")), "{told}");
        assert!(Path::new(told).is_file());
    }
    for content in [&elf(40)[..], b"#!/bin/sh\n", b""] {
        let ended = build_of(&world, &out, content, &url).await;
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert!(ended.stderr.contains("--architecture"), "{ended:?}");
    }
}

/// The official tool for bundles.
async fn mcpb(world: &World, words: &[&Path]) -> Ended {
    let mut tool = client::node("node_modules/@anthropic-ai/mcpb/dist/cli/cli.js");
    tool.args(words);
    let ended = world.run_client(tool, LIMIT).await;
    assert_eq!(ended.code, Some(0), "{words:?}: {ended:?}");
    ended
}

fn built(out: &Path) -> PathBuf {
    let name = format!(
        "postern-{}-linux-{}.mcpb",
        env!("CARGO_PKG_VERSION"),
        std::env::consts::ARCH
    );
    out.join(name)
}

/// The command line of a manifest, with what a client puts in place of its variables.
fn command_line(manifest: &Value, folder: &Path, host: &str, token: &Path) -> Vec<String> {
    let server = &manifest["server"]["mcp_config"];
    let mut words = vec![text_of(server, "command")];
    for word in server["args"].as_array().expect("arguments") {
        words.push(word.as_str().expect("a word").to_owned());
    }
    let profile = text_of(&manifest["user_config"]["profile"], "default");
    for word in &mut words {
        *word = word
            .replace("${__dirname}", folder.to_str().expect("text"))
            .replace("${user_config.host}", host)
            .replace("${user_config.token_file}", token.to_str().expect("text"))
            .replace("${user_config.profile}", &profile);
        assert!(!word.contains("${"), "a variable that no one knows: {word}");
    }
    words
}

/// The tools of the server that a manifest starts.
async fn tools(world: &World, ready: &Ready, manifest: &Value, folder: &Path) -> Vec<Value> {
    let token = world.outside().join("token");
    fs::write(&token, &ready.agent_token).expect("a token");
    let host = ready.mcp_url.trim_end_matches("/mcp");
    let words = command_line(manifest, folder, host, &token);
    let mut bridge = world.bridge_by(Path::new(&words[0]), &words[1..]);
    bridge.handshake("2025-11-25").await;
    bridge.ask(1, "tools/list", json!({})).await;
    let listed = bridge.answer(1).await;
    listed["result"]["tools"].as_array().expect("tools").clone()
}

#[tokio::test]
async fn the_bundle_is_valid_and_starts_the_server() {
    let world = World::new();
    let (out, folder) = (
        world.outside().join("out"),
        world.outside().join("un packed"),
    );
    let ended = build(&world, &out, "https://example.org/releases/").await;
    assert_eq!(ended.code, Some(0), "{ended:?}");

    mcpb(&world, &[Path::new("unpack"), &built(&out), &folder]).await;
    mcpb(
        &world,
        &[Path::new("validate"), &folder.join("manifest.json")],
    )
    .await;
    let again = world.outside().join("again.mcpb");
    mcpb(&world, &[Path::new("pack"), &folder, &again]).await;

    let program = folder.join("server/postern");
    let mode = fs::metadata(&program).expect("it is there").permissions();
    assert_eq!(mode.mode() & 0o777, 0o755);
    let manifest = fs::read(folder.join("manifest.json")).expect("a manifest");
    let manifest: Value = serde_json::from_slice(&manifest).expect("JSON");
    assert_eq!(manifest["version"], env!("CARGO_PKG_VERSION"));
    let door = world.up("full").await;
    let listed = tools(&world, &door.ready, &manifest, &folder).await;
    let told = listed
        .iter()
        .map(|tool| json!({"name": tool["name"], "description": tool["description"]}));
    assert_eq!(json!(told.collect::<Vec<_>>()), manifest["tools"]);
    assert_eq!(door.stop().await.code, Some(0));
}

/// The rules of the registry's schema of 2025-12-11 for the fields that are written, and no others.
fn rules() -> Value {
    json!({
        "type": "object",
        "required": ["$schema", "name", "title", "description", "version", "packages"],
        "additionalProperties": false,
        "properties": {
            "$schema": {"const": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"},
            "name": {"type": "string", "minLength": 3, "maxLength": 200, "pattern": "^[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+$"},
            "title": {"type": "string", "minLength": 1, "maxLength": 100},
            "description": {"type": "string", "minLength": 1, "maxLength": 100},
            "version": {"type": "string", "maxLength": 255, "pattern": "^[0-9]+\\.[0-9]+\\.[0-9]+"},
            "packages": {"type": "array", "minItems": 1, "items": {
                "type": "object",
                "required": ["registryType", "identifier", "fileSha256", "transport"],
                "additionalProperties": false,
                "properties": {
                    "registryType": {"const": "mcpb"},
                    "identifier": {"type": "string", "pattern": "^https://.+\\.mcpb$"},
                    "version": {"type": "string", "minLength": 1, "not": {"const": "latest"}},
                    "fileSha256": {"type": "string", "pattern": "^[a-f0-9]{64}$"},
                    "transport": {"const": {"type": "stdio"}}
                }
            }}
        }
    })
}

#[tokio::test]
async fn server_json_meets_the_registrys_schema_and_names_the_bundle() {
    let world = World::new();
    let out = world.outside().join("out");
    let ended = build(&world, &out, "https://example.org/releases").await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let text = fs::read(out.join("server.json")).expect("it is there");
    let server: Value = serde_json::from_slice(&text).expect("JSON");
    let rules = jsonschema::draft7::new(&rules()).expect("a schema");
    let broken: Vec<String> = rules
        .iter_errors(&server)
        .map(|it| it.to_string())
        .collect();
    assert!(broken.is_empty(), "{broken:?}");
    let bundle = fs::read(built(&out)).expect("it is there");
    let package = &server["packages"][0];
    assert_eq!(
        text_of(package, "fileSha256"),
        Sha256::of(&bundle).to_string()
    );
    let name = built(&out);
    let name = name
        .file_name()
        .and_then(|name| name.to_str())
        .expect("text");
    assert_eq!(
        text_of(package, "identifier"),
        format!("https://example.org/releases/{name}")
    );

    let again = world.outside().join("again");
    build(&world, &again, "https://example.org/releases").await;
    let same = fs::read(built(&again)).expect("it is there") == bundle;
    assert!(same, "the same program gives the same bytes");
}

#[tokio::test]
async fn an_address_that_is_none_builds_nothing() {
    let world = World::new();
    let out = world.outside().join("out");
    let ended = build(&world, &out, "ftp://example.org").await;
    assert_eq!(ended.code, Some(1));
    assert!(
        ended.stderr.starts_with("error: 'ftp://example.org'"),
        "{ended:?}"
    );
    assert!(!out.exists());
}
