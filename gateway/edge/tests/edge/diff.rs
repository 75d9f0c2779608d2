//! What receipts and sessions changed, as patches that real git takes.

use std::{
    collections::BTreeMap, fs, os::unix::fs::PermissionsExt as _, path::Path, process::Command,
};

use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use crate::{services::sha256, undo::Door};

/// Every file below a directory: content, and whether it may be executed.
fn tree(root: &Path) -> BTreeMap<String, (Vec<u8>, bool)> {
    let mut files = BTreeMap::new();
    let mut open = vec![root.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).expect("directory") {
            let path = entry.expect("entry").path();
            if path.is_dir() {
                open.push(path);
                continue;
            }
            let name = path.strip_prefix(root).expect("below");
            let mode = fs::metadata(&path).expect("facts").permissions().mode();
            let content = fs::read(&path).expect("content");
            files.insert(
                name.to_str().expect("text").to_owned(),
                (content, mode & 0o100 != 0),
            );
        }
    }
    files
}

/// Lets git apply a patch to the project.
fn apply(door: &Door, patch: &str, further: &[&str]) {
    let file = door.real.directory.path().join("patch");
    fs::write(&file, patch).expect("patch");
    let output = Command::new("git")
        .args(["apply", "--whitespace=nowarn"])
        .args(further)
        .arg(&file)
        .current_dir(door.path(""))
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("HOME", door.real.directory.path())
        .output()
        .expect("git");
    assert!(output.status.success(), "{output:?}\n{patch}");
}

async fn patch_of(door: &Door, what: &str) -> String {
    let (status, patch) = door
        .get(&format!("/owner/v1/{what}/diff?format=patch"))
        .await;
    assert_eq!(status, 200, "{patch}");
    patch
}

/// A source of chances that is the same at every run.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % end as u64).expect("small")
    }
}

const NAMES: [&str; 8] = [
    "a.txt",
    "dir/b.txt",
    "dir/deep/c",
    "with space",
    "q\"uote",
    "é/ü.md",
    "x.sh",
    "end ",
];

fn text(chance: &mut Chance) -> String {
    let ends = ["\n", "\r\n", "", "\n"];
    let lines = chance.below(30);
    let mut text: String = (0..lines)
        .map(|line| {
            format!(
                "line {} {}{}",
                line,
                chance.below(3),
                if chance.below(9) == 0 { "\r\n" } else { "\n" }
            )
        })
        .collect();
    text.push_str(["last", "l\u{0}st", ""][chance.below(3)]);
    text.push_str(ends[chance.below(4)]);
    text
}

/// Random writes, patches, deletions and undos by the real services; then git takes the session's diff back.
#[tokio::test]
async fn a_sessions_diff_applied_backwards_is_the_start() {
    let mut chance = Chance(0x5EED);
    for round in 0..6 {
        let mut door = Door::open().await;
        for name in &NAMES[..4 + chance.below(4)] {
            let mode = [0o644, 0o755][chance.below(2)];
            door.put(name, text(&mut chance), mode);
        }
        let start = tree(&door.path(""));
        let mut newest = None;
        for _ in 0..25 {
            let name = NAMES[chance.below(NAMES.len())];
            let present = fs::read_to_string(door.path(name)).ok();
            match (present, chance.below(8)) {
                (Some(content), 0 | 1) => {
                    newest = Some(door.delete(name, &content).await.id);
                }
                (Some(content), 2 | 3) if content.matches("line 1 ").count() == 1 => {
                    let args = json!({"path": name, "oldText": "line 1 ", "newText": "LINE", "expectedSha256": sha256(&content)});
                    newest = Some(door.done("workspace_patch", args).await.id);
                }
                (_, 4) => {
                    if let Some(receipt) = newest.take() {
                        door.undone(&receipt).await;
                    }
                }
                (present, _) => {
                    let content = text(&mut chance);
                    newest = Some(door.write(name, &content, present.as_deref()).await.id);
                }
            }
        }
        let end = tree(&door.path(""));
        let patch = patch_of(&door, "sessions/session").await;
        apply(&door, &patch, &["-R"]);
        assert_eq!(tree(&door.path("")), start, "round {round}\n{patch}");
        apply(&door, &patch, &[]);
        assert_eq!(tree(&door.path("")), end, "round {round}\n{patch}");
        let (status, undone) = door.post("/owner/v1/sessions/session/undo").await;
        assert!(
            status == 200 || undone["code"] == "nothing_to_undo",
            "{undone}"
        );
        assert_eq!(tree(&door.path("")), start, "round {round}");
    }
}

#[tokio::test]
async fn a_diff_in_parts_tells_each_file_and_what_it_leaves_out() {
    let mut door = Door::open().await;
    door.put("f", "one\ntwo\n", 0o644);
    door.put("image", "\u{0}old", 0o644);
    let first = door.write("f", "one\n2\n", Some("one\ntwo\n")).await;
    door.write("f", "one\n3\n", Some("one\n2\n")).await;
    door.write("image", "\u{0}new", Some("\u{0}old")).await;
    door.write("made", "x", None).await;
    let (status, diff) = door.get("/owner/v1/sessions/session/diff").await;
    assert_eq!(status, 200);
    let diff: Value = serde_json::from_str(&diff).expect("json");
    let files = diff["files"].as_array().expect("files");
    let told: Vec<_> = files
        .iter()
        .map(|file| {
            (
                file["path"].as_str(),
                file["change"].as_str(),
                file["binary"].as_bool(),
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            (Some("f"), Some("changed"), Some(false)),
            (Some("image"), Some("changed"), Some(true)),
            (Some("made"), Some("created"), Some(false)),
        ]
    );
    assert!(
        files[0]["diff"]
            .to_string()
            .contains(r"@@ -1,2 +1,2 @@\n one\n-two\n+3\n"),
        "{diff}"
    );
    assert_eq!(files[0]["before"], json!(sha256("one\ntwo\n")));
    assert!(files[1]["diff"].is_null());
    assert_eq!(diff["notes"], json!([]));
    // What a receipt made is kept once it is replaced.
    let of_first = patch_of(&door, &format!("receipts/{}", first.id)).await;
    assert!(of_first.contains("-two\n+2\n"), "{of_first}");
    // What the session made of it is gone when somebody else replaces it, and that is said.
    fs::write(door.path("f"), "mine").expect("file");
    let (_, diff) = door.get("/owner/v1/sessions/session/diff").await;
    assert!(
        diff.contains("f: what it was, or what was made of it, is not kept."),
        "{diff}"
    );
    // As a patch too the others are told.
    let patch = patch_of(&door, "sessions/session").await;
    let first = patch.lines().next().unwrap_or_default();
    assert_eq!(
        first,
        "# left out: f: what it was, or what was made of it, is not kept"
    );
    assert!(!patch.contains("a/f"), "{patch}");
    apply(&door, &patch, &["-R"]);
    assert!(!door.path("made").exists());
    assert_eq!(door.real.content("image").as_deref(), Some("\0old"));
    assert_eq!(door.real.content("f").as_deref(), Some("mine"));
}

#[tokio::test]
async fn a_diff_of_no_session_and_in_no_form_is_refused() {
    let mut door = Door::open().await;
    door.write("made", "x", None).await;
    let (status, _) = door
        .get("/owner/v1/sessions/session/diff?format=other")
        .await;
    assert_eq!(status, 400);
    for format in ["json", "patch"] {
        let path = format!("/owner/v1/sessions/unknown/diff?format={format}");
        let (status, unknown) = door.get(&path).await;
        assert_eq!(status, 404);
        assert!(unknown.contains("no_such_session"), "{unknown}");
    }
}
