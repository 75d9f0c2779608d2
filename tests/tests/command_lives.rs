//! Faults that other tools had with the lives of commands, tried through the whole way: input to what does not read or has
//! ended (B33), handles that children keep (B35), many commands beside other work (B48).
#![expect(clippy::expect_used, reason = "tests fail by panicking")]

use std::{
    collections::BTreeMap,
    fs,
    io::Write as _,
    time::{Duration, Instant},
};

use http::Method;
use postern_tests::{Agent, World, text_of, wait_for};
use pretty_assertions::assert_eq;
use rustix::process::Signal;
use serde_json::json;

/// For a program to end.
const END_LIMIT: Duration = Duration::from_secs(30);
/// Commands started at once.
const COMMANDS: usize = 100;
/// Conversations that start them; each may run 16.
const CONVERSATIONS: usize = 10;
/// Commands that a worker runs at most.
const CAPACITY: usize = 64;
/// What a call beside them may take at most, in 19 of 20 cases. Some 10 ms on a quiet machine; others build beside this one.
const READ_LIMIT: Duration = Duration::from_secs(1);

async fn input(agent: &Agent, command: &str, text: &str) -> postern_tests::Answer {
    let arguments = json!({"commandId": command, "text": text});
    agent.call("workspace_input", arguments).await
}

/// B33: the end of the input, input after the end, to nobody, and to one who does not read.
#[tokio::test]
async fn input_is_taken_or_refused_with_its_reason() {
    let world = World::new();
    let door = world.up("full").await;
    let agent = door.agent();
    let reads = agent.exec("cat; echo END; exit 4").await;
    assert_eq!(input(&agent, &reads, "x\n\u{4}").await.ok()["bytes"], 3);
    let finished = agent.follow(&reads).await;
    assert_eq!(finished.output, "x\nEND\n");
    let late = input(&agent, &reads, "late\n")
        .await
        .refused("COMMAND_ENDED");
    assert_eq!(late["details"]["exitCode"], 4);
    let nobody = "00000000-0000-4000-8000-000000000000";
    let unknown = input(&agent, nobody, "x").await;
    assert_eq!(unknown.code(), "UNKNOWN_COMMAND");
    let other = agent_of(&door, "another");
    let foreign = input(&other, &reads, "x").await;
    assert_eq!(foreign.code(), "UNKNOWN_COMMAND");

    let deaf = agent.exec("sleep 300").await;
    let closed = agent.exec("exec <&-; sleep 300").await;
    let line = "x".repeat(1023) + "\n";
    let full = async {
        let began = Instant::now();
        let mut taken = 0;
        for _ in 0..8 {
            let answer = input(&agent, &deaf, &line.repeat(16)).await.ok();
            taken += answer["bytes"].as_u64().expect("bytes");
        }
        (taken, began.elapsed())
    };
    let beside = async {
        let began = Instant::now();
        let read = json!({"path": "AGENTS.md"});
        let answer = door.agent().call("workspace_read", read).await;
        assert!(!answer.is_error, "{}", answer.structured);
        began.elapsed()
    };
    let ((taken, took), read) = tokio::join!(full, beside);
    assert!(
        taken < 8 * 16 * 1024,
        "nobody reads, so not all is taken: {taken}"
    );
    assert!(
        took < Duration::from_secs(40),
        "each answer is bounded: {took:?}"
    );
    assert!(read < Duration::from_secs(2), "nobody else waits: {read:?}");
    assert_eq!(input(&agent, &closed, "x\n").await.ok()["bytes"], 2);
    for command in [deaf, closed] {
        let stopped = agent
            .call("workspace_stop", json!({"commandId": command}))
            .await;
        assert_eq!(stopped.ok()["status"], "stopped");
    }
    assert_eq!(agent.run("echo fine").await.output, "fine\n");
    door.stop().await;
}

fn agent_of(door: &postern_tests::Door, conversation: &str) -> Agent {
    door.agent().in_conversation(conversation)
}

/// B35: nothing of the program is open in a command, so its ports and its data are free while a command lives on.
#[tokio::test]
async fn a_living_command_keeps_no_port() {
    let world = World::new();
    let mut door = world.up("full").await;
    let agent = door.agent();
    let listed = "for f in /proc/self/fd/*; do readlink $f; done";
    let seen = agent.run(listed).await.output;
    let mut kinds: Vec<&str> = seen
        .lines()
        .map(|target| target.trim_end_matches(|c: char| c.is_ascii_digit() || "[]".contains(c)))
        .collect();
    kinds.sort_unstable();
    kinds.dedup();
    assert_eq!(kinds, ["/dev/pts/", "pipe:"], "{seen}");
    let living = agent.exec("echo $$; cat").await;
    let address = door.ready.mcp_url.replace("http://", "");
    let address = address.trim_end_matches("/mcp").to_owned();
    door.program.kill().await;
    let _ended = door.program.ended(END_LIMIT).await;
    let door = world.up_with("full", &["--listen", &address]).await;
    assert!(door.ready.mcp_url.contains(&address), "the same port");
    let page = door.agent().poll(&living, 0).await;
    assert_eq!(page["status"], "running", "it outlived the killed edge");
    let typed = input(&door.agent(), &living, "still here\n\u{4}").await;
    assert_eq!(typed.ok()["bytes"], 12);
    let finished = door.agent().follow(&living).await;
    assert!(
        finished.output.ends_with("still here\n"),
        "{}",
        finished.output
    );
    assert_eq!(finished.last["status"], "exited");
    door.program.signal(Signal::TERM);
    assert_eq!(door.program.ended(END_LIMIT).await.code, Some(0));
}

/// A FIFO `gate` in the project, open so that neither side waits for the other.
fn gate(world: &World) -> fs::File {
    let path = world.project().join("gate");
    let made = std::process::Command::new("mkfifo").arg(&path).status();
    assert!(made.expect("mkfifo").success());
    let opened = fs::OpenOptions::new().read(true).write(true).open(path);
    opened.expect("gate")
}

/// The channel is closed and opened again while a command works on.
#[tokio::test]
async fn a_command_outlives_a_dropped_channel() {
    let world = World::new();
    let door = world.up("full").await;
    let (agent, owner) = (door.agent(), door.owner());
    let mut gate = gate(&world);
    let command = "echo up; read line < gate; echo after; echo x > done";
    let id = agent.exec(command).await;
    wait_for("the command's first word", END_LIMIT, async || {
        let page = agent.poll(&id, 0).await;
        (page["output"] == "up\n").then_some(())
    })
    .await;
    for open in [false, true] {
        let wish = json!({"open": open});
        let reply = owner
            .send(Method::POST, "/owner/v1/channel", Some(&wish))
            .await;
        assert_eq!(reply.status, 200, "{}", reply.json);
        wait_for("the channel follows", END_LIMIT, async || {
            let status = owner.get("/owner/v1/status").await;
            (status["channel"]["connected"] == open).then_some(())
        })
        .await;
        if !open {
            gate.write_all(b"go\n").expect("opened");
            let done = world.project().join("done");
            wait_for("the command goes on", END_LIMIT, async || {
                done.exists().then_some(())
            })
            .await;
        }
    }
    let finished = agent.follow(&id).await;
    assert_eq!(finished.output, "up\nafter\n");
    assert_eq!(finished.last["status"], "exited");
    door.stop().await;
}

/// B48: a hundred commands at once; each is started or refused with a reason, and reading goes on beside them.
#[tokio::test]
async fn a_hundred_commands_keep_nobody_from_reading() {
    let world = World::new();
    let door = world.up("full").await;
    let agents: Vec<Agent> = (0..CONVERSATIONS)
        .map(|number| agent_of(&door, &format!("conversation-{number}")))
        .collect();
    // Each waits for a line of its own, so that none ends before it may.
    let mut gate = gate(&world);
    let starts = (0..COMMANDS).map(|number| {
        let agent = &agents[number % CONVERSATIONS];
        let command = json!({"command": format!("read line < gate; echo {number}")});
        agent.call("workspace_exec", command)
    });
    let answers = all(starts.collect()).await;
    let mut told: BTreeMap<String, usize> = BTreeMap::new();
    for answer in &answers {
        let code = if answer.is_error {
            answer.code()
        } else {
            "started"
        };
        *told.entry(code.to_owned()).or_default() += 1;
    }
    let expected = [("BUSY", COMMANDS - CAPACITY), ("started", CAPACITY)];
    assert_eq!(
        told,
        expected
            .map(|(code, count)| (code.to_owned(), count))
            .into()
    );
    let reads = reading(&door).await;
    assert!(
        reads < READ_LIMIT,
        "19 of 20 reads took less than {reads:?}"
    );
    gate.write_all("\n".repeat(CAPACITY).as_bytes())
        .expect("opened");
    for (number, answer) in answers.into_iter().enumerate() {
        if !answer.is_error {
            let id = text_of(&answer.structured, "commandId");
            let finished = agents[number % CONVERSATIONS].follow(&id).await;
            assert_eq!(finished.output, format!("{number}\n"));
            assert_eq!(finished.last["exitCode"], 0);
        }
    }
    door.stop().await;
}

/// Four readers, fifty reads each: what 19 of 20 took at most.
async fn reading(door: &postern_tests::Door) -> Duration {
    let readers = (0..4).map(|number| {
        let agent = agent_of(door, &format!("reader-{number}"));
        async move {
            let mut took = Vec::new();
            for _ in 0..50 {
                let began = Instant::now();
                let read = agent
                    .call("workspace_read", json!({"path": "AGENTS.md"}))
                    .await;
                assert!(!read.is_error, "{}", read.structured);
                took.push(began.elapsed());
            }
            took
        }
    });
    let mut took: Vec<Duration> = all(readers.collect()).await.concat();
    took.sort_unstable();
    took[took.len() * 19 / 20]
}

/// All at once.
async fn all<T>(batch: Vec<impl Future<Output = T>>) -> Vec<T> {
    let mut batch: Vec<_> = batch.into_iter().map(Box::pin).map(Some).collect();
    let mut done: Vec<Option<T>> = batch.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        for (slot, place) in batch.iter_mut().zip(&mut done) {
            if let Some(future) = slot
                && let std::task::Poll::Ready(value) = future.as_mut().poll(context)
            {
                *place = Some(value);
                *slot = None;
            }
        }
        match batch.iter().all(Option::is_none) {
            true => std::task::Poll::Ready(()),
            false => std::task::Poll::Pending,
        }
    })
    .await;
    done.into_iter().flatten().collect()
}
