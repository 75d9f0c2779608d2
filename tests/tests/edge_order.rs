//! What happens to a call on a real edge, in which order, and what it leaves behind (CONTRACT.md, section 2).
#![expect(clippy::expect_used, reason = "tests fail by panicking")]

use std::{fs, time::Duration};

use postern_tests::{
    CHANNEL_TOKEN, FakeHost, HostSide, Owner, Program, WORKSPACE, World, call, error_code,
    raw::{FIN, RawHost, TEXT},
    start_edge, text_of, wait_for,
};
use pretty_assertions::assert_eq;
use rustix::process::Signal;
use serde_json::{Value, json};

/// For a program to be ready, and for what the owner is to see.
const LIMIT: Duration = Duration::from_secs(60);
/// For a program that has to end by itself.
const END_LIMIT: Duration = Duration::from_secs(30);

/// An edge whose owner looks on.
struct Door {
    program: Program,
    owner: Owner,
}

impl Door {
    async fn open(world: &World, host: &FakeHost, further: &[&str]) -> Self {
        let further = [&["--console", "127.0.0.1:0"], further].concat();
        let mut program = start_edge(world, host.url(), &further);
        let line = program.event("listening", LIMIT).await;
        let token = fs::read_to_string(world.data().join("owner-token")).expect("a token");
        let owner = Owner::new(&text_of(&line, "url"), token.trim());
        Self { program, owner }
    }

    async fn close(self) {
        self.program.signal(Signal::TERM);
        assert_eq!(self.program.ended(END_LIMIT).await.code, Some(0));
    }

    /// The first item of the inbox.
    async fn waiting(&self) -> Value {
        let first = || async { self.owner.inbox().await.into_iter().next() };
        wait_for("an item in the inbox", LIMIT, first).await
    }
}

async fn accept(host: &FakeHost) -> HostSide {
    host.accept(WORKSPACE, CHANNEL_TOKEN).await
}

fn new_file(path: &str) -> Value {
    json!({"path": path, "content": "x", "expectedSha256": null})
}

/// A call with everything wrong with it that is named.
fn wrong(id: &str, wrongs: &[&str]) -> Value {
    let mut frame = call(id, "workspace_write", &new_file("a"));
    for wrong in wrongs {
        match *wrong {
            "workspace" => frame["workspaceId"] = json!("00000000-0000-4000-8000-000000000000"),
            "intention" => frame["intention"] = json!("Another one"),
            "tool" => frame["tool"] = json!("workspace_nothing"),
            "arguments" => frame["args"] = json!({"bad": 1}),
            "permission" => {}
            other => panic!("{other}"),
        }
    }
    frame
}

#[tokio::test]
async fn of_two_rules_that_a_call_breaks_the_earlier_is_told() {
    let world = World::new();
    let host = FakeHost::listen().await;
    // Read-only: the write is not permitted either.
    let door = Door::open(&world, &host, &["--mode", "read-only"]).await;
    let mut channel = accept(&host).await;
    let order = [
        ("workspace", "WRONG_WORKSPACE"),
        ("intention", "WRONG_INTENTION"),
        ("tool", "UNKNOWN_TOOL"),
        ("arguments", "INVALID_ARGUMENTS"),
        ("permission", "PERMISSION_DENIED"),
    ];
    for (index, (first, code)) in order.iter().enumerate() {
        let second = order
            .get(index + 1)
            .map_or("permission", |(second, _)| second);
        for (id, wrongs) in [
            ("alone", vec![*first]),
            ("with-the-next", vec![*first, second]),
        ] {
            let id = format!("{first}-{id}");
            let frame = wrong(&id, &wrongs);
            let refused = channel.ask(&frame).await;
            assert_eq!(error_code(&refused), *code, "{wrongs:?}: {refused}");
            assert_eq!(refused["isError"], true);
            // It leaves a refused receipt, under the workspace that is served here.
            let receipts = door.owner.receipts_of(&id).await;
            assert_eq!(receipts.len(), 1, "{id}: {receipts:?}");
            let left = ["state", "outcome", "workspaceId"].map(|field| &receipts[0][field]);
            assert_eq!(left, ["refused", code, WORKSPACE]);
            assert!(receipts[0]["startedAt"].is_null(), "{receipts:?}");
        }
    }
    assert!(!world.project().join("a").exists());
    // The frame's shape comes before everything.
    let mut shapeless = wrong("shapeless", &["workspace"]);
    shapeless
        .as_object_mut()
        .expect("an object")
        .remove("sessionId");
    channel.send(&shapeless).await;
    assert_eq!(channel.closed().await.0, 1008);
    assert_eq!(
        door.owner.receipts_of("shapeless").await,
        Vec::<Value>::new()
    );
}

#[tokio::test]
async fn the_receipt_decides_before_tool_arguments_and_permission_but_after_the_pins() {
    let world = World::new();
    let host = FakeHost::listen().await;
    let door = Door::open(&world, &host, &[]).await;
    let mut channel = accept(&host).await;
    let good = wrong("call-1", &[]);
    let first = channel.ask(&good).await;
    assert_eq!(first["structuredContent"]["created"], true, "{first}");
    door.owner.set_mode("read-only").await;
    assert_eq!(
        channel.ask(&good).await,
        first,
        "replayed, though no longer permitted"
    );
    for (wrongs, code) in [
        (&["tool"][..], "ID_REUSED"),
        (&["arguments"], "ID_REUSED"),
        (&["intention", "tool"], "WRONG_INTENTION"),
        (&["workspace", "tool"], "WRONG_WORKSPACE"),
    ] {
        let refused = channel.ask(&wrong("call-1", wrongs)).await;
        assert_eq!(error_code(&refused), code, "{wrongs:?}");
    }
    assert_eq!(channel.ask(&good).await, first, "and still");
    // B50: the same arguments written otherwise are the same arguments.
    let other_order = r#"{"expectedSha256":null,"content":"\u0078",  "path":"a"}"#;
    let text = good
        .to_string()
        .replace(&good["args"].to_string(), other_order);
    assert!(text.contains(other_order));
    channel.send_text(&text).await;
    let again = channel.next_result().await.expect("a result");
    assert_eq!(again["result"], first);
}

async fn ask_raw(channel: &mut RawHost, frame: &Value) -> Vec<u8> {
    channel
        .frame(FIN | TEXT, frame.to_string().as_bytes())
        .await;
    channel.next_but_ping().await.expect("a result").payload
}

#[tokio::test]
async fn results_and_refusals_are_replayed_byte_for_byte_after_a_restart() {
    let world = World::new();
    world.write("held.txt", "x");
    let host = FakeHost::listen().await;
    let door = Door::open(&world, &host, &[]).await;
    let mut channel = host.accept_raw().await;
    let calls = [
        call("call-write", "workspace_write", &new_file("é 🙂.txt")),
        call("call-exec", "workspace_exec", &json!({"command": "true"})),
        call(
            "call-stale",
            "workspace_delete",
            &json!({"path": "held.txt", "expectedSha256": "0".repeat(64)}),
        ),
        call("call-bad", "workspace_write", &json!({"path": 7})),
        call("call-read-bad", "workspace_read", &json!({"offset": -1})),
        call(
            "call-unknown",
            "workspace_nothing",
            &json!({"deep": [1.50, "\u{2028}"]}),
        ),
    ];
    let mut answers = Vec::new();
    for frame in &calls {
        answers.push(ask_raw(&mut channel, frame).await);
    }
    door.close().await;
    drop(channel);
    // Another mode, so that judged afresh each would be answered otherwise.
    let door = Door::open(&world, &host, &["--mode", "read-only"]).await;
    let mut channel = host.accept_raw().await;
    for (frame, answer) in calls.iter().zip(&answers) {
        let again = ask_raw(&mut channel, frame).await;
        assert_eq!(
            String::from_utf8_lossy(&again),
            String::from_utf8_lossy(answer)
        );
        let id = frame["id"].as_str().expect("an id");
        assert_eq!(door.owner.receipts_of(id).await.len(), 1, "{id}");
    }
}

#[tokio::test]
async fn the_fifth_call_is_busy_and_a_second_copy_waits_for_the_one_result() {
    let world = World::new();
    let host = FakeHost::listen().await;
    let door = Door::open(&world, &host, &[]).await;
    let mut channel = accept(&host).await;
    for number in 1..=4 {
        let question = json!({"question": format!("Number {number}?")});
        channel
            .send(&call(&format!("ask-{number}"), "workspace_ask", &question))
            .await;
    }
    let four = || async { (door.owner.inbox().await.len() == 4).then_some(()) };
    wait_for("four questions", LIMIT, four).await;
    // The first again takes no place of its own.
    channel
        .send(&call(
            "ask-1",
            "workspace_ask",
            &json!({"question": "Number 1?"}),
        ))
        .await;
    for tool in ["workspace_write", "workspace_read"] {
        let fifth = call("fifth", tool, &new_file("fifth.txt"));
        let busy = channel.ask(&fifth).await;
        let error = &busy["structuredContent"]["error"];
        assert_eq!(
            (&error["code"], &error["retryable"]),
            (&json!("BUSY"), &json!(true))
        );
    }
    assert_eq!(door.owner.receipts_of("fifth").await, Vec::<Value>::new());
    assert_eq!(door.owner.inbox().await.len(), 4);

    for item in door.owner.inbox().await {
        let answer = json!({"decision": "answer", "answer": item["question"]});
        door.owner.decide(&text_of(&item, "id"), &answer).await;
    }
    let mut answers: Vec<(String, String)> = Vec::new();
    for _ in 0..5 {
        let result = channel.next_result().await.expect("a result");
        let answer = &result["result"]["structuredContent"]["answer"];
        answers.push((
            text_of(&result, "id"),
            answer.as_str().expect("an answer").to_owned(),
        ));
    }
    answers.sort();
    let expected = [1, 1, 2, 3, 4].map(|n| (format!("ask-{n}"), format!("Number {n}?")));
    assert_eq!(answers, expected);
    // The id of the fifth is still free.
    let fifth = channel
        .ask(&call("fifth", "workspace_write", &new_file("fifth.txt")))
        .await;
    assert_eq!(fifth["structuredContent"]["created"], true, "{fifth}");
}

#[tokio::test]
async fn what_is_unavailable_leaves_nothing_behind_and_its_id_free() {
    let world = World::new();
    let host = FakeHost::listen().await;
    let nowhere = format!("unix:{}", world.outside().join("no.sock").display());
    let door = Door::open(&world, &host, &["--exec", &nowhere]).await;
    let mut channel = accept(&host).await;
    let exec = call("call-1", "workspace_exec", &json!({"command": "true"}));
    for _ in 0..2 {
        let refused = channel.ask(&exec).await;
        let error = &refused["structuredContent"]["error"];
        assert_eq!(
            (&error["code"], &error["retryable"]),
            (&json!("UNAVAILABLE"), &json!(true))
        );
    }
    assert_eq!(door.owner.receipts_of("call-1").await, Vec::<Value>::new());
    drop(channel);
    door.close().await;
    let _door = Door::open(&world, &host, &[]).await;
    let mut channel = accept(&host).await;
    let started = channel.ask(&exec).await;
    assert!(
        started["structuredContent"]["commandId"].is_string(),
        "{started}"
    );
}

#[tokio::test]
async fn a_question_outlives_a_killed_edge_and_is_answered_from_the_command_line() {
    let world = World::new();
    let host = FakeHost::listen().await;
    let mut door = Door::open(&world, &host, &["--mode", "read-only"]).await;
    let mut channel = accept(&host).await;
    let question = call(
        "ask-1",
        "workspace_ask",
        &json!({"question": "Which colour?"}),
    );
    channel.send(&question).await;
    let item = door.waiting().await;
    door.program.kill().await;
    drop(channel);

    let door = Door::open(&world, &host, &["--mode", "read-only"]).await;
    assert_eq!(door.waiting().await["id"], item["id"]);
    let id = text_of(&item, "id");
    let data = world.data().display().to_string();
    let words = ["inbox", "answer", "--data-dir", &data, &id, "blue"];
    let ended = world.run(&words).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    // Nobody asked for it meanwhile; the same ids get the answer, now and again.
    let mut channel = accept(&host).await;
    let answered = channel.ask(&question).await;
    assert_eq!(
        answered["structuredContent"]["answer"], "blue",
        "{answered}"
    );
    assert_eq!(channel.ask(&question).await, answered);
    // The second answer is told that there is one.
    let ended = world.run(&words).await;
    assert_eq!(ended.code, Some(3), "{ended:?}");
    assert!(ended.stderr.contains("decided before"), "{ended:?}");
    assert_eq!(door.owner.inbox().await, Vec::<Value>::new());
}

#[tokio::test]
async fn a_question_that_nobody_answers_times_out() {
    let world = World::new();
    let host = FakeHost::listen().await;
    let door = Door::open(&world, &host, &["--approval-timeout", "1"]).await;
    let mut channel = accept(&host).await;
    let question = call("ask-1", "workspace_ask", &json!({"question": "Anybody?"}));
    let first = channel.ask(&question).await;
    assert_eq!(error_code(&first), "APPROVAL_TIMEOUT", "{first}");
    let receipts = door.owner.receipts_of("ask-1").await;
    assert_eq!(
        (&receipts[0]["state"], receipts.len()),
        (&json!("refused"), 1)
    );
    assert_eq!(channel.ask(&question).await, first);
}

#[tokio::test]
async fn without_tools_of_the_owner_the_list_is_empty_and_every_name_unknown() {
    let world = World::new();
    let host = FakeHost::listen().await;
    let door = Door::open(&world, &host, &["--mode", "ask"]).await;
    let mut channel = accept(&host).await;
    let listed = channel
        .ask(&call("call-1", "workspace_tools", &json!({})))
        .await;
    assert_eq!(listed["structuredContent"], json!({"tools": []}));
    let named = json!({"name": "deploy", "arguments": {}});
    let refused = channel.ask(&call("call-2", "workspace_tool", &named)).await;
    assert_eq!(error_code(&refused), "UNKNOWN_TOOL", "{refused}");
    // The owner is not asked about what is not there.
    assert_eq!(door.owner.inbox().await, Vec::<Value>::new());
    assert_eq!(door.owner.receipts_of("call-2").await.len(), 1);
}

/// A call of another session.
fn of_session(session: &str, mut frame: Value) -> Value {
    frame["sessionId"] = json!(session);
    frame
}

#[tokio::test]
async fn with_sessions_ask_the_owner_lets_each_session_in() {
    let world = World::new();
    let host = FakeHost::listen().await;
    let mut door = Door::open(&world, &host, &["--sessions", "ask"]).await;
    let mut channel = accept(&host).await;
    // What comes before the session in the order does not ask the owner.
    let foreign = channel.ask(&wrong("call-0", &["intention"])).await;
    assert_eq!(error_code(&foreign), "WRONG_INTENTION");
    let read = call("call-1", "workspace_read", &json!({"path": "greeting.txt"}));
    let write = call("call-2", "workspace_write", &new_file("new.txt"));
    channel.send(&read).await;
    channel.send(&write).await;
    let item = door.waiting().await;
    let proposal = json!({"tool": "session", "arguments": {"session": "session-1"}});
    assert_eq!(
        (&item["kind"], &item["proposal"]),
        (&json!("approval"), &proposal)
    );
    // The question outlives the edge, and is one however many calls wait for it.
    door.program.kill().await;
    drop(channel);
    let door = Door::open(&world, &host, &["--sessions", "ask"]).await;
    let mut channel = accept(&host).await;
    channel.send(&read).await;
    channel.send(&write).await;
    assert_eq!(door.waiting().await["id"], item["id"]);
    assert!(!world.project().join("new.txt").exists());
    let approve = json!({"decision": "approve"});
    assert!(
        door.owner
            .decide(&text_of(&item, "id"), &approve)
            .await
            .status
            .is_success()
    );
    let mut results = vec![
        channel.next_result().await.expect("a result"),
        channel.next_result().await.expect("a result"),
    ];
    results.sort_by_key(|result| text_of(result, "id"));
    assert_eq!(
        results[0]["result"]["structuredContent"]["content"], "hello\n",
        "{results:?}"
    );
    assert_eq!(
        results[1]["result"]["structuredContent"]["created"], true,
        "{results:?}"
    );
}

#[tokio::test]
async fn a_session_that_was_let_in_stays_so_and_one_that_was_not_stays_out() {
    let world = World::new();
    let host = FakeHost::listen().await;
    let door = Door::open(&world, &host, &["--sessions", "ask"]).await;
    let mut channel = accept(&host).await;
    let write = call("call-2", "workspace_write", &new_file("new.txt"));
    channel.send(&write).await;
    let id = text_of(&door.waiting().await, "id");
    door.owner
        .decide(&id, &json!({"decision": "approve"}))
        .await;
    let written = channel.next_result().await.expect("a result");
    drop(channel);
    door.close().await;

    let door = Door::open(&world, &host, &["--sessions", "ask"]).await;
    let mut channel = accept(&host).await;
    assert_eq!(channel.ask(&write).await, written["result"]);
    assert_eq!(door.owner.inbox().await, Vec::<Value>::new());
    let stranger = of_session(
        "session-2",
        call("call-1", "workspace_write", &new_file("other.txt")),
    );
    channel.send(&stranger).await;
    let item = door.waiting().await;
    door.owner
        .decide(&text_of(&item, "id"), &json!({"decision": "deny"}))
        .await;
    let refused = channel.next_result().await.expect("a result");
    assert_eq!(
        error_code(&refused["result"]),
        "UNKNOWN_SESSION",
        "{refused}"
    );
    let again = channel.ask(&stranger).await;
    assert_eq!(error_code(&again), "UNKNOWN_SESSION", "{again}");
    assert_eq!(door.owner.inbox().await, Vec::<Value>::new());
    assert!(!world.project().join("other.txt").exists());
}

#[tokio::test]
async fn a_session_that_nobody_lets_in_in_time_is_asked_about_again() {
    let world = World::new();
    let host = FakeHost::listen().await;
    let further = ["--sessions", "ask", "--approval-timeout", "1"];
    let door = Door::open(&world, &host, &further).await;
    let mut channel = accept(&host).await;
    let info = call("call-1", "workspace_info", &json!({}));
    let refused = channel.ask(&info).await;
    assert_eq!(error_code(&refused), "UNKNOWN_SESSION", "{refused}");
    door.close().await;
    drop(channel);
    let door = Door::open(&world, &host, &["--sessions", "ask"]).await;
    let mut channel = accept(&host).await;
    channel.send(&info).await;
    let item = door.waiting().await;
    door.owner
        .decide(&text_of(&item, "id"), &json!({"decision": "approve"}))
        .await;
    let answered = channel.next_result().await.expect("a result");
    assert_eq!(
        answered["result"]["structuredContent"]["sessionId"], "session-1",
        "{answered}"
    );
}
