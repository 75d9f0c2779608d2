//! Endings: by itself, by signal, by time, by order, and with something left behind.

use std::time::{Duration, Instant};

use pretty_assertions::assert_eq;

use postern_proto::exec::v1::Status;
use postern_types::ErrorCode;

use crate::harness::{Worker, code, eventually, lives, receipt, start_request};

/// B32: an end by signal is no success.
#[tokio::test]
async fn a_signal_is_told_by_its_name_and_without_an_exit_code() {
    let worker = Worker::open();
    let killed = worker.client.run("printf before; kill -9 $$").await;
    assert_eq!(killed.output, "before");
    assert_eq!(
        (
            killed.state.status(),
            killed.state.exit_code,
            killed.state.signal.as_deref()
        ),
        (Status::Exited, None, Some("SIGKILL"))
    );
    let terminated = worker.client.run("kill -TERM $$").await;
    assert_eq!(terminated.state.signal.as_deref(), Some("SIGTERM"));
    assert_eq!(
        worker.client.run("exit 255").await.state.exit_code,
        Some(255)
    );
    assert_eq!(
        worker.client.run("no-such-program").await.state.exit_code,
        Some(127)
    );
    let id = worker.client.start("sleep 300").await;
    let stopped = worker.client.stop(&id).await;
    assert_eq!(
        (
            stopped.status(),
            stopped.exit_code,
            stopped.signal.as_deref()
        ),
        (Status::Stopped, None, Some("SIGTERM"))
    );
    assert_eq!(
        worker.client.stop(&id).await,
        stopped,
        "again: the same end"
    );
}

/// B29: a background child that holds the output does not keep a command running.
#[tokio::test]
async fn a_child_in_the_background_delays_the_end_by_200_ms_at_most() {
    let worker = Worker::open();
    let id = worker.client.start("sleep 60 & echo $!; echo done").await;
    let began = Instant::now();
    let done = worker.client.finish(&id).await;
    assert!(
        began.elapsed() < Duration::from_secs(2),
        "{:?}",
        began.elapsed()
    );
    assert_eq!((done.state.exit_code, done.state.survivors), (Some(0), 1));
    let child = done.output.lines().next().expect("pid").to_owned();
    // The terminal outlives the shell, so the child is not hung up.
    assert!(lives(&child));
    let refused = worker
        .client
        .try_input(&receipt(), &id, "x")
        .await
        .expect_err("ended");
    assert_eq!(refused.code, ErrorCode::CommandEnded);
    assert_eq!(refused.details["exitCode"], 0);
    let stopped = worker.client.stop(&id).await;
    assert_eq!(
        (stopped.status(), stopped.exit_code, stopped.survivors),
        (Status::Exited, Some(0), 0)
    );
    assert!(!lives(&child));
}

#[tokio::test]
async fn a_survivor_goes_on_writing_to_the_spool() {
    let worker = Worker::open();
    let id = worker
        .client
        .start("(while :; do echo tick; sleep 0.05; done) & echo done")
        .await;
    let at_end = loop {
        let page = worker.client.poll(&id, 0).await;
        if page.state.expect("state").status() == Status::Exited {
            break page.total_bytes;
        }
    };
    let deadline = Instant::now() + Duration::from_secs(10);
    while worker.client.poll(&id, 0).await.total_bytes < at_end + 20 {
        assert!(Instant::now() < deadline, "nothing more was written");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    worker.client.stop(&id).await;
}

#[tokio::test]
async fn a_survivor_that_ends_is_counted_no_more() {
    let worker = Worker::open();
    let id = worker
        .client
        .start("(read x < fifo) >/dev/null 2>&1 & while [ ! -p fifo ]; do mkfifo fifo; done; echo done")
        .await;
    let done = worker.client.finish(&id).await;
    if done.state.survivors == 1 {
        std::fs::write(worker.project.join("fifo"), "x\n").expect("fifo");
    }
    let deadline = Instant::now() + Duration::from_secs(10);
    while worker.client.finish(&id).await.state.survivors > 0 {
        assert!(Instant::now() < deadline, "still counted");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// B30: the time limit ends everything, the pipelines too.
#[tokio::test]
async fn the_time_limit_ends_everything_and_keeps_the_output() {
    let worker = Worker::open();
    let command = "echo $$; sh -c 'sleep 300 & echo $!; sleep 300 | cat'";
    let id = worker.client.start_for(command, 1000).await;
    let began = Instant::now();
    let done = worker.client.finish(&id).await;
    assert!(began.elapsed() < Duration::from_secs(3));
    assert_eq!(
        (
            done.state.status(),
            done.state.exit_code,
            done.state.survivors
        ),
        (Status::TimedOut, None, 0)
    );
    let pids: Vec<&str> = done.output.lines().collect();
    assert_eq!(pids.len(), 2);
    assert!(pids.iter().all(|pid| !lives(pid)));
}

#[tokio::test]
async fn the_time_limit_does_not_hold_for_what_was_left_behind() {
    let worker = Worker::open();
    let id = worker.client.start_for("sleep 60 & echo $!", 1000).await;
    let done = worker.client.finish(&id).await;
    tokio::time::sleep(Duration::from_millis(1300)).await;
    assert!(lives(&done.output));
    assert_eq!(
        worker.client.finish(&id).await.state.status(),
        Status::Exited
    );
    worker.client.stop(&id).await;
}

#[tokio::test]
async fn what_ignores_sigterm_is_killed_after_the_grace() {
    let worker = Worker::open();
    let command = "trap '' TERM; echo $$; while :; do sleep 1; done";
    let id = worker.client.start(command).await;
    worker
        .client
        .output_until(&id, |text| text.ends_with('\n'))
        .await;
    let began = Instant::now();
    let stopped = worker.client.stop(&id).await;
    assert!(began.elapsed() >= Duration::from_secs(3));
    assert_eq!(
        (stopped.status(), stopped.signal.as_deref()),
        (Status::Stopped, Some("SIGKILL"))
    );
}

#[tokio::test]
async fn what_cleans_up_on_sigterm_may_do_so() {
    let worker = Worker::open();
    let command = "trap 'echo cleaned; exit 0' TERM; echo ready; while :; do sleep 0.05; done";
    let id = worker.client.start(command).await;
    worker
        .client
        .output_until(&id, |text| text.contains("ready"))
        .await;
    let stopped = worker.client.stop(&id).await;
    assert_eq!(
        (stopped.status(), stopped.exit_code),
        (Status::Stopped, None)
    );
    assert!(worker.client.finish(&id).await.output.contains("cleaned"));
}

/// B30: no zombie and no handle is left by many commands.
#[tokio::test]
async fn many_commands_leave_no_zombie_and_no_handle() {
    let worker = Worker::open();
    worker.client.run("true").await;
    let handles = || std::fs::read_dir("/proc/self/fd").expect("fd").count();
    let before = handles();
    for _ in 0..30 {
        let batch: Vec<_> = (0..10).map(|_| worker.client.run("true")).collect();
        for done in futures(batch).await {
            assert_eq!(done.state.exit_code, Some(0));
        }
    }
    for _ in 0..10 {
        let id = worker.client.start("sleep 300 & sleep 300").await;
        worker.client.stop(&id).await;
    }
    // Other tests of this process have handles and children too, so only what stays is counted.
    eventually("handles back at the start", || handles() <= before + 60).await;
    eventually("no wrapper is a zombie", || {
        zombies_of(std::process::id()) == 0
    })
    .await;
}

async fn futures<T>(batch: Vec<impl Future<Output = T>>) -> Vec<T> {
    let mut done = Vec::new();
    for one in batch {
        done.push(one.await);
    }
    done
}

fn zombies_of(parent: u32) -> usize {
    std::fs::read_dir("/proc")
        .expect("proc")
        .filter_map(|entry| std::fs::read_to_string(entry.ok()?.path().join("stat")).ok())
        .filter(|stat| {
            stat.rsplit_once(')')
                .is_some_and(|(_, rest)| rest.starts_with(&format!(" Z {parent} ")))
        })
        .count()
}

#[tokio::test]
async fn draining_lets_commands_end_and_stops_the_rest() {
    let worker = Worker::open();
    let short = worker.client.start("sleep 0.2; echo whole").await;
    let long = worker.client.start("sleep 300").await;
    let stopped = worker.service.drain(Duration::from_millis(700)).await;
    assert_eq!(stopped, 1);
    assert_eq!(worker.client.finish(&short).await.output, "whole\n");
    assert_eq!(
        worker.client.finish(&long).await.state.status(),
        Status::Stopped
    );
    let late = worker
        .client
        .try_start(start_request(&receipt(), "true"))
        .await;
    assert_eq!(code(late), ErrorCode::Unavailable);
}
