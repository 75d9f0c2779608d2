//! What the sandbox needs of a worker's process: its socket, its start and its end.

use std::{process::Command, time::Duration};

use pretty_assertions::assert_eq;

use postern_exec::sandbox::Level;
use postern_proto::exec::v1::ShutdownRequest;

use crate::{
    harness::{attack_line, eventually},
    workers::{Process, children_of, folder},
};

/// What a killed worker's commands had for themselves goes when the next one starts, at the latest.
#[tokio::test]
async fn a_killed_workers_temporary_directories_are_removed() {
    let folder = folder();
    let worker = Process::start(folder.path()).await;
    let id = worker
        .client
        .start("touch $TMPDIR/left; echo up; sleep 300")
        .await;
    worker.client.output_until(&id, |text| text == "up\n").await;
    let temporary = folder.path().join("temporary");
    let count = || std::fs::read_dir(&temporary).expect("folder").count();
    assert!(count() >= 1);
    worker.kill();
    assert!(count() >= 1, "nobody was left to remove them");
    let worker = Process::start(folder.path()).await;
    // Ready is told before the spares are there, which the rest is about.
    eventually("the new spares, and nothing but theirs", || {
        let left = std::fs::read_dir(&temporary).expect("folder").flatten();
        let of_old = left.filter(|entry| entry.path().join("left").exists());
        let has_spares = !children_of(worker.child.id()).is_empty();
        has_spares && of_old.count() == 0 && (1..=2).contains(&count())
    })
    .await;
    let mut worker = worker;
    let request = ShutdownRequest {
        reason: "test".to_owned(),
    };
    // The spares are slow to go: the end waits for them.
    let spares = children_of(worker.child.id());
    // One that only looked at the kernel for the worker may be gone by now.
    let signal = |name: &str| {
        let reached = spares.split(' ').filter(|pid| {
            let status = Command::new("kill").args([name, pid]).status();
            status.expect("kill").success()
        });
        assert!(reached.count() > 0, "{name} {spares}");
    };
    signal("-STOP");
    let go_on = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        signal("-CONT");
    };
    let mut client = worker.client.0.clone();
    let (answer, ()) = tokio::join!(client.shutdown(request), go_on);
    answer.expect("shut down");
    assert_eq!(count(), 0, "a worker that ends in order leaves none");
    eventually("the process ends", || {
        worker.child.try_wait().is_ok_and(|code| code.is_some())
    })
    .await;
}

/// The worker's own socket lies open to its user; what its commands say there is not heard.
#[tokio::test]
async fn a_command_cannot_speak_to_its_worker() {
    let folder = folder();
    for level in [Level::Project, Level::Off] {
        let worker = Process::start_confined(folder.path(), level).await;
        let attack = attack_line(
            "worker",
            &folder.path().join("socket").display().to_string(),
        );
        let said = worker.client.run(&attack).await.output;
        assert!(said.contains("attack: not heard\n"), "{level}: {said}");
        // Nor when its parents are gone and the wrapper has adopted it.
        let orphan = format!(
            "rm -f told; setsid sh -c 'sleep 0.1; {attack} > said 2>&1; mv said told' >/dev/null 2>&1 &"
        );
        worker.client.run(&orphan).await;
        let told = folder.path().join("project/told");
        eventually("the orphan has tried", || told.exists()).await;
        let said = std::fs::read_to_string(&told).expect("told");
        assert!(said.contains("attack: not heard\n"), "{level}: {said}");
        assert_eq!(worker.client.run("echo lives").await.output, "lives\n");
        worker.kill();
    }
}
