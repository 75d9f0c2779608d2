//! Wrappers that cannot read the process table for a while: they stay, end what they know of, and the rest once they see it.

use std::{process::Command, time::Duration};

use postern_exec::sandbox::Level;
use postern_proto::exec::v1::Status;
use pretty_assertions::assert_eq;

use crate::{
    harness::{eventually, lives},
    workers::{Process, folder},
};

/// A worker, and commands, whose `/proc` can be covered: they have mounts of their own.
async fn worker(folder: &std::path::Path) -> Process {
    Process::start_below(&["unshare", "--mount"], folder, Level::Off).await
}

fn in_its_mounts(worker: &Process, program: &[&str]) {
    let pid = worker.child.id().to_string();
    let entered = Command::new("nsenter")
        .args(["--mount", "--target", &pid])
        .args(program)
        .status();
    assert!(entered.is_ok_and(|status| status.success()), "{program:?}");
}

fn cover(worker: &Process) {
    in_its_mounts(worker, &["mount", "-t", "tmpfs", "none", "/proc"]);
}

fn uncover(worker: &Process) {
    in_its_mounts(worker, &["umount", "/proc"]);
}

#[tokio::test]
async fn a_stop_ends_what_is_known_at_once_and_the_rest_when_it_is_seen() {
    let folder = folder();
    let worker = worker(folder.path()).await;
    let command = "setsid sleep 300 & echo $!; sleep 301 & echo $!; echo $$; wait";
    let id = worker.client.start(command).await;
    let said = worker
        .client
        .output_until(&id, |text| text.lines().count() == 3)
        .await;
    let [hidden, known, shell] =
        <[&str; 3]>::try_from(said.lines().collect::<Vec<_>>()).expect("three");
    cover(&worker);
    let stopping = worker.client.clone();
    let stopped = async { stopping.stop(&id).await };
    let watched = async {
        eventually("the shell's group is gone", || {
            !lives(known) && !lives(shell)
        })
        .await;
        // Far more rounds than one pass, and none of them leaves.
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(lives(hidden), "nobody could know of it");
        uncover(&worker);
    };
    let (state, ()) = tokio::join!(stopped, watched);
    assert_eq!((state.status(), state.survivors), (Status::Stopped, 0));
    assert!(!lives(hidden), "it is seen again, and ended");
    worker.kill();
}

#[tokio::test]
async fn what_cannot_be_counted_is_at_least_one_and_can_be_stopped() {
    let folder = folder();
    let worker = worker(folder.path()).await;
    let id = worker
        .client
        .start("setsid sleep 300 > /dev/null 2>&1 & echo $!; read line; exit 7")
        .await;
    let said = worker
        .client
        .output_until(&id, |text| text.ends_with('\n'))
        .await;
    cover(&worker);
    worker.client.input(&id, "go\n").await;
    let state = worker.client.finish(&id).await.state;
    assert_eq!(
        (state.status(), state.exit_code, state.survivors),
        (Status::Exited, Some(7), 1)
    );
    uncover(&worker);
    let state = worker.client.stop(&id).await;
    assert_eq!((state.status(), state.survivors), (Status::Exited, 0));
    assert!(!lives(said.trim()));
    worker.kill();
}
