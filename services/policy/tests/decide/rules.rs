//! The owner's own rules.

use postern_policy::Error;
use postern_proto::policy::v1::{DecideRequest, Mode, Verdict};
use pretty_assertions::assert_eq;
use serde_json::json;
use std::fs;

use crate::harness::{
    COMMAND, PROJECT, client, decide, load, owner, valid, verdict, with_rules, without_rules,
};

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
        project_path: PROJECT.to_owned(),
        place: String::new(),
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
    let request = DecideRequest {
        workspace_id: "w".to_owned(),
        session_id: "s".to_owned(),
        tool: "workspace_read".to_owned(),
        args_json: args.to_string().into_bytes().into(),
        mode: Mode::Full.into(),
        project_path: String::new(),
        place: String::new(),
    };
    let answer = client.decide(request).await.expect("asked").into_inner();
    assert_eq!(
        (answer.verdict(), answer.policy_id.as_str()),
        (Verdict::Ask, "postern.absolute-path"),
        "the root is not known"
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
        @id("arguments") forbid (principal, action, resource)
        when { context has toolArguments && context.toolArguments like "*\"path\":\"/etc*" };
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
        (
            "workspace_tool",
            // Escapes hide nothing.
            serde_json::from_str(
                r#"{"name": "files__read", "arguments": {"path" : "\u002fetc/passwd"}}"#,
            )
            .expect("JSON"),
            "arguments",
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

/// A path may be permitted as it is written, and where it leads may not; and the other way round.
#[tokio::test]
async fn the_stricter_of_the_path_and_the_place_to_which_it_leads_counts() {
    let mut client = with_rules(
        r#"@id("secrets") forbid (principal, action, resource) when { context has path && context.path like "secrets/*" };
@id("look") forbid (principal, action == Action::"unattended", resource) when { context has path && context.path like "docs/*" };"#,
    );
    for (path, place, verdict, policy) in [
        ("a", "", Verdict::Allow, "mode.full"),
        ("a", "b", Verdict::Allow, "mode.full"),
        ("a", "secrets/b", Verdict::Deny, "rules#secrets"),
        ("secrets/b", "a", Verdict::Deny, "rules#secrets"),
        ("a", "docs/b", Verdict::Ask, "rules#look"),
        ("docs/b", "secrets/b", Verdict::Deny, "rules#secrets"),
        ("secrets/b", "docs/b", Verdict::Deny, "rules#secrets"),
    ] {
        let request = DecideRequest {
            workspace_id: "w".to_owned(),
            session_id: "s".to_owned(),
            tool: "workspace_read".to_owned(),
            args_json: json!({"path": path}).to_string().into(),
            mode: Mode::Full.into(),
            project_path: PROJECT.to_owned(),
            place: place.to_owned(),
        };
        let answer = client.decide(request).await.expect("decided").into_inner();
        assert_eq!(
            (answer.verdict(), answer.policy_id.as_str()),
            (verdict, policy),
            "{path} {place}"
        );
    }
}
