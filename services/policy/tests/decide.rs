//! Decisions through the real server.
#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::{fs, path::Path};

use postern_kit::{
    Failure,
    transport::{Transport, local},
};
use postern_policy::{Config, Error, Service};
use postern_proto::{
    catalogue,
    policy::v1::{DecideRequest, DecideResponse, Mode, Verdict, policy_client::PolicyClient},
};
use postern_types::ErrorCode;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use tempfile::TempDir;

const MODES: [Mode; 4] = [Mode::ReadOnly, Mode::Ask, Mode::Edit, Mode::Full];
const SHA: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
const COMMAND: &str = "0193a0e4-5b1c-7000-8000-00000000abcd";

fn client(service: Service) -> PolicyClient<Transport> {
    PolicyClient::new(local(service.into_server())).max_decoding_message_size(1 << 24)
}

fn without_rules() -> PolicyClient<Transport> {
    client(Service::new(Config::default()).expect("service"))
}

fn owner(files: &[(&str, &str)]) -> TempDir {
    let directory = tempfile::tempdir().expect("directory");
    for (name, content) in files {
        fs::write(directory.path().join(name), content).expect("file");
    }
    directory
}

fn load(directory: &Path) -> Result<Service, Error> {
    Service::new(Config {
        owner_policies: Some(directory.to_owned()),
    })
}

fn with_rules(rules: &str) -> PolicyClient<Transport> {
    let directory = owner(&[("rules.cedar", rules)]);
    client(load(directory.path()).expect("service"))
}

async fn decide(
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
    };
    Ok(client.decide(request).await?.into_inner())
}

async fn verdict(
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
async fn refusal(
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

fn valid(tool: &str) -> Value {
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

/// CONTRACT.md, section 6.
fn expected(tool: &str) -> [Verdict; 4] {
    use Verdict::{Allow, Ask, Deny};
    match tool {
        "workspace_write" | "workspace_patch" | "workspace_delete" => [Deny, Ask, Allow, Allow],
        "workspace_exec" | "workspace_input" | "workspace_tool" => [Deny, Ask, Ask, Allow],
        _ => [Allow, Allow, Allow, Allow],
    }
}

#[tokio::test]
async fn every_tool_in_every_mode() {
    let mut client = without_rules();
    let tools = catalogue::workspace_tools();
    assert_eq!(tools.len(), 15);
    for tool in tools {
        let mut verdicts = Vec::new();
        for mode in MODES {
            let (verdict, policy_id) =
                verdict(&mut client, mode, &tool.name, valid(&tool.name)).await;
            verdicts.push(verdict);
            let name = ["read-only", "ask", "edit", "full"][mode as usize - 1];
            assert_eq!(policy_id, format!("mode.{name}"), "{}", tool.name);
        }
        assert_eq!(verdicts, expected(&tool.name), "{}", tool.name);
    }
}

#[tokio::test]
async fn a_mode_that_is_not_understood_permits_nothing() {
    let mut client = without_rules();
    for mode in [0, 5, -1, i32::MAX] {
        let request = DecideRequest {
            tool: "workspace_info".to_owned(),
            args_json: "{}".into(),
            mode,
            ..Default::default()
        };
        let status = client.decide(request).await.expect_err("refused");
        assert_eq!(Failure::from(status).code, ErrorCode::Internal);
    }
}

#[tokio::test]
async fn an_unknown_tool_is_told_before_its_arguments() {
    let mut client = without_rules();
    let long = format!("workspace_{}", "x".repeat(5000));
    for tool in ["", "workspace_Read", "sosoapi_create_workspace", &long] {
        let failure = decide(&mut client, Mode::Full, tool, b"not json")
            .await
            .expect_err("refused");
        assert_eq!(failure.code, ErrorCode::UnknownTool);
        assert!(failure.message.len() < 300);
    }
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
async fn invalid_arguments_name_the_argument_and_the_rule() {
    let mut client = without_rules();
    let long = "x".repeat(2049);
    let cases = [
        (
            "workspace_read",
            json!({"path": "a", "lenght": 3}),
            "/lenght",
            "additionalProperties",
            "It takes: ",
        ),
        (
            "workspace_info",
            json!({"x": 1}),
            "/x",
            "additionalProperties",
            "takes no arguments",
        ),
        (
            "workspace_read",
            json!({}),
            "/path",
            "required",
            "'path' is missing",
        ),
        (
            "workspace_write",
            json!({"path": "a", "expectedSha256": null}),
            "/content",
            "required",
            "'content' is missing",
        ),
        (
            "workspace_write",
            json!({"path": "a", "content": ""}),
            "/expectedSha256",
            "required",
            "missing",
        ),
        (
            "workspace_read",
            json!({"path": "a", "limit": "10"}),
            "/limit",
            "type",
            "must be an integer; it is a string",
        ),
        (
            "workspace_read",
            json!({"path": "a", "limit": 1.5}),
            "/limit",
            "type",
            "a number with a fraction",
        ),
        (
            "workspace_read",
            json!({"path": "a", "limit": null}),
            "/limit",
            "type",
            "it is null",
        ),
        (
            "workspace_read",
            json!({"path": "a", "limit": true}),
            "/limit",
            "type",
            "it is a boolean",
        ),
        (
            "workspace_read",
            json!({"path": ["a"]}),
            "/path",
            "type",
            "it is an array",
        ),
        (
            "workspace_read",
            json!({"path": "a", "limit": -1}),
            "/limit",
            "minimum",
            "at least 1",
        ),
        (
            "workspace_read",
            json!({"path": "a", "limit": 0}),
            "/limit",
            "minimum",
            "at least 1",
        ),
        (
            "workspace_read",
            json!({"path": "a", "limit": 131_073}),
            "/limit",
            "maximum",
            "at most 131072",
        ),
        (
            "workspace_read",
            json!({"path": "a", "limit": 1_u64 << 63}),
            "/limit",
            "maximum",
            "at most 131072",
        ),
        (
            "workspace_read",
            json!({"path": "a", "limit": 1e300}),
            "/limit",
            "maximum",
            "at most 131072",
        ),
        (
            "workspace_list",
            json!({"offset": 100_001}),
            "/offset",
            "maximum",
            "at most 100000",
        ),
        (
            "workspace_document",
            json!({"path": "a", "page": 0}),
            "/page",
            "minimum",
            "at least 1",
        ),
        (
            "workspace_read",
            json!({"path": ""}),
            "/path",
            "minLength",
            "at least 1",
        ),
        (
            "workspace_read",
            json!({"path": long}),
            "/path",
            "maxLength",
            "at most 2048",
        ),
        (
            "workspace_delete",
            json!({"path": "a", "expectedSha256": SHA.to_uppercase()}),
            "/expectedSha256",
            "pattern",
            "^[a-f0-9]{64}$",
        ),
        (
            "workspace_delete",
            json!({"path": "a", "expectedSha256": 7}),
            "/expectedSha256",
            "type",
            "null or a string",
        ),
        (
            "workspace_poll",
            json!({"commandId": COMMAND.to_uppercase()}),
            "/commandId",
            "pattern",
            "must match",
        ),
        (
            "workspace_input",
            json!({"commandId": COMMAND, "text": "", "close": "false"}),
            "/close",
            "additionalProperties",
            "'close' is no argument",
        ),
        (
            "workspace_tool",
            json!({"name": "t", "arguments": []}),
            "/arguments",
            "type",
            "must be an object; it is an array",
        ),
        (
            "workspace_exec",
            json!({"command": "x", "timeoutMs": 999}),
            "/timeoutMs",
            "minimum",
            "at least 1000",
        ),
        (
            "workspace_patch",
            json!({"path": "a", "oldText": "", "newText": "x", "expectedSha256": null}),
            "/oldText",
            "minLength",
            "at least 1",
        ),
        (
            "workspace_patch",
            json!({"path": "a", "oldText": "", "newText": "", "expectedSha256": null}),
            "/oldText",
            "minLength",
            "at least 1",
        ),
        (
            "workspace_patch",
            json!({"path": "a", "oldText": "x", "newText": "x", "expectedSha256": null}),
            "/newText",
            "distinct",
            "must differ",
        ),
        ("workspace_info", json!([]), "", "type", "must be an object"),
        (
            "workspace_info",
            json!(null),
            "",
            "type",
            "must be an object",
        ),
    ];
    for (tool, args, pointer, rule, words) in cases {
        let (found_pointer, found_rule, message) =
            refusal(&mut client, tool, args.to_string().as_bytes()).await;
        let case = format!("{tool}: {message}");
        assert_eq!(
            (found_pointer.as_str(), found_rule.as_str()),
            (pointer, rule),
            "{case}"
        );
        assert!(message.contains(words), "{case}");
    }
    for broken in [
        &b"{"[..],
        b"",
        b"{\"path\":\"\xff\"}",
        b"{} {}",
        b"nonsense",
    ] {
        let (pointer, rule, _) = refusal(&mut client, "workspace_read", broken).await;
        assert_eq!((pointer.as_str(), rule.as_str()), ("", "json"));
    }
}

#[tokio::test]
async fn what_the_schema_allows_is_not_refused() {
    let mut client = without_rules();
    for (tool, args) in [
        ("workspace_read", json!({"path": "é".repeat(2048)})),
        (
            "workspace_read",
            json!({"path": "a", "limit": 131_072, "offset": 0}),
        ),
        ("workspace_read", json!({"path": "a", "limit": 3.0})),
        (
            "workspace_read",
            json!({"path": "a", "offset": 1_u64 << 63}),
        ),
        ("workspace_read", json!({"path": "a\u{0}b"})),
        ("workspace_list", json!({"offset": 100_000})),
        (
            "workspace_write",
            json!({"path": "a", "content": "é".repeat(1_048_576), "expectedSha256": null}),
        ),
        (
            "workspace_patch",
            json!({"path": "a", "oldText": "é", "newText": "e\u{301}", "expectedSha256": null}),
        ),
    ] {
        let (verdict, _) = verdict(&mut client, Mode::Full, tool, args).await;
        assert_eq!(verdict, Verdict::Allow, "{tool}");
    }
}

#[tokio::test]
async fn what_was_sent_is_not_echoed_at_length() {
    let mut client = without_rules();
    let secret = "MARK".repeat(5000);
    for (tool, args) in [
        ("workspace_read", json!({"path": "a", secret.clone(): 1})),
        ("workspace_read", json!({"path": [secret.clone()]})),
        ("workspace_read", json!({"path": secret.clone()})),
        ("workspace_poll", json!({"commandId": secret.clone()})),
        (
            "workspace_exec",
            json!({"command": "x", "timeoutMs": secret}),
        ),
        (
            "workspace_read",
            json!({"path": "a", "line\nbreak\u{1b}[31m": 1}),
        ),
    ] {
        let (pointer, _, message) = refusal(&mut client, tool, args.to_string().as_bytes()).await;
        assert!(message.len() < 500 && pointer.len() < 200, "{message}");
        assert!(!message.contains(['\n', '\u{1b}']), "{message:?}");
    }
}

#[tokio::test]
async fn pointers_are_escaped() {
    let mut client = without_rules();
    let (pointer, _, _) = refusal(&mut client, "workspace_info", br#"{"a/b~c":1}"#).await;
    assert_eq!(pointer, "/a~1b~0c");
}

#[tokio::test]
async fn the_owner_s_rules_narrow_the_mode() {
    let mut client = with_rules(
        r#"
        @id("secrets") @reason("Secrets stay with me.")
        forbid (principal, action, resource) when { context has path && context.path like "secrets/*" };

        @id("push")
        forbid (principal, action == Action::"unattended", resource == Tool::"workspace_exec")
        when { context has command && context.command like "*git push*" };

        forbid (principal == Session::"other", action, resource);
        "#,
    );
    for path in [
        "secrets/key",
        "./secrets/key",
        "a/../secrets//key",
        "secrets/./key",
    ] {
        for tool in ["workspace_read", "workspace_delete"] {
            let mut args = valid(tool);
            args["path"] = path.into();
            let found = verdict(&mut client, Mode::Full, tool, args).await;
            assert_eq!(
                found,
                (Verdict::Deny, "rules#secrets".to_owned()),
                "{tool} {path}"
            );
        }
    }
    let answer = decide(
        &mut client,
        Mode::Full,
        "workspace_read",
        br#"{"path":"secrets/key"}"#,
    )
    .await
    .expect("denied");
    assert_eq!(answer.reason, "Secrets stay with me.");
    let exec = |command: &str| json!({"command": command});
    assert_eq!(
        verdict(
            &mut client,
            Mode::Full,
            "workspace_exec",
            exec("cd x && git push -f")
        )
        .await,
        (Verdict::Ask, "rules#push".to_owned())
    );
    assert_eq!(
        verdict(
            &mut client,
            Mode::Full,
            "workspace_exec",
            exec("git status")
        )
        .await,
        (Verdict::Allow, "mode.full".to_owned())
    );
    assert_eq!(
        verdict(
            &mut client,
            Mode::ReadOnly,
            "workspace_exec",
            exec("git push")
        )
        .await,
        (Verdict::Deny, "mode.read-only".to_owned()),
        "what the mode does not permit is not widened to a question"
    );
    let request = DecideRequest {
        workspace_id: "w".to_owned(),
        session_id: "other".to_owned(),
        tool: "workspace_info".to_owned(),
        args_json: "{}".into(),
        mode: Mode::Full.into(),
    };
    let answer = client.decide(request).await.expect("denied").into_inner();
    assert_eq!(
        (answer.verdict(), answer.policy_id.as_str()),
        (Verdict::Deny, "rules#L9")
    );
}

#[tokio::test]
async fn an_absolute_path_does_not_slip_past_a_rule() {
    let mut client = with_rules(
        r#"@id("secrets") forbid (principal, action, resource) when { context has path && context.path like "secrets/*" };"#,
    );
    let args = json!({"path": "/home/me/project/secrets/key"});
    assert_eq!(
        verdict(&mut client, Mode::Full, "workspace_read", args.clone()).await,
        (Verdict::Ask, "postern.absolute-path".to_owned())
    );
    assert_eq!(
        verdict(&mut without_rules(), Mode::Full, "workspace_read", args).await,
        (Verdict::Allow, "mode.full".to_owned())
    );
}

#[tokio::test]
async fn rules_see_what_each_tool_acts_on() {
    let mut client = with_rules(
        r#"
        @id("directory") forbid (principal, action, resource == Tool::"workspace_exec")
        when { context has path && context.path == "ops" };
        @id("root") forbid (principal, action, resource == Tool::"workspace_list")
        when { context has path && context.path == "." };
        @id("typed") forbid (principal, action, resource)
        when { context has input && context.input like "*yes*" };
        @id("tool") forbid (principal, action, resource)
        when { context has ownerTool && context.ownerTool == "deploy" };
        @id("files") forbid (principal, action, resource)
        when { context.kind == "file-change" && context.workspace == "w" };
        "#,
    );
    for (tool, args, id) in [
        (
            "workspace_exec",
            json!({"command": "x", "cwd": "./ops/"}),
            "directory",
        ),
        ("workspace_list", json!({}), "root"),
        (
            "workspace_input",
            json!({"commandId": COMMAND, "text": "yes\n"}),
            "typed",
        ),
        (
            "workspace_tool",
            json!({"name": "deploy", "arguments": {}}),
            "tool",
        ),
        ("workspace_write", valid("workspace_write"), "files"),
    ] {
        let found = verdict(&mut client, Mode::Full, tool, args).await;
        assert_eq!(found, (Verdict::Deny, format!("rules#{id}")));
    }
}

#[tokio::test]
async fn a_rule_that_fails_denies_rather_than_permits() {
    // The sum leaves the range of Cedar's integers, which no check of types can see.
    let mut client = with_rules(
        r#"@id("broken") forbid (principal, action, resource)
        when { context.kind == "reading" && 9223372036854775807 + 1 == 0 };"#,
    );
    assert_eq!(
        verdict(
            &mut client,
            Mode::Full,
            "workspace_read",
            json!({"path": "a"})
        )
        .await,
        (Verdict::Deny, "rules#broken".to_owned())
    );
    assert_eq!(
        verdict(
            &mut client,
            Mode::Full,
            "workspace_exec",
            json!({"command": "x"})
        )
        .await,
        (Verdict::Allow, "mode.full".to_owned())
    );
}

const RULE: &str =
    r#"@id("a") forbid (principal, action, resource) when { context.kind == "command" };"#;

#[test]
fn a_broken_rule_file_stops_the_start_with_file_and_line() {
    let truncated = &RULE[..RULE.len() - 20];
    let twice = format!("{RULE}\n{RULE}");
    let long = format!(
        "@id(\"{}\") forbid (principal, action, resource);",
        "x".repeat(301)
    );
    let cases = [
        ("", 1, "holds no rule"),
        ("// only a comment\n", 1, "holds no rule"),
        (truncated, 1, "unexpected end"),
        (
            "\n\npermit (principal, action, resource);",
            3,
            "write forbid",
        ),
        ("\nnonsense", 2, "unexpected"),
        ("{\"staticPolicies\": {}}", 1, "unexpected"),
        (
            "\nforbid (principal, action, resource == Tool::\"workspace_exce\");",
            2,
            "workspace_exce",
        ),
        (
            "\nforbid (principal, action == Action::\"cal\", resource);",
            2,
            "cal",
        ),
        (
            "\n\nforbid (principal, action, resource) when { context.path like \"x\" };",
            3,
            "path",
        ),
        (
            "forbid (principal, action, resource) when { context.paths == \"x\" };",
            1,
            "paths",
        ),
        (
            "forbid (principal == ?principal, action, resource);",
            1,
            "template",
        ),
        (&twice, 2, "twice"),
        (&long, 1, "300"),
    ];
    for (text, line, words) in cases {
        let directory = owner(&[
            ("good.cedar", RULE),
            ("zz.cedar", text),
            ("README.md", "not a rule"),
        ]);
        let error = load(directory.path()).expect_err(text).to_string();
        let place = format!("zz.cedar, line {line}: ");
        assert!(error.contains(&place), "{text}\n{error}");
        assert!(error.contains(words), "{text}\n{error}");
    }
}

#[test]
fn an_unreadable_rule_file_or_directory_stops_the_start() {
    let directory = owner(&[]);
    fs::create_dir(directory.path().join("x.cedar")).expect("directory");
    assert!(matches!(
        load(directory.path()),
        Err(Error::Unreadable { .. })
    ));

    let directory = owner(&[]);
    fs::write(directory.path().join("x.cedar"), [0xFF, 0xFE]).expect("file");
    assert!(matches!(
        load(directory.path()),
        Err(Error::Unreadable { .. })
    ));

    let directory = owner(&[]);
    std::os::unix::fs::symlink("nowhere", directory.path().join("x.cedar")).expect("link");
    assert!(matches!(
        load(directory.path()),
        Err(Error::Unreadable { .. })
    ));

    let missing = directory.path().join("missing");
    let error = load(&missing).expect_err("missing");
    assert!(matches!(error, Error::Unreadable { .. }), "{error}");

    let directory = owner(&[("x.cedar", &" ".repeat(256 * 1024 + 1))]);
    assert!(matches!(load(directory.path()), Err(Error::TooMuch { .. })));
}

#[tokio::test]
async fn a_directory_without_rules_leaves_the_mode_as_it_is() {
    let directory = owner(&[("README.md", "no rules yet")]);
    let mut client = client(load(directory.path()).expect("service"));
    let found = verdict(
        &mut client,
        Mode::Ask,
        "workspace_exec",
        json!({"command": "x"}),
    )
    .await;
    assert_eq!(found, (Verdict::Ask, "mode.ask".to_owned()));
}
