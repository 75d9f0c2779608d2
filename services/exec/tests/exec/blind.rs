//! Wrappers that cannot read the process table for a while: they stay, end what they know of, and the rest once they see it.

use std::{fs, process::Command};

use postern_exec::sandbox::Level;
use postern_proto::exec::v1::Status;
use pretty_assertions::assert_eq;

use crate::{
    harness::{eventually, lives},
    workers::{Process, folder},
};

/// Waits of a wrapper that are more than one pass.
const ROUNDS: u64 = 10;

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

fn parent(pid: &str) -> String {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it lives");
    let (_, fields) = stat.rsplit_once(')').expect("a name");
    let parent = fields.split_whitespace().nth(1);
    parent.expect("a parent").to_owned()
}

/// How often the threads of a process have waited. One that is gone has not.
fn waits(pid: &str) -> u64 {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("it lives");
    let of_thread = |thread: fs::DirEntry| {
        let status = fs::read_to_string(thread.path().join("status")).ok()?;
        let waits = status
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        waits.trim().parse::<u64>().ok()
    };
    threads.flatten().filter_map(of_thread).sum()
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
        // Further rounds, and none of them leaves or finds it.
        let wrapper = parent(hidden);
        let until = waits(&wrapper) + ROUNDS;
        eventually("further rounds", || waits(&wrapper) >= until).await;
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

#[tokio::test]
async fn a_command_is_asked_to_end_once_also_when_it_is_seen_later() {
    let folder = folder();
    let worker = worker(folder.path()).await;
    let command = "trap 'echo asked' TERM; echo ready; while :; do sleep 0.05; done";
    let id = worker.client.start(command).await;
    let said = async |what: &'static str| {
        worker
            .client
            .output_until(&id, move |text| text.contains(what))
            .await
    };
    said("ready").await;
    cover(&worker);
    let stopping = worker.client.clone();
    let stopped = async { stopping.stop(&id).await };
    let watched = async {
        said("asked").await;
        uncover(&worker);
    };
    let (state, ()) = tokio::join!(stopped, watched);
    assert_eq!((state.status(), state.survivors), (Status::Stopped, 0));
    let finished = worker.client.finish(&id).await;
    assert_eq!(finished.output.matches("asked").count(), 1);
    worker.kill();
}
