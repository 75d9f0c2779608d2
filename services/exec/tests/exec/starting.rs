//! Starting: where, with what, how many.

use pretty_assertions::assert_eq;

use postern_proto::exec::v1::{HeartbeatRequest, StartRequest, Status};
use postern_types::ErrorCode;

use crate::harness::{SESSION, Worker, code, receipt, start_request};

#[tokio::test]
async fn a_command_runs_and_its_end_is_told() {
    let worker = Worker::open();
    let done = worker.client.run("echo out; echo err >&2; exit 3").await;
    assert_eq!(done.output, "out\nerr\n");
    assert_eq!(done.state.status(), Status::Exited);
    assert_eq!(done.state.exit_code, Some(3));
    assert_eq!(done.state.signal, None);
    assert_eq!(done.state.survivors, 0);
    assert!(done.state.finished_at_ms >= Some(done.state.started_at_ms));
}

#[tokio::test]
async fn a_command_starts_in_its_directory() {
    let worker = Worker::open();
    std::fs::create_dir_all(worker.project.join("a/b")).expect("directories");
    let request = StartRequest {
        cwd: "a/./b".to_owned(),
        ..start_request(&receipt(), "pwd; pwd -P; echo $PWD")
    };
    let started = worker.client.try_start(request).await.expect("started");
    assert_eq!(started.cwd, "a/b");
    let real = worker.project.canonicalize().expect("real").join("a/b");
    let line = format!("{}\n", real.display());
    let done = worker.client.finish(&started.command_id).await;
    assert_eq!(done.output, line.repeat(3));
    let root = worker
        .client
        .try_start(start_request(&receipt(), "true"))
        .await;
    assert_eq!(root.expect("started").cwd, ".");
}

#[tokio::test]
async fn a_command_runs_where_it_was_permitted_or_not_at_all() {
    let worker = Worker::open();
    for name in ["a", "b"] {
        std::fs::create_dir(worker.project.join(name)).expect("directory");
    }
    std::os::unix::fs::symlink("b", worker.project.join("l")).expect("link");
    let id = receipt();
    let at = |place: &str| StartRequest {
        cwd: "l".to_owned(),
        place: Some(place.to_owned()),
        ..start_request(&id, "touch here")
    };
    let refused = worker.client.try_start(at("a")).await;
    assert_eq!(code(refused), ErrorCode::Busy);
    // Nothing was claimed either: the same receipt may act once it leads there.
    let started = worker.client.try_start(at("b")).await.expect("started");
    worker.client.finish(&started.command_id).await;
    assert!(worker.project.join("b/here").exists());
    assert!(!worker.project.join("a/here").exists());
}

#[tokio::test]
async fn a_directory_that_is_none_or_outside_is_refused() {
    let worker = Worker::open();
    let outside = tempfile::tempdir().expect("outside");
    std::os::unix::fs::symlink(outside.path(), worker.project.join("leak")).expect("link");
    std::fs::write(worker.project.join("file"), "").expect("file");
    for (cwd, expected) in [
        ("missing", ErrorCode::NotFound),
        ("a\0b", ErrorCode::InvalidArguments),
        ("file", ErrorCode::NotADirectory),
        ("../project", ErrorCode::PathEscapesProject),
        ("leak", ErrorCode::PathEscapesProject),
        (
            outside.path().to_str().expect("text"),
            ErrorCode::PathEscapesProject,
        ),
    ] {
        let id = receipt();
        let request = StartRequest {
            cwd: cwd.to_owned(),
            ..start_request(&id, "touch ran")
        };
        let refused = worker.client.try_start(request).await.expect_err(cwd);
        assert_eq!(refused.code, expected, "{cwd}");
        if expected == ErrorCode::InvalidArguments {
            assert_eq!(refused.details["pointer"], "/cwd");
            assert!(refused.details["rule"].is_string());
        }
        // A refusal leaves nothing: the same receipt may start.
        let started = worker.client.try_start(start_request(&id, "true")).await;
        assert_eq!(started.expect("started").command_id, id);
    }
    assert!(!outside.path().join("ran").exists());
}

#[tokio::test]
async fn arguments_over_their_bounds_are_refused() {
    let worker = Worker::open();
    let request = |command: &str, timeout_ms| StartRequest {
        timeout_ms,
        ..start_request(&receipt(), command)
    };
    let nobody = StartRequest {
        session_id: String::new(),
        ..request("true", 120_000)
    };
    let nothing = StartRequest {
        effect: None,
        ..request("true", 120_000)
    };
    for (bad, pointer, rule) in [
        (request("", 120_000), "/command", "minLength"),
        (request("true\0", 120_000), "/command", "pattern"),
        (
            request(&"x".repeat(32_769), 120_000),
            "/command",
            "maxLength",
        ),
        (request("true", 999), "/timeoutMs", "minimum"),
        (request("true", 600_001), "/timeoutMs", "maximum"),
        (nobody, "/sessionId", "format"),
        (nothing, "/effect/receiptId", "format"),
    ] {
        let refused = worker.client.try_start(bad).await.expect_err(rule);
        assert_eq!(refused.code, ErrorCode::InvalidArguments);
        let told = [&refused.details["pointer"], &refused.details["rule"]];
        assert_eq!(told, [pointer, rule]);
    }
    // 32,768 characters of four bytes are more than the system takes as one argument; of three bytes they are not.
    let long = worker
        .client
        .try_start(request(&"🙂".repeat(32_768), 120_000))
        .await;
    assert_eq!(code(long), ErrorCode::TooLarge);
    let text = format!("echo '{}' | wc -m", "漢".repeat(32_740));
    assert_eq!(worker.client.run(&text).await.output, "32741\n");
}

#[tokio::test]
async fn a_session_runs_sixteen_commands_and_a_worker_its_capacity() {
    let worker = Worker::open_with(|config| config.capacity = 18);
    let mut running = Vec::new();
    for _ in 0..16 {
        running.push(worker.client.start("read x").await);
    }
    let refused = worker
        .client
        .try_start(start_request(&receipt(), "true"))
        .await;
    assert_eq!(code(refused), ErrorCode::TooManyCommands);
    let other = || StartRequest {
        session_id: "session-2".to_owned(),
        ..start_request(&receipt(), "read x")
    };
    for _ in 0..2 {
        worker
            .client
            .try_start(other())
            .await
            .expect("another session's");
    }
    let full = worker.client.try_start(other()).await.expect_err("full");
    assert_eq!((full.code, full.code.retryable()), (ErrorCode::Busy, true));
    let beat = worker
        .client
        .0
        .clone()
        .heartbeat(HeartbeatRequest::default())
        .await;
    let beat = beat.expect("heartbeat").into_inner();
    assert_eq!(
        (beat.running, beat.capacity, beat.sandbox.as_str()),
        (18, 18, "project")
    );
    worker.client.input(&running[0], "\n").await;
    worker.client.finish(&running[0]).await;
    worker.client.run("true").await;
    assert_eq!(worker.service.stop_all("test").await, 17);
    let late = worker
        .client
        .try_start(start_request(&receipt(), "true"))
        .await;
    assert_eq!(code(late), ErrorCode::Unavailable);
    let polled = worker
        .client
        .try_poll(SESSION, &running[1], 0, 0)
        .await
        .expect("polled");
    assert_eq!(polled.state.expect("state").status(), Status::Stopped);
}

/// Commands that ended but left a daemon behind: whoever can make room is told how.
#[tokio::test]
async fn a_worker_full_of_what_ended_commands_left_says_which_to_stop() {
    let worker = Worker::open();
    let mut ended = Vec::new();
    for _ in 0..32 {
        let id = worker
            .client
            .start("setsid sleep 300 >/dev/null 2>&1 &")
            .await;
        assert_eq!(worker.client.finish(&id).await.state.survivors, 1);
        ended.push(id);
    }
    let full = worker
        .client
        .try_start(start_request(&receipt(), "true"))
        .await;
    let full = full.expect_err("full");
    assert_eq!(full.code, ErrorCode::TooManyCommands);
    let ids = full.details["commandIds"].as_array().expect("ids");
    assert!(!ids.is_empty() && ids.iter().all(|id| ended.iter().any(|ended| id == ended)));
    // Another session is not told of commands that it cannot stop.
    let other = StartRequest {
        session_id: "session-2".to_owned(),
        ..start_request(&receipt(), "true")
    };
    let other = worker.client.try_start(other).await.expect_err("full");
    assert_eq!(other.code, ErrorCode::TooManyCommands);
    assert_eq!(other.details["commandIds"].as_array(), Some(&Vec::new()));
    worker.client.stop(ids[0].as_str().expect("id")).await;
    assert_eq!(worker.client.run("echo room").await.output, "room\n");
    worker.service.stop_all("test").await;
}
