//! Rules that change while the service runs.

use std::{fs, path::Path, time::Duration};

use crate::harness::*;
use postern_kit::{task::Tasks, transport::Transport};
use postern_policy::{Config, Service};
use postern_proto::policy::v1::{Mode, Verdict, policy_client::PolicyClient};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

const DELETE: &str =
    r#"@id("no") forbid (principal, action, resource == Tool::"workspace_delete");"#;
const READ: &str = r#"@id("no") forbid (principal, action, resource == Tool::"workspace_read");"#;
const LIMIT: Duration = Duration::from_secs(20);

fn following(directory: &Path, tasks: &Tasks) -> PolicyClient<Transport> {
    let config = Config {
        owner_policies: Some(directory.to_owned()),
    };
    client(Service::following(config, tasks).expect("whole"))
}

/// Waits until a call comes out so.
async fn becomes(client: &mut PolicyClient<Transport>, tool: &str, found: (Verdict, &str)) {
    let waited = tokio::time::timeout(LIMIT, async {
        loop {
            let (verdict, id) = verdict(client, Mode::Full, tool, valid(tool)).await;
            if (verdict, id.as_str()) == found {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    waited
        .await
        .unwrap_or_else(|_| panic!("{tool} never {found:?}"));
}

/// B59: a broken rule file never means that everything is allowed, and what was whole stays in force for what only reads.
#[tokio::test]
async fn b59_rules_are_read_again_and_broken_ones_mean_no() {
    let directory = owner(&[("rules.cedar", READ)]);
    let file = directory.path().join("rules.cedar");
    let tasks = Tasks::new();
    let mut client = following(directory.path(), &tasks);
    becomes(&mut client, "workspace_read", (Verdict::Deny, "rules#no")).await;
    becomes(
        &mut client,
        "workspace_delete",
        (Verdict::Allow, "mode.full"),
    )
    .await;

    fs::write(&file, DELETE).expect("written");
    becomes(&mut client, "workspace_delete", (Verdict::Deny, "rules#no")).await;
    becomes(&mut client, "workspace_read", (Verdict::Allow, "mode.full")).await;

    fs::write(&file, READ).expect("written");
    becomes(&mut client, "workspace_read", (Verdict::Deny, "rules#no")).await;
    fs::write(&file, &READ[..30]).expect("written");
    let broken = (Verdict::Deny, "postern.broken-rules");
    for tool in [
        "workspace_delete",
        "workspace_write",
        "workspace_patch",
        "workspace_exec",
        "workspace_input",
        "workspace_tool",
    ] {
        becomes(&mut client, tool, broken).await;
    }
    let call = |tool| (tool, valid(tool));
    let (tool, args): (_, Value) = call("workspace_exec");
    let answer = decide(&mut client, Mode::Full, tool, args.to_string().as_bytes()).await;
    let reason = answer.expect("a decision").reason;
    assert!(reason.contains("rules.cedar, line 1"), "{reason}");
    assert!(!reason.contains('/'), "no path of the machine: {reason}");
    let read = json!({"path": "a"});
    assert_eq!(
        verdict(&mut client, Mode::Full, "workspace_read", read).await,
        (Verdict::Deny, "rules#no".to_owned()),
        "the last whole rules"
    );
    for tool in ["workspace_list", "workspace_ask", "workspace_stop"] {
        becomes(&mut client, tool, (Verdict::Allow, "mode.full")).await;
    }

    fs::write(&file, DELETE).expect("written");
    becomes(&mut client, "workspace_exec", (Verdict::Allow, "mode.full")).await;
    becomes(&mut client, "workspace_delete", (Verdict::Deny, "rules#no")).await;

    fs::remove_dir_all(directory.path()).expect("removed");
    becomes(&mut client, "workspace_exec", broken).await;
    fs::create_dir(directory.path()).expect("made");
    becomes(
        &mut client,
        "workspace_delete",
        (Verdict::Allow, "mode.full"),
    )
    .await;
    assert!(tasks.shutdown(LIMIT).await);
}
