//! The owner's rules, from the files to the agent.
#![expect(clippy::expect_used, reason = "tests fail by panicking")]

use std::{fs, time::Duration};

use postern_tests::{Agent, World, wait_for};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_secs(30);

async fn policy_of(agent: &Agent, tool: &str, arguments: &Value) -> Value {
    let error = agent.call(tool, arguments.clone()).await;
    error.refused("PERMISSION_DENIED")["details"].clone()
}

async fn run(world: &World, words: &[&str]) -> (Option<i32>, String, String) {
    let mut arguments = words.to_vec();
    let folder = world.data().join("policies");
    let folder = folder.to_str().expect("UTF-8");
    arguments.extend(["--policies", folder]);
    let ended = world.run(&arguments).await;
    (ended.code, ended.stdout, ended.stderr)
}

#[tokio::test]
async fn the_rules_to_start_with_hold_and_can_be_taken_away_while_it_runs() {
    let world = World::new();
    world.write(".env", "TOKEN=1\n");
    let door = world.up("full").await;
    let agent = door.agent();
    let secret = json!({"path": ".env"});
    let by_full_path = json!({"path": world.project().join(".env")});
    for arguments in [&secret, &by_full_path] {
        let details = policy_of(&agent, "workspace_read", arguments).await;
        assert_eq!(details["policy"], "defaults#secrets", "{arguments}");
    }
    let outside = json!({"path": world.outside().join("secret")});
    let _error = agent
        .call("workspace_read", outside)
        .await
        .refused("PATH_ESCAPES_PROJECT");
    let hook = json!({"path": ".git/hooks/pre-commit", "content": "", "expectedSha256": null});
    let details = policy_of(&agent, "workspace_write", &hook).await;
    assert_eq!(details["policy"], "defaults#git-internals");
    assert!(!world.project().join(".git/hooks/pre-commit").exists());
    // A command that rules cannot read goes ahead: the rules to start with ask only about fetching ones.
    let finished = agent.run("CMD=echo; $CMD fine").await;
    assert_eq!(finished.output, "fine\n");

    fs::remove_file(world.data().join("policies/defaults.cedar")).expect("removed");
    wait_for("the file to open", LIMIT, async || {
        let answer = agent.call("workspace_read", secret.clone()).await;
        (!answer.is_error).then_some(())
    })
    .await;
    assert_eq!(door.stop().await.code, Some(0));
    // What the owner took away stays away.
    let door = world.up("full").await;
    let _content = door.agent().call("workspace_read", secret).await.ok();
    assert_eq!(door.stop().await.code, Some(0));
}

#[tokio::test]
async fn broken_rules_stop_effects_and_the_next_start_until_they_are_mended() {
    let world = World::new();
    let door = world.up("full").await;
    let agent = door.agent();
    let file = world.data().join("policies/mine.cedar");
    fs::write(&file, "forbid (principal, action,").expect("written");
    let create = json!({"path": "new.txt", "content": "x", "expectedSha256": null});
    let answer = wait_for("a refusal", LIMIT, async || {
        let answer = agent
            .call("workspace_exec", json!({"command": "true"}))
            .await;
        answer.is_error.then_some(answer)
    })
    .await;
    let error = answer.refused("PERMISSION_DENIED");
    let message = error["message"].as_str().expect("a message");
    assert!(message.contains("mine.cedar, line 1"), "{message}");
    let details = policy_of(&agent, "workspace_write", &create).await;
    assert_eq!(details["policy"], "postern.broken-rules");
    assert!(!world.project().join("new.txt").exists());
    let _content = agent
        .call("workspace_read", json!({"path": "greeting.txt"}))
        .await
        .ok();
    let (code, _, complaint) = run(&world, &["policy", "check"]).await;
    assert_eq!(code, Some(1));
    assert!(complaint.contains("mine.cedar, line 1"), "{complaint}");
    assert_eq!(door.stop().await.code, Some(0));
    let refused = world.run(&world.up_arguments("full", &[])).await;
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains("mine.cedar, line 1"));

    fs::write(
        &file,
        "@id(\"no\") forbid (principal, action, resource == Tool::\"workspace_delete\");",
    )
    .expect("written");
    let door = world.up("full").await;
    let _written = door.agent().call("workspace_write", create).await.ok();
    assert_eq!(door.stop().await.code, Some(0));
}

/// `policy explain` for a call by every mode, and for what is none.
async fn calls_are_explained(world: &World) {
    world.write(
        "call.json",
        r#"{"tool":"workspace_exec","args":{"command":"curl x | sh"}}"#,
    );
    for (mode, verdict, policy) in [
        ("full", "asked", "defaults#fetch-and-run"),
        ("ask", "asked", "mode.ask"),
        ("read-only", "denied", "mode.read-only"),
    ] {
        let (code, text, _) = run(
            world,
            &["policy", "explain", "call.json", "--json", "--mode", mode],
        )
        .await;
        assert_eq!(code, Some(0));
        let line: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(
            (&line["verdict"], &line["policyId"]),
            (&verdict.into(), &policy.into())
        );
        assert_eq!(line["command"]["programs"], json!(["curl", "sh"]));
    }
    for (text, code, words) in [
        ("no call", 2, "is no call"),
        (r#"{"tool":"workspace_exe"}"#, 1, "no tool 'workspace_exe'"),
        (r#"{"tool":"workspace_exec","args":{"cmd":1}}"#, 1, "cmd"),
    ] {
        world.write("call.json", text);
        let (found, _, complaint) = run(world, &["policy", "explain", "call.json"]).await;
        assert_eq!(found, Some(code), "{text}");
        assert!(complaint.contains(words), "{complaint}");
    }
}

#[tokio::test]
async fn rules_where_the_agent_could_write_them_are_refused() {
    let world = World::new();
    fs::create_dir(world.project().join("rules")).expect("folder");
    for folder in ["rules", "./rules/../rules", "rules-to-be"] {
        let refused = world
            .run(&world.up_arguments("full", &["--policies", folder]))
            .await;
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(refused.stderr.contains("inside the project"), "{refused:?}");
        assert!(!world.data().exists(), "{folder}");
    }
}

#[tokio::test]
async fn rules_are_checked_tried_and_explained_from_the_terminal() {
    let world = World::new();
    let door = world.up("ask").await;
    assert_eq!(door.stop().await.code, Some(0));
    let (code, text, _) = run(&world, &["policy", "check"]).await;
    assert_eq!(code, Some(0));
    assert!(text.contains("1 files, 3 rules"), "{text}");
    let (code, text, _) = run(&world, &["policy", "test", "--json"]).await;
    assert_eq!(code, Some(0));
    assert!(text.lines().count() >= 18, "{text}");
    for line in text.lines() {
        let line: Value = serde_json::from_str(line).expect("JSON");
        assert_eq!(line["holds"], true, "{line}");
    }
    let defaults = world.run(&["policy", "defaults"]).await;
    let file = world.data().join("policies/defaults.cedar");
    assert_eq!(defaults.stdout, fs::read_to_string(&file).expect("rules"));

    calls_are_explained(&world).await;
    fs::write(
        &file,
        "// should_allow workspace_list\n// should_deny workspace_info\nforbid (principal, action, resource == Tool::\"workspace_list\");",
    )
    .expect("written");
    let (code, text, complaint) = run(&world, &["policy", "test"]).await;
    assert_eq!(code, Some(1));
    assert_eq!(text.matches("WRONG").count(), 2, "{text}");
    assert!(complaint.contains("2 examples"), "{complaint}");
    let (code, _, complaint) = run(&world, &["policy", "check"]).await;
    assert_eq!(code, Some(1));
    assert!(complaint.contains("line 1"), "{complaint}");
}

/// No folder does not mean no rules: a missing one is made again, and that is said.
#[tokio::test]
async fn a_missing_folder_is_made_again_with_the_default_rules() {
    let world = World::new();
    let words = "no folder 'policies'";
    let ended = world.up("full").await.stop().await;
    assert!(!ended.stderr.contains(words), "a new one: {ended:?}");
    let folder = world.data().join("policies");
    fs::remove_dir_all(&folder).expect("removed");
    let door = world.up("full").await;
    assert!(folder.join("defaults.cedar").is_file());
    let ended = door.stop().await;
    assert!(ended.stderr.contains(words), "{ended:?}");
}

/// Rules on paths hold where links lead, for every file tool, for commands and for the project's instructions.
#[tokio::test]
async fn links_do_not_lead_around_rules() {
    let world = World::new();
    let project = world.project();
    world.write(".env", "TOKEN=1\n");
    fs::create_dir_all(project.join(".git/hooks")).expect("folders");
    let link = |to: &str, at: &str| std::os::unix::fs::symlink(to, project.join(at)).expect("link");
    fs::remove_file(project.join("AGENTS.md")).expect("removed");
    link(".env", "notes.txt");
    link(".env", "CLAUDE.md");
    link("greeting.txt", "AGENTS.md");
    link(".git", "g");
    fs::create_dir_all(world.data().join("policies")).expect("folder");
    let rules = "@id(\"no-commands-in-git\") forbid (principal, action, resource == Tool::\"workspace_exec\") \
        when { context has path && context.path like \".git*\" };\n\
        @id(\"private\") forbid (principal, action == Action::\"unattended\", resource == Tool::\"workspace_read\") \
        when { context has path && context.path like \"private/*\" };\n";
    fs::write(world.data().join("policies/mine.cedar"), rules).expect("written");
    fs::write(
        world.data().join("policies/defaults.cedar"),
        run(&world, &["policy", "defaults"]).await.1,
    )
    .expect("written");
    let door = world.up("full").await;
    let agent = door.agent();
    let read = json!({"path": "notes.txt"});
    for tool in ["workspace_read", "workspace_image", "workspace_document"] {
        let answer = agent.call(tool, read.clone()).await;
        let text = format!("{answer:?}");
        assert!(answer.is_error && !text.contains("TOKEN"), "{tool} {text}");
    }
    let details = policy_of(&agent, "workspace_read", &read).await;
    assert_eq!(details["policy"], "defaults#secrets");
    let hook = json!({"path": "g/hooks/pre-commit", "content": "", "expectedSha256": null});
    let details = policy_of(&agent, "workspace_write", &hook).await;
    assert_eq!(details["policy"], "defaults#git-internals");
    assert!(!project.join(".git/hooks/pre-commit").exists());
    let command = json!({"command": "touch here", "cwd": "g/hooks"});
    let details = policy_of(&agent, "workspace_exec", &command).await;
    assert_eq!(details["policy"], "mine#no-commands-in-git");
    assert!(!project.join(".git/hooks/here").exists());
    let info = agent.call("workspace_info", json!({})).await.ok();
    let paths: Vec<&Value> = info["instructions"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|file| &file["path"])
        .collect();
    assert_eq!(
        paths,
        ["AGENTS.md"],
        "a link to what may be read is followed"
    );
    assert_eq!(door.stop().await.code, Some(0));
}

/// The owner sees where a path leads, and what he permits is done there or not at all.
#[tokio::test]
async fn an_approval_is_for_the_place_that_the_owner_was_shown() {
    let world = World::new();
    let project = world.project();
    fs::create_dir_all(project.join("private")).expect("folder");
    world.write("private/a", "same");
    world.write("private/b", "same");
    let link = project.join("l");
    let lead = |to: &str| {
        let _ = fs::remove_file(&link);
        std::os::unix::fs::symlink(to, &link).expect("link");
    };
    lead("private/a");
    fs::create_dir_all(world.data().join("policies")).expect("folder");
    let rules = "@id(\"private\") forbid (principal, action == Action::\"unattended\", resource) \
        when { context has path && context.path like \"private/*\" };\n";
    fs::write(world.data().join("policies/mine.cedar"), rules).expect("written");
    let door = world.up("full").await;
    let (agent, owner) = (door.agent(), door.owner());
    let decide = async |leads: Option<&str>| {
        let item = wait_for("an item", LIMIT, async || owner.inbox().await.pop()).await;
        assert_eq!(item["proposal"]["effect"]["resolvedPath"], "private/a");
        assert_eq!(item["policyId"], "mine#private");
        if let Some(place) = leads {
            lead(place);
        }
        let id = item["id"].as_str().expect("an id").to_owned();
        let reply = owner.decide(&id, &json!({"decision": "approve"})).await;
        assert_eq!(reply.status, 200, "{reply:?}");
    };
    // Asked for what a link leads to, also where the path as written asks nobody.
    let reading = async || agent.call("workspace_read", json!({"path": "l"})).await;
    let (content, ()) = tokio::join!(reading(), decide(None));
    assert_eq!(content.ok()["content"], "same");
    let sha = "0967115f2813a3541eaef77de9d9d5773f1c0c04314b0bbfe4ff3b3b1c55b5d5";
    let write = json!({"path": "l", "content": "new", "expectedSha256": sha});
    let writing = async || agent.call("workspace_write", write.clone()).await;
    let (refused, ()) = tokio::join!(writing(), decide(Some("private/b")));
    let _error = refused.refused("STALE_REVISION");
    assert_eq!(world.read("private/a"), b"same");
    assert_eq!(world.read("private/b"), b"same");
    lead("private/a");
    let (reading, ()) = tokio::join!(reading(), decide(Some("private/b")));
    let _error = reading.refused("STALE_REVISION");
    lead("private/a");
    let (written, ()) = tokio::join!(writing(), decide(None));
    assert_eq!(written.ok()["resolvedPath"], "private/a");
    assert_eq!(world.read("private/a"), b"new");
    assert_eq!(door.stop().await.code, Some(0));
}

/// Why a call fails tells of the file: through a link, of one that rules keep closed.
#[tokio::test]
async fn failures_through_links_tell_nothing_of_what_is_closed() {
    let world = World::new();
    let project = world.project();
    let secret = "TOKEN=1\n";
    world.write(".env", secret);
    fs::create_dir(project.join("private")).expect("folder");
    world.write("private/k", "closed");
    world.write("open.txt", "open");
    let link = |to: &str, at: &str| std::os::unix::fs::symlink(to, project.join(at)).expect("link");
    link(".env", "lnk");
    link("private", "pl");
    link("open.txt", "fine");
    fs::create_dir_all(world.data().join("policies")).expect("folder");
    let rules = "@id(\"private\") forbid (principal, action, resource) \
        when { context has path && context.path like \"private/*\" };\n";
    fs::write(world.data().join("policies/mine.cedar"), rules).expect("written");
    let defaults = run(&world, &["policy", "defaults"]).await.1;
    fs::write(world.data().join("policies/defaults.cedar"), defaults).expect("written");
    let zeros = "0".repeat(64);
    let calls = [
        (
            "workspace_patch",
            json!({"path": "lnk", "oldText": "a", "newText": "b", "expectedSha256": zeros}),
        ),
        (
            "workspace_patch",
            json!({"path": "lnk", "oldText": "nowhere", "newText": "b", "expectedSha256": RIGHT}),
        ),
        (
            "workspace_write",
            json!({"path": "lnk", "content": "", "expectedSha256": null}),
        ),
        (
            "workspace_write",
            json!({"path": "lnk", "content": "", "expectedSha256": zeros}),
        ),
        ("workspace_read", json!({"path": "lnk", "offset": 999_999})),
        ("workspace_list", json!({"path": "lnk"})),
        ("workspace_image", json!({"path": "lnk"})),
        ("workspace_document", json!({"path": "lnk"})),
        (
            "workspace_delete",
            json!({"path": "pl/k", "expectedSha256": zeros}),
        ),
        ("workspace_read", json!({"path": "pl/nope"})),
        (
            "workspace_exec",
            json!({"command": "true", "cwd": "pl/nope"}),
        ),
    ];
    for mode in ["edit", "ask"] {
        let door = world.up(mode).await;
        let agent = door.agent();
        for (tool, call) in &calls {
            let error = agent
                .call(tool, call.clone())
                .await
                .refused("PERMISSION_DENIED");
            let told = error.to_string();
            assert!(
                !told.contains(RIGHT) && error["details"]["currentSha256"].is_null(),
                "{told}"
            );
        }
        assert_eq!(door.owner().inbox().await, Vec::<Value>::new());
        // What may be read is told as ever.
        let stale = json!({"path": "fine", "content": "", "expectedSha256": zeros});
        let error = agent
            .call("workspace_write", stale)
            .await
            .refused("STALE_REVISION");
        assert!(error["details"]["currentSha256"].is_string(), "{error}");
        let offset = json!({"path": "fine", "offset": 999_999});
        let _error = agent
            .call("workspace_read", offset)
            .await
            .refused("INVALID_ARGUMENTS");
        assert_eq!(door.stop().await.code, Some(0));
    }
    assert_eq!(world.read(".env"), secret.as_bytes());
}

/// What the owner is asked about before it is read is not told by the failure of a change either.
#[tokio::test]
async fn a_change_that_fails_tells_of_a_file_what_may_be_read_of_it() {
    let world = World::new();
    world.write("asked.txt", "content");
    fs::create_dir_all(world.data().join("policies")).expect("folder");
    let rules = "@id(\"asked\") forbid (principal, action == Action::\"unattended\", resource == Tool::\"workspace_read\") \
        when { context has path && context.path == \"asked.txt\" };\n";
    fs::write(world.data().join("policies/mine.cedar"), rules).expect("written");
    let door = world.up("edit").await;
    let (agent, owner) = (door.agent(), door.owner());
    let patch = json!({"path": "asked.txt", "oldText": "a", "newText": "b", "expectedSha256": "0".repeat(64)});
    for (decision, code) in [("deny", "APPROVAL_DENIED"), ("approve", "STALE_REVISION")] {
        let decide = async {
            let item = wait_for("an item", LIMIT, async || owner.inbox().await.pop()).await;
            assert_eq!(item["policyId"], "mine#asked");
            let id = item["id"].as_str().expect("an id").to_owned();
            let reply = owner.decide(&id, &json!({"decision": decision})).await;
            assert_eq!(reply.status, 200, "{reply:?}");
        };
        let (answer, ()) = tokio::join!(agent.call("workspace_patch", patch.clone()), decide);
        let _error = answer.refused(code);
    }
    assert_eq!(world.read("asked.txt"), b"content");
    assert_eq!(door.stop().await.code, Some(0));
}

/// SHA-256 of `TOKEN=1` and a line's end.
const RIGHT: &str = "52832841d0afd5e8e035ae5fe7ca5899bbd18fbd2bc6bb234bf226b6cc6b8b3c";

/// As the edge judges it: by its mode, and at the place to which links lead.
#[tokio::test]
async fn calls_are_explained_as_the_running_edge_judges_them() {
    let world = World::new();
    world.write(".env", "SECRET=1\n");
    std::os::unix::fs::symlink(".env", world.project().join("harmless.txt")).expect("a link");
    world.write(
        "call.json",
        r#"{"tool":"workspace_read","args":{"path":"harmless.txt"}}"#,
    );
    let explained = async || {
        let data = world.data().display().to_string();
        let words = [
            "policy",
            "explain",
            "call.json",
            "--json",
            "--data-dir",
            &data,
        ];
        let ended = world.run(&words).await;
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let line: Value = serde_json::from_str(&ended.stdout).expect("JSON");
        (
            line["verdict"].clone(),
            line["mode"].clone(),
            line["place"].clone(),
        )
    };
    let door = world.up("edit").await;
    let read = json!({"path": "harmless.txt"});
    let refused = door.agent().call("workspace_read", read).await;
    let _error = refused.refused("PERMISSION_DENIED");
    assert_eq!(
        explained().await,
        (json!("denied"), json!("edit"), json!(".env"))
    );
    assert_eq!(door.stop().await.code, Some(0));
    assert_eq!(
        explained().await,
        (json!("denied"), json!("ask"), json!(".env"))
    );
}
