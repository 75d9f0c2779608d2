//! Faults that other tools had, tried through the whole way from the agent to the disk: texts and patches stay what
//! they are to the byte (B10, B12, B13, B14), modes are kept (B22), one key is one request (B50).

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
    sync::atomic::{AtomicBool, Ordering},
};

use postern_tests::{Agent, Answer, Door, World, text_of};
use postern_types::Sha256;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

async fn open(files: &[(&str, &[u8])]) -> (World, Door) {
    let world = World::new();
    for (path, content) in files {
        world.write(path, content);
    }
    let door = world.up("full").await;
    (world, door)
}

fn sha(content: &[u8]) -> String {
    Sha256::of(content).to_string()
}

async fn patch(agent: &Agent, world: &World, path: &str, texts: (&str, &str)) -> Answer {
    let before = world.read(path);
    let arguments = json!({
        "path": path, "oldText": texts.0, "newText": texts.1, "expectedSha256": sha(&before),
    });
    let answer = agent.call("workspace_patch", arguments).await;
    if !answer.is_error {
        let after = world.read(path);
        assert_eq!(
            answer.structured["sha256"],
            sha(&after),
            "the revision is the disk's"
        );
        assert_eq!(answer.structured["bytes"], after.len());
        assert_eq!(answer.structured["previousSha256"], sha(&before));
    }
    answer
}

/// B10: line endings are what they were, and a text with other ones does not match.
#[tokio::test]
async fn patch_keeps_crlf_and_matches_bytes() {
    let (world, door) = open(&[("f", b"a\r\nb\r\nc\r\n"), ("g", b"a\r\nb\r\nc\r\n")]).await;
    let agent = door.agent();
    let done = patch(&agent, &world, "f", ("b\r\n", "B\r\nB2\r\n"))
        .await
        .ok();
    assert_eq!((&done["offset"], &done["line"]), (&json!(3), &json!(2)));
    assert_eq!(world.read("f"), b"a\r\nB\r\nB2\r\nc\r\n");
    let error = patch(&agent, &world, "g", ("a\nb", "x"))
        .await
        .refused("NO_MATCH");
    assert!(
        !error["details"]["wouldMatch"].is_null(),
        "it says why: {error}"
    );
    assert_eq!(world.read("g"), b"a\r\nb\r\nc\r\n");
}

/// B12: bytes outside the match are untouched: no mark of byte order lost, no newline added.
#[tokio::test]
async fn patch_and_write_touch_nothing_else() {
    let files: &[(&str, &[u8])] = &[
        ("bom", b"\xEF\xBB\xBFx=1"),
        ("open-end", b"a\nb"),
        ("cr", b"a\r"),
        ("empty", b""),
    ];
    let (world, door) = open(files).await;
    let agent = door.agent();
    for (path, old, new, expected) in [
        ("bom", "x=1", "x=2", &b"\xEF\xBB\xBFx=2"[..]),
        ("open-end", "b", "c", b"a\nc"),
        ("cr", "a", "A", b"A\r"),
    ] {
        let _done = patch(&agent, &world, path, (old, new)).await.ok();
        assert_eq!(world.read(path), expected, "{path}");
    }
    let nothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    let write = json!({"path": "empty", "content": "", "expectedSha256": nothing});
    let written = agent.call("workspace_write", write).await.ok();
    assert_eq!(written["sha256"], nothing);
    assert_eq!(world.read("empty"), b"");
    let read = agent
        .call("workspace_read", json!({"path": "bom"}))
        .await
        .ok();
    assert_eq!(read["content"], "\u{feff}x=2");
    assert_eq!(
        (&read["bom"], &read["lineEnding"]),
        (&json!(true), &json!("none"))
    );
    let contents = [
        "no newline",
        "\u{feff}mark",
        "a\r\nb\nc\r",
        "\u{0}zero\u{1b}",
    ];
    for (number, content) in contents.into_iter().enumerate() {
        let path = format!("new-{number}");
        let write = json!({"path": path, "content": content, "expectedSha256": null});
        let written = agent.call("workspace_write", write).await.ok();
        assert_eq!(written["bytes"], content.len());
        assert_eq!(world.read(&path), content.as_bytes(), "stored as sent");
    }
}

/// B13: neither text is a pattern.
#[tokio::test]
async fn patch_takes_dollars_and_patterns_literally() {
    let new = r"$$1 $& $` $' $1 ${x} \1 \n %s {0}";
    let (world, door) = open(&[("f", b"price: PLACEHOLDER\n"), ("g", b"a.*b [a] axxb a\n")]).await;
    let agent = door.agent();
    let _done = patch(&agent, &world, "f", ("PLACEHOLDER", new)).await.ok();
    assert_eq!(world.read("f"), format!("price: {new}\n").into_bytes());
    let _done = patch(&agent, &world, "g", ("a.*b", "1")).await.ok();
    let _done = patch(&agent, &world, "g", ("[a]", "2")).await.ok();
    assert_eq!(world.read("g"), b"1 2 axxb a\n");
}

/// B14: the old text occurs exactly once, overlaps counted, or nothing is changed.
#[tokio::test]
async fn patch_refuses_what_is_ambiguous_missing_or_empty() {
    let files: &[(&str, &[u8])] = &[
        ("twice", b"active: true,\nx\nactive: true,\n"),
        ("overlap", b"aaaa"),
        ("empty", b""),
        ("plain", b"abcd"),
    ];
    let (world, door) = open(files).await;
    let agent = door.agent();
    let modified = |path: &str| {
        let meta = fs::metadata(world.project().join(path)).expect("it is there");
        (meta.modified().expect("a time"), meta.len())
    };
    let before: Vec<_> = files.iter().map(|(path, _)| modified(path)).collect();
    let two = patch(&agent, &world, "twice", ("active: true,", "x")).await;
    let error = two.refused("AMBIGUOUS_MATCH");
    assert_eq!(error["details"]["count"], 2);
    let overlap = patch(&agent, &world, "overlap", ("aa", "b")).await;
    assert_eq!(overlap.refused("AMBIGUOUS_MATCH")["details"]["count"], 3);
    for (path, texts, code) in [
        ("twice", ("missing", "x"), "NO_MATCH"),
        ("plain", ("", "x"), "INVALID_ARGUMENTS"),
        ("empty", ("", "x"), "INVALID_ARGUMENTS"),
        ("plain", ("b", "b"), "INVALID_ARGUMENTS"),
    ] {
        let answer = patch(&agent, &world, path, texts).await;
        assert_eq!(answer.code(), code, "{path} {texts:?}");
    }
    for ((path, content), was) in files.iter().zip(before) {
        assert_eq!(&world.read(path), content, "{path}");
        assert_eq!(modified(path), was, "{path}");
    }
}

/// B22: an executable stays one, a private file is readable by others at no moment.
#[tokio::test(flavor = "multi_thread")]
async fn changes_keep_mode_bits() {
    let (world, door) = open(&[("s.sh", b"echo 1\n"), ("key", b"secret"), ("ro", b"fixed")]).await;
    let agent = door.agent();
    let mode = |path: &str| {
        let meta = fs::metadata(world.project().join(path));
        meta.map(|meta| meta.permissions().mode() & 0o7777)
    };
    for (path, bits) in [("s.sh", 0o755), ("key", 0o600), ("ro", 0o444)] {
        fs::set_permissions(world.project().join(path), Permissions::from_mode(bits)).expect("set");
    }
    let done = AtomicBool::new(false);
    let key = world.project().join("key");
    std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut widest = 0;
            while !done.load(Ordering::Relaxed) {
                widest |= fs::metadata(&key).map_or(0, |meta| meta.permissions().mode() & 0o077);
            }
            widest
        });
        tokio::task::block_in_place(|| {
            tokio::runtime::Handle::current().block_on(async {
                rewrite_the_key(&agent, 50).await;
            });
        });
        done.store(true, Ordering::Relaxed);
        assert_eq!(
            watch.join().expect("the watch ends"),
            0,
            "at no moment open to others"
        );
    });
    let _done = patch(&agent, &world, "s.sh", ("1", "2")).await.ok();
    let _either = patch(&agent, &world, "ro", ("fixed", "changed")).await;
    let write = json!({"path": "new.txt", "content": "x", "expectedSha256": null});
    let _done = agent.call("workspace_write", write).await.ok();
    let umask = agent.run("umask").await.output;
    let umask = u32::from_str_radix(umask.trim(), 8).expect("octal");
    let modes = ["s.sh", "key", "ro", "new.txt"].map(|path| mode(path).expect("it is there"));
    assert_eq!(modes, [0o755, 0o600, 0o444, 0o666 & !umask]);
    assert_eq!(agent.run("./s.sh").await.output, "2\n");
}

async fn rewrite_the_key(agent: &Agent, times: usize) {
    let mut before = sha(b"secret");
    for round in 0..times {
        let write = json!({
            "path": "key", "content": format!("secret {round}"), "expectedSha256": before,
        });
        before = text_of(&agent.call("workspace_write", write).await.ok(), "sha256");
    }
}

/// B50: a key belongs to one request; the same arguments written in another way are the same request.
#[tokio::test]
async fn call_id_with_other_arguments_is_refused() {
    let (world, door) = open(&[]).await;
    let agent = door.agent();
    let call = async |tool: &str, arguments: &str| {
        let answer = agent.try_call(Some("key-1"), tool, arguments).await;
        answer.unwrap_or_else(|fault| panic!("{fault:?}"))
    };
    let first = call(
        "workspace_exec",
        r#"{"command":"echo 1 >> log","timeoutMs":5000}"#,
    )
    .await;
    let command = text_of(&first.clone().ok(), "commandId");
    agent.follow(&command).await;
    for (tool, arguments) in [
        (
            "workspace_exec",
            r#"{"command":"echo 2 >> log","timeoutMs":5000}"#,
        ),
        ("workspace_exec", r#"{"command":"echo 1 >> log"}"#),
        (
            "workspace_write",
            r#"{"path":"log","content":"x","expectedSha256":null}"#,
        ),
    ] {
        let answer = call(tool, arguments).await;
        assert_eq!(answer.code(), "ID_REUSED", "{tool} {arguments}");
    }
    let spaced = " { \"timeoutMs\" : 5000 ,\n \"command\" : \"echo 1 >> log\" } ";
    let same = call("workspace_exec", spaced).await;
    assert_eq!(
        (same.structured, same.content),
        (first.structured, first.content)
    );
    assert_eq!(world.read("log"), b"1\n");
    let receipts = door.owner().receipts_of("key-1").await;
    let states: Vec<&Value> = receipts.iter().map(|receipt| &receipt["state"]).collect();
    assert_eq!(states, ["completed"]);
}

/// B51: equal requests at once act once, and all get the one answer.
#[tokio::test]
async fn equal_requests_at_once_act_once() {
    let (world, door) = open(&[]).await;
    let arguments = json!({"command": "echo x >> log"});
    let agents: Vec<Agent> = (0..24).map(|_| door.agent()).collect();
    let calls = agents
        .iter()
        .map(|agent| agent.call_as("one-key", "workspace_exec", &arguments));
    let answers = futures_util::future::join_all(calls).await;
    let first = answers[0].clone().ok();
    agents[0].follow(&text_of(&first, "commandId")).await;
    for answer in answers {
        assert_eq!(answer.structured, first);
    }
    assert_eq!(world.read("log"), b"x\n");
}
