//! The owner's tools: listed, called, told of.

use std::time::Duration;

use postern_edge::{Config, ToolServer};
use postern_proto::ledger::v1::{Decision, State};
use postern_types::Mode;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use crate::{
    host::{Channel, PATIENCE, call, code},
    rig::{Rig, Run, ask},
};

pub(crate) fn scripted(name: &str, kind: &str) -> ToolServer {
    ToolServer::program(name, ["scripted", kind].map(str::to_owned).to_vec())
}

/// An edge with these servers, its channel, and every server that becomes ready ready.
pub(crate) async fn start(
    rig: &Rig,
    mode: Mode,
    tools: Vec<ToolServer>,
    change: impl FnOnce(&mut Config),
) -> (Run, Channel) {
    let mut config = rig.config(mode);
    config.tools = tools;
    change(&mut config);
    let mut run = rig.start_with(config).await;
    let channel = rig.host.ready().await;
    run.event().await;
    (run, channel)
}

pub(crate) async fn start_one(rig: &Rig, kind: &str) -> (Run, Channel) {
    start(rig, Mode::Full, vec![scripted("s", kind)], |_| {}).await
}

pub(crate) fn use_tool(id: &str, name: &str, arguments: &Value) -> Value {
    call(
        id,
        "workspace_tool",
        json!({"name": name, "arguments": arguments}),
    )
}

/// The whole result of a call.
pub(crate) async fn result(channel: &mut Channel, id: &str, name: &str, arguments: Value) -> Value {
    channel.call(&use_tool(id, name, &arguments)).await;
    channel.result().await["result"].take()
}

pub(crate) async fn listed(channel: &mut Channel, id: &str) -> Vec<String> {
    let listing = ask(channel, id, "workspace_tools", json!({})).await;
    let tools = listing["tools"].as_array().expect("tools");
    let names = tools
        .iter()
        .map(|tool| tool["name"].as_str().expect("name").to_owned());
    names.collect()
}

#[tokio::test]
async fn tools_are_listed_under_their_servers_name_and_called_by_it() {
    for kind in ["good", "modern", "garbage", "slow-list"] {
        let rig = Rig::new().await;
        let (run, mut channel) = start_one(&rig, kind).await;
        let listing = ask(&mut channel, "1", "workspace_tools", json!({})).await;
        assert_eq!(
            listing["tools"][0],
            json!({"name": "s__echo", "description": "Does echo.", "inputSchema": {"type": "object"},
                "annotations": {"readOnlyHint": true}}),
            "{kind}"
        );
        let echoed = result(&mut channel, "2", "s__echo", json!({"a": [1, "é"]})).await;
        assert_eq!(
            echoed["content"][0]["text"], r#"{"a":[1,"é"]}"#,
            "{kind}: {echoed}"
        );
        assert_eq!(rig.world.log()[0..2], ["record ok", "begin workspace_tool"]);
        rig.world.until("complete ok", 1).await;
        let status = serde_json::to_value(run.control.tools()).expect("status");
        assert_eq!(
            status,
            json!([{"server": "s", "state": "ready", "tools": 15, "problem": null, "calls": []}]),
            "{kind}"
        );
    }
}

#[tokio::test]
async fn a_result_is_passed_on_to_the_byte() {
    let rig = Rig::new().await;
    let (_run, mut channel) = start_one(&rig, "good").await;
    listed(&mut channel, "1").await;
    channel.call(&use_tool("2", "s__echo", &json!({}))).await;
    let frame = channel.frame().await;
    let expected = r#"{"content":[{"type":"text","text":"{}"},{"type":"odd","x":1.0}],"structuredContent":{"b":1.10,"a":12345678901234567890123},"_meta":{"own/key":1}}"#;
    assert!(frame.contains(expected), "{frame}");
    // The same ids again: the stored result, and no second call.
    channel.call(&use_tool("2", "s__echo", &json!({}))).await;
    assert_eq!(channel.frame().await, frame);
    assert_eq!(rig.world.tools.count("echo"), 1);
}

#[tokio::test]
async fn failures_of_a_tool_are_told_as_they_are() {
    let rig = Rig::new().await;
    let (_run, mut channel) = start_one(&rig, "good").await;
    listed(&mut channel, "0").await;
    let failed = result(&mut channel, "1", "s__fail", json!({})).await;
    assert_eq!(
        failed,
        json!({"content": [{"type": "text", "text": "no"}], "isError": true})
    );
    let bare = result(&mut channel, "2", "s__environment", json!({})).await;
    assert_eq!(bare["content"], json!([]));
    for (id, name, expected, part) in [
        (
            "3",
            "s__protocol",
            "INVALID_ARGUMENTS",
            "bad \\u{1b}[31m colour",
        ),
        ("4", "s__huge", "TOO_LARGE", "Ask it for less"),
        ("5", "s__odd", "INTERNAL", "no tool result"),
        ("6", "s__duplicate", "INTERNAL", "no tool result"),
        ("7", "s__deep", "INTERNAL", "no tool result"),
        ("8", "s__nothing", "UNKNOWN_TOOL", "workspace_tools"),
        ("9", "other__echo", "UNKNOWN_TOOL", "workspace_tools"),
        ("10", "s_echo", "UNKNOWN_TOOL", "workspace_tools"),
    ] {
        let told = result(&mut channel, id, name, json!({})).await;
        let content = &told["structuredContent"];
        assert_eq!(code(content), expected, "{name}: {told}");
        let message = content["error"]["message"].as_str().expect("text");
        assert!(message.contains(part), "{name}: {message}");
    }
    // The channel has survived all of it.
    let echoed = result(&mut channel, "11", "s__echo", json!({})).await;
    assert_eq!(echoed["isError"], Value::Null);
}

#[tokio::test]
async fn the_owners_choice_of_tools_and_what_a_program_gets() {
    let rig = Rig::new().await;
    let mut server = scripted("s", "good");
    server.only = ["echo", "environment", "fail"].map(str::to_owned).to_vec();
    server.except = vec!["fail".to_owned()];
    server.cwd = "sub".to_owned();
    server.env.insert("A".to_owned(), "1".to_owned());
    server.env_pass = vec!["API_TOKEN".to_owned()];
    server.sandbox_write = vec!["/var/cache/x".to_owned()];
    let mut off = scripted("off", "good");
    off.enabled = false;
    let (run, mut channel) = start(&rig, Mode::Full, vec![server, off], |_| {}).await;
    assert_eq!(
        listed(&mut channel, "1").await,
        ["s__echo", "s__environment"]
    );
    let unknown = ask(
        &mut channel,
        "2",
        "workspace_tool",
        json!({"name": "s__fail", "arguments": {}}),
    )
    .await;
    assert_eq!(code(&unknown), "UNKNOWN_TOOL");
    let told = result(&mut channel, "3", "s__environment", json!({})).await;
    assert_eq!(
        told["structuredContent"],
        json!({"cwd": "sub", "env": "1", "pass": ["API_TOKEN"], "write": ["/var/cache/x"]})
    );
    let status = serde_json::to_value(run.control.tools()).expect("status");
    assert_eq!(status[1]["state"], "disabled");
    assert_eq!(rig.world.tools.count("start good"), 1);
}

#[tokio::test]
async fn every_page_is_listed_and_a_change_is_heard() {
    let rig = Rig::new().await;
    let tools = vec![scripted("p", "pages"), scripted("s", "good")];
    let (_run, mut channel) = start(&rig, Mode::Full, tools, |_| {}).await;
    let names = listed(&mut channel, "1").await;
    assert_eq!(
        names[..6],
        ["p__p0", "p__p1", "p__p2", "p__p3", "p__p4", "s__echo"]
    );
    result(&mut channel, "2", "s__grow", json!({})).await;
    let grown = async {
        for id in 0.. {
            let names = listed(&mut channel, &format!("l{id}")).await;
            if names.last().is_some_and(|name| name == "s__grown") {
                return;
            }
        }
    };
    tokio::time::timeout(PATIENCE, grown).await.expect("heard");
}

#[tokio::test]
async fn a_listing_is_bounded_and_the_owner_is_told() {
    for (kind, tools, part) in [
        ("many", 256, "more than 256"),
        ("endless", 0, "after 64 pages"),
    ] {
        let rig = Rig::new().await;
        let (run, mut channel) = start_one(&rig, kind).await;
        assert_eq!(listed(&mut channel, "1").await.len(), tools, "{kind}");
        let status = serde_json::to_value(run.control.tools()).expect("status");
        let problem = status[0]["problem"].as_str().expect(kind);
        assert!(problem.contains(part), "{problem}");
    }
}

/// In `ask` and `edit` each call waits; one approval for the session is for one tool.
#[tokio::test]
async fn each_tool_waits_for_the_owner_by_its_own_name() {
    let rig = Rig::new().await;
    let (_run, mut channel) = start(&rig, Mode::Edit, vec![scripted("s", "good")], |_| {}).await;
    listed(&mut channel, "0").await;
    channel
        .call(&use_tool("1", "s__echo", &json!({"a": 1})))
        .await;
    let id = rig.waiting("1").await;
    assert_eq!(rig.world.tools.count("echo"), 0, "not before he says so");
    let proposal = rig
        .world
        .book()
        .of("1")
        .expect("entry")
        .receipt
        .proposal_json
        .clone();
    let proposal: Value = serde_json::from_slice(&proposal).expect("json");
    assert_eq!(
        proposal["arguments"],
        json!({"name": "s__echo", "arguments": {"a": 1}})
    );
    rig.world.book().decide(&id, Decision::ApproveSession, "");
    channel.result().await;
    // The same tool goes ahead, another one waits.
    assert!(result(&mut channel, "2", "s__echo", json!({"a": 2})).await["isError"].is_null());
    channel.call(&use_tool("3", "s__fail", &json!({}))).await;
    let id = rig.waiting("3").await;
    rig.world.book().decide(&id, Decision::Deny, "");
    assert_eq!(code(&channel.content().await), "APPROVAL_DENIED");
    assert_eq!(
        (rig.world.tools.count("echo"), rig.world.tools.count("fail")),
        (2, 0)
    );
    assert_eq!(
        rig.world.book().of("3").expect("entry").receipt.state(),
        State::Refused
    );
}

/// What an owner approved for the session is the tool as it was described to the agent then.
#[tokio::test]
async fn a_tool_that_is_described_otherwise_since_its_approval_waits_again() {
    let rig = Rig::new().await;
    let (_run, mut channel) = start(&rig, Mode::Edit, vec![scripted("s", "good")], |_| {}).await;
    listed(&mut channel, "0").await;
    for (id, name) in [("1", "s__echo"), ("2", "s__turn")] {
        channel.call(&use_tool(id, name, &json!({}))).await;
        let waiting = rig.waiting(id).await;
        let decision = Decision::ApproveSession;
        rig.world.book().decide(&waiting, decision, "");
        channel.result().await;
    }
    let turned = async {
        for id in 0.. {
            let listing = ask(
                &mut channel,
                &format!("l{id}"),
                "workspace_tools",
                json!({}),
            )
            .await;
            if listing["tools"][0]["description"] == "Sends everything away." {
                return;
            }
        }
    };
    tokio::time::timeout(PATIENCE, turned).await.expect("heard");
    channel.call(&use_tool("3", "s__echo", &json!({}))).await;
    let waiting = rig.waiting("3").await;
    rig.world.book().decide(&waiting, Decision::Deny, "");
    assert_eq!(code(&channel.content().await), "APPROVAL_DENIED");
    assert_eq!(rig.world.tools.count("echo"), 1);
    // Of the others nothing has changed.
    assert!(result(&mut channel, "4", "s__turn", json!({})).await["isError"].is_null());
}

/// Each sign of progress gives the call its time anew, and the owner sees it.
#[tokio::test]
async fn progress_keeps_a_call_alive_and_shows() {
    let rig = Rig::new().await;
    let mut server = scripted("s", "good");
    server.timeout = 1;
    let (run, mut channel) = start(&rig, Mode::Full, vec![server], |_| {}).await;
    listed(&mut channel, "0").await;
    channel.call(&use_tool("1", "s__slow", &json!({}))).await;
    let shown = async {
        loop {
            let status = serde_json::to_value(run.control.tools()).expect("status");
            let call = &status[0]["calls"][0];
            if call["progress"] == 3.0 {
                return call.clone();
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let shown = tokio::time::timeout(PATIENCE, shown)
        .await
        .expect("progress");
    assert_eq!(
        shown,
        json!({"tool": "slow", "progress": 3.0, "total": 6.0, "message": "a\\nb"})
    );
    assert_eq!(channel.result().await["result"], json!({"content": []}));
    let status = serde_json::to_value(run.control.tools()).expect("status");
    assert_eq!(status[0]["calls"], json!([]));
}
