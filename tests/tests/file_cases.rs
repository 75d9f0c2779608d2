//! Faults that other tools had with files, tried through the whole way: entries that spoil a listing (B08), pipes that are
//! opened (B09), edits that meet each other (B17), sizes that some hop does not take (B71).
#![expect(clippy::expect_used, reason = "tests fail by panicking")]

use std::{
    collections::BTreeSet,
    fs::{self, File},
    os::unix::ffi::OsStrExt as _,
    time::Duration,
};

use postern_tests::{Agent, Answer, World};
use postern_types::Sha256;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::timeout};

/// Characters that a written file has at most.
const WRITE_CHARACTERS: usize = 1_048_576;
/// Bytes of a page.
const PAGE_BYTES: usize = 131_072;

fn sha(content: impl AsRef<[u8]>) -> String {
    Sha256::of(content.as_ref()).to_string()
}

async fn list(agent: &Agent, path: &str, offset: u64) -> Value {
    let arguments = json!({"path": path, "offset": offset});
    agent.call("workspace_list", arguments).await.ok()
}

/// All names of a directory, page by page.
async fn all_names(agent: &Agent, path: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut next = Some(0);
    while let Some(offset) = next {
        let page = list(agent, path, offset).await;
        let entries = page["entries"].as_array().expect("entries");
        assert!(!entries.is_empty() && entries.len() <= 500);
        names.extend(entries.iter().map(|entry| {
            let name = entry["name"].as_str().expect("name");
            name.to_owned()
        }));
        next = page["nextOffset"].as_u64();
    }
    names
}

/// B08: what cannot be read, said or followed is listed like the rest, once.
#[tokio::test]
async fn one_odd_entry_does_not_spoil_a_listing() {
    let world = World::new();
    let odd = world.project().join("odd");
    fs::create_dir_all(odd.join("sub")).expect("directories");
    for (name, content) in [
        ("good.txt", "good"),
        ("\u{e9}.txt", "composed"),
        ("e\u{301}.txt", "decomposed"),
        ("a\nb.txt", "newline"),
        ("-rf", "dash"),
    ] {
        fs::write(odd.join(name), content).expect("file");
    }
    File::create(odd.join(std::ffi::OsStr::from_bytes(b"\xFF\xFE"))).expect("file");
    for (name, text) in [("dangling", "nowhere"), ("self", "."), ("sub/loop", "..")] {
        std::os::unix::fs::symlink(text, odd.join(name)).expect("link");
    }
    let locked = odd.join("locked");
    fs::create_dir(&locked).expect("directory");
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&locked, Some(12_345), Some(12_345)).expect("owner");
    }
    let door = world.up("full").await;
    let agent = door.agent();
    let listed = timeout(Duration::from_secs(2), list(&agent, "odd", 0)).await;
    let listed = listed.expect("within two seconds");
    assert_eq!(
        (&listed["total"], &listed["nextOffset"]),
        (&json!(10), &Value::Null)
    );
    let entries = listed["entries"].as_array().expect("entries");
    let kinds: Vec<_> = entries
        .iter()
        .map(|entry| (&entry["name"], &entry["type"]))
        .collect();
    assert_eq!(
        json!(kinds),
        json!([
            ["-rf", "file"],
            ["a\nb.txt", "file"],
            ["dangling", "symlink"],
            ["e\u{301}.txt", "file"],
            ["good.txt", "file"],
            ["locked", "directory"],
            ["self", "symlink"],
            ["sub", "directory"],
            ["\u{e9}.txt", "file"],
            ["\u{fffd}\u{fffd}", "file"],
        ])
    );
    assert_eq!(entries[9]["nameBytes"], "fffe");
    assert_eq!(entries[0].get("nameBytes"), None);
    for entry in &entries[..9] {
        if entry["type"] != "file" {
            continue;
        }
        let read = agent.call("workspace_read", json!({"path": entry["path"]}));
        let content = fs::read_to_string(odd.join(entry["name"].as_str().expect("name")));
        assert_eq!(read.await.ok()["content"], content.expect("content"));
    }
}

/// B09: a pipe, a socket and a device hold nobody up.
#[tokio::test]
async fn what_is_no_file_is_refused_at_once() {
    let world = World::new();
    let project = world.project();
    let mode = rustix::fs::Mode::RWXU;
    let fifo = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, project.join("p"), fifo, mode, 0).expect("pipe");
    let _socket = std::os::unix::net::UnixListener::bind(project.join("s")).expect("socket");
    std::os::unix::fs::symlink("/dev/zero", project.join("z")).expect("link");
    let door = world.up("full").await;
    let agent = door.agent();
    let revision = sha("");
    for (path, code) in [
        ("p", "NOT_A_FILE"),
        ("s", "NOT_A_FILE"),
        ("z", "PATH_ESCAPES_PROJECT"),
    ] {
        for (tool, arguments) in [
            ("workspace_read", json!({"path": path})),
            (
                "workspace_write",
                json!({"path": path, "content": "x", "expectedSha256": revision}),
            ),
            (
                "workspace_patch",
                json!({"path": path, "oldText": "a", "newText": "b", "expectedSha256": revision}),
            ),
        ] {
            let answer = timeout(Duration::from_secs(1), agent.call(tool, arguments));
            let answer = answer.await.expect("within a second");
            let _refused = answer.refused(code);
        }
    }
    let read = agent.call("workspace_read", json!({"path": "greeting.txt"}));
    assert_eq!(read.await.ok()["content"], "hello\n");
}

fn patch_line(line: usize, revision: &str) -> Value {
    json!({
        "path": "lines", "oldText": format!("<{line}>"), "newText": format!("<{line}, edited>"),
        "expectedSha256": revision,
    })
}

/// B17: of edits that meet, those that are told to be done are in the file, and of those with one revision one is done.
#[tokio::test]
async fn edits_of_one_file_from_two_conversations_lose_nothing() {
    let world = World::new();
    let mut lines: String = (1..=100).map(|line| format!("<{line}>\n")).collect();
    world.write("lines", &lines);
    let door = world.up("full").await;
    let agent = |line: usize| {
        let conversation = if line.is_multiple_of(2) {
            "one"
        } else {
            "other"
        };
        door.agent().in_conversation(conversation)
    };

    let revision = sha(&lines);
    let mut edits = JoinSet::new();
    for line in 1..=20 {
        let (agent, arguments) = (agent(line), patch_line(line, &revision));
        edits.spawn(async move { (line, agent.call("workspace_patch", arguments).await) });
    }
    let mut won = Vec::new();
    for (line, answer) in edits.join_all().await {
        if answer.is_error {
            let _refused = answer.refused("STALE_REVISION");
        } else {
            won.push(line);
        }
    }
    assert_eq!(won.len(), 1, "one wins");
    lines = lines.replace(&format!("<{}>", won[0]), &format!("<{}, edited>", won[0]));
    assert_eq!(world.read("lines"), lines.as_bytes());

    let mut edits = JoinSet::new();
    for line in 41..=60 {
        let (agent, revision) = (agent(line), sha(&lines));
        edits.spawn(edit_until_done(agent, line, revision));
    }
    edits.join_all().await;
    for line in 41..=60 {
        lines = lines.replace(&format!("<{line}>"), &format!("<{line}, edited>"));
    }
    assert_eq!(world.read("lines"), lines.as_bytes());
}

async fn edit_until_done(agent: Agent, line: usize, mut revision: String) {
    loop {
        let answer = agent
            .call("workspace_patch", patch_line(line, &revision))
            .await;
        if !answer.is_error {
            return;
        }
        let error = answer.refused("STALE_REVISION");
        let current = error["details"]["currentSha256"].as_str();
        current.expect("a revision").clone_into(&mut revision);
    }
}

async fn write(agent: &Agent, path: &str, content: &str) -> Answer {
    let arguments = json!({"path": path, "content": content, "expectedSha256": null});
    agent.call("workspace_write", arguments).await
}

/// B71: what may be written is written, and what is larger is refused by name before anything happens.
#[tokio::test]
async fn writes_up_to_the_limits_pass_every_hop() {
    let world = World::new();
    let door = world.up("full").await;
    let agent = door.agent();
    // Sizes of other ones' messages, a frame's, and the longest content, in characters of one byte and of four.
    let wide = |bytes: usize| format!("{}{}", "🙂".repeat(bytes / 4), &"漢"[..bytes % 4 / 3 * 3]);
    for (name, content) in [
        ("narrow", "x".repeat(WRITE_CHARACTERS)),
        ("wide", wide(2_096_000)),
    ] {
        let written = write(&agent, name, &content).await.ok();
        assert_eq!(written["sha256"], sha(&content), "{name}");
        assert_eq!(world.read(name), content.as_bytes(), "{name}");
    }
    for (bytes, code) in [
        (2_097_152, "TOO_LARGE"),
        (4_194_303, "TOO_LARGE"),
        (4_194_304, "TOO_LARGE"),
        (4_194_308, "INVALID_ARGUMENTS"),
        (5 * 1024 * 1024, "INVALID_ARGUMENTS"),
    ] {
        let content = wide(bytes);
        assert_eq!(content.len(), bytes);
        let answer = write(&agent, "refused", &content).await;
        // A frame that is too large never comes to the check of its arguments.
        assert!(
            [code, "TOO_LARGE"].contains(&answer.code()),
            "{bytes}: {}",
            answer.structured
        );
        assert!(!world.project().join("refused").exists());
    }
    let answer = write(&agent, "refused", &"x".repeat(WRITE_CHARACTERS + 1)).await;
    let error = answer.refused("INVALID_ARGUMENTS");
    assert_eq!(
        (&error["details"]["pointer"], &error["details"]["rule"]),
        (&json!("/content"), &json!("maxLength"))
    );
    assert!(!world.project().join("refused").exists());
    let read = agent.call("workspace_read", json!({"path": "greeting.txt"}));
    assert_eq!(read.await.ok()["content"], "hello\n", "the channel is up");
}

/// B71: the largest pages pass every hop, also when each of their bytes takes the most room in JSON.
#[tokio::test]
async fn the_largest_pages_pass_every_hop() {
    let world = World::new();
    let content = "\u{1}".repeat(PAGE_BYTES);
    world.write("controls", &content);
    let many = world.project().join("many");
    fs::create_dir(&many).expect("directory");
    // The longest names, of characters that JSON writes in six bytes, once in the text and once in the structure.
    let expected: BTreeSet<String> = (0..700)
        .map(|number| format!("{number:03}{}", "\u{1}".repeat(252)))
        .collect();
    for name in &expected {
        File::create(many.join(name)).expect("file");
    }
    let door = world.up("full").await;
    let agent = door.agent();
    let read = agent.call("workspace_read", json!({"path": "controls"}));
    let read = read.await.ok();
    assert_eq!(read["content"], content);
    let too_many = json!({"path": "controls", "limit": PAGE_BYTES + 1});
    let error = agent.call("workspace_read", too_many).await;
    let error = error.refused("INVALID_ARGUMENTS");
    assert_eq!(error["details"]["pointer"], "/limit");
    let command = format!("head -c {PAGE_BYTES} controls; head -c {PAGE_BYTES} controls");
    let ran = agent.run(&command).await;
    assert_eq!(ran.output, content.repeat(2));
    let names = all_names(&agent, "many").await;
    assert_eq!(names.len(), expected.len(), "each once");
    assert_eq!(names.into_iter().collect::<BTreeSet<_>>(), expected);
}

/// B71: a large directory comes in pages that join.
#[tokio::test]
async fn twenty_thousand_entries_are_paged() {
    let world = World::new();
    let many = world.project().join("many");
    fs::create_dir(&many).expect("directory");
    let name = |number: usize| format!("{number:05}");
    world.write("many/00000", "");
    for number in 1..20_000 {
        fs::hard_link(many.join(name(0)), many.join(name(number))).expect("link");
    }
    let door = world.up("full").await;
    let names = all_names(&door.agent(), "many").await;
    assert_eq!(names, (0..20_000).map(name).collect::<Vec<_>>());
}
