//! The owner's side: approvals, questions, modes and receipts, and who gets nothing of it.

use std::time::Duration;

use http::{Method, StatusCode};
use postern_tests::{Door, World, text_of, wait_for};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

/// For an item to reach the inbox.
const ITEM_LIMIT: Duration = Duration::from_secs(30);

/// The one item that waits.
async fn waiting(door: &Door) -> Value {
    let owner = door.owner();
    wait_for("an item in the inbox", ITEM_LIMIT, || async {
        owner.inbox().await.into_iter().next()
    })
    .await
}

/// Makes a call that waits for the owner, and meanwhile decides it.
async fn call_and_decide(
    door: &Door,
    tool: &str,
    arguments: Value,
    decision: Value,
) -> postern_tests::Answer {
    let agent = door.agent();
    let decide = async {
        let item = waiting(door).await;
        let reply = door.owner().decide(&text_of(&item, "id"), &decision).await;
        assert_eq!(reply.status, StatusCode::OK, "{}", reply.json);
    };
    let (answer, ()) = tokio::join!(agent.call(tool, arguments), decide);
    answer
}

fn new_file(content: &str) -> Value {
    json!({"path": "new.txt", "content": content, "expectedSha256": null})
}

#[tokio::test]
async fn an_approved_write_happens_and_a_denied_one_does_not() {
    let world = World::new();
    let door = world.up("ask").await;
    let denied = call_and_decide(
        &door,
        "workspace_write",
        new_file("no"),
        json!({"decision": "deny", "answer": "not this one"}),
    )
    .await;
    let _ = denied.refused("APPROVAL_DENIED");
    assert!(!world.project().join("new.txt").exists());
    let written = call_and_decide(
        &door,
        "workspace_write",
        new_file("yes"),
        json!({"decision": "approve"}),
    )
    .await;
    let _ = written.ok();
    assert_eq!(world.read("new.txt"), b"yes");
    assert!(
        door.owner().inbox().await.is_empty(),
        "nothing waits any more"
    );
}

#[tokio::test]
async fn an_item_tells_what_is_asked_and_until_when() {
    let world = World::new();
    let door = world.up("ask").await;
    let agent = door.agent();
    let look = async {
        let item = waiting(&door).await;
        door.owner()
            .decide(&text_of(&item, "id"), &json!({"decision": "deny"}))
            .await;
        item
    };
    let (_, item) = tokio::join!(
        agent.call("workspace_exec", json!({"command": "make all"})),
        look
    );
    assert_eq!(item["kind"], "approval");
    assert_eq!(item["state"], "awaiting_owner");
    assert_eq!(item["tool"], "workspace_exec");
    assert!(item["proposal"].to_string().contains("make all"), "{item}");
    assert!(item["expiresAt"].is_string(), "{item}");
}

#[tokio::test]
async fn of_two_decisions_the_first_counts() {
    let world = World::new();
    let door = world.up("ask").await;
    let agent = door.agent();
    let decide = async {
        let id = text_of(&waiting(&door).await, "id");
        let owner = door.owner();
        let (one, other) = (json!({"decision": "approve"}), json!({"decision": "deny"}));
        let (one, other) = tokio::join!(owner.decide(&id, &one), owner.decide(&id, &other));
        [one.status, other.status]
    };
    let (answer, mut statuses) = tokio::join!(agent.call("workspace_write", new_file("x")), decide);
    let approved = statuses[0] == StatusCode::OK;
    statuses.sort();
    assert_eq!(statuses, [StatusCode::OK, StatusCode::CONFLICT]);
    assert_eq!(answer.is_error, !approved);
    assert_eq!(world.project().join("new.txt").exists(), approved);
}

#[tokio::test]
async fn a_question_is_answered_from_the_command_line() {
    let world = World::new();
    let door = world.up("read-only").await;
    let agent = door.agent();
    let data = world.data();
    let answer = async {
        let item = waiting(&door).await;
        assert_eq!(
            (&item["kind"], &item["question"]),
            (&json!("question"), &json!("Which colour?"))
        );
        let id = text_of(&item, "id");
        let arguments = ["inbox", "answer", "--data-dir"].map(std::ffi::OsString::from);
        let mut arguments = arguments.to_vec();
        arguments.extend([data.clone().into_os_string(), id.into(), "blue".into()]);
        let ended = world.run(&arguments).await;
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert!(ended.stdout.ends_with(" decided: answer\n"), "{ended:?}");
    };
    let (answered, ()) = tokio::join!(
        agent.call("workspace_ask", json!({"question": "Which colour?"})),
        answer
    );
    let answered = answered.ok();
    assert_eq!(answered["answer"], "blue");
    assert!(answered["answeredAt"].is_string());
}

#[tokio::test]
async fn nobody_answers_and_the_wait_ends() {
    let world = World::new();
    let door = world.up_with("ask", &["--approval-timeout", "1"]).await;
    let answer = door.agent().call("workspace_write", new_file("late")).await;
    let _ = answer.refused("APPROVAL_TIMEOUT");
    assert!(!world.project().join("new.txt").exists());
}

#[tokio::test]
async fn an_owner_who_changed_the_file_meanwhile_keeps_his_version() {
    let world = World::new();
    world.write("a.txt", "one");
    let door = world.up("ask").await;
    let agent = door.agent();
    let read = agent
        .call("workspace_read", json!({"path": "a.txt"}))
        .await
        .ok();
    let arguments =
        json!({"path": "a.txt", "content": "agent's", "expectedSha256": read["sha256"]});
    let decide = async {
        let item = waiting(&door).await;
        world.write("a.txt", "owner's");
        door.owner()
            .decide(&text_of(&item, "id"), &json!({"decision": "approve"}))
            .await;
    };
    let (answer, ()) = tokio::join!(agent.call("workspace_write", arguments), decide);
    let _ = answer.refused("STALE_REVISION");
    assert_eq!(world.read("a.txt"), b"owner's");
}

#[tokio::test]
async fn an_approval_that_waits_survives_a_kill_of_everything() {
    let world = World::new();
    let mut door = world.up("ask").await;
    let id = uuid::Uuid::new_v4().to_string();
    let agent = door.agent();
    let lost = tokio::join!(
        async {
            agent
                .try_call(Some(&id), "workspace_write", &new_file("kept").to_string())
                .await
        },
        async {
            let item = waiting(&door).await;
            postern_tests::process::signal(door.program.pid(), rustix::process::Signal::KILL);
            item
        }
    );
    assert!(lost.0.is_err(), "the program is gone: {:?}", lost.0);
    door.program.kill().await;
    let door = world.up("ask").await;
    let again = door.agent();
    let decide = async {
        let item = waiting(&door).await;
        assert_eq!(item["id"], lost.1["id"], "the same item waits");
        door.owner()
            .decide(&text_of(&item, "id"), &json!({"decision": "approve"}))
            .await;
    };
    let arguments = new_file("kept");
    let (answer, ()) = tokio::join!(again.call_as(&id, "workspace_write", &arguments), decide);
    let _ = answer.ok();
    assert_eq!(world.read("new.txt"), b"kept");
}

#[tokio::test]
async fn the_mode_is_changed_while_it_runs_and_from_the_command_line() {
    let world = World::new();
    let door = world.up("full").await;
    let agent = door.agent();
    let _ = agent.call("workspace_write", new_file("x")).await.ok();
    let data = world.data().into_os_string();
    let ended = world
        .run(&["mode".into(), "--data-dir".into(), data, "read-only".into()])
        .await;
    assert_eq!((ended.code, ended.stdout.trim()), (Some(0), "read-only"));
    let refused = agent
        .call(
            "workspace_write",
            json!({"path": "b", "content": "", "expectedSha256": null}),
        )
        .await;
    let _ = refused.refused("PERMISSION_DENIED");
    assert!(!world.project().join("b").exists());
    door.owner().set_mode("full").await;
    let _ = agent
        .call(
            "workspace_write",
            json!({"path": "b", "content": "", "expectedSha256": null}),
        )
        .await
        .ok();
}

#[tokio::test]
async fn a_closed_door_lets_nothing_in_until_it_is_open_again() {
    let world = World::new();
    let door = world.up("full").await;
    let owner = door.owner();
    let close = json!({"open": false});
    let reply = owner
        .send(Method::POST, "/owner/v1/channel", Some(&close))
        .await;
    assert_eq!(reply.status, StatusCode::OK, "{}", reply.json);
    assert_eq!(reply.json["channel"]["open"], false);
    let agent = door.agent();
    let reopen = async {
        wait_for("a closed channel", ITEM_LIMIT, || async {
            let status = owner.get("/owner/v1/status").await;
            (status["channel"]["connected"] == false).then_some(())
        })
        .await;
        assert!(!world.project().join("new.txt").exists());
        owner
            .send(
                Method::POST,
                "/owner/v1/channel",
                Some(&json!({"open": true})),
            )
            .await;
    };
    let (answer, ()) = tokio::join!(agent.call("workspace_write", new_file("in")), reopen);
    let _ = answer.ok();
    assert_eq!(world.read("new.txt"), b"in");
}

#[tokio::test]
async fn receipts_are_listed_shown_and_verified_also_offline() {
    let world = World::new();
    let door = world.up("full").await;
    let agent = door.agent();
    let id = uuid::Uuid::now_v7().to_string();
    let _ = agent
        .call_as(&id, "workspace_write", &new_file("x"))
        .await
        .ok();
    let _ = agent
        .call(
            "workspace_delete",
            json!({"path": "nothing", "expectedSha256": "0".repeat(64)}),
        )
        .await
        .refused("NOT_FOUND");
    let receipts = door.owner().receipts_of(&id).await;
    assert_eq!(receipts.len(), 1);
    let receipt = &receipts[0];
    assert_eq!(
        (&receipt["state"], &receipt["outcome"]),
        (&json!("completed"), &json!("ok"))
    );
    assert_eq!(receipt["traceId"], id.replace('-', ""));
    let shown = door
        .owner()
        .get(&format!("/owner/v1/receipts/{}", text_of(receipt, "id")))
        .await;
    assert_eq!(shown["result"]["structuredContent"]["created"], true);
    let verify = [
        "receipts".into(),
        "verify".into(),
        "--json".into(),
        "--data-dir".into(),
        world.data().into_os_string(),
    ];
    for while_it_runs in [true, false] {
        let ended = world.run(&verify).await;
        assert_eq!(ended.code, Some(0), "running: {while_it_runs}, {ended:?}");
        let report: Value = serde_json::from_str(ended.stdout.trim()).expect("one JSON object");
        assert_eq!(report["valid"], true);
        assert!(report["receipts"].as_u64() >= Some(2), "{report}");
        if while_it_runs {
            postern_tests::process::signal(door.program.pid(), rustix::process::Signal::TERM);
            wait_for("the end of the program", ITEM_LIMIT, || async {
                (!world.data().join("console-url").exists()).then_some(())
            })
            .await;
        }
    }
}

#[tokio::test]
async fn receipts_tell_what_they_are_about_and_sessions_what_they_came_to() {
    let world = World::new();
    let door = world.up("full").await;
    let (agent, owner) = (door.agent(), door.owner());
    let _ = agent
        .call("workspace_write", new_file("CONTENT"))
        .await
        .ok();
    let _ = agent
        .call("workspace_read", json!({"path": "new.txt"}))
        .await
        .ok();
    let count_is = |count| {
        let owner = &owner;
        wait_for("the receipts", ITEM_LIMIT, move || async move {
            Some(owner.receipts().await).filter(|all| all.len() == count)
        })
    };
    // What is read is recorded after its answer.
    count_is(2).await;
    let exec = json!({"command": "true\n\u{1b}[2J"});
    let _ = agent.call("workspace_exec", exec).await.ok();
    let _ = agent
        .call("workspace_write", new_file("CONTENT"))
        .await
        .refused("ALREADY_EXISTS");
    let receipts = count_is(4).await;
    let told: Vec<_> = receipts.iter().map(|it| text_of(it, "summary")).collect();
    let command = r"true\n\u{1b}[2J";
    assert_eq!(told, ["new.txt", command, "new.txt", "new.txt"]);
    assert!(!json!(receipts).to_string().contains("CONTENT"));

    let sessions = owner.get("/owner/v1/sessions").await;
    let [session] = sessions["items"].as_array().expect("items").as_slice() else {
        panic!("{sessions}");
    };
    assert_eq!(session["id"], receipts[0]["sessionId"]);
    assert_eq!(
        ["receipts", "changes", "states"].map(|field| &session[field]),
        [&json!(4), &json!(1), &json!({"completed": 4})]
    );
    assert_eq!(sessions["next"], Value::Null);
    let at = text_of(&receipts[0], "createdAt");
    for (range, count) in [
        (format!("since={at}"), 1),
        (format!("until={at}"), 3),
        (format!("since={at}&until={at}"), 0),
    ] {
        let page = owner.get(&format!("/owner/v1/receipts?{range}")).await;
        let items = page["items"].as_array().expect("items");
        assert_eq!(items.len(), count, "{range}: {page}");
    }
}

#[tokio::test]
async fn a_command_that_hides_its_end_is_shown_whole_before_it_is_approved() {
    let world = World::new();
    let door = world.up("ask").await;
    let agent = door.agent();
    let command = format!("true # {}; touch hidden-end", "x".repeat(5000));
    let data = world.data().into_os_string();
    let look = async {
        let id = text_of(&waiting(&door).await, "id");
        let listed = world
            .run(&["inbox".into(), "--data-dir".into(), data.clone()])
            .await;
        assert!(!listed.stdout.contains("hidden-end"), "{}", listed.stdout);
        assert!(
            listed.stdout.contains("MORE CHARACTERS"),
            "{}",
            listed.stdout
        );
        let arguments = [
            "inbox".into(),
            "show".into(),
            "--data-dir".into(),
            data,
            id.clone().into(),
        ];
        let shown = world.run(&arguments).await;
        assert!(shown.stdout.contains("hidden-end"), "{}", shown.stdout);
        door.owner().decide(&id, &json!({"decision": "deny"})).await;
    };
    let (answer, ()) = tokio::join!(
        agent.call("workspace_exec", json!({"command": command})),
        look
    );
    let _ = answer.refused("APPROVAL_DENIED");
}
