//! Each end of the channel against a scripted other end: what travels, with which ids, and what comes again.

use std::{ffi::OsString, fs, time::Duration};

use http::StatusCode;
use postern_tests::{
    CHANNEL_TOKEN, EDGE_INTENTION, FakeEdge, FakeHost, Program, RealHost, WORKSPACE, World, call,
    error_code, start_edge, text_of,
};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

/// For a program to be ready.
const READY_LIMIT: Duration = Duration::from_secs(60);
/// For a program that has to end by itself.
const END_LIMIT: Duration = Duration::from_secs(30);
fn words(texts: &[&str]) -> Vec<OsString> {
    texts.iter().map(OsString::from).collect()
}

#[tokio::test]
async fn host_sends_a_call_again_with_the_same_ids() {
    let host = RealHost::start().await;
    let agent = host.agent();
    let arguments = json!({"path": "a.txt"});
    let mut edge = host.edge().await;
    let asked = agent.call_as("call-1", "workspace_read", &arguments);
    let answered = async {
        let first = edge.next_call().await.expect("a call");
        assert_eq!(first["id"], "call-1");
        assert_eq!(first["workspaceId"], host.workspace.as_str());
        assert_eq!(first["intention"], EDGE_INTENTION);
        assert_eq!(first["tool"], "workspace_read");
        assert_eq!(first["args"], arguments);
        // The channel drops before the answer: the next one brings the same call.
        drop(edge);
        let mut edge = host.edge().await;
        let again = edge.next_call().await.expect("the call again");
        assert_eq!(again, first);
        edge.answer(&again, &json!({"answer": 42})).await;
        edge
    };
    let (answer, _edge) = tokio::join!(asked, answered);
    assert_eq!(answer.ok(), json!({"answer": 42}));
    let again = agent
        .call_as("call-1", "workspace_read", &json!({"path": "b.txt"}))
        .await;
    assert_eq!(again.code(), "ID_REUSED");
}

#[tokio::test]
async fn host_closes_the_older_channel_of_a_workspace() {
    let host = RealHost::start().await;
    let mut older = host.edge().await;
    let _newer = host.edge().await;
    let closed = older
        .next_call()
        .await
        .expect_err("closed")
        .expect("with a frame");
    assert_eq!(u16::from(closed.code), 4409);
    assert_eq!(closed.reason.as_str(), "superseded");
}

#[tokio::test]
async fn host_refuses_tokens_that_open_no_channel() {
    let host = RealHost::start().await;
    let nobody = format!("{}x", host.channel_token);
    let other = "00000000-0000-4000-8000-000000000000";
    for (workspace, token, status) in [
        (&*host.workspace, &*nobody, StatusCode::UNAUTHORIZED),
        (&*host.workspace, &*host.agent_token, StatusCode::FORBIDDEN),
        (other, &*host.channel_token, StatusCode::FORBIDDEN),
    ] {
        let refusal = FakeEdge::connect(&host.url, workspace, token).await;
        assert_eq!(refusal.err(), Some(status));
    }
}

#[tokio::test]
async fn edge_checks_in_the_order_of_the_contract_and_replays() {
    let world = World::new();
    let host = FakeHost::listen().await;
    let mut program = start_edge(&world, host.url(), &["--listen-none"]);
    let mut channel = host.accept(WORKSPACE, CHANNEL_TOKEN).await;
    program.event("connected", READY_LIMIT).await;

    let write = json!({"path": "new.txt", "content": "x", "expectedSha256": null});
    let mut wrong = call("call-1", "workspace_nothing", &json!({}));
    wrong["intention"] = json!("Another one");
    wrong["workspaceId"] = json!("00000000-0000-4000-8000-000000000000");
    assert_eq!(error_code(&channel.ask(&wrong).await), "WRONG_WORKSPACE");
    wrong["workspaceId"] = json!(WORKSPACE);
    assert_eq!(error_code(&channel.ask(&wrong).await), "WRONG_INTENTION");
    let unknown = call("call-2", "workspace_nothing", &json!({}));
    assert_eq!(error_code(&channel.ask(&unknown).await), "UNKNOWN_TOOL");
    let bad = call("call-3", "workspace_write", &json!({"path": "new.txt"}));
    assert_eq!(error_code(&channel.ask(&bad).await), "INVALID_ARGUMENTS");
    assert!(!world.project().join("new.txt").exists());

    let first = channel
        .ask(&call("call-4", "workspace_write", &write))
        .await;
    assert_eq!(first["structuredContent"]["created"], true, "{first}");
    let text = first["content"][0]["text"].as_str().expect("text");
    let shown: Value = serde_json::from_str(text).expect("compact JSON");
    assert_eq!(shown, first["structuredContent"]);
    // On another channel the same ids get the same answer, and the file is left as it is by then.
    drop(channel);
    fs::write(world.project().join("new.txt"), "changed since").expect("writable");
    let mut channel = host.accept(WORKSPACE, CHANNEL_TOKEN).await;
    let again = channel
        .ask(&call("call-4", "workspace_write", &write))
        .await;
    assert_eq!(again, first);
    assert_eq!(world.read("new.txt"), b"changed since");
    let reused = channel
        .ask(&call(
            "call-4",
            "workspace_delete",
            &json!({"path": "new.txt", "expectedSha256": null}),
        ))
        .await;
    assert_eq!(error_code(&reused), "ID_REUSED");

    program.signal(rustix::process::Signal::TERM);
    let closed = channel
        .next_result()
        .await
        .expect_err("closed")
        .expect("with a frame");
    assert_eq!(u16::from(closed.code), 1001);
    assert_eq!(program.ended(END_LIMIT).await.code, Some(0));
}

#[tokio::test]
async fn edge_closes_on_what_is_no_frame() {
    let world = World::new();
    let host = FakeHost::listen().await;
    let _program = start_edge(&world, host.url(), &["--listen-none"]);
    let good = call("call-1", "workspace_info", &json!({}));
    let mut without_id = good.clone();
    without_id.as_object_mut().expect("an object").remove("id");
    let mut other_protocol = good.clone();
    other_protocol["protocol"] = json!(2);
    for (frame, expected) in [
        (json!({"type": "greeting"}), 1008),
        (without_id, 1008),
        (other_protocol, 1002),
    ] {
        let mut channel = host.accept(WORKSPACE, CHANNEL_TOKEN).await;
        channel.send(&frame).await;
        let closed = channel
            .next_result()
            .await
            .expect_err("closed")
            .expect("with a frame");
        assert_eq!(u16::from(closed.code), expected, "{frame}");
    }
    let mut channel = host.accept(WORKSPACE, CHANNEL_TOKEN).await;
    let info = channel.ask(&good).await;
    assert_eq!(info["structuredContent"]["workspaceId"], WORKSPACE);
}

#[tokio::test]
async fn edge_refuses_to_send_its_token_in_plain_text_elsewhere() {
    let world = World::new();
    let token = world.secret("token", "secret-channel-token\n");
    let mut arguments = words(&[
        "edge",
        "--host",
        "http://192.0.2.1:7300",
        "--workspace",
        WORKSPACE,
    ]);
    arguments.extend(words(&[
        "--intention",
        EDGE_INTENTION,
        "--listen-none",
        "--token-file",
    ]));
    arguments.push(token.into());
    arguments.push("--project".into());
    arguments.push(world.project().into());
    arguments.push("--data-dir".into());
    arguments.push(world.data().into());
    let ended = world.run(&arguments).await;
    assert!(matches!(ended.code, Some(1 | 2)), "{ended:?}");
    assert!(
        ended.stderr.contains("--allow-plaintext"),
        "it says what would help: {ended:?}"
    );
    assert!(!ended.stderr.contains("secret-channel-token"));
}

/// Starts one service alone and tells where it listens.
async fn serve(world: &World, role: &str, listen: &str, further: &[OsString]) -> (Program, String) {
    let mut arguments = words(&["serve", role, "--json", "--listen", listen]);
    arguments.extend_from_slice(further);
    let mut program = world.start(&arguments);
    let line = program.event("listening", READY_LIMIT).await;
    assert_eq!(line["role"], role);
    let url = text_of(&line, "url");
    (program, url)
}

#[tokio::test]
async fn edge_works_the_same_with_every_service_a_process_of_its_own() {
    for by_socket in [false, true] {
        let world = World::new();
        let outside = |name: &str| world.outside().join(name).display().to_string();
        let listen = |role: &str| match by_socket {
            true => format!("unix:{}", outside(&format!("sockets/{role}"))),
            false => "127.0.0.1:0".to_owned(),
        };
        let project: [OsString; 2] = ["--project".into(), world.project().into()];
        let database = |name: &str| words(&["--database", &format!("sqlite://{}", outside(name))]);
        let spool: [OsString; 2] = ["--spool".into(), outside("spool").into()];
        let mut running = Vec::new();
        let mut edge = words(&["--listen-none"]);
        for (role, further) in [
            ("identity", database("identity.db")),
            ("policy", Vec::new()),
            ("filesystem", project.to_vec()),
            ("exec", [project.clone(), spool].concat()),
            ("ledger", database("ledger.db")),
        ] {
            let (program, address) = serve(&world, role, &listen(role), &further).await;
            running.push(program);
            edge.extend(words(&[&format!("--{role}"), &address]));
        }
        let host = FakeHost::listen().await;
        let edge: Vec<&str> = edge.iter().filter_map(|word| word.to_str()).collect();
        let _program = start_edge(&world, host.url(), &edge);
        let mut channel = host.accept(WORKSPACE, CHANNEL_TOKEN).await;
        let write = json!({"path": "new.txt", "content": "x", "expectedSha256": null});
        let write = call("call-1", "workspace_write", &write);
        let written = channel.ask(&write).await;
        assert_eq!(written["structuredContent"]["created"], true, "{written}");
        assert_eq!(channel.ask(&write).await, written, "replayed");
        let exec = call(
            "call-2",
            "workspace_exec",
            &json!({"command": "cat new.txt"}),
        );
        let started = channel.ask(&exec).await;
        let id = text_of(&started["structuredContent"], "commandId");
        let poll = call("call-3", "workspace_poll", &json!({"commandId": id}));
        let polled = channel.ask(&poll).await;
        assert_eq!(polled["structuredContent"]["output"], "x", "{polled}");
    }
}
