//! A channel's life and a real edge's end (CONTRACT.md, section 1): signs of life, dead paths, taking over, shutting down.
#![expect(clippy::expect_used, reason = "tests fail by panicking")]

use std::{
    fs,
    time::{Duration, Instant},
};

use postern_tests::{
    CHANNEL_TOKEN, FakeHost, Program, RealHost, WORKSPACE, World, call, edge_arguments,
    proxy::Proxy,
    raw::{FIN, PING, RawHost, TEXT, frame_bytes},
    start_edge, text_of, wait_for,
};
use pretty_assertions::assert_eq;
use rustix::process::Signal;
use serde_json::{Value, json};

/// For a program to be ready.
const READY_LIMIT: Duration = Duration::from_secs(60);
/// For a program that has to end by itself.
const END_LIMIT: Duration = Duration::from_secs(30);
/// The contract's time for running effects.
const DRAIN: Duration = Duration::from_secs(10);

async fn next_result(channel: &mut RawHost) -> (Vec<u8>, Value) {
    let frame = channel.next_but_ping().await.expect("a result");
    let value = serde_json::from_slice(&frame.payload).expect("JSON");
    (frame.payload, value)
}

async fn ask(channel: &mut RawHost, frame: &Value) -> (Vec<u8>, Value) {
    channel
        .frame(FIN | TEXT, frame.to_string().as_bytes())
        .await;
    let (bytes, mut value) = next_result(channel).await;
    assert_eq!(value["id"], frame["id"]);
    (bytes, value["result"]["structuredContent"].take())
}

/// B39: a path that swallows everything is noticed, and what ran meanwhile is found again.
#[tokio::test]
async fn a_dead_path_is_left_and_what_ran_goes_on() {
    let world = World::new();
    let host = FakeHost::listen().await;
    let times = [
        "--listen-none",
        "--ping-interval-ms",
        "200",
        "--silence-limit-ms",
        "600",
    ];
    let mut program = start_edge(&world, host.url(), &times);
    // This end answers no ping by itself, as a path that swallows everything.
    let mut dead = host.accept_raw().await;
    program.event("connected", READY_LIMIT).await;
    let command = json!({"command": "echo one; until [ -e go ]; do sleep 0.02; done; echo two"});
    let exec = call("call-1", "workspace_exec", &command);
    // Nothing is heard after this call.
    let heard = Instant::now();
    let (first, started) = ask(&mut dead, &exec).await;
    let ping = dead.next().await.expect("a ping");
    assert_eq!(ping.first, FIN | PING);
    let told = program.event("disconnected", READY_LIMIT).await;
    assert!(
        told["reason"].as_str().expect("text").contains("heard"),
        "{told}"
    );
    assert!(
        heard.elapsed() >= Duration::from_millis(600),
        "{:?}",
        heard.elapsed()
    );

    let mut channel = host.accept(WORKSPACE, CHANNEL_TOKEN).await;
    program.event("connected", READY_LIMIT).await;
    let again = channel.ask(&exec).await;
    let stored: Value = serde_json::from_slice(&first).expect("JSON");
    assert_eq!(again, stored["result"]);
    world.write("go", "");
    let id = text_of(&started, "commandId");
    let mut output = String::new();
    let (mut offset, mut polls) = (json!(0), 0);
    loop {
        let args = json!({"commandId": id, "offset": offset});
        let page = channel
            .ask(&call(&format!("poll-{polls}"), "workspace_poll", &args))
            .await;
        let page = &page["structuredContent"];
        output.push_str(page["output"].as_str().expect("text"));
        offset = page["nextOffset"].clone();
        polls += 1;
        if page["status"] != "running" {
            assert_eq!(page["exitCode"], 0);
            break;
        }
    }
    assert_eq!(output, "one\ntwo\n");
}

/// B39, the other half: what is slow is not dead. The contract's own times are ten times as long.
#[tokio::test]
async fn a_slow_but_live_link_is_kept() {
    let world = World::new();
    let host = FakeHost::listen().await;
    let times = [
        "--listen-none",
        "--ping-interval-ms",
        "300",
        "--silence-limit-ms",
        "1000",
    ];
    let mut program = start_edge(&world, host.url(), &times);
    let mut channel = host.accept_raw().await;
    program.event("connected", READY_LIMIT).await;
    let mut text = call("call-1", "workspace_tools", &json!({})).to_string();
    text.push_str(&" ".repeat(60_000 - text.len()));
    let frame = frame_bytes(FIN | TEXT, None, text.as_bytes());
    // One message for three times the silence limit; no ping is answered meanwhile.
    let began = Instant::now();
    for piece in frame.chunks(frame.len() / 30 + 1) {
        assert!(
            channel.bytes(piece).await,
            "cut after {:?}",
            began.elapsed()
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let (_, result) = next_result(&mut channel).await;
    assert_eq!(result["result"]["structuredContent"], json!({"tools": []}));
    assert!(began.elapsed() >= Duration::from_secs(3));
}

/// The edge of a real host's workspace, by `url`.
fn start_for(host: &RealHost, world: &World, url: &str, further: &[&str]) -> Program {
    let token = world.secret("launch-token", &host.channel_token);
    let token = token.display().to_string();
    let own = [
        "--listen-none",
        "--workspace",
        &host.workspace,
        "--token-file",
        &token,
    ];
    world.start(&edge_arguments(
        world,
        url,
        &world.data(),
        &[&own, further].concat(),
    ))
}

/// B39, with real ends and a network that swallows everything for a while: the agent gets his answer all the same.
#[tokio::test]
async fn a_call_sent_into_a_black_hole_is_answered_on_the_next_channel() {
    let (host, world) = (RealHost::start().await, World::new());
    let proxy = Proxy::to(&host.url).await;
    let times = ["--ping-interval-ms", "200", "--silence-limit-ms", "800"];
    let mut program = start_for(&host, &world, proxy.url(), &times);
    program.event("connected", READY_LIMIT).await;
    let agent = host.agent();
    let log = json!({"command": "echo once >> log; echo done"});
    proxy.black_hole();
    let healed = async {
        // The host has the call and a channel that looks well.
        let told = program.event("disconnected", READY_LIMIT).await;
        assert!(
            told["reason"].as_str().expect("text").contains("heard"),
            "{told}"
        );
        proxy.open();
        program.event("connected", READY_LIMIT).await;
    };
    let (answer, ()) = tokio::join!(agent.call_as("call-1", "workspace_exec", &log), healed);
    let started = answer.ok();
    let again = agent.call_as("call-1", "workspace_exec", &log).await;
    assert_eq!(again.ok(), started);
    let written = || async {
        fs::read(world.project().join("log"))
            .ok()
            .filter(|log| !log.is_empty())
    };
    let written = wait_for("the command's line", READY_LIMIT, written).await;
    assert_eq!(written, b"once\n");
}

#[tokio::test]
async fn a_second_edge_with_its_own_data_takes_over_and_the_first_ends_with_4() {
    let host = RealHost::start().await;
    let (one, two) = (World::new(), World::new());
    let start = |world: &World| start_for(&host, world, &host.url, &[]);
    let mut first = start(&one);
    first.event("connected", READY_LIMIT).await;
    let agent = host.agent();
    one.write("whose.txt", "the first one's");
    let read = json!({"path": "whose.txt"});
    assert_eq!(
        agent.call("workspace_read", read.clone()).await.ok()["content"],
        "the first one's"
    );
    let mut second = start(&two);
    second.event("connected", READY_LIMIT).await;
    let ended = first.ended(END_LIMIT).await;
    assert_eq!(ended.code, Some(4), "{ended:?}");
    assert!(ended.stderr.contains("superseded"), "{ended:?}");
    two.write("whose.txt", "the second one's");
    assert_eq!(
        agent.call("workspace_read", read).await.ok()["content"],
        "the second one's"
    );

    host.told(&["token", "revoke", &host.channel_token_id])
        .await;
    let ended = second.ended(END_LIMIT).await;
    assert_eq!(ended.code, Some(3), "{ended:?}");
    assert!(ended.stderr.contains("revoked"), "{ended:?}");
    // A start with that token is refused before the upgrade, and in the same way.
    let ended = start(&two).ended(END_LIMIT).await;
    assert_eq!(ended.code, Some(3), "{ended:?}");
    assert!(ended.stderr.contains("401"), "{ended:?}");
}

/// An edge in the middle of an effect that lasts three seconds: the stop of a command that does not end by being asked.
async fn stopping(world: &World, host: &FakeHost) -> (Program, RawHost) {
    let program = start_edge(world, host.url(), &["--listen-none"]);
    let mut channel = host.accept_raw().await;
    let script = "trap 'touch asked' TERM; touch ready; while :; do sleep 0.05; done";
    let exec = call("call-exec", "workspace_exec", &json!({"command": script}));
    let (_, started) = ask(&mut channel, &exec).await;
    let exists = |name: &'static str| {
        let path = world.project().join(name);
        wait_for(name, READY_LIMIT, move || {
            std::future::ready(path.exists().then_some(()))
        })
    };
    exists("ready").await;
    let stop = call(
        "call-stop",
        "workspace_stop",
        &json!({"commandId": started["commandId"]}),
    );
    channel.frame(FIN | TEXT, stop.to_string().as_bytes()).await;
    exists("asked").await;
    (program, channel)
}

#[tokio::test]
async fn sigterm_lets_the_running_effect_end_takes_no_new_call_and_closes_with_1001() {
    let world = World::new();
    let host = FakeHost::listen().await;
    let (program, mut channel) = stopping(&world, &host).await;
    let asked = Instant::now();
    program.signal(Signal::TERM);
    // Tools that signal a process and its group send two; that is still one wish.
    program.signal(Signal::INT);
    // Calls are answered until the edge has seen the signal, and none after it. So the answer to the last one is missing, and
    // what comes instead is the running effect's, however long the signal took.
    let mut calls = 0;
    let (result, value) = loop {
        let args = json!({"path": format!("{calls}.txt"), "content": "x", "expectedSha256": null});
        let write = call(&format!("call-{calls}"), "workspace_write", &args);
        channel
            .frame(FIN | TEXT, write.to_string().as_bytes())
            .await;
        let (result, value) = next_result(&mut channel).await;
        if value["id"] != format!("call-{calls}") {
            break (result, value);
        }
        calls += 1;
    };
    assert_eq!(value["id"], "call-stop", "{value}");
    assert_eq!(
        value["result"]["structuredContent"]["status"], "stopped",
        "{value}"
    );
    let (code, _) = channel.closed().await.expect("closed in order");
    assert_eq!(code, 1001);
    assert_eq!(program.ended(END_LIMIT).await.code, Some(0));
    assert!(
        asked.elapsed() < DRAIN + Duration::from_secs(5),
        "{:?}",
        asked.elapsed()
    );
    assert!(!world.project().join(format!("{calls}.txt")).exists());

    // The result was kept, byte for byte.
    let _program = start_edge(&world, host.url(), &["--listen-none"]);
    let mut channel = host.accept_raw().await;
    let id = value["result"]["structuredContent"]["commandId"].clone();
    let stop = call("call-stop", "workspace_stop", &json!({"commandId": id}));
    assert_eq!(ask(&mut channel, &stop).await.0, result);
}

#[tokio::test]
async fn a_second_signal_ends_it_at_once() {
    let world = World::new();
    let host = FakeHost::listen().await;
    let (program, _channel) = stopping(&world, &host).await;
    program.signal(Signal::INT);
    // At once it would be the same wish (a closed terminal sends several); a second later it is another.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    program.signal(Signal::TERM);
    // After one signal it ends with 0, once the effect has ended.
    let ended = program.ended(END_LIMIT).await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
}
