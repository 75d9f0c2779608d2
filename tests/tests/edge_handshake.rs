//! What an edge makes of the answers to its upgrade, and how it ends (CONTRACT.md, sections 1 and 7): exit codes, one clear
//! line, and the events on standard output.
#![expect(clippy::expect_used, reason = "tests fail by panicking")]

use std::{
    fs,
    time::{Duration, Instant, SystemTime},
};

use postern_tests::{
    CHANNEL_TOKEN, Ended, FakeHost, Program, WORKSPACE, World, call, edge_arguments, start_edge,
};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

/// For a program to be ready.
const READY_LIMIT: Duration = Duration::from_secs(60);
/// For a program that has to end by itself.
const END_LIMIT: Duration = Duration::from_secs(30);
/// For nobody to come.
const LONELY: Duration = Duration::from_millis(300);

fn response(status: &str) -> String {
    format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
}

/// It ended with this code and one line that says why, and told nothing of its token.
fn assert_end(ended: &Ended, code: i32, says: &str) {
    assert_eq!(ended.code, Some(code), "{ended:?}");
    let lines: Vec<&str> = ended.stderr.lines().collect();
    assert!(
        lines.len() == 1 && lines[0].starts_with("postern: ") && lines[0].contains(says),
        "{ended:?}"
    );
    assert!(!ended.stderr.contains(CHANNEL_TOKEN) && !ended.stdout.contains(CHANNEL_TOKEN));
}

fn events(ended: &Ended) -> Vec<Value> {
    let json =
        |line| serde_json::from_str(line).expect("standard output is one JSON object a line");
    ended.stdout.lines().map(json).collect()
}

#[tokio::test]
async fn refusals_that_cannot_pass_end_it_with_3() {
    for (status, says) in [
        ("401 Unauthorized\r\nWWW-Authenticate: Bearer", "401"),
        ("403 Forbidden", "403"),
        ("404 Not Found", "404"),
    ] {
        let world = World::new();
        let host = FakeHost::listen().await;
        let program = start_edge(&world, host.url(), &["--listen-none"]);
        let head = host.refuse(&response(status)).await;
        let asked = format!("GET /api/ai-gateway/v1/workspaces/{WORKSPACE}/channel HTTP/1.1\r\n");
        assert!(head.starts_with(&asked), "{head}");
        let lower = head.to_ascii_lowercase();
        let bearer = format!("authorization: bearer {CHANNEL_TOKEN}\r\n");
        assert!(lower.contains(&bearer), "{head}");
        for foreign in ["cookie:", "sec-websocket-protocol:", "?"] {
            assert!(!lower.contains(foreign), "{head}");
        }
        let ended = program.ended(END_LIMIT).await;
        assert_end(&ended, 3, says);
        let told = events(&ended);
        assert_eq!(told.len(), 1, "{told:?}");
        assert_eq!(told[0]["event"], "disconnected");
        assert!(host.is_left_alone(LONELY).await);
    }
}

#[tokio::test]
async fn redirects_end_it_with_3_and_nobody_else_sees_the_token() {
    for status in [
        "301 Moved Permanently",
        "302 Found",
        "307 Temporary Redirect",
        "308 Permanent Redirect",
    ] {
        let world = World::new();
        let host = FakeHost::listen().await;
        let elsewhere = FakeHost::listen().await;
        let program = start_edge(&world, host.url(), &["--listen-none"]);
        let location = format!("{status}\r\nLocation: {}/", elsewhere.url());
        host.refuse(&response(&location)).await;
        assert_end(&program.ended(END_LIMIT).await, 3, "redirect");
        assert!(elsewhere.is_left_alone(LONELY).await, "{status}");
        assert!(host.is_left_alone(LONELY).await, "{status}");
    }
}

#[tokio::test]
async fn a_wait_that_the_host_asks_for_is_kept() {
    let world = World::new();
    let host = FakeHost::listen().await;
    let mut program = start_edge(&world, host.url(), &["--listen-none"]);
    host.refuse(&response("503 Service Unavailable\r\nRetry-After: 2"))
        .await;
    let refused = Instant::now();
    let told = program.event("disconnected", READY_LIMIT).await;
    assert!(
        told["reason"].as_str().expect("text").contains("503"),
        "{told}"
    );

    let stream = host.connection().await;
    assert!(
        refused.elapsed() >= Duration::from_millis(1900),
        "{:?}",
        refused.elapsed()
    );
    drop(stream);
    // By date: whole seconds, so the wait is a second shorter at most. What the dropped connection costs is less.
    let until = SystemTime::now() + Duration::from_secs(3);
    let date = httpdate(until);
    host.refuse(&response(&format!(
        "429 Too Many Requests\r\nRetry-After: {date}"
    )))
    .await;
    let channel = host.accept(WORKSPACE, CHANNEL_TOKEN).await;
    assert!(SystemTime::now() >= until - Duration::from_millis(1100));
    program.event("connected", READY_LIMIT).await;
    drop(channel);
}

/// RFC 9110's preferred form of a date, by the system's `date`.
fn httpdate(time: SystemTime) -> String {
    let seconds = time
        .duration_since(SystemTime::UNIX_EPOCH)
        .expect("after 1970")
        .as_secs();
    let output = std::process::Command::new("date")
        .args([
            "-u",
            "-d",
            &format!("@{seconds}"),
            "+%a, %d %b %Y %H:%M:%S GMT",
        ])
        .env("LC_ALL", "C")
        .output()
        .expect("date");
    String::from_utf8(output.stdout)
        .expect("text")
        .trim()
        .to_owned()
}

#[tokio::test]
async fn it_waits_for_ready_no_longer_than_it_has_to_and_serves_nothing_before() {
    let world = World::new();
    let host = FakeHost::listen().await;
    let mut program = start_edge(
        &world,
        host.url(),
        &["--listen-none", "--ready-timeout-ms", "300"],
    );
    let mut silent = host.upgrade_raw().await;
    let (code, reason) = silent.closed().await.expect("closed in order");
    assert_eq!(code, 1002, "{reason}");
    let told = program.event("disconnected", READY_LIMIT).await;
    assert!(
        told["reason"].as_str().expect("text").contains("ready"),
        "{told}"
    );

    let mut hasty = host.upgrade_raw().await;
    let write = json!({"path": "new.txt", "content": "x", "expectedSha256": null});
    let write = call("call-1", "workspace_write", &write).to_string();
    hasty.frame(0x81, write.as_bytes()).await;
    assert_eq!(hasty.closed().await.expect("closed in order").0, 1008);

    let mut other = host.upgrade_raw().await;
    other.frame(0x81, br#"{"type":"ready","protocol":2}"#).await;
    let (code, reason) = other.closed().await.expect("closed in order");
    assert_eq!(code, 1002, "{reason}");
    assert!(!world.project().join("new.txt").exists());
    // None of them was ready, so the first `connected` is that of a host that is.
    let channel = host.accept(WORKSPACE, CHANNEL_TOKEN).await;
    program.event("connected", READY_LIMIT).await;
    drop(channel);
}

#[tokio::test]
async fn a_revoked_token_and_a_newer_channel_end_it_each_in_its_way() {
    for (close, code, says) in [(4401, 3, "revoked or has expired"), (4409, 4, "superseded")] {
        let world = World::new();
        let host = FakeHost::listen().await;
        let program = start_edge(&world, host.url(), &["--console", "127.0.0.1:0"]);
        let mut channel = host.accept(WORKSPACE, CHANNEL_TOKEN).await;
        channel
            .ask(&call("call-1", "workspace_tools", &json!({})))
            .await;
        channel.close(close).await;
        let ended = program.ended(END_LIMIT).await;
        assert_end(&ended, code, says);
        let told = events(&ended);
        let shapes: Vec<_> = told.iter().map(|event| &event["event"]).collect();
        assert_eq!(
            shapes,
            ["listening", "connected", "disconnected"],
            "{told:?}"
        );
        assert_eq!(told[0]["role"], "console");
        assert!(
            told[0]["url"]
                .as_str()
                .expect("text")
                .starts_with("http://127.0.0.1:")
        );
        assert!(
            told[2]["reason"].as_str().expect("text").contains(says),
            "{told:?}"
        );
        assert!(host.is_left_alone(LONELY).await);
    }
}

#[tokio::test]
async fn any_other_end_of_a_channel_is_followed_by_a_new_one() {
    let world = World::new();
    let host = FakeHost::listen().await;
    let mut program = start_edge(&world, host.url(), &["--listen-none"]);
    for end in [
        "1001",
        "1011",
        "4000",
        "reset",
        "end of the stream",
        "cut in a frame",
    ] {
        let mut channel = host.accept_raw().await;
        program.event("connected", READY_LIMIT).await;
        match end {
            "reset" => rustix::net::sockopt::set_socket_linger(&channel.0, Some(Duration::ZERO))
                .expect("a reset at the end"),
            "end of the stream" => {}
            "cut in a frame" => {
                channel.bytes(&[0x81, 100, b'{']).await;
            }
            code => {
                let code: u16 = code.parse().expect("a code");
                channel.frame(0x88, &code.to_be_bytes()).await;
                assert_eq!(channel.closed().await.expect("answered").0, code);
            }
        }
        drop(channel);
        let told = program.event("disconnected", READY_LIMIT).await;
        assert!(told["reason"].is_string(), "{end}: {told}");
    }
}

#[tokio::test]
async fn another_project_or_intention_needs_repin() {
    let world = World::new();
    let host = FakeHost::listen().await;
    let start = |further: &[&str]| start_edge(&world, host.url(), further);
    let program = start(&["--listen-none"]);
    drop(host.accept(WORKSPACE, CHANNEL_TOKEN).await);
    stopped(program).await;

    let other = world.outside().join("other");
    fs::create_dir(&other).expect("writable");
    let other = other.display().to_string();
    for (differs, says) in [
        (["--intention", "Something else"], "intention"),
        (["--project", &other], "project"),
    ] {
        let further = ["--listen-none", differs[0], differs[1]];
        let ended = start(&further).ended(END_LIMIT).await;
        assert_end(&ended, 1, "--repin");
        assert!(ended.stderr.contains(says), "{ended:?}");
        assert_eq!(ended.stdout, "");
        assert!(host.is_left_alone(LONELY).await);
    }
    let program = start(&["--listen-none", "--project", &other, "--repin"]);
    let mut channel = host.accept(WORKSPACE, CHANNEL_TOKEN).await;
    let read = call("call-1", "workspace_read", &json!({"path": "greeting.txt"}));
    let read = channel.ask(&read).await;
    assert_eq!(postern_tests::error_code(&read), "NOT_FOUND", "{read}");
    stopped(program).await;
    // And the new pin holds like the first.
    assert_end(
        &start(&["--listen-none"]).ended(END_LIMIT).await,
        1,
        "--repin",
    );
}

async fn stopped(program: Program) {
    program.signal(rustix::process::Signal::TERM);
    assert_eq!(program.ended(END_LIMIT).await.code, Some(0));
}

#[tokio::test]
async fn a_host_that_cannot_be_reached_is_tried_until_it_can() {
    let world = World::new();
    let closed = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.local_addr().expect("an address")
    };
    let url = format!("http://{closed}");
    let mut program = world.start(&edge_arguments(
        &world,
        &url,
        &world.data(),
        &["--listen-none"],
    ));
    for _ in 0..3 {
        let told = program.event("disconnected", READY_LIMIT).await;
        assert!(
            told["reason"].as_str().expect("text").contains("reached"),
            "{told}"
        );
    }
    let host = FakeHost::listen_at(closed).await;
    let channel = host.accept(WORKSPACE, CHANNEL_TOKEN).await;
    program.event("connected", READY_LIMIT).await;
    drop(channel);
}
