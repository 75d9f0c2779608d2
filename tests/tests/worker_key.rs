//! The key of the exec worker: who connects to its socket without it, from wherever, gets nothing done.
#![expect(clippy::expect_used, reason = "tests fail by panicking")]

use std::{fs, path::PathBuf, time::Duration};

use postern_kit::{
    Key,
    transport::{Address, Transport, connect, with_key},
};
use postern_proto::exec::v1::{
    Effect, HeartbeatRequest, ShutdownRequest, StartRequest, exec_client::ExecClient,
};
use postern_tests::{World, process, wait_for};
use pretty_assertions::assert_eq;
use rustix::process::Signal;
use tonic::Code;
use uuid::Uuid;

/// For a process to come or go, on a loaded machine.
const LIMIT: Duration = Duration::from_secs(30);

fn key_file(world: &World) -> PathBuf {
    world.data().join("exec-key")
}

fn digits(world: &World) -> String {
    let text = fs::read_to_string(key_file(world)).expect("a key file");
    text.trim_end().to_owned()
}

/// This test is no command of the worker, so the socket takes it in.
fn socket(world: &World) -> Transport {
    connect(&Address::Unix(world.data().join("exec.sock"))).expect("transport")
}

/// What the worker says to a start, a sign of life and a shutdown.
async fn told(transport: Transport, command: &str) -> [Code; 3] {
    let mut client = ExecClient::new(transport);
    let start = StartRequest {
        effect: Some(Effect {
            workspace_id: "of-nobody".to_owned(),
            receipt_id: Uuid::new_v4().to_string(),
            incarnation: 1,
        }),
        session_id: "session-1".to_owned(),
        command: command.to_owned(),
        cwd: String::new(),
        timeout_ms: 60_000,
        place: None,
    };
    let code = |failed: Option<tonic::Status>| failed.map_or(Code::Ok, |status| status.code());
    [
        code(client.start(start).await.err()),
        code(client.heartbeat(HeartbeatRequest::default()).await.err()),
        code(client.shutdown(ShutdownRequest::default()).await.err()),
    ]
}

#[tokio::test]
async fn without_the_key_nothing_is_done() {
    let world = World::new();
    let door = world.up("full").await;
    let key: Key = digits(&world).parse().expect("a key");
    let other = Key::generate().expect("random bytes");
    let refused = [Code::Unauthenticated; 3];
    let open = socket(&world);
    assert_eq!(told(open.clone(), "touch attacked").await, refused);
    let wrong = with_key(open.clone(), &other);
    assert_eq!(told(wrong, "touch attacked").await, refused);
    // The worker was not told to end, and takes the edge's calls.
    let finished = door.agent().run("echo still there").await;
    assert_eq!(finished.output, "still there\n");
    let right = with_key(open, &key);
    // The last call ends the worker, and maybe this command before it has done anything.
    assert_eq!(told(right, "true").await, [Code::Ok; 3]);
    assert!(!world.project().join("attacked").exists());
    door.stop().await;
}

#[tokio::test]
async fn the_key_is_in_no_process_and_no_command_finds_it() {
    let world = World::new();
    let door = world.up("full").await;
    let key = digits(&world);
    let agent = door.agent();
    let running = agent.exec("sleep 300").await;
    let mut seen = 0;
    for process in world.processes() {
        for file in ["cmdline", "environ"] {
            // One that went meanwhile holds nothing.
            let content = fs::read(format!("/proc/{}/{file}", process.pid)).unwrap_or_default();
            let found = memchr::memmem::find(&content, key.as_bytes());
            assert_eq!(found, None, "{file} of {:?}", process.arguments);
            seen += usize::from(!content.is_empty());
        }
    }
    assert!(seen >= 6, "edge, worker and a wrapper at least: {seen}");
    let file = key_file(&world);
    for attack in [
        format!("cat '{}'", file.display()),
        format!("cp '{}' key && cat key", file.display()),
        format!("ln '{}' key && cat key", file.display()),
        format!("ln -s '{}' key && cat key", file.display()),
    ] {
        let finished = agent.run(&attack).await;
        assert_ne!(finished.last["exitCode"], 0, "{attack}");
        assert!(!finished.output.contains(&key), "{attack}");
    }
    let search = "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline | tr '\\0' '\\n'";
    let finished = agent.run(search).await;
    assert!(!finished.output.contains(&key), "it was found");
    agent
        .call("workspace_stop", serde_json::json!({"commandId": running}))
        .await;
    door.stop().await;
}

/// The edge was killed, its worker runs on, and the file with the key is lost: whether its commands are to go on is for the
/// owner to say.
#[tokio::test]
async fn a_running_worker_whose_key_is_lost_is_told_and_left_alone() {
    let world = World::new();
    let door = world.up("full").await;
    let key = fs::read(key_file(&world)).expect("a key");
    door.agent().exec("sleep 300").await;
    door.program.signal(Signal::KILL);
    door.program.ended(LIMIT).await;
    let worker = world.workers().first().expect("it outlives its edge").pid;
    fs::remove_file(key_file(&world)).expect("removed");
    let ended = world
        .start(&world.up_arguments("full", &[]))
        .ended(LIMIT)
        .await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    for part in ["exec-key", "put the old file back", &worker.to_string()] {
        assert!(ended.stderr.contains(part), "{part}: {ended:?}");
    }
    let left: Vec<i32> = world.workers().iter().map(|worker| worker.pid).collect();
    assert_eq!(left, [worker]);

    fs::write(key_file(&world), key).expect("put back");
    let door = world.up("full").await;
    assert_eq!(door.agent().run("echo met").await.output, "met\n");
    assert_eq!(
        world.workers().first().map(|worker| worker.pid),
        Some(worker)
    );
    door.program.signal(Signal::KILL);
    door.program.ended(LIMIT).await;

    fs::remove_file(key_file(&world)).expect("removed");
    process::signal(worker, Signal::TERM);
    wait_for("the end of the worker", LIMIT, async || {
        world.workers().is_empty().then_some(())
    })
    .await;
    let door = world.up("full").await;
    assert_eq!(door.agent().run("echo anew").await.output, "anew\n");
    door.stop().await;
}

/// A worker that an earlier program started without a key runs on after its edge was killed: the next start replaces it.
#[tokio::test]
async fn a_running_worker_without_a_key_is_replaced() {
    let world = World::new();
    let door = world.up("full").await;
    let mut arguments = world.workers().first().expect("one").arguments.clone();
    door.stop().await;
    assert!(world.workers().is_empty());
    let key = arguments.iter().position(|word| word == "--key-file");
    let key = key.expect("it has a key");
    arguments.drain(key..key + 2);
    let mut unlocked = world.start(&arguments[1..]);
    unlocked.event("listening", LIMIT).await;
    let mut client = ExecClient::new(socket(&world));
    let answer = client.heartbeat(HeartbeatRequest::default()).await;
    assert!(answer.is_ok(), "it takes everybody: {answer:?}");

    let door = world.up("full").await;
    let ended = unlocked.ended(LIMIT).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let refused = [Code::Unauthenticated; 3];
    assert_eq!(told(socket(&world), "touch attacked").await, refused);
    assert_eq!(door.agent().run("echo anew").await.output, "anew\n");
    door.stop().await;
}
