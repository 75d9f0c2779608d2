//! What rules see of commands, the rules that an owner starts with, and the examples that rule files carry.

use crate::harness::*;
use postern_policy::{DEFAULT_RULES, Error};
use postern_proto::policy::v1::{Mode, Verdict};
use pretty_assertions::assert_eq;
use serde_json::json;

const RM: &str = r#"@id("rm") forbid (principal, action, resource)
when { context has programs && context.programs.contains("rm") };
"#;

/// B57: a rule about a program holds for the command as a whole, however the program is spelt and chained.
#[tokio::test]
async fn b57_a_denied_program_is_denied_in_every_spelling() {
    let mut client = with_rules(RM);
    for command in [
        "rm victim",
        "git status && rm victim",
        "git status; rm victim",
        "git status | rm victim",
        "git status || rm victim",
        "git status & rm victim",
        "git status\nrm victim",
        "git status $(rm victim)",
        "git status `rm victim`",
        "git -c core.pager=\"$(rm victim)\" status",
        "A=1 rm victim",
        "env A=1 rm victim",
        "'r'm victim",
        "r\\m victim",
        "/bin/rm victim",
        "sh -c 'rm victim'",
        "find . -name victim -exec rm {} +",
        "if true; then rm victim; fi",
    ] {
        let found = verdict(
            &mut client,
            Mode::Full,
            "workspace_exec",
            json!({"command": command}),
        )
        .await;
        assert_eq!(found, (Verdict::Deny, "rules#rm".to_owned()), "{command}");
    }
    for command in [
        "$CMD victim",
        "eval \"$CMD\"",
        "/bin/r? victim",
        "echo 'open",
    ] {
        let args = json!({"command": command});
        let found = verdict(&mut client, Mode::Full, "workspace_exec", args.clone()).await;
        let expected = (Verdict::Ask, "postern.open-command".to_owned());
        assert_eq!(found, expected, "{command}");
        let found = verdict(&mut client, Mode::ReadOnly, "workspace_exec", args).await;
        assert_eq!(found, (Verdict::Deny, "mode.read-only".to_owned()));
    }
    let harmless = json!({"command": "echo rm > list && cat list"});
    assert_eq!(
        verdict(&mut client, Mode::Full, "workspace_exec", harmless).await,
        (Verdict::Allow, "mode.full".to_owned())
    );
}

#[tokio::test]
async fn only_what_a_rule_reads_counts_and_not_its_words() {
    let open = json!({"command": "$CMD victim"});
    for (rule, found) in [
        (
            r#"@reason("It is understood that rm is off limits") forbid (principal, action, resource)
            when { context has programs && context.programs.contains("rm") };"#,
            (Verdict::Ask, "postern.open-command"),
        ),
        (
            r#"@reason("Nobody reads what programs writes") forbid (principal, action, resource)
            when { context has command && context.command like "*context.programs*" };"#,
            (Verdict::Allow, "mode.full"),
        ),
        (
            r#"forbid (principal, action, resource)
            when { context has programs && context has understood && context.programs.contains("rm") };"#,
            (Verdict::Allow, "mode.full"),
        ),
    ] {
        let mut client = with_rules(rule);
        let (verdict, id) = verdict(&mut client, Mode::Full, "workspace_exec", open.clone()).await;
        assert_eq!((verdict, id.as_str()), found, "{rule}");
    }
}

#[tokio::test]
async fn rules_see_redirections() {
    let mut client = with_rules(
        r#"@id("hooks") forbid (principal, action, resource)
        when { context has writes && context has understood && context.writes.contains(".git/config") };
        @id("input") forbid (principal, action == Action::"unattended", resource)
        when { context has reads && context has understood && context.reads.contains("answers") };"#,
    );
    for (command, found) in [
        ("echo x >> .git/config", (Verdict::Deny, "rules#hooks")),
        ("./setup < answers", (Verdict::Ask, "rules#input")),
        ("eval x > y", (Verdict::Allow, "mode.full")),
    ] {
        let args = json!({"command": command});
        let (verdict, id) = verdict(&mut client, Mode::Full, "workspace_exec", args).await;
        assert_eq!((verdict, id.as_str()), found, "{command}");
    }
}

#[tokio::test]
async fn a_path_below_the_project_is_the_same_in_full() {
    let mut client = with_rules(
        r#"@id("secrets") forbid (principal, action, resource) when { context has path && context.path like "secrets/*" };"#,
    );
    let path = |below: &str| json!({"path": format!("{PROJECT}/{below}")});
    for (below, found) in [
        ("secrets/key", (Verdict::Deny, "rules#secrets")),
        ("a/../secrets/key", (Verdict::Deny, "rules#secrets")),
        ("open", (Verdict::Allow, "mode.full")),
        // It leads out, and is refused by whoever would open it.
        ("../secrets/key", (Verdict::Allow, "mode.full")),
    ] {
        let (verdict, id) = verdict(&mut client, Mode::Full, "workspace_read", path(below)).await;
        assert_eq!((verdict, id.as_str()), found, "{below}");
    }
}

#[tokio::test]
async fn the_rules_that_an_owner_starts_with_hold() {
    let directory = owner(&[("defaults.cedar", DEFAULT_RULES)]);
    let files = postern_policy::read(directory.path()).expect("whole");
    assert_eq!(
        files[0].rules().collect::<Vec<_>>(),
        [
            "defaults#secrets",
            "defaults#git-internals",
            "defaults#fetch-and-run"
        ]
    );
    assert!(files[0].examples.len() >= 18, "{}", files[0].examples.len());
    let mut client = client(load(directory.path()).expect("examples hold"));
    for (tool, args, found) in [
        (
            "workspace_read",
            json!({"path": "./a/../.env"}),
            Verdict::Deny,
        ),
        ("workspace_image", json!({"path": "x.pem"}), Verdict::Deny),
        (
            "workspace_exec",
            json!({"command": "eval \"$X\""}),
            Verdict::Allow,
        ),
        (
            "workspace_exec",
            json!({"command": "cargo test | tail"}),
            Verdict::Allow,
        ),
    ] {
        let (verdict, id) = verdict(&mut client, Mode::Full, tool, args.clone()).await;
        assert_eq!(verdict, found, "{tool} {args} {id}");
    }
}

#[test]
fn an_example_that_comes_out_otherwise_stops_the_start() {
    for (example, line, words) in [
        (
            "// should_allow workspace_exec {\"command\": \"rm x\"}",
            4,
            "denied by rules#rm",
        ),
        (
            "  //should_deny workspace_exec {\"command\": \"ls\"}",
            4,
            "allowed by mode.full",
        ),
        ("// should_ask workspace_info", 4, "allowed by mode.full"),
        (
            "// should_refuse workspace_info",
            4,
            "should_allow, should_ask or should_deny",
        ),
        (
            "// should_deny workspace_remove {}",
            4,
            "no tool 'workspace_remove'",
        ),
        (
            "// should_deny workspace_read {\"file\": \"a\"}",
            4,
            "no call",
        ),
        ("// should_deny workspace_read {", 4, "no call"),
    ] {
        let directory = owner(&[("rules.cedar", &format!("{RM}\n{example}\n"))]);
        let error = load(directory.path()).expect_err(example);
        assert!(
            matches!(error, Error::Rule { line: found, .. } if found == line),
            "{error}"
        );
        assert!(error.to_string().contains(words), "{error}");
    }
    let right = "// should_deny workspace_exec {\"command\": \"rm x\"}\n// A rule should_allow what it likes.\n";
    load(owner(&[("rules.cedar", &format!("{RM}{right}"))]).path()).expect("as it says");
}
