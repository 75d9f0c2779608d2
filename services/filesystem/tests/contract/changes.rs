//! Write, patch and delete.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    sync::atomic::{AtomicBool, Ordering},
};

use postern_proto::filesystem::v1::{
    DeleteResponse, PatchResponse, PlanDelete, PlanResponse, PlanWrite, WriteResponse,
    plan_request::Change,
};
use postern_types::ErrorCode;
use pretty_assertions::assert_eq;

use crate::project::{Project, code, planned_patch, sha};

#[tokio::test]
async fn a_write_creates_replaces_and_tells_both_revisions() {
    let project = Project::new();
    let created = project
        .write("a/b/c.txt", "one", None)
        .await
        .expect("created");
    assert_eq!(
        created,
        WriteResponse {
            path: "a/b/c.txt".to_owned(),
            sha256: sha("one"),
            bytes: 3,
            created: true,
            previous_sha256: None,
            resolved_path: None,
        }
    );
    let replaced = project
        .write("a/b/c.txt", "", Some(sha("one")))
        .await
        .expect("replaced");
    assert_eq!((replaced.bytes, replaced.created), (0, false));
    assert_eq!(replaced.previous_sha256, Some(sha("one")));
    assert_eq!(replaced.sha256, sha(""));
    assert_eq!(project.content("a/b/c.txt"), b"");
    let deleted = project
        .delete("a/b/c.txt", Some(sha("")))
        .await
        .expect("deleted");
    assert_eq!(
        deleted,
        DeleteResponse {
            path: "a/b/c.txt".to_owned(),
            previous_sha256: sha(""),
        }
    );
    assert!(!project.root.join("a/b/c.txt").exists());
    assert_eq!(
        fs::read_dir(project.root.join("a/b"))
            .expect("directory")
            .count(),
        0
    );
}

#[tokio::test]
async fn revisions_decide_as_the_contract_says() {
    let project = Project::new();
    project.file("f", "now");
    let old = Some(sha("before"));
    let current = serde_json::Value::from(sha("now"));
    for stale in [
        project.write("f", "x", old.clone()).await.map(drop),
        project.patch("f", "now", "x", old.clone()).await.map(drop),
        project
            .plan("f", planned_patch("now", "x"), old.clone())
            .await
            .map(drop),
        project.delete("f", old.clone()).await.map(drop),
    ] {
        let failure = stale.expect_err("stale");
        assert_eq!(failure.code, ErrorCode::StaleRevision);
        assert_eq!(failure.details["currentSha256"], current);
    }
    assert_eq!(
        code(project.write("f", "x", None).await),
        ErrorCode::AlreadyExists
    );
    let missing = project
        .write("new/f", "x", old.clone())
        .await
        .expect_err("missing");
    assert_eq!(missing.code, ErrorCode::StaleRevision);
    assert_eq!(missing.details["currentSha256"], serde_json::Value::Null);
    for expected in [None, old] {
        assert_eq!(
            code(project.patch("g", "a", "b", expected.clone()).await),
            ErrorCode::NotFound
        );
        assert_eq!(
            code(
                project
                    .plan("g", planned_patch("a", "b"), expected.clone())
                    .await
            ),
            ErrorCode::NotFound
        );
        assert_eq!(
            code(project.delete("g", expected).await),
            ErrorCode::NotFound
        );
    }
    assert_eq!(
        code(project.write("f", "x", Some("no digest".to_owned())).await),
        ErrorCode::InvalidArguments
    );
    assert_eq!(project.content("f"), b"now");
    assert_eq!(project.names(), ["f"]);
}

#[tokio::test]
async fn a_plan_tells_what_is_there_and_is_refused_like_the_change() {
    let project = Project::new();
    project.file("f", "now");
    project.link("link", "f");
    let large = "x".repeat(3 << 20);
    project.file("large", &large);
    let write = || Change::Write(PlanWrite {});
    let delete = || Change::Delete(PlanDelete {});
    let nothing = PlanResponse {
        place: "new/f".to_owned(),
        new_directories: vec!["new".to_owned()],
        keeps: true,
        ..PlanResponse::default()
    };
    let new = project.plan("new/f", write(), None).await;
    assert_eq!(new.expect("planned"), nothing);
    for change in [write(), delete()] {
        for (path, content) in [("f", "now"), ("large", large.as_str())] {
            let planned = project.plan(path, change.clone(), Some(sha(content))).await;
            let previous = planned.expect("planned").previous_sha256;
            assert_eq!(previous, Some(sha(content)));
        }
    }
    for (path, change, expected, refused) in [
        ("f", write(), None, ErrorCode::AlreadyExists),
        ("f", write(), Some(sha("x")), ErrorCode::StaleRevision),
        ("f", delete(), Some(sha("x")), ErrorCode::StaleRevision),
        ("f", delete(), None, ErrorCode::StaleRevision),
        ("g", write(), Some(sha("x")), ErrorCode::StaleRevision),
        ("g", delete(), None, ErrorCode::NotFound),
        ("link", delete(), Some(sha("now")), ErrorCode::NotAFile),
        (".", write(), None, ErrorCode::NotAFile),
        ("../x", write(), None, ErrorCode::PathEscapesProject),
    ] {
        let planned = project.plan(path, change, expected).await;
        assert_eq!(code(planned), refused, "{path}");
    }
    assert_eq!(project.names(), ["f", "large", "link"]);
}

/// B10: line endings stay what they were.
#[tokio::test]
async fn a_patch_changes_one_place_and_nothing_else() {
    let project = Project::new();
    project.file("crlf", "a\r\nb\r\nc\r\n");
    let planned = project
        .plan(
            "crlf",
            planned_patch("b\r\n", "B\r\nB2\r\n"),
            Some(sha("a\r\nb\r\nc\r\n")),
        )
        .await
        .expect("planned");
    assert_eq!(project.content("crlf"), b"a\r\nb\r\nc\r\n");
    let patch = planned.patch.expect("a patch");
    assert_eq!((patch.offset, patch.line), (3, 2));
    let patched = project
        .patch_now("crlf", "b\r\n", "B\r\nB2\r\n")
        .await
        .expect("patched");
    let after = "a\r\nB\r\nB2\r\nc\r\n";
    assert_eq!(
        patched,
        PatchResponse {
            path: "crlf".to_owned(),
            sha256: sha(after),
            bytes: 13,
            previous_sha256: sha("a\r\nb\r\nc\r\n"),
            offset: 3,
            line: 2,
            resolved_path: None,
        }
    );
    assert_eq!(
        (planned.previous_sha256, patch.sha256),
        (Some(patched.previous_sha256), patched.sha256)
    );
    assert_eq!(project.content("crlf"), after.as_bytes());
    let refused = project
        .patch_now("crlf", "a\nB", "x")
        .await
        .expect_err("exact");
    assert_eq!(refused.code, ErrorCode::NoMatch);
    assert_eq!(refused.details["wouldMatch"], "line-endings");
    assert_eq!(project.content("crlf"), after.as_bytes());
}

/// B12, B13: bytes are only replaced where they match, and texts are no patterns.
#[tokio::test]
async fn bytes_outside_the_match_stay_as_they_are() {
    let project = Project::new();
    for (before, old, new, after) in [
        ("\u{feff}x=1", "x=1", "x=2", "\u{feff}x=2"),
        ("a\nb", "b", "c", "a\nc"),
        ("a\r", "a", "A", "A\r"),
        (
            "price: PLACEHOLDER\n",
            "PLACEHOLDER",
            "$$1 $& $` $' $1 ${x} \\1 \\n %s {0}",
            "price: $$1 $& $` $' $1 ${x} \\1 \\n %s {0}\n",
        ),
        ("x.*y [a] z", ".*", "!", "x!y [a] z"),
        ("xay [a] z", "[a]", "(a)", "xay (a) z"),
    ] {
        let path = project.file("f", before);
        project.patch_now("f", old, new).await.expect("patched");
        assert_eq!(fs::read_to_string(path).expect("text"), after);
    }
    // Bytes that are not text are left alone too.
    project.file("latin", b"caf\xE9 = 1\n");
    project
        .patch_now("latin", "= 1", "= 2")
        .await
        .expect("patched");
    assert_eq!(project.content("latin"), b"caf\xE9 = 2\n");
}

/// B14: once, or not at all.
#[tokio::test]
async fn a_text_that_is_ambiguous_missing_or_empty_changes_nothing() {
    let project = Project::new();
    for (content, old, new, expected) in [
        (
            "active: true,\nx\nactive: true,\n",
            "active: true,",
            "x",
            ErrorCode::AmbiguousMatch,
        ),
        ("aaaa", "aa", "b", ErrorCode::AmbiguousMatch),
        ("active: true,", "missing", "x", ErrorCode::NoMatch),
        ("abcd", "", "x", ErrorCode::InvalidArguments),
        ("", "", "x", ErrorCode::InvalidArguments),
        ("abcd", "b", "b", ErrorCode::InvalidArguments),
    ] {
        let path = project.file("f", content);
        let before = fs::metadata(&path).expect("metadata");
        let failure = project.patch_now("f", old, new).await.expect_err("refused");
        assert_eq!(failure.code, expected);
        let plan = project
            .plan("f", planned_patch(old, new), Some(sha(content)))
            .await;
        assert_eq!(code(plan), expected);
        if content == "aaaa" {
            assert_eq!(failure.details["count"], 3);
            assert_eq!(
                failure.details["firstOffsets"],
                serde_json::json!([0, 1, 2])
            );
        }
        let after = fs::metadata(&path).expect("metadata");
        assert_eq!(
            (before.ino(), before.ctime_nsec()),
            (after.ino(), after.ctime_nsec())
        );
        assert_eq!(project.content("f"), content.as_bytes());
    }
}

/// B16: whatever an edit adds or takes, the rest of the file stays.
#[tokio::test]
async fn growing_and_shrinking_edits_keep_the_tail() {
    let project = Project::new();
    let mut text: String = (0..1069)
        .map(|line| format!("line {line} {}\n", "é漢🙂-".repeat(10)))
        .collect();
    text.push_str(&"x".repeat(3000));
    text.push_str("\n\\end{document}\n");
    project.file("f.tex", &text);
    for step in 0..9 {
        let old = format!("line {} ", step * 100);
        let new = if step < 6 {
            format!("{old}{}", "🙂a".repeat(150))
        } else {
            "l".to_owned()
        };
        let patched = project
            .patch_now("f.tex", &old, &new)
            .await
            .expect("patched");
        text = text.replacen(&old, &new, 1);
        assert_eq!(project.content("f.tex"), text.as_bytes());
        assert_eq!(
            (patched.bytes, patched.sha256),
            (text.len() as u64, sha(&text))
        );
    }
}

/// B22: an edited file is what it was but for its content.
#[tokio::test]
async fn modes_owners_and_attributes_are_kept() {
    let project = Project::new();
    for mode in [0o755, 0o600, 0o444, 0o640] {
        let path = project.file("f", "old");
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("mode");
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(12_345), Some(12_346)).expect("owner");
        }
        let flags = rustix::fs::XattrFlags::empty();
        let kept = rustix::fs::setxattr(&path, "user.note", b"kept", flags).is_ok();
        let before = fs::metadata(&path).expect("metadata");
        project.patch_now("f", "old", "new").await.expect("patched");
        project
            .write("f", "newer", Some(sha("new")))
            .await
            .expect("written");
        let after = fs::metadata(&path).expect("metadata");
        assert_eq!(
            (before.mode(), before.uid(), before.gid()),
            (after.mode(), after.uid(), after.gid())
        );
        assert_eq!(after.mode() & 0o7777, mode);
        if kept {
            let mut value = [0; 16];
            let length =
                rustix::fs::getxattr(&path, "user.note", &mut value[..]).expect("attribute");
            assert_eq!(&value[..length], b"kept");
        }
        fs::remove_file(&path).expect("removed");
    }
    // As any program would make it.
    let usual = project.file("usual", "x");
    project.write("new", "x", None).await.expect("written");
    let mode = |path| fs::metadata(path).expect("metadata").mode();
    assert_eq!(mode(project.root.join("new")), mode(usual));
}

#[tokio::test]
async fn power_given_to_the_old_content_is_not_passed_on() {
    let project = Project::new();
    let path = project.file("tool", "old");
    fs::set_permissions(&path, Permissions::from_mode(0o6755)).expect("mode");
    project
        .patch_now("tool", "old", "new")
        .await
        .expect("patched");
    assert_eq!(
        fs::metadata(&path).expect("metadata").mode() & 0o7777,
        0o755
    );
}

/// B22: at no instant.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_private_file_is_never_readable_by_others() {
    let project = Project::new();
    let path = project.file("key", "0");
    fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("mode");
    let stop = AtomicBool::new(false);
    let root = project.root.clone();
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                for entry in fs::read_dir(&root).expect("directory") {
                    if let Ok(metadata) = entry.expect("entry").metadata() {
                        assert_eq!(metadata.mode() & 0o077, 0, "readable by others");
                    }
                }
            }
        });
        tokio::task::block_in_place(|| {
            tokio::runtime::Handle::current().block_on(async {
                for round in 0..100 {
                    let (old, new) = (round.to_string(), (round + 1).to_string());
                    project
                        .write("key", &new, Some(sha(&old)))
                        .await
                        .expect("written");
                }
            });
        });
        stop.store(true, Ordering::Relaxed);
        watcher.join().expect("watched");
    });
}

#[tokio::test]
async fn a_refused_write_makes_no_directories() {
    let project = Project::new();
    project.file("file", "x");
    assert_eq!(
        code(project.write("new/dir/f", "x", Some(sha("y"))).await),
        ErrorCode::StaleRevision
    );
    assert_eq!(
        code(project.write("file/dir/f", "x", None).await),
        ErrorCode::NotADirectory
    );
    assert_eq!(
        code(project.write("new/../f", "x", None).await),
        ErrorCode::NotFound
    );
    assert_eq!(project.names(), ["file"]);
}

#[tokio::test]
async fn a_large_file_is_patched_written_and_deleted() {
    let project = Project::new();
    let content = format!(
        "{}needle{}",
        "a\n".repeat(1_500_000),
        "b\n".repeat(1_500_000)
    );
    project.file("big", &content);
    let patched = project
        .patch_now("big", "needle", "pin")
        .await
        .expect("patched");
    assert_eq!((patched.offset, patched.line), (3_000_000, 1_500_001));
    let after = content.replace("needle", "pin");
    assert_eq!(patched.sha256, sha(&after));
    assert_eq!(
        code(project.write("big", "x", Some(sha("x"))).await),
        ErrorCode::StaleRevision
    );
    project.file("big2", &after);
    project
        .write("big", "x", Some(sha(&after)))
        .await
        .expect("written");
    project
        .delete("big2", Some(sha(&after)))
        .await
        .expect("deleted");
    assert_eq!(project.names(), ["big"]);
}

#[tokio::test]
async fn other_hard_links_keep_the_old_content() {
    let project = Project::new();
    let path = project.file("one", "old");
    fs::hard_link(&path, project.root.join("two")).expect("link");
    project
        .patch_now("one", "old", "new")
        .await
        .expect("patched");
    assert_eq!(project.content("two"), b"old");
    assert_eq!(project.content("one"), b"new");
}

/// B22: who else may read a file is kept too, where the file system knows of such lists.
#[tokio::test]
async fn an_access_list_is_kept() {
    const LIST: &str = "system.posix_acl_access";
    let project = Project::new();
    let path = project.file("f", "old");
    let mut list = 2_u32.to_le_bytes().to_vec();
    // The owner, a user, the group, the mask, others.
    let nobody = u32::MAX;
    for (tag, allowed, id) in [
        (0x01_u16, 6_u16, nobody),
        (0x02, 4, 12_345),
        (0x04, 4, nobody),
        (0x10, 4, nobody),
        (0x20, 0, nobody),
    ] {
        list.extend([tag.to_le_bytes(), allowed.to_le_bytes()].concat());
        list.extend(id.to_le_bytes());
    }
    let flags = rustix::fs::XattrFlags::empty();
    if rustix::fs::setxattr(&path, LIST, &list, flags) == Err(rustix::io::Errno::OPNOTSUPP) {
        return;
    }
    project.patch_now("f", "old", "new").await.expect("patched");
    let written = project.write("f", "newer", Some(sha("new"))).await;
    written.expect("written");
    let mut kept = [0; 256];
    let length = rustix::fs::getxattr(&path, LIST, &mut kept[..]).expect("list");
    assert_eq!(kept[..length], list);
    let mode = fs::metadata(&path).expect("metadata").mode();
    assert_eq!(mode & 0o777, 0o640);
}
