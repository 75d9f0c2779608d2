//! The owner takes back what was done, from the terminal.
#![expect(clippy::expect_used, reason = "tests fail by panicking")]

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use postern_tests::{Agent, Door, Ended, World, text_of};
use pretty_assertions::assert_eq;
use rustix::process::Signal;
use serde_json::{Value, json};

/// Exit code of something that failed or was refused.
const FAILED: [Option<i32>; 2] = [Some(1), Some(3)];

async fn write(agent: &Agent, path: &str, content: &str, expected: Option<&str>) -> String {
    let arguments = json!({"path": path, "content": content, "expectedSha256": expected});
    text_of(
        &agent.call("workspace_write", arguments).await.ok(),
        "sha256",
    )
}

async fn delete(agent: &Agent, path: &str, expected: &str) {
    let arguments = json!({"path": path, "expectedSha256": expected});
    let _deleted = agent.call("workspace_delete", arguments).await.ok();
}

async fn postern(world: &World, words: &[&str]) -> Ended {
    let mut arguments: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    arguments.extend(["--data-dir".to_owned(), world.data().display().to_string()]);
    world.run(&arguments).await
}

async fn done(world: &World, words: &[&str]) -> String {
    let ended = postern(world, words).await;
    assert_eq!(ended.code, Some(0), "{words:?} {ended:?}");
    ended.stdout
}

/// Every file of a project with its content and permission bits, and every directory.
fn tree(root: &Path) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
    let mut all = BTreeMap::new();
    let mut left = vec![root.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(&directory).expect("a directory") {
            let path = entry.expect("an entry").path();
            let facts = fs::symlink_metadata(&path).expect("facts");
            let content = match facts.is_dir() {
                true => Vec::new(),
                false => fs::read(&path).expect("a file"),
            };
            let below = path.strip_prefix(root).expect("below").to_owned();
            all.insert(below, (facts.permissions().mode(), content));
            if facts.is_dir() {
                left.push(path);
            }
        }
    }
    all
}

async fn newest_receipt(door: &Door, tool: &str) -> String {
    let receipts = door.owner().receipts().await;
    let found = receipts.iter().find(|receipt| receipt["tool"] == tool);
    text_of(found.expect("a receipt"), "id")
}

async fn session_of(door: &Door) -> String {
    text_of(&door.owner().receipts().await[0], "sessionId")
}

#[tokio::test]
async fn a_change_is_taken_back_and_done_again_also_behind_a_closed_door() {
    let world = World::new();
    let door = world.up("full").await;
    let start = tree(&world.project());
    write(&door.agent(), "new/deep/a.txt", "one\n", None).await;
    let changed = tree(&world.project());
    let receipt = newest_receipt(&door, "workspace_write").await;
    done(&world, &["mode", "read-only"]).await;
    let reply = door
        .owner()
        .send(
            http::Method::POST,
            "/owner/v1/channel",
            Some(&json!({"open": false})),
        )
        .await;
    assert_eq!(reply.status, 200);
    let text = done(&world, &["receipts", "undo", &receipt]).await;
    assert!(text.contains("removed   new/deep/a.txt"), "{text}");
    assert_eq!(tree(&world.project()), start);
    // The undo is a receipt like any other, and can be taken back in its turn.
    let undo = newest_receipt(&door, "owner_undo").await;
    let told = done(&world, &["receipts", "undo", &undo, "--json"]).await;
    let told: Value = serde_json::from_str(&told).expect("one object");
    assert_eq!(told["undoes"], json!([undo]));
    assert_eq!(tree(&world.project()), changed);
    let valid = done(&world, &["receipts", "verify"]).await;
    assert!(valid.contains("every link holds"), "{valid}");
}

/// A copy of the project over which git has applied a patch backwards.
fn applied_backwards(world: &World, patch: &str) -> PathBuf {
    let copy = world.outside().join("copy");
    let copied = Command::new("cp")
        .arg("-a")
        .args([world.project(), copy.clone()])
        .status();
    assert!(copied.expect("cp").success());
    let file = world.outside().join("session.patch");
    fs::write(&file, patch).expect("written");
    let applied = Command::new("git")
        .args(["apply", "-R"])
        .arg(&file)
        .current_dir(&copy)
        .env("GIT_CEILING_DIRECTORIES", world.outside())
        .output()
        .expect("git");
    assert!(applied.status.success(), "{applied:?}");
    copy
}

#[tokio::test]
async fn a_sessions_diff_is_a_patch_and_its_undo_leaves_the_start() {
    let world = World::new();
    let project = world.project();
    world.write("run.sh", "#!/bin/sh\necho old\n");
    let mode = fs::Permissions::from_mode(0o755);
    fs::set_permissions(project.join("run.sh"), mode).expect("mode");
    world.write("picture.bin", b"\x00\xff\x00binary".as_slice());
    let door = world.up("full").await;
    let agent = door.agent();
    let start = tree(&project);
    let read = agent
        .call("workspace_read", json!({"path": "run.sh"}))
        .await
        .ok();
    let script = text_of(&read, "sha256");
    let script = write(&agent, "run.sh", "#!/bin/sh\necho new\n", Some(&script)).await;
    write(
        &agent,
        "run.sh",
        "#!/bin/sh\necho new\nexit 1",
        Some(&script),
    )
    .await;
    write(&agent, "a b/ü.txt", "\r\nx\r\n", None).await;
    let gone = "da0ef2fd51b8d5213525befcb9b043ede99f128ce8315ce6247ec8feeb191c69";
    delete(&agent, "picture.bin", gone).await;
    let session = session_of(&door).await;
    let listed = done(&world, &["session", "list", "--json"]).await;
    let listed: Value = serde_json::from_str(listed.trim()).expect("one session");
    assert_eq!(
        (text_of(&listed, "id"), &listed["changes"]),
        (session.clone(), &json!(4))
    );

    // Backwards over a copy the patch leaves the start.
    let patch = done(&world, &["session", "diff", &session]).await;
    let copy = applied_backwards(&world, &patch);
    let contents = |root: &Path| -> BTreeMap<PathBuf, Vec<u8>> {
        let files = tree(root)
            .into_iter()
            .filter(|(path, _)| root.join(path).is_file());
        files.map(|(path, (_, content))| (path, content)).collect()
    };
    let start_contents = contents(&copy);

    let text = done(&world, &["session", "undo", &session]).await;
    assert!(text.contains("put back  run.sh"), "{text}");
    assert_eq!(tree(&project), start);
    assert_eq!(contents(&project), start_contents);
    let empty = done(&world, &["session", "diff", &session]).await;
    assert_eq!(empty, "");
}

#[tokio::test]
async fn what_cannot_be_taken_back_is_said_in_one_line_and_nothing_is_changed() {
    let world = World::new();
    let door = world.up("full").await;
    let agent = door.agent();
    write(&agent, "a.txt", "one", None).await;
    write(&agent, "b.txt", "one", None).await;
    let _ran = agent.run("true").await;
    let session = session_of(&door).await;
    let change = newest_receipt(&door, "workspace_write").await;
    let command = newest_receipt(&door, "workspace_exec").await;
    fs::write(world.project().join("b.txt"), "the owner's").expect("written");
    let before = tree(&world.project());
    let unknown = uuid::Uuid::now_v7().to_string();
    for (words, told) in [
        (["receipts", "undo", change.as_str()], "b.txt"),
        (["receipts", "undo", command.as_str()], "command"),
        (["receipts", "undo", unknown.as_str()], "no such receipt"),
        (["receipts", "undo", "x/../y"], "no such receipt"),
        (["session", "undo", session.as_str()], "b.txt"),
        (["session", "undo", "none"], "no such session"),
        (["session", "undo", ""], "no such session"),
        (["session", "diff", ""], "no such session"),
        (["session", "diff", "none"], "no such session"),
    ] {
        let ended = postern(&world, &words).await;
        assert!(FAILED.contains(&ended.code), "{words:?} {ended:?}");
        assert_eq!(ended.stderr.trim().lines().count(), 1, "{ended:?}");
        let said = ended.stderr.to_lowercase();
        assert!(said.contains(told), "{words:?} {ended:?}");
    }
    assert_eq!(tree(&world.project()), before);
}

/// Earlier states have a bound that the owner sets: the oldest go first, what is larger than all of it is not kept, and an undo
/// that needs what is gone changes nothing.
#[tokio::test]
async fn what_is_kept_for_undo_is_bounded_as_the_owner_says() {
    // Each takes a block of the disk at least. Hexadecimal digits take half of their length when they are compressed.
    let noise = |length: usize| -> String {
        let words = (0..length / 32).map(|_| uuid::Uuid::new_v4().simple().to_string());
        words.collect()
    };
    let world = World::new();
    let door = world.up_with("full", &["--keep-before", "8192"]).await;
    let agent = door.agent();
    let mut receipts = Vec::new();
    for (path, length) in [
        ("large", 64_000),
        ("old", 1280),
        ("newer", 1280),
        ("new", 1280),
    ] {
        let first = noise(length);
        world.write(path, &first);
        let read = agent.call("workspace_read", json!({"path": path})).await;
        let revision = text_of(&read.ok(), "sha256");
        write(&agent, path, "changed", Some(&revision)).await;
        receipts.push((path, newest_receipt(&door, "workspace_write").await, first));
    }
    let session = session_of(&door).await;
    let changed = tree(&world.project());
    let mut refused: Vec<Vec<&str>> = vec![vec!["session", "undo", &session]];
    for (_, receipt, _) in &receipts[..2] {
        refused.push(vec!["receipts", "undo", receipt]);
    }
    for words in refused {
        let ended = postern(&world, &words).await;
        assert!(FAILED.contains(&ended.code), "{words:?} {ended:?}");
        assert!(ended.stderr.contains("kept"), "{words:?} {ended:?}");
        assert_eq!(tree(&world.project()), changed, "{words:?}");
    }
    let (path, receipt, first) = &receipts[3];
    done(&world, &["receipts", "undo", receipt]).await;
    assert_eq!(world.read(path), first.as_bytes());
    let kept: u64 = fs::read_dir(world.data().join("before"))
        .expect("a store")
        .map(|entry| entry.expect("an entry").metadata().expect("facts"))
        .filter(fs::Metadata::is_file)
        .map(|facts| facts.len())
        .sum();
    assert!(kept <= 8192, "{kept} bytes are kept");
}

/// Where a file of the many is, and what it is before: every second one is made by the agent, half of these in directories of their own.
fn one_of_many(file: usize) -> (String, Option<String>) {
    let path = match file % 4 {
        3 => format!("made{}/deep/f{file}", file % 50),
        _ => format!("d{}/f{file}", file % 7),
    };
    (
        path,
        file.is_multiple_of(2).then(|| format!("old {file}\n")),
    )
}

/// Changes, makes and deletes many files, and answers whether one of them is as it was again.
async fn many_changes(world: &World, agent: &Agent, count: usize) -> impl Fn() -> bool + use<> {
    for file in 0..count {
        let (path, old) = one_of_many(file);
        let expected = match old {
            Some(_) => {
                let arguments = json!({"path": path});
                let read = agent.call("workspace_read", arguments).await.ok();
                Some(text_of(&read, "sha256"))
            }
            None => None,
        };
        match (file % 4, &expected) {
            (2, Some(expected)) => delete(agent, &path, expected).await,
            _ => {
                write(agent, &path, &format!("new {file}"), expected.as_deref()).await;
            }
        }
    }
    let project = world.project();
    move || {
        let there = |file| project.join(one_of_many(file).0).exists();
        (0..count).any(|file| file % 4 != 0 && there(file) == (file % 4 == 2))
    }
}

/// The project around an undo into which the program was killed.
struct Halfway {
    session: String,
    /// Before the session.
    start: BTreeMap<PathBuf, (u32, Vec<u8>)>,
    /// After it.
    changed: BTreeMap<PathBuf, (u32, Vec<u8>)>,
    /// When the program was dead.
    now: BTreeMap<PathBuf, (u32, Vec<u8>)>,
}

/// A session of many changes, and a kill in the middle of its undo.
async fn killed_in_the_middle_of_an_undo(world: &World) -> Halfway {
    const FILES: usize = 200;
    for number in 0..7 {
        fs::create_dir(world.project().join(format!("d{number}"))).expect("a directory");
    }
    for file in 0..FILES {
        let (path, Some(old)) = one_of_many(file) else {
            continue;
        };
        world.write(&path, old);
        let bits = 0o600 + u32::try_from(file).expect("small") / 2 % 0o100;
        let mode = fs::Permissions::from_mode(bits);
        fs::set_permissions(world.project().join(&path), mode).expect("mode");
    }
    let start = tree(&world.project());
    let mut door = world.up("full").await;
    let has_begun = many_changes(world, &door.agent(), FILES).await;
    let changed = tree(&world.project());
    let session = session_of(&door).await;
    let (owner, pid) = (door.owner(), door.program.pid());
    let path = format!("/owner/v1/sessions/{session}/undo");
    let nothing = json!({});
    let asking = owner.try_send(http::Method::POST, &path, Some(&nothing));
    let killing = async {
        while !has_begun() {
            tokio::task::yield_now().await;
        }
        postern_tests::process::signal(pid, Signal::KILL);
    };
    let (answer, ()) = tokio::join!(asking, killing);
    door.program.kill().await;
    assert!(answer.is_err(), "the undo ended before the kill");
    let now = tree(&world.project());
    assert!(now != start && now != changed, "killed in the middle");
    Halfway {
        session,
        start,
        changed,
        now,
    }
}

/// A changed file that the undo had put back when it was killed.
fn one_undone(halfway: &Halfway) -> Option<PathBuf> {
    let mut changed = halfway.changed.iter();
    let found = changed.find(|(path, file)| {
        let now = halfway.now.get(*path);
        file.1.starts_with(b"new") && now.is_some_and(|now| now.1.starts_with(b"old"))
    });
    found.map(|(path, _)| path.clone())
}

/// A changed or new file that it had not come to.
fn one_not_undone(halfway: &Halfway) -> Option<PathBuf> {
    let changed = halfway.changed.iter().rev();
    let mut left = changed.filter(|(path, file)| halfway.now.get(*path) == Some(*file));
    let found = left.find(|(_, file)| file.1.starts_with(b"new"));
    found.map(|(path, _)| path.clone())
}

/// The receipt of the undo, once the next start is done with it.
async fn ended_undo(door: &Door) -> Value {
    let limit = std::time::Duration::from_secs(30);
    let ended = async || {
        let receipts = door.owner().receipts().await;
        let undo = receipts.iter().find(|it| it["tool"] == "owner_undo")?;
        (undo["state"] != "executing").then(|| undo.clone())
    };
    postern_tests::wait_for("the undo to end", limit, ended).await
}

/// All or nothing, also through a kill in the middle: an undo that began goes on at the next start by itself.
#[tokio::test]
async fn an_undo_of_many_changes_survives_a_kill() {
    let world = World::new();
    let halfway = killed_in_the_middle_of_an_undo(&world).await;
    let door = world.up("full").await;
    assert_eq!(ended_undo(&door).await["state"], "completed");
    assert_eq!(tree(&world.project()), halfway.start);
    let undo = ["session", "undo", halfway.session.as_str()];
    let again = postern(&world, &undo).await;
    assert!(FAILED.contains(&again.code), "{again:?}");
    assert_eq!(tree(&world.project()), halfway.start);
}

/// What the owner changes between the kill and the next start stays his, and everything else is as before the undo.
#[tokio::test]
async fn a_killed_undo_that_the_owner_hinders_is_put_back_and_leaves_nothing_torn() {
    /// A kill comes at a moment of its own; one that leaves no file of either kind is tried again.
    const TRIES: usize = 10;
    let mut found = None;
    for _ in 0..TRIES {
        let world = World::new();
        let halfway = killed_in_the_middle_of_an_undo(&world).await;
        let his = one_undone(&halfway).zip(one_not_undone(&halfway));
        if let Some((undone, not_undone)) = his {
            found = Some((world, halfway, [undone, not_undone]));
            break;
        }
    }
    let (world, halfway, his) = found.expect("a kill in the middle");
    let his = [&his[0], &his[1]];
    for path in his {
        fs::write(world.project().join(path), "his\n").expect("written");
    }
    let door = world.up("full").await;
    let undo = ended_undo(&door).await;
    assert_eq!(
        (&undo["state"], &undo["outcome"]),
        (&json!("completed"), &json!("STALE_REVISION"))
    );
    let (mut now, mut expected) = (tree(&world.project()), halfway.changed.clone());
    for path in his {
        let found = now.remove(path).expect("his file");
        assert_eq!(found.1, b"his\n");
        expected.remove(path);
    }
    assert_eq!(now, expected);
    let receipt = format!("/owner/v1/receipts/{}", text_of(&undo, "id"));
    let told = door.owner().get(&receipt).await.to_string();
    for path in his {
        assert!(told.contains(&path.display().to_string()), "{told}");
    }
}

#[tokio::test]
async fn a_patch_steers_no_terminal_is_whole_for_a_program_and_names_what_it_lacks() {
    let world = World::new();
    let large = vec![0; 17 << 20];
    world.write("large.bin", large.as_slice());
    let door = world.up("full").await;
    let agent = door.agent();
    let hostile = "\u{1b}]0;owned\u{7}\u{1b}[2J\n";
    write(&agent, "hostile.txt", hostile, None).await;
    let session = session_of(&door).await;
    let diff = ["session", "diff", session.as_str()];
    let piped = postern(&world, &diff).await;
    assert_eq!(piped.code, Some(0), "{piped:?}");
    assert!(piped.stdout.contains(hostile), "as git apply takes it");
    let mut arguments: Vec<_> = diff.iter().map(std::ffi::OsString::from).collect();
    arguments.extend(["--data-dir".into(), world.data().into_os_string()]);
    let terminal = world.in_terminal(&arguments);
    terminal.shows("+\\u{1b}]0;owned\\u{7}\\u{1b}[2J").await;
    let bytes = terminal.written();
    assert_eq!(memchr::memmem::find(&bytes, b"\x1b]0;owned"), None);

    let sha256 = postern_types::Sha256::of(&large).to_string();
    delete(&agent, "large.bin", &sha256).await;
    let lacking = postern(&world, &diff).await;
    assert_eq!(lacking.code, Some(1), "{lacking:?}");
    assert!(lacking.stdout.contains("+++ b/hostile.txt"), "{lacking:?}");
    assert!(
        lacking.stderr.contains("lacks large.bin: it is too large"),
        "{lacking:?}"
    );
    let parts = done(&world, &["session", "diff", &session, "--json"]).await;
    let parts: Value = serde_json::from_str(&parts).expect("one object");
    assert_eq!(parts["files"].as_array().expect("files").len(), 2);
    assert!(parts["notes"].to_string().contains("large.bin"), "{parts}");
}
