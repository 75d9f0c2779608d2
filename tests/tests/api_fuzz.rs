//! The identity API fuzzed from its own document, by schemathesis: whatever is sent is answered, without a server error, in a way
//! that the document describes.
//!
//! All of schemathesis' checks are on: no server error, status, content type, headers and body as described, what does not fit is
//! refused and what fits is not, authorization is not ignored, other methods are refused with `Allow`, and what was made can be
//! used (the document's links). `tests/clients/python/schemathesis.toml` says which refusals of a well-formed request are none of
//! its form.
#![expect(clippy::expect_used, reason = "tests fail by panicking")]

use std::{env, fs, path::Path, time::Duration};

use postern_tests::{Http, RealHost, client::python, text_of};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use tokio::process::Command;

/// For the whole run, on a loaded machine.
const LIMIT: Duration = Duration::from_secs(300);
/// Cases of an operation in each phase. `FUZZ_EXAMPLES` asks for more.
const EXAMPLES: &str = "12";
/// Makes a run the same as the last one.
const SEED: &str = "20261130";
/// The workspace of the document's examples.
const EXAMPLE_WORKSPACE: &str = "0b6c3f52-7c1e-4a7b-9a53-1d2e3f405162";

/// The host's document with its examples about a workspace that there is, and that one offered wherever a workspace is named:
/// otherwise hardly a request would get past 404.
async fn document(host: &RealHost) -> Value {
    let url = format!("{}/identity-api/openapi.json", host.url);
    let client = Http::default();
    let reply = client.send(http::Method::GET, &url, &[], Vec::new(), |_| true);
    let told = reply.await.expect("the document");
    assert_eq!(told.json["openapi"], "3.1.1");
    let text = told
        .json
        .to_string()
        .replace(EXAMPLE_WORKSPACE, &host.workspace);
    let mut document: Value = serde_json::from_str(&text).expect("JSON");
    let schemas = document["components"]["schemas"].as_object_mut();
    let mut offered = 0;
    for (name, schema) in schemas.expect("schemas") {
        if let Some(id) = schema
            .pointer_mut("/properties/workspace_id")
            .filter(|_| name.ends_with("Request"))
        {
            *id = json!({"anyOf": [{"enum": [host.workspace]}, id.take()]});
            offered += 1;
        }
    }
    assert!(offered >= 3, "{offered}");
    document
}

#[tokio::test]
async fn whatever_is_sent_is_answered_as_the_document_says() {
    let host = RealHost::start().await;
    let folder = host.world.outside();
    let (schema, report) = (folder.join("openapi.json"), folder.join("report.json"));
    fs::write(&schema, document(&host).await.to_string()).expect("writable");
    let admin = fs::read_to_string(host.world.data().join("admin-token")).expect("a token");
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/python/schemathesis.toml");
    let examples = env::var("FUZZ_EXAMPLES").unwrap_or_else(|_| EXAMPLES.to_owned());
    let mut command = Command::new(python());
    command
        .args(["-m", "schemathesis.cli", "--config-file"])
        .arg(&config)
        .arg("run")
        .arg(&schema)
        .args(["--url", &host.url, "--checks", "all", "--seed", SEED])
        .args(["--max-examples", &examples, "--continue-on-failure"])
        .args(["--no-color", "--generation-database", "none"])
        .args(["--report", "json", "--report-json-path"])
        .arg(&report)
        .env("API_TOKEN", admin.trim())
        .env("CHANNEL_TOKEN", &host.channel_token);
    let ended = host.world.run_client(command, LIMIT).await;
    assert_eq!(ended.code, Some(0), "{}\n{}", ended.stdout, ended.stderr);
    let report = fs::read_to_string(&report).expect("a report");
    let report: Value = serde_json::from_str(&report).expect("JSON");
    assert_eq!(
        (&report["failures"], &report["errors"], &report["complete"]),
        (&json!([]), &json!([]), &json!(true))
    );
    // It was a test: every operation was tried, by all phases, with a token that still opens the API.
    let operations = &report["operations"];
    assert_eq!(operations["tested"], operations["total"]);
    assert!(operations["total"].as_u64() >= Some(13), "{operations}");
    for phase in ["examples", "coverage", "fuzzing", "stateful"] {
        assert_eq!(report["phases"][phase]["status"], "success", "{phase}");
    }
    let listed = host.told(&["token", "list"]).await;
    let minted = listed["tokens"].as_array().expect("tokens");
    assert!(minted.len() > 10, "it made only {} tokens", minted.len());
    let revoked = |token: &&Value| token["revoked_at"].is_string();
    assert!(minted.iter().any(|token| revoked(&token)), "{listed}");
    let workspaces = host.told(&["workspace", "list"]).await;
    let first = &workspaces["workspaces"][0];
    assert_eq!(text_of(first, "id"), host.workspace);
}
