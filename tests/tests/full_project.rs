//! A full disk under the project, through the whole edge (B20). The project lies in a small file system, in a mount namespace
//! of the edge's own, so that nothing stays mounted.
#![expect(clippy::expect_used, reason = "tests fail by panicking")]

use std::{ffi::OsString, fs, io::Write as _, path::PathBuf, time::Duration};

use postern_tests::{
    CHANNEL_TOKEN, FakeHost, HostSide, Program, WORKSPACE, World, call, edge_arguments, error_code,
    text_of,
};
use pretty_assertions::assert_eq;
use rustix::process::Signal;
use serde_json::{Value, json};

/// For the edge to end.
const LIMIT: Duration = Duration::from_secs(30);
/// Bytes written at a time to fill the disk.
const CHUNK: usize = 64 * 1024;
/// What is there before the disk is full.
const OLD: usize = 300 * 1024;
/// More than a full disk takes.
const NEW: usize = 600 * 1024;

/// An edge over a project of 2 MiB.
struct Small {
    program: Program,
    channel: HostSide,
    /// The project, as this process can reach it.
    project: PathBuf,
    calls: u32,
}

impl Small {
    async fn start(world: &World) -> Self {
        let host = FakeHost::listen().await;
        let script = "mount -t tmpfs -o size=2m,mode=700 none \"$1\" && shift && exec \"$@\"";
        let mut before: Vec<OsString> = ["unshare", "--mount", "sh", "-c", script, "sh"]
            .map(OsString::from)
            .to_vec();
        before.push(world.project().into());
        let arguments = edge_arguments(world, host.url(), &world.data(), &["--listen-none"]);
        let program = world.start_below(&before, &arguments);
        let channel = host.accept(WORKSPACE, CHANNEL_TOKEN).await;
        let project = world.project();
        let below = project.strip_prefix("/").expect("absolute");
        Self {
            channel,
            project: PathBuf::from(format!("/proc/{}/root", program.pid())).join(below),
            program,
            calls: 0,
        }
    }

    async fn ask(&mut self, tool: &str, args: Value) -> Value {
        self.calls += 1;
        let frame = call(&format!("call-{}", self.calls), tool, &args);
        self.channel.ask(&frame).await
    }

    fn filler(&self) -> PathBuf {
        self.project.join("filler")
    }

    fn fill(&self) {
        let mut file = fs::File::create(self.filler()).expect("writable");
        let mut size = CHUNK;
        while size > 0 {
            if file.write(&vec![1; size]).is_err() {
                size /= 2;
            }
        }
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.project).expect("the project");
        let mut names: Vec<String> = entries
            .map(|entry| entry.expect("an entry").file_name().into_string())
            .collect::<Result<_, _>>()
            .expect("text");
        names.sort();
        names
    }

    /// The command's end, as the last poll tells it.
    async fn run(&mut self, command: &str) -> Value {
        let started = self
            .ask("workspace_exec", json!({"command": command}))
            .await;
        let id = text_of(&started["structuredContent"], "commandId");
        loop {
            let poll = json!({"commandId": id, "offset": 0});
            let page = self.ask("workspace_poll", poll).await;
            if page["structuredContent"]["status"] != "running" {
                return page["structuredContent"].clone();
            }
        }
    }
}

fn write(path: &str, content: &str, expected: Option<&str>) -> Value {
    json!({"path": path, "content": content, "expectedSha256": expected})
}

/// Changes that need the room of `new`, each with its tool.
fn changes(new: &str, revision: &str) -> [(&'static str, Value); 4] {
    [
        ("workspace_write", write("kept.txt", new, Some(revision))),
        ("workspace_write", write("new.txt", new, None)),
        ("workspace_write", write("a/b/new.txt", new, None)),
        (
            "workspace_patch",
            json!({"path": "kept.txt", "oldText": "needle", "newText": new, "expectedSha256": revision}),
        ),
    ]
}

#[tokio::test]
async fn a_full_disk_under_the_project_refuses_changes_and_leaves_nothing_behind() {
    let world = World::new();
    let mut small = Small::start(&world).await;
    let old = format!("{}needle", "o".repeat(OLD));
    let kept = small
        .ask("workspace_write", write("kept.txt", &old, None))
        .await;
    let revision = text_of(&kept["structuredContent"], "sha256");
    small.fill();
    let new = "n".repeat(NEW);
    let changes = changes(&new, &revision);
    let mut refused = Vec::new();
    for (tool, args) in &changes {
        let result = small.ask(tool, args.clone()).await;
        assert_eq!(error_code(&result), "DISK_FULL", "{tool}");
        let error = &result["structuredContent"]["error"];
        assert_eq!(error["retryable"], true, "{error}");
        refused.push((small.calls, *tool, args, result));
    }
    // What is done elsewhere goes on: reading, and commands with their output.
    let read = small
        .ask("workspace_read", json!({"path": "kept.txt", "limit": 4}))
        .await;
    assert_eq!(read["structuredContent"]["content"], "oooo");
    assert_eq!(read["structuredContent"]["sha256"], revision.as_str());
    let ended = small
        .run("echo said; head -c 100000 /dev/zero > by-command || rm by-command")
        .await;
    assert_eq!(
        (&ended["status"], &ended["exitCode"]),
        (&json!("exited"), &json!(0))
    );
    assert!(text_of(&ended, "output").starts_with("said\n"), "{ended}");
    assert_eq!(small.names(), ["filler", "kept.txt"]);
    let whole = fs::read_to_string(small.project.join("kept.txt")).expect("readable");
    assert!(whole == old, "the old file is whole");

    fs::remove_file(small.filler()).expect("it was filled");
    // A refusal is an outcome: asked for again it is the same, and nothing is done late.
    for (number, tool, args, result) in refused {
        let again = call(&format!("call-{number}"), tool, args);
        assert_eq!(small.channel.ask(&again).await, result);
    }
    assert_eq!(small.names(), ["kept.txt"]);
    for (tool, args) in &changes[..3] {
        let result = small.ask(tool, args.clone()).await;
        // Two of them fit beside each other.
        fs::remove_file(small.project.join("new.txt")).ok();
        assert_eq!(error_code(&result), "", "{tool}: {result}");
    }
    let whole = fs::read_to_string(small.project.join("kept.txt")).expect("readable");
    assert!(whole == new, "the new file is whole");
    small.program.signal(Signal::TERM);
    assert_eq!(small.program.ended(LIMIT).await.code, Some(0));
}
