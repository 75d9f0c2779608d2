//! What a command may try.

use std::time::Duration;

use pretty_assertions::assert_eq;

use postern_exec::sandbox::Level;
use postern_proto::exec::v1::Status;

use crate::harness::{Worker, eventually, lives};

/// B35: nothing of the worker's is open in a command.
#[tokio::test]
async fn no_handle_is_inherited() {
    let worker = Worker::open();
    // A handle that is not marked, as one that the worker was started with would be.
    let leaked = std::fs::File::open("/etc/hostname").expect("file");
    rustix::io::fcntl_setfd(&leaked, rustix::io::FdFlags::empty()).expect("unmarked");
    let done = worker.client.run("exec ls -l /proc/self/fd").await;
    let targets: Vec<&str> = done
        .output
        .lines()
        .filter_map(|line| line.split_once(" -> "))
        .map(|(_, target)| {
            target.trim_end_matches(|c: char| c.is_ascii_digit() || "[]".contains(c))
        })
        .collect();
    // The last is what `ls` itself has opened, to list it.
    let listing = targets.get(3).expect("the listing");
    assert!(listing.starts_with("/proc/"), "{listing}");
    assert_eq!(targets, ["/dev/pts/", "pipe:", "pipe:", listing]);
    drop(leaked);
}

/// B60: secrets of the worker are nowhere that a command can look.
#[tokio::test]
async fn no_secret_is_in_any_environment() {
    let worker = Worker::open_with(|config| {
        for name in [
            "POSTERN_CHANNEL_TOKEN",
            "OTEL_EXPORTER_OTLP_HEADERS",
            "HIDDEN",
        ] {
            config.environment.push((name.into(), "MARK-a1b2c3".into()));
        }
        config.hidden_env = vec!["HIDDEN".to_owned()];
        config.hidden_env.extend(
            postern_exec::TELEMETRY_SECRETS
                .iter()
                .map(|name| (*name).to_owned()),
        );
    });
    let done = worker
        .client
        .run("env; tr '\\0' '\\n' </proc/self/environ; tr '\\0' '\\n' </proc/$PPID/environ; tr '\\0' '\\n' </proc/$PPID/cmdline")
        .await;
    assert!(!done.output.contains("MARK-a1b2c3"), "{}", done.output);
    for kept in [
        "HOME=/root\n",
        "LANG=C.UTF-8\n",
        "TERM=dumb\n",
        "NO_COLOR=1\n",
        "PAGER=cat\n",
    ] {
        assert!(done.output.contains(kept), "{kept} in {}", done.output);
    }
}

/// Double fork, own session, ignored signals: still below the wrapper.
#[tokio::test]
async fn a_daemon_does_not_get_away() {
    let worker = Worker::open();
    let daemon = "setsid sh -c 'trap \"\" TERM HUP; (setsid sh -c \"trap \\\"\\\" TERM HUP; echo \\$\\$ > pid; exec sleep 301\" &) ; exit' >/dev/null 2>&1 </dev/null";
    let id = worker
        .client
        .start(&format!(
            "{daemon}; while [ ! -s pid ]; do sleep 0.01; done; cat pid"
        ))
        .await;
    let done = worker.client.finish(&id).await;
    assert!(lives(&done.output));
    assert_eq!(done.state.survivors, 1);
    assert_eq!(worker.client.stop(&id).await.survivors, 0);
    assert!(!lives(&done.output));
}

/// Something that forks anew whenever one of its processes is ended.
#[tokio::test]
async fn a_tree_that_grows_while_it_is_ended_is_ended() {
    let worker = Worker::open();
    let command = "trap '' TERM; for i in 1 2 3 4 5; do (trap '' TERM; while :; do sleep 7.25; done) & done; echo up; while :; do sleep 7.25 & wait $!; done";
    let id = worker.client.start_for(command, 1000).await;
    let done = worker.client.finish(&id).await;
    assert_eq!(done.state.status(), Status::TimedOut);
    assert_eq!(done.state.survivors, 0);
    eventually("no process of it is left", || {
        !std::fs::read_dir("/proc").expect("proc").any(|entry| {
            entry.is_ok_and(|entry| {
                std::fs::read(entry.path().join("cmdline"))
                    .is_ok_and(|line| line == b"sleep\x007.25\0")
            })
        })
    })
    .await;
}

/// The shell's parent is the wrapper: stopping it does not stop the clock for long.
#[tokio::test]
async fn a_stopped_wrapper_is_woken_for_the_time_limit() {
    let worker = Worker::open_free();
    let id = worker
        .client
        .start_for("read x; kill -STOP $PPID; echo tried; sleep 300", 1000)
        .await;
    worker.client.input(&id, "\n").await;
    let done = worker.client.finish(&id).await;
    assert_eq!(done.output, "tried\n");
    assert_eq!(done.state.status(), Status::TimedOut);
}

#[tokio::test]
async fn a_stopped_wrapper_is_woken_by_a_stop() {
    let worker = Worker::open_free();
    let id = worker
        .client
        .start("read x; kill -STOP $PPID; echo tried; sleep 300")
        .await;
    worker.client.input(&id, "\n").await;
    worker
        .client
        .output_until(&id, |text| text == "tried\n")
        .await;
    assert_eq!(worker.client.stop(&id).await.status(), Status::Stopped);
}

/// A set-user-id program gains nothing.
#[tokio::test]
async fn no_new_privileges_are_gained() {
    let worker = Worker::open();
    let done = worker
        .client
        .run("grep NoNewPrivs /proc/self/status; ulimit -c")
        .await;
    assert_eq!(done.output, "NoNewPrivs:\t1\n0\n");
    let worker = Worker::open_with(|config| {
        config.sandbox.level = Level::Off;
        config.no_new_privileges = false;
    });
    let done = worker.client.run("grep NoNewPrivs /proc/self/status").await;
    assert_eq!(done.output, "NoNewPrivs:\t0\n");
}

/// `kill 0`, as in many clean-up traps, reaches the command alone.
#[tokio::test]
async fn a_signal_to_the_own_group_does_not_reach_the_wrapper() {
    let worker = Worker::open();
    let done = worker.client.run("sleep 300 & echo up; kill -9 0").await;
    assert_eq!(
        (done.state.status(), done.state.signal.as_deref()),
        (Status::Exited, Some("SIGKILL"))
    );
    assert_eq!(done.state.survivors, 0);
}

#[tokio::test]
async fn a_flood_on_the_way_to_the_end_does_not_keep_it_away() {
    let worker = Worker::open();
    let id = worker.client.start("yes & sleep 0.1; exit 5").await;
    let until = std::time::Instant::now() + Duration::from_secs(10);
    loop {
        let page = worker
            .client
            .try_poll(crate::harness::SESSION, &id, 0, 100)
            .await
            .expect("page");
        let state = page.state.expect("state");
        if state.status() == Status::Exited {
            assert_eq!((state.exit_code, state.survivors), (Some(5), 1));
            break;
        }
        assert!(std::time::Instant::now() < until, "never ended");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    worker.client.stop(&id).await;
}
