//! The service, and what most tests ask it.

use postern_kit::Failure;
use postern_kit::transport::{Transport, local};
use postern_policy::{Config, Error, Service};
use postern_proto::policy::v1::policy_client::PolicyClient;
use postern_proto::policy::v1::{DecideRequest, DecideResponse, Mode, Verdict};
use postern_types::ErrorCode;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use tempfile::TempDir;

pub(crate) const MODES: [Mode; 4] = [Mode::ReadOnly, Mode::Ask, Mode::Edit, Mode::Full];
pub(crate) const SHA: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
pub(crate) const PROJECT: &str = "/home/me/project";
pub(crate) const COMMAND: &str = "0193a0e4-5b1c-7000-8000-00000000abcd";

pub(crate) fn client(service: Service) -> PolicyClient<Transport> {
    PolicyClient::new(local(service.into_server())).max_decoding_message_size(1 << 24)
}

pub(crate) fn without_rules() -> PolicyClient<Transport> {
    client(Service::new(Config::default()).expect("service"))
}

pub(crate) fn owner(files: &[(&str, &str)]) -> TempDir {
    let directory = tempfile::tempdir().expect("directory");
    for (name, content) in files {
        fs::write(directory.path().join(name), content).expect("file");
    }
    directory
}

pub(crate) fn load(directory: &Path) -> Result<Service, Error> {
    Service::new(Config {
        owner_policies: Some(directory.to_owned()),
    })
}

pub(crate) fn with_rules(rules: &str) -> PolicyClient<Transport> {
    let directory = owner(&[("rules.cedar", rules)]);
    client(load(directory.path()).expect("service"))
}

pub(crate) async fn decide(
    client: &mut PolicyClient<Transport>,
    mode: Mode,
    tool: &str,
    args: &[u8],
) -> Result<DecideResponse, Failure> {
    let request = DecideRequest {
        workspace_id: "w".to_owned(),
        session_id: "s".to_owned(),
        tool: tool.to_owned(),
        args_json: args.to_vec().into(),
        mode: mode.into(),
        project_path: PROJECT.to_owned(),
        place: String::new(),
    };
    Ok(client.decide(request).await?.into_inner())
}

pub(crate) async fn verdict(
    client: &mut PolicyClient<Transport>,
    mode: Mode,
    tool: &str,
    args: Value,
) -> (Verdict, String) {
    let answer = decide(client, mode, tool, args.to_string().as_bytes())
        .await
        .expect("a decision");
    assert_eq!(
        answer.reason.is_empty(),
        answer.verdict() == Verdict::Allow,
        "{tool}"
    );
    (answer.verdict(), answer.policy_id)
}

/// The refusal of arguments: pointer, rule and message.
pub(crate) async fn refusal(
    client: &mut PolicyClient<Transport>,
    tool: &str,
    args: &[u8],
) -> (String, String, String) {
    let failure = decide(client, Mode::Full, tool, args)
        .await
        .expect_err("refused");
    assert_eq!(failure.code, ErrorCode::InvalidArguments);
    let detail = |name: &str| failure.details[name].as_str().expect("a detail").to_owned();
    (detail("pointer"), detail("rule"), failure.message.clone())
}

/// Valid arguments of a tool.
pub(crate) fn valid(tool: &str) -> Value {
    match tool {
        "workspace_info" | "workspace_tools" | "workspace_list" => json!({}),
        "workspace_tool" => json!({"name": "t", "arguments": {"any": [1, {}]}}),
        "workspace_read" | "workspace_image" | "workspace_document" => json!({"path": "a"}),
        "workspace_write" => json!({"path": "a", "content": "", "expectedSha256": null}),
        "workspace_patch" => {
            json!({"path": "a", "oldText": "x", "newText": "", "expectedSha256": SHA})
        }
        "workspace_delete" => json!({"path": "a", "expectedSha256": SHA}),
        "workspace_exec" => json!({"command": "true"}),
        "workspace_poll" | "workspace_stop" => json!({"commandId": COMMAND}),
        "workspace_input" => json!({"commandId": COMMAND, "text": "\u{4}"}),
        "workspace_ask" => json!({"question": "?"}),
        other => panic!("no example of {other}"),
    }
}
