//! Patches as real git takes them.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use pretty_assertions::assert_eq;

use super::*;

/// Comparing must end in this time, whatever the contents are.
const IN_TIME: Duration = Duration::from_secs(10);

type State<'a> = Option<(&'a [u8], u32)>;

fn content((bytes, mode): (&[u8], u32)) -> Content {
    Content {
        bytes: bytes.to_vec(),
        mode,
    }
}

fn put(root: &Path, path: &str, state: State<'_>) {
    let Some((bytes, mode)) = state else { return };
    let path = root.join(path);
    fs::create_dir_all(path.parent().expect("parent")).expect("directories");
    fs::write(&path, bytes).expect("file");
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("mode");
}

fn at(root: &Path, path: &str) -> Option<(Vec<u8>, bool)> {
    let path = root.join(path);
    let bytes = fs::read(&path).ok()?;
    let mode = fs::metadata(&path).expect("facts").permissions().mode();
    Some((bytes, mode & 0o100 != 0))
}

fn expected(state: State<'_>) -> Option<(Vec<u8>, bool)> {
    state.map(|(bytes, mode)| (bytes.to_vec(), mode & 0o100 != 0))
}

fn git(root: &Path, arguments: &[&str]) {
    let output = Command::new("git")
        .args(arguments)
        .current_dir(root)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("HOME", root)
        .output()
        .expect("git");
    assert!(output.status.success(), "{arguments:?}: {output:?}");
}

/// Writes a patch and lets git apply it there and back.
fn there_and_back(path: &str, before: State<'_>, after: State<'_>) -> Vec<u8> {
    let home = tempfile::tempdir().expect("directory");
    let (root, patch) = (home.path().join("root"), home.path().join("patch"));
    fs::create_dir(&root).expect("directory");
    put(&root, path, before);
    let sides = [before, after].map(|state| state.map(content));
    let written = write(path, sides[0].as_ref(), sides[1].as_ref(), Form::Whole);
    fs::write(&patch, &written.text).expect("patch");
    let patch = patch.to_str().expect("text");
    git(&root, &["apply", "--whitespace=nowarn", patch]);
    assert_eq!(at(&root, path), expected(after), "{path}");
    git(&root, &["apply", "--whitespace=nowarn", "-R", patch]);
    assert_eq!(at(&root, path), expected(before), "{path}");
    written.text
}

#[test]
fn git_applies_every_shape_there_and_back() {
    let long: String = (0..100).map(|line| format!("line {line}\n")).collect();
    let changed = long
        .replace("line 3\n", "")
        .replace("line 50\n", "one\ntwo\n")
        .replace("line 99\n", "line 99");
    let noise: Vec<u8> = (0..5000_u32)
        .map(|at| (at.wrapping_mul(2_654_435_761) >> 11) as u8)
        .collect();
    let texts: [&[u8]; 12] = [
        b"",
        b"\n",
        b"a",
        b"a\n",
        b"a\r\nb\r\n",
        b"a\nb\r\n",
        b"caf\xe9 latin\n",
        "é ☃\n".as_bytes(),
        b"--- a/x\n+++ b/x\n@@ -1 +1 @@\n\\ No newline at end of file\n",
        long.as_bytes(),
        changed.as_bytes(),
        &noise,
    ];
    for before in texts {
        for after in texts {
            if before != after {
                there_and_back("dir/f.txt", Some((before, 0o644)), Some((after, 0o644)));
            }
        }
        there_and_back("new/deep/f", None, Some((before, 0o755)));
        there_and_back("f", Some((before, 0o755)), None);
        there_and_back("f", Some((before, 0o644)), Some((before, 0o755)));
        there_and_back("f", Some((before, 0o755)), Some((b"x\0", 0o644)));
    }
}

#[test]
fn git_finds_files_with_odd_names() {
    for name in [
        "with space",
        "tab\there",
        "line\nbreak",
        "quote\"d",
        "back\\slash",
        "é/☃",
        "b/a/c",
        " lead",
        "trail ",
        "-x",
        "a b/c d",
        "\u{1}\u{7f}",
        "{a,b}",
        "a/b c ",
    ] {
        there_and_back(name, None, Some((b"x\n", 0o644)));
        there_and_back(name, Some((b"x\n", 0o644)), Some((b"y\n", 0o644)));
        there_and_back(name, Some((b"x\0\n", 0o644)), Some((b"y\0\n", 0o644)));
        there_and_back(name, Some((b"x\n", 0o755)), None);
    }
}

#[test]
fn a_change_is_written_as_git_writes_it() {
    let (before, after) = (content((b"a\nb\nc", 0o644)), content((b"a\nB\nc\n", 0o644)));
    let written = write("f", Some(&before), Some(&after), Form::Shown);
    let ids = [&before, &after].map(|side| blob_id(Some(side)));
    let told = format!(
        "diff --git a/f b/f\nindex {}..{} 100644\n--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n a\n-b\n-c\n\\ No newline at end of file\n+B\n+c\n",
        ids[0], ids[1]
    );
    assert_eq!(String::from_utf8(written.text).expect("text"), told);
    let empty = content((b"", 0o644));
    assert_eq!(
        blob_id(Some(&empty)),
        "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"
    );
}

#[test]
fn comparing_ends_in_time_whatever_the_contents_are() {
    let all = |from: u32| {
        (from..from + 10_000)
            .map(|at| format!("line {at}\n"))
            .collect::<String>()
    };
    let zebra = |first: &str, second: &str| format!("{first}\n{second}\n").repeat(20_000);
    for (before, after) in [
        (all(0), all(10_000)),
        (all(0), all(5_000)),
        (zebra("a", "b"), zebra("b", "c")),
        ("x\n".repeat(100_000), "x\n".repeat(100_001)),
        (
            all(0),
            all(0)
                .lines()
                .rev()
                .map(|line| format!("{line}\n"))
                .collect(),
        ),
    ] {
        let begun = Instant::now();
        let sides = [&before, &after].map(|text| content((text.as_bytes(), 0o644)));
        let written = write("f", Some(&sides[0]), Some(&sides[1]), Form::Whole);
        assert!(
            !written.text.is_empty() && begun.elapsed() < IN_TIME,
            "{:?}",
            begun.elapsed()
        );
    }
}

#[test]
fn what_is_too_large_to_be_compared_is_written_whole() {
    let before = "a\n".repeat(TEXT_LINES + 1);
    let after = format!("{before}b\n");
    let text = there_and_back(
        "f",
        Some((before.as_bytes(), 0o644)),
        Some((after.as_bytes(), 0o644)),
    );
    assert!(text.len() < 100_000, "{}", text.len());
}
