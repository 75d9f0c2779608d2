//! Limits of commands, where the machine has control groups for them; where it has none, that they are refused.

use std::{fs, path::Path};

use postern_exec::{Controller, Limits, Service};
use postern_kit::{Clock, task::Tasks};
use postern_proto::exec::v1::Status;
use pretty_assertions::assert_eq;

use crate::harness::{Worker, config, eventually};

/// A worker with limits, or nothing when the machine cannot keep them and it was refused for that.
fn limited(controller: Controller, limits: Limits) -> Option<Worker> {
    if controller.is_there() {
        return Some(Worker::open_with(|config| config.limits = limits));
    }
    let folder = tempfile::tempdir().expect("folder");
    let mut config = config(folder.path(), &folder.path().join("spool"));
    config.limits = limits;
    let refused = Service::open(config, Clock::system(), Tasks::new()).expect_err("no groups");
    let told = refused.to_string();
    assert!(
        told.contains(controller.name()) && told.contains("Delegate=yes"),
        "{told}"
    );
    None
}

#[tokio::test]
async fn a_command_that_takes_too_much_memory_is_told_why_it_died() {
    let limits = Limits {
        memory_bytes: Some(64 << 20),
        ..Limits::default()
    };
    let Some(worker) = limited(Controller::Memory, limits) else {
        return;
    };
    let finished = worker.client.run("tail /dev/zero; echo after").await;
    let said = &finished.output;
    assert!(said.contains("after\n"), "{said}");
    assert!(
        said.ends_with("limit of memory, so processes of it were killed\n"),
        "{said}"
    );
    assert_eq!(finished.state.status(), Status::Exited);
    // Another command is another group.
    let finished = worker.client.run("echo next").await;
    assert_eq!(finished.output, "next\n");
}

#[tokio::test]
async fn a_command_that_starts_too_many_processes_is_told_why_some_did_not() {
    let limits = Limits {
        processes: Some(16),
        ..Limits::default()
    };
    let Some(worker) = limited(Controller::Processes, limits) else {
        return;
    };
    let bomb = "i=0; while [ $i -lt 40 ]; do sleep 300 & i=$((i+1)); done; echo survived";
    let finished = worker.client.run(bomb).await;
    let said = &finished.output;
    assert!(!said.contains("survived"), "{said}");
    assert!(
        said.ends_with("limit of processes, so some were not started\n"),
        "{said}"
    );
    let left = finished.state.survivors;
    assert!((1..16).contains(&left), "{left}");
    let finished = worker.client.run("echo next").await;
    assert_eq!(finished.output, "next\n");
}

#[tokio::test]
async fn a_command_and_all_it_starts_are_in_a_group_of_their_own_that_goes_with_it() {
    let limits = Limits {
        millicpus: Some(250),
        ..Limits::default()
    };
    let Some(worker) = limited(Controller::Cpu, limits) else {
        return;
    };
    let finished = worker.client.run("sh -c 'cat /proc/self/cgroup'").await;
    let group = finished
        .output
        .lines()
        .find(|line| line.contains("/postern-"))
        .unwrap_or_else(|| panic!("in no group:\n{}", finished.output))
        .to_owned();
    let own = fs::read_to_string("/proc/self/cgroup").expect("own groups");
    assert!(!own.contains(&group), "the worker is in it itself");
    let name = group.rsplit('/').next().expect("a name").to_owned();
    let is_gone = || !is_below(Path::new("/sys/fs/cgroup"), &name, 8);
    eventually("the group to go", is_gone).await;
}

/// Whether a directory of that name is somewhere below.
fn is_below(directory: &Path, name: &str, depth: usize) -> bool {
    let Ok(entries) = fs::read_dir(directory) else {
        return false;
    };
    entries.filter_map(Result::ok).any(|entry| {
        let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        is_directory
            && (entry.file_name() == *name || depth > 0 && is_below(&entry.path(), name, depth - 1))
    })
}
