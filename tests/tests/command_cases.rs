//! Faults that other tools had with commands, tried through the whole way: characters cut by a page (B23, B26),
//! output and end states missed (B24), background children (B29), signals taken for success (B32).

use std::time::{Duration, Instant};

use postern_tests::{Agent, World, text_of};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

/// Largest page of `workspace_poll` and default page of `workspace_read`, in bytes.
const PAGE_BYTES: usize = 131_072;

/// B23: characters that arrive byte by byte come whole; what is no character is shown once, at the end.
#[tokio::test]
async fn characters_that_arrive_in_pieces_come_whole() {
    let world = World::new();
    let pieces: String = "漢🙂é"
        .bytes()
        .map(|byte| format!("\\{byte:03o} "))
        .collect();
    world.write(
        "drip.sh",
        format!(
            "round=0\nwhile [ $round -lt 20 ]; do\n\
             for piece in '{}'; do printf \"$piece\"; sleep 0.005; done\n\
             round=$((round + 1))\ndone\nprintf '\\377\\376\\342\\202'\n",
            pieces.trim_end().replace(' ', "' '")
        ),
    );
    let door = world.up("full").await;
    let finished = door.agent().run("sh drip.sh").await;
    let text = finished
        .output
        .strip_prefix(&"漢🙂é".repeat(20))
        .expect("every character, whole");
    // Two bytes that begin nothing, and a character that was never finished.
    assert_eq!(text, "\u{fffd}\u{fffd}\u{fffd}");
    assert_eq!(finished.last["totalBytes"], 9 * 20 + 4);
}

/// B24: a command that ends at once loses neither output nor exit code, now or when asked again.
#[tokio::test]
async fn output_of_a_command_that_ends_at_once_is_whole() {
    let world = World::new();
    let door = world.up("full").await;
    let agent = door.agent();
    let other = door.agent();
    let expected = "x".repeat(65_536) + "E";
    let mut commands = Vec::new();
    for round in 0..40 {
        let finished = agent
            .run("head -c 65536 /dev/zero | tr '\\0' x; printf E >&2; exit 7")
            .await;
        assert!(
            finished.output == expected,
            "round {round}: {} bytes",
            finished.output.len()
        );
        assert_eq!(finished.last["exitCode"], 7, "round {round}");
        commands.push(finished.id);
    }
    for command in &commands {
        let again = agent.poll(command, 0).await;
        assert!(again["output"] == expected, "asked again, the same bytes");
        let elsewhere = other.poll(command, 0).await;
        assert_eq!(
            elsewhere, again,
            "the same conversation over another connection"
        );
    }
    let unknown = json!({"commandId": "00000000-0000-4000-8000-000000000000"});
    let answer = agent.call("workspace_poll", unknown).await;
    assert_eq!(answer.code(), "UNKNOWN_COMMAND");
}

/// B26: page borders inside characters and lines longer than a page, from commands and from files.
#[tokio::test]
async fn pages_end_between_characters_whatever_the_text() {
    let world = World::new();
    for shift in 0..3 {
        let text = "a".repeat(shift) + &"漢".repeat(PAGE_BYTES / 3 + 100);
        world.write(&format!("wide-{shift}.txt"), text);
    }
    world.write("line.txt", "x".repeat(300_000) + "\n");
    let door = world.up("full").await;
    let agent = door.agent();
    for path in ["wide-0.txt", "wide-1.txt", "wide-2.txt", "line.txt"] {
        let content = String::from_utf8(world.read(path)).expect("text");
        let finished = agent.run(&format!("cat {path}")).await;
        assert!(finished.output == content, "{path} through a command");
        let first = agent.poll(&finished.id, 0).await;
        let size = text_of(&first, "output").len();
        assert!(
            size <= PAGE_BYTES && size > PAGE_BYTES - 4,
            "{path}: a page of {size} bytes"
        );
        assert!(
            read_whole(&agent, path).await == content,
            "{path} as a file"
        );
    }
    assert_eq!(agent.run("echo fine").await.output, "fine\n");
}

async fn read_whole(agent: &Agent, path: &str) -> String {
    let mut content = String::new();
    let mut next = json!(0);
    while !next.is_null() {
        let page = agent
            .call("workspace_read", json!({"path": path, "offset": next}))
            .await
            .ok();
        let part = text_of(&page, "content");
        assert!(!part.is_empty() && part.len() <= PAGE_BYTES);
        content.push_str(&part);
        next = page["nextOffset"].clone();
    }
    content
}

/// B29: a child in the background holds nothing up, is counted, and can be stopped.
#[tokio::test]
async fn background_children_do_not_hold_the_end_up() {
    let world = World::new();
    let door = world.up("full").await;
    let agent = door.agent();
    for command in [
        "sleep 333 & echo done",
        "(while :; do echo x; sleep .2; done) & echo done",
    ] {
        let started = Instant::now();
        let id = agent.exec(command).await;
        let mut page = agent.poll(&id, 0).await;
        while page["status"] == "running" {
            page = agent.poll(&id, 0).await;
        }
        assert!(
            started.elapsed() < Duration::from_secs(3),
            "{command}: {:?}",
            started.elapsed()
        );
        assert!(text_of(&page, "output").contains("done\n"), "{page}");
        assert_eq!(
            (&page["status"], &page["exitCode"]),
            (&json!("exited"), &json!(0))
        );
        assert!(page["survivors"].as_u64() >= Some(1), "{page}");
        let stopped = agent
            .call("workspace_stop", json!({"commandId": id}))
            .await
            .ok();
        assert_eq!(
            stopped["status"], "exited",
            "the end state stays what it was"
        );
        assert_eq!(agent.poll(&id, 0).await["survivors"], 0, "{command}");
    }
    let left = world.processes();
    let is_left = |process: &postern_tests::process::Process| process.arguments == ["sleep", "333"];
    assert!(!left.iter().any(is_left), "what was left running has ended");
}

/// B32: an end by a signal is told as one, and nothing of this is a success.
#[tokio::test]
async fn ends_are_told_as_they_were() {
    let world = World::new();
    let door = world.up("full").await;
    let agent = door.agent();
    let killed = agent.run("printf before; kill -9 $$").await;
    assert_eq!(killed.output, "before");
    assert_eq!(end(&killed.last), json!(["exited", null, "SIGKILL"]));
    let cases = [
        ("kill -TERM $$", json!(["exited", null, "SIGTERM"])),
        ("exit 255", json!(["exited", 255, null])),
        ("no-such-command-here", json!(["exited", 127, null])),
        ("true", json!(["exited", 0, null])),
    ];
    for (command, expected) in cases {
        assert_eq!(end(&agent.run(command).await.last), expected, "{command}");
    }
    let late = json!({"command": "printf partial; sleep 300", "timeoutMs": 1000});
    let late = agent.call("workspace_exec", late).await.ok();
    let finished = agent.follow(&text_of(&late, "commandId")).await;
    assert_eq!(
        (finished.last["status"].as_str(), &*finished.output),
        (Some("timed_out"), "partial")
    );
    let nowhere = json!({"command": "true", "cwd": "no/such/folder"});
    assert_eq!(
        agent.call("workspace_exec", nowhere).await.code(),
        "NOT_FOUND"
    );
    let file = json!({"command": "true", "cwd": "AGENTS.md"});
    assert_eq!(
        agent.call("workspace_exec", file).await.code(),
        "NOT_A_DIRECTORY"
    );
}

fn end(page: &Value) -> Value {
    json!([page["status"], page["exitCode"], page["signal"]])
}

/// B60: what the program itself keeps secret reaches no command.
#[tokio::test]
async fn commands_see_no_secret_of_the_program() {
    let mut world = World::new();
    world.set("POSTERN_SECRET_OF_THE_TEST", "MARK-in-the-environment");
    world.set("PLAIN_VARIABLE", "kept");
    world.set("CHANNEL_TOKEN", "MARK-in-the-environment");
    world.set("OTEL_EXPORTER_OTLP_HEADERS", "x=MARK-in-the-environment");
    world.set("AWS_SECRET_ACCESS_KEY", "MARK-in-the-environment");
    let hidden = ["--hide-env", "CHANNEL_TOKEN", "--hide-env", "AWS_*"];
    let door = world.up_with("full", &hidden).await;
    let agent = door.agent();
    let seen = agent
        .run("env; cat /proc/self/environ /proc/$PPID/environ | tr '\\0' '\\n'; ps auxeww 2>/dev/null | grep -c MARK-in")
        .await
        .output;
    for secret in [
        &*door.ready.owner_token,
        &*door.ready.agent_token,
        "MARK-in-the-environment",
    ] {
        assert!(!seen.contains(secret), "a secret is in the environment");
    }
    for expected in [
        "PLAIN_VARIABLE=kept",
        "TERM=dumb",
        "NO_COLOR=1",
        "PAGER=cat",
        "PATH=",
    ] {
        assert!(
            seen.lines().any(|line| line.starts_with(expected)),
            "{expected} in {seen}"
        );
    }
}
