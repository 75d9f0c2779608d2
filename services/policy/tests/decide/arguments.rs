//! Arguments against their schemas.

use postern_proto::policy::v1::{Mode, Verdict};
use pretty_assertions::assert_eq;
use serde_json::json;

use crate::harness::{COMMAND, SHA, refusal, verdict, without_rules};

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
