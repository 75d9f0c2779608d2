//! The official clients work a short day through `postern up`, over HTTP and through `postern mcp`, in both lifecycles, with
//! and without output schemas. (The Python client's whole day over HTTP is in `main_job`.)
#![expect(clippy::expect_used, reason = "tests fail by panicking")]

use std::time::Duration;

use postern_tests::{Door, World, binary, client, text_of};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use tokio::process::Command;

/// What one client does, on a loaded machine.
const DAY_LIMIT: Duration = Duration::from_secs(120);

/// Characters of one to four bytes.
const SMALL: &str = "aé漢🙂\nßb한𝄞c\r\n";

/// The way to the program.
#[derive(Clone, Copy, Debug)]
enum Transport {
    Http,
    Stdio,
}

use Transport::{Http, Stdio};

impl Transport {
    /// The server as in a client's configuration.
    fn server(self, world: &World, door: &Door) -> Value {
        match self {
            Http => door.ready.client_configuration(),
            Stdio => json!({
                "command": binary(),
                "args": world.bridge_arguments(&door.ready, &[]),
            }),
        }
    }
}

async fn prepared(schemas: bool) -> (World, Door) {
    let mut world = World::new();
    world.write("small.txt", SMALL.repeat(12));
    world.write("dot.png", client::DOT_PNG);
    if schemas {
        world.set("SOSOAPI_OUTPUT_SCHEMAS", "1");
    }
    let door = world.up("full").await;
    (world, door)
}

/// What a client said of its day.
async fn day(mut client: Command, transport: Transport, mode: &str, schemas: bool) -> String {
    let (world, door) = prepared(schemas).await;
    client
        .arg(transport.server(&world, &door).to_string())
        .arg(world.project())
        .arg(mode);
    let ended = world.run_client(client, DAY_LIMIT).await;
    assert!(
        ended.code == Some(0),
        "{transport:?} {mode}, schemas {schemas}: the client failed after:\n{}\n{}\nthe program said:\n{}",
        ended.stdout,
        ended.stderr,
        door.program.stderr()
    );
    assert_eq!(door.stop().await.code, Some(0));
    ended.stdout
}

async fn typescript(line: &str, transport: Transport, mode: &str, schemas: bool) -> String {
    let mut client = client::node("day.mjs");
    client.arg(line);
    day(client, transport, mode, schemas).await
}

fn typescript_day(version: &str, listed: &str) -> String {
    format!(
        "protocol {version}\nok list output schemas: {listed}\nok read\nok edit\nok run\nok look\nok giveUp\n"
    )
}

async fn python(transport: Transport, mode: &str, schemas: bool) {
    let mut client = Command::new(client::python());
    client
        .arg(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/clients/python/main_job.py"
        ))
        .arg("--quick");
    let said = day(client, transport, mode, schemas).await;
    let version = match mode {
        "legacy" => "2025-11-25",
        _ => "2026-07-28",
    };
    assert!(said.starts_with(&format!("protocol {version}\n")), "{said}");
    assert!(said.ends_with("ok give_up\n"), "{said}");
}

#[tokio::test]
async fn python_in_every_way() {
    tokio::join!(
        python(Stdio, "legacy", false),
        python(Stdio, "auto", false),
        python(Http, "legacy", true),
        python(Http, "auto", true),
    );
}

/// The one tool that has an output schema. The clients hold what they are told against it.
const LISTED: &str = "sosoapi_get_workspace_context";

#[tokio::test]
async fn typescript_line_1() {
    let (http, stdio, schemas) = tokio::join!(
        typescript("1", Http, "legacy", false),
        typescript("1", Stdio, "legacy", false),
        typescript("1", Http, "legacy", true),
    );
    assert_eq!(http, typescript_day("2025-11-25", "none"));
    // This client does not tell which version it came to over stdio.
    assert_eq!(stdio, typescript_day("unknown", "none"));
    assert_eq!(schemas, typescript_day("2025-11-25", LISTED));
}

#[tokio::test]
async fn typescript_line_2_with_handshake() {
    let (http, stdio, schemas) = tokio::join!(
        typescript("2", Http, "legacy", false),
        typescript("2", Stdio, "legacy", false),
        typescript("2", Http, "legacy", true),
    );
    assert_eq!(http, typescript_day("2025-11-25", "none"));
    assert_eq!(stdio, typescript_day("2025-11-25", "none"));
    assert_eq!(schemas, typescript_day("2025-11-25", LISTED));
}

#[tokio::test]
async fn typescript_line_2_without_handshake() {
    let (http, stdio, schemas) = tokio::join!(
        typescript("2", Http, "auto", false),
        typescript("2", Stdio, "auto", false),
        typescript("2", Stdio, "auto", true),
    );
    assert_eq!(http, typescript_day("2026-07-28", "none"));
    assert_eq!(stdio, typescript_day("2026-07-28", "none"));
    assert_eq!(schemas, typescript_day("2026-07-28", LISTED));
}

/// One command line of the inspector, as a person types it: its exit code, and the result that it wrote.
async fn inspect(world: &World, server: &Value, era: &str, method: &[&str]) -> (i32, Value) {
    let mut client = client::node(client::INSPECTOR);
    client
        .args(["--cli", "--format", "json", "--protocol-era", era])
        .args(method)
        .env("MCP_INSPECTOR_SECRET_STORE", "memory");
    match server["url"].as_str() {
        Some(url) => {
            let authorization = text_of(&server["headers"], "Authorization");
            client
                .args(["--transport", "http", "--server-url", url, "--header"])
                .arg(format!("Authorization: {authorization}"));
        }
        None => {
            let words = server["args"].as_array().expect("words");
            client.arg("--").arg(text_of(server, "command"));
            client.args(words.iter().map(|word| word.as_str().expect("a word")));
        }
    }
    let ended = world.run_client(client, DAY_LIMIT).await;
    let written = serde_json::from_str::<Value>(&ended.stdout)
        .unwrap_or_else(|problem| panic!("{problem}: {}\n{}", ended.stdout, ended.stderr));
    (ended.code.expect("an exit code"), written["result"].clone())
}

/// What the inspector makes of a list, a result and an error. It tells an error result by its exit code.
async fn inspection(world: &World, server: &Value, era: &str) {
    let (code, list) = inspect(world, server, era, &["--method", "tools/list", "--strict"]).await;
    let tools = list["tools"].as_array().map(Vec::len);
    assert_eq!((code, tools), (0, Some(16)), "{server} {era}");

    let read = ["--method", "tools/call", "--tool-name", "workspace_read"];
    let path = |path| [&read[..], &["--tool-arg", path]].concat();
    let (code, page) = inspect(world, server, era, &path("path=small.txt")).await;
    let content = page["structuredContent"]["content"].as_str();
    assert_eq!((code, content), (0, Some(SMALL.repeat(12).as_str())));

    let (code, refused) = inspect(world, server, era, &path("path=none")).await;
    let text = text_of(&refused["content"][0], "text");
    assert_eq!((code, &refused["isError"]), (5, &json!(true)), "{refused}");
    assert!(
        text.starts_with(r#"{"error":{"code":"NOT_FOUND""#),
        "{text}"
    );
}

#[tokio::test]
async fn inspector() {
    let (world, door) = prepared(true).await;
    let http = Http.server(&world, &door);
    let stdio = Stdio.server(&world, &door);
    tokio::join!(
        inspection(&world, &http, "legacy"),
        inspection(&world, &stdio, "legacy"),
        inspection(&world, &http, "modern"),
        inspection(&world, &stdio, "modern"),
    );
    assert_eq!(door.stop().await.code, Some(0));
}
