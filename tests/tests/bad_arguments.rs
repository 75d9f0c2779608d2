//! Bad arguments of every tool are refused by name before anything happens (B49), and no path leads out of the
//! project (B01, B02): neither upwards, nor absolutely, nor to a sibling of the same name, nor through a link.
#![expect(clippy::expect_used, reason = "tests fail by panicking")]

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, symlink},
    path::{Path, PathBuf},
};

use postern_proto::catalogue::{Tool, workspace_tools};
use postern_tests::{Agent, Answer, Fault, World};
use postern_types::Sha256;
use pretty_assertions::assert_eq;
use serde_json::{Map, Value, json};

/// What lies outside and may come back in no answer, log or receipt.
const SECRET: &str = "MARK-of-the-neighbour-7f3a";

/// Arguments that meet a tool's schema: the least that it takes.
fn valid(tool: &Tool) -> Map<String, Value> {
    let properties = tool.input_schema["properties"]
        .as_object()
        .expect("properties");
    let required = tool.input_schema["required"].as_array().expect("required");
    let names = required.iter().filter_map(Value::as_str);
    names
        .map(|name| (name.to_owned(), example(name, &properties[name])))
        .collect()
}

fn example(name: &str, schema: &Value) -> Value {
    match name {
        "expectedSha256" => Value::Null,
        "commandId" => json!("01234567-89ab-4cde-8f01-23456789abcd"),
        "command" => json!("echo ran >> ran.txt"),
        _ if schema["type"] == "object" => json!({}),
        _ if schema["type"] == "integer" => json!(1),
        _ => json!("made-by-a-bad-call.txt"),
    }
}

/// Values that a property's schema does not allow.
fn wrong_values(schema: &Value) -> Vec<Value> {
    let mut wrong = vec![json!([]), json!(true)];
    match schema["type"].as_str() {
        Some("integer") => {
            // Coerced quietly elsewhere: a text, a fraction, nothing, a number past every bound.
            wrong.extend([json!("10"), json!(1.5), json!(-1), Value::Null]);
            wrong.extend(schema["maximum"].as_u64().map(|most| json!(most + 1)));
            wrong.extend(schema["maximum"].as_u64().map(|_| json!(1_u64 << 63)));
            wrong.extend(schema["minimum"].as_i64().map(|least| json!(least - 1)));
        }
        Some("object") => wrong.extend([json!("{}"), json!(1), Value::Null]),
        Some(_) => wrong.extend([json!(1), json!({}), Value::Null]),
        // A digest or null.
        None => wrong.extend([json!(1), json!("abc"), json!("A".repeat(64))]),
    }
    if schema["minLength"].as_u64() == Some(1) {
        wrong.push(json!(""));
    }
    if let Some(most) = schema["maxLength"].as_u64().filter(|most| *most <= 32_768) {
        let length = usize::try_from(most).expect("small") + 1;
        wrong.push(json!("x".repeat(length)));
    }
    if schema["pattern"].is_string() {
        wrong.push(json!("not-by-the-pattern"));
    }
    wrong
}

/// Each bad call of a tool, with the pointer that has to be named.
fn bad_calls(tool: &Tool) -> Vec<(Map<String, Value>, String)> {
    let good = valid(tool);
    let mut calls = Vec::new();
    for name in good.keys() {
        let mut missing = good.clone();
        missing.remove(name);
        calls.push((missing, format!("/{name}")));
    }
    let mut misspelt = good.clone();
    misspelt.insert("lenght".to_owned(), json!(3));
    calls.push((misspelt, "/lenght".to_owned()));
    let properties = tool.input_schema["properties"]
        .as_object()
        .expect("properties");
    for (name, schema) in properties {
        for value in wrong_values(schema) {
            let mut changed = good.clone();
            changed.insert(name.clone(), value);
            calls.push((changed, format!("/{name}")));
        }
    }
    calls
}

#[tokio::test]
async fn bad_arguments_of_every_tool_are_named_and_nothing_happens() {
    let world = World::new();
    let door = world.up("full").await;
    let agent = door.agent();
    let before = snapshot(&world.project());
    for tool in workspace_tools() {
        for (arguments, pointer) in bad_calls(tool) {
            let shown: String = Value::from(arguments.clone())
                .to_string()
                .chars()
                .take(200)
                .collect();
            let answer = agent.call(&tool.name, arguments.into()).await;
            assert_eq!(answer.code(), "INVALID_ARGUMENTS", "{} {shown}", tool.name);
            let error = answer.refused("INVALID_ARGUMENTS");
            assert_eq!(
                error["details"]["pointer"], pointer,
                "{} {shown}: {error}",
                tool.name
            );
            assert!(error["details"]["rule"].is_string(), "{error}");
            assert_eq!(error["retryable"], false);
            let message = error["message"].as_str().expect("text");
            assert!(
                message.contains(&pointer[1..]),
                "{} is named: {message}",
                &pointer[1..]
            );
        }
    }
    assert_eq!(
        snapshot(&world.project()),
        before,
        "a refused call touches nothing"
    );
    // Neither refused nor broken by all that.
    let fine = agent
        .call("workspace_read", json!({"path": "AGENTS.md"}))
        .await;
    assert!(!fine.is_error, "{fine:?}");
}

#[tokio::test]
async fn unknown_tool_is_refused() {
    let world = World::new();
    let door = world.up("full").await;
    let answer = door.agent().try_call(None, "workspace_nothing", "{}").await;
    match answer {
        Err(Fault::Rpc { code, .. }) => assert_eq!(code, -32602),
        Ok(answer) => assert_eq!(answer.code(), "UNKNOWN_TOOL"),
        Err(fault) => panic!("{fault:?}"),
    }
}

#[tokio::test]
async fn arguments_beyond_the_schema() {
    let world = World::new();
    world.write("wide.txt", "a漢b");
    let door = world.up("full").await;
    let agent = door.agent();
    let sha = Sha256::of("a漢b".as_bytes()).to_string();
    let refused = [
        (
            "workspace_read",
            json!({"path": "wide.txt", "offset": 2}),
            "/offset",
        ),
        (
            "workspace_read",
            json!({"path": "wide.txt", "offset": 6}),
            "/offset",
        ),
        (
            "workspace_read",
            json!({"path": "wide.txt", "offset": 1, "limit": 2}),
            "/limit",
        ),
        ("workspace_read", json!({"path": "a\u{0}b"}), "/path"),
        (
            "workspace_patch",
            json!({"path": "wide.txt", "oldText": "", "newText": "x", "expectedSha256": sha}),
            "/oldText",
        ),
        (
            "workspace_patch",
            json!({"path": "wide.txt", "oldText": "a", "newText": "a", "expectedSha256": sha}),
            "/newText",
        ),
    ];
    for (tool, arguments, pointer) in refused {
        let error = agent
            .call(tool, arguments.clone())
            .await
            .refused("INVALID_ARGUMENTS");
        assert_eq!(error["details"]["pointer"], pointer, "{arguments}: {error}");
    }
    let end = agent
        .call("workspace_read", json!({"path": "wide.txt", "offset": 5}))
        .await
        .ok();
    assert_eq!(
        (&end["content"], &end["nextOffset"]),
        (&json!(""), &Value::Null)
    );
    let page = agent
        .call("workspace_read", json!({"path": "wide.txt", "limit": 3}))
        .await
        .ok();
    assert_eq!((&page["content"], &page["bytes"]), (&json!("a"), &json!(1)));
    assert_eq!(world.read("wide.txt"), "a漢b".as_bytes());
}

/// A sibling whose name starts with the project's, and what may not be touched in it.
struct Neighbour {
    file: PathBuf,
    before: (Vec<u8>, i64, i64),
}

impl Neighbour {
    fn beside(world: &World) -> Self {
        let folder = world.outside().join("project-evil");
        fs::create_dir(&folder).expect("writable");
        let file = folder.join("s.txt");
        fs::write(&file, SECRET).expect("writable");
        let before = Self::look(&file);
        Self { file, before }
    }

    fn look(file: &Path) -> (Vec<u8>, i64, i64) {
        let meta = fs::metadata(file).expect("it is still there");
        (
            fs::read(file).expect("readable"),
            meta.mtime(),
            meta.mtime_nsec(),
        )
    }

    fn assert_untouched(&self) {
        assert_eq!(Self::look(&self.file), self.before);
        let entries = fs::read_dir(self.file.parent().expect("a folder")).expect("readable");
        assert_eq!(entries.count(), 1, "nothing was put beside it");
    }
}

/// Every call that takes a path, for `path`. The revision is the neighbour's, so that only the path stands in the way.
fn calls_with_path(path: &str) -> Vec<(&'static str, Value)> {
    let sha = Sha256::of(SECRET.as_bytes()).to_string();
    vec![
        ("workspace_read", json!({"path": path})),
        ("workspace_list", json!({"path": path})),
        (
            "workspace_write",
            json!({"path": path, "content": "x", "expectedSha256": sha}),
        ),
        (
            "workspace_write",
            json!({"path": path, "content": "x", "expectedSha256": null}),
        ),
        (
            "workspace_patch",
            json!({"path": path, "oldText": "MARK", "newText": "x", "expectedSha256": sha}),
        ),
        (
            "workspace_delete",
            json!({"path": path, "expectedSha256": sha}),
        ),
        (
            "workspace_exec",
            json!({"command": "cat s.txt", "cwd": path}),
        ),
        ("workspace_image", json!({"path": path})),
        ("workspace_document", json!({"path": path})),
    ]
}

fn assert_keeps_the_secret(answer: &Answer, context: &str) {
    let all = format!("{} {} {}", answer.structured, answer.content, answer.meta);
    assert!(!all.contains(SECRET), "{context}: {all}");
    let sha = Sha256::of(SECRET.as_bytes()).to_string();
    assert!(
        !all.contains(&sha),
        "{context}: not its revision either: {all}"
    );
}

#[tokio::test]
async fn attack_path_to_a_neighbour_with_the_same_prefix() {
    let world = World::new();
    fs::create_dir(world.project().join("a")).expect("writable");
    let neighbour = Neighbour::beside(&world);
    let door = world.up("full").await;
    let agent = door.agent();
    let folder = neighbour
        .file
        .parent()
        .expect("a folder")
        .display()
        .to_string();
    let absolute = neighbour.file.display().to_string();
    for path in [
        "../project-evil/s.txt",
        "../project-evil",
        "a/../../project-evil/s.txt",
        "./a/.././../project-evil/s.txt",
        "..",
        "../../../../../../../../etc/passwd",
        "/etc/passwd",
        "/",
        &folder,
        &absolute,
    ] {
        for (tool, arguments) in calls_with_path(path) {
            let answer = agent.call(tool, arguments).await;
            assert_keeps_the_secret(&answer, &format!("{tool} {path}"));
            assert_eq!(
                answer.code(),
                "PATH_ESCAPES_PROJECT",
                "{tool} {path}: {answer:?}"
            );
        }
    }
    neighbour.assert_untouched();
    leaves_no_trace(&world, &agent, &door.program.stderr()).await;
    let receipts = Value::from(door.owner().receipts().await).to_string();
    assert!(!receipts.contains(SECRET), "nor a receipt");
}

#[tokio::test]
async fn attack_link_that_leaves_the_project() {
    let world = World::new();
    let neighbour = Neighbour::beside(&world);
    let project = world.project();
    let folder = neighbour.file.parent().expect("a folder");
    symlink(&neighbour.file, project.join("leak")).expect("writable");
    symlink("../project-evil/s.txt", project.join("leak.png")).expect("writable");
    symlink("leak", project.join("leak.pdf")).expect("writable");
    symlink(folder, project.join("folder")).expect("writable");
    let door = world.up("full").await;
    let agent = door.agent();
    for path in [
        "leak",
        "leak.png",
        "leak.pdf",
        "folder/s.txt",
        "folder/../project-evil/s.txt",
    ] {
        for (tool, arguments) in calls_with_path(path) {
            let answer = agent.call(tool, arguments).await;
            assert_keeps_the_secret(&answer, &format!("{tool} {path}"));
            // A link itself is refused by delete whatever it points to.
            let is_deleted_link = tool == "workspace_delete" && !path.contains('/');
            let is_right = answer.code() == "PATH_ESCAPES_PROJECT"
                || (is_deleted_link && answer.code() == "NOT_A_FILE");
            assert!(is_right, "{tool} {path}: {answer:?}");
        }
    }
    for (tool, arguments) in calls_with_path("folder") {
        let answer = agent.call(tool, arguments).await;
        assert_keeps_the_secret(&answer, tool);
        assert!(answer.is_error, "{tool}: {answer:?}");
    }
    for link in ["leak", "leak.png", "leak.pdf", "folder"] {
        let meta = fs::symlink_metadata(project.join(link)).expect("still there");
        assert!(meta.is_symlink(), "{link} is still a link");
    }
    neighbour.assert_untouched();
    leaves_no_trace(&world, &agent, &door.program.stderr()).await;
}

/// The listing still works and shows no more than the project; nothing of the attack is in the log.
async fn leaves_no_trace(world: &World, agent: &Agent, log: &str) {
    assert!(!log.contains(SECRET), "no content in the log");
    let list = agent.call("workspace_list", json!({})).await;
    assert_keeps_the_secret(&list, "workspace_list");
    let total = fs::read_dir(world.project()).expect("readable").count();
    assert_eq!(list.ok()["total"], total);
}

/// Names and contents of everything below a directory.
fn snapshot(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).expect("readable").flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.push((path.clone(), fs::read(&path).unwrap_or_default()));
            }
        }
    }
    found.sort_unstable();
    found
}
