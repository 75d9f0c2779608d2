//! Full disks under the ledger and under the spool. Each lies in a small file system of its own, in a mount namespace of its
//! own, so that nothing stays mounted.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use postern_tests::{Answer, text_of, wait_for};
use pretty_assertions::assert_eq;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::{pair::Pair, rig::count};

/// For the program to be ready, or to work again.
const LIMIT: Duration = Duration::from_secs(60);
/// Between two tries.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// Bytes written at a time to fill a disk.
const CHUNK: usize = 64 * 1024;
/// Writes after which a full disk must have shown.
const MANY: u32 = 400;
/// Refusals that are looked at.
const REFUSED: usize = 3;
/// Size of the file system under the data directory.
const DATA_SIZE: &str = "24m";
/// Size of the one under the spool.
const SPOOL_SIZE: &str = "2m";

/// An edge with a small file system mounted at one of its directories.
struct Small {
    pair: Pair,
    /// The mounted directory, as this process can reach it.
    mounted: PathBuf,
}

impl Small {
    async fn start(directory: &str, size: &str) -> Self {
        let script =
            format!("mount -t tmpfs -o size={size},mode=700 none \"$1\" && shift && exec \"$@\"");
        let pair = Pair::start_below(|world| {
            let target = world.outside().join(directory);
            fs::create_dir_all(&target).expect("writable");
            let mut before: Vec<OsString> = ["unshare", "--mount", "sh", "-c", &script, "sh"]
                .iter()
                .map(OsString::from)
                .collect();
            before.push(target.into());
            before
        })
        .await;
        let target = pair.edge_world.outside().join(directory);
        let below = target.strip_prefix("/").expect("absolute");
        let root = PathBuf::from(format!("/proc/{}/root", pair.edge.pid()));
        Self {
            mounted: root.join(below),
            pair,
        }
    }

    fn project(&self) -> PathBuf {
        self.pair.edge_world.project()
    }

    fn filler(&self) -> PathBuf {
        self.mounted.join("filler")
    }

    /// Writes until nothing more fits.
    fn fill(&self) {
        let mut file = File::create(self.filler()).expect("writable");
        let mut size = CHUNK;
        while size > 0 {
            if file.write(&vec![1; size]).is_err() {
                size /= 2;
            }
        }
    }

    fn free(&self) {
        fs::remove_file(self.filler()).expect("it was filled");
    }

    async fn call(&self, id: &str, tool: &str, arguments: &Value) -> Answer {
        self.pair.agent().call_as(id, tool, arguments).await
    }

    /// What was refused for want of room happens once there is some.
    async fn happens(&self, id: &str, tool: &str, arguments: &Value) {
        let until = Instant::now() + LIMIT;
        let answer = loop {
            let answer = self.call(id, tool, arguments).await;
            if !is_refused(&answer) {
                break answer;
            }
            assert!(
                Instant::now() < until,
                "there is room, and still {answer:?}; the edge said:\n{}",
                self.pair.edge.stderr()
            );
            tokio::time::sleep(LOOK_AGAIN).await;
        };
        assert!(!answer.is_error, "{answer:?}");
        assert_eq!(self.call(id, tool, arguments).await, answer);
    }
}

/// Refused before anything was done, and before anything was recorded.
fn is_refused(answer: &Answer) -> bool {
    matches!(answer.code(), "DISK_FULL" | "UNAVAILABLE")
}

fn new_file(number: u32) -> Value {
    json!({"path": format!("file-{number}.txt"), "content": "x", "expectedSha256": null})
}

fn lines(path: &Path) -> usize {
    count(path, "ran")
}

async fn ran(log: &Path, times: usize) {
    wait_for("the command's line", LIMIT, || async {
        (lines(log) >= times).then_some(())
    })
    .await;
    assert_eq!(lines(log), times);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_under_the_ledger_refuses_effects_before_they_happen() {
    let small = Small::start("data", DATA_SIZE).await;
    let log = small.project().join("runs.txt");
    let file = |number: u32| small.project().join(format!("file-{number}.txt"));
    let command = json!({"command": "echo ran >> runs.txt"});
    let written = small.call("before", "workspace_write", &new_file(0)).await;
    assert!(!written.is_error, "{written:?}");
    small.fill();
    // The ledger's log may have room left in what it has already; it is used up by and by.
    let mut refused = Vec::new();
    for number in 1..MANY {
        let id = format!("write-{number}");
        let answer = small.call(&id, "workspace_write", &new_file(number)).await;
        if answer.is_error {
            assert!(is_refused(&answer), "{answer:?}");
            // It may have happened where room was left for its receipt alone; then it is found so afterwards.
            refused.push((number, file(number).exists()));
        }
        if refused.iter().filter(|(_, happened)| !happened).count() == REFUSED {
            break;
        }
    }
    assert!(refused.len() >= REFUSED, "the disk was never full");
    let answer = small.call("run", "workspace_exec", &command).await;
    assert!(is_refused(&answer), "{answer:?}");
    assert_eq!(lines(&log), 0, "no effect without a receipt");
    // What needs no receipt goes on.
    let read = json!({"path": "file-0.txt"});
    let read = small.call("read", "workspace_read", &read).await;
    assert!(!read.is_error, "{read:?}");

    small.free();
    for (number, _) in refused {
        let id = format!("write-{number}");
        small
            .happens(&id, "workspace_write", &new_file(number))
            .await;
        assert!(file(number).exists());
    }
    small.happens("run", "workspace_exec", &command).await;
    ran(&log, 1).await;
    let replayed = small.call("before", "workspace_write", &new_file(0)).await;
    assert_eq!(replayed, written);
    verify(&small).await;
}

/// Verifies the ledger's files as they are: the mount ends with its program.
async fn verify(small: &Small) {
    let world = &small.pair.edge_world;
    let copy = world.outside().join("copy");
    fs::create_dir_all(&copy).expect("writable");
    small.pair.edge.signal(Signal::STOP);
    for entry in fs::read_dir(&small.mounted).expect("the data directory") {
        let entry = entry.expect("an entry");
        if entry.file_type().is_ok_and(|kind| kind.is_file()) {
            fs::copy(entry.path(), copy.join(entry.file_name())).expect("copied");
        }
    }
    small.pair.edge.signal(Signal::CONT);
    let mut arguments = ["receipts", "verify", "--data-dir"]
        .map(OsString::from)
        .to_vec();
    arguments.push(copy.into());
    let verified = world.run(&arguments).await;
    assert_eq!(verified.code, Some(0), "{verified:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_under_the_spool_ends_no_command_and_starts_none_unseen() {
    let small = Small::start("data/spool", SPOOL_SIZE).await;
    let log = small.project().join("runs.txt");
    let command = json!({"command": "echo ran >> runs.txt"});
    small.fill();
    let answer = small.call("full", "workspace_exec", &command).await;
    // A spare may have made its room before; else the start is refused, and that is its outcome.
    let before = match answer.code() {
        "" => 1,
        "DISK_FULL" => 0,
        _ => panic!("{answer:?}"),
    };
    ran(&log, before).await;
    small.free();
    assert_eq!(small.call("full", "workspace_exec", &command).await, answer);
    let answer = small.call("free", "workspace_exec", &command).await;
    assert!(!answer.is_error, "{answer:?}");
    ran(&log, before + 1).await;

    // More output than fits: the command goes on all the same, and so does its worker.
    let loud = json!({"command": "head -c 8000000 /dev/zero | tr '\\0' x; echo ran >> runs.txt"});
    let started = small.call("loud", "workspace_exec", &loud).await.ok();
    let id = text_of(&started, "commandId");
    let agent = small.pair.agent();
    let last = wait_for("the end of the command", LIMIT, || async {
        let page = agent.poll(&id, 0).await;
        (page["status"] != "running").then_some(page)
    })
    .await;
    assert_eq!(
        (&last["status"], &last["exitCode"], &last["totalBytes"]),
        (&json!("exited"), &json!(0), &json!(8_000_000)),
        "{last}"
    );
    ran(&log, before + 2).await;
}
