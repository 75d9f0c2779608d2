//! Pages of directories.

use std::{
    ffi::OsStr,
    fs::{self, File, Permissions},
    os::unix::{ffi::OsStrExt as _, fs::PermissionsExt as _},
    time::{Duration, Instant},
};

use postern_proto::filesystem::v1::{Entry, EntryType};
use postern_types::ErrorCode;
use pretty_assertions::assert_eq;

use crate::{
    project::{Project, code, fifo},
    watch::{Watch, WatchFlags},
};

/// A project whose root holds everything that has broken a listing somewhere.
fn odd_project() -> Project {
    let project = Project::new();
    project.file("good.txt", "good");
    project.link("dangling", "nowhere");
    project.link("self", ".");
    project.file("sub/x", "x");
    project.link("sub/loop", "..");
    File::create(project.root.join(OsStr::from_bytes(b"\xFF\xFE"))).expect("file");
    project.file("\u{e9}.txt", "composed");
    project.file("e\u{301}.txt", "decomposed");
    project.file("a\nb.txt", "newline");
    project.file("-rf", "dash");
    fs::create_dir(project.root.join("locked")).expect("directory");
    fs::set_permissions(project.root.join("locked"), Permissions::from_mode(0o700)).expect("mode");
    fifo(&project.root.join("pipe"));
    project.link("out", &project.outside);
    project
}

/// B08: nothing that a directory can hold keeps the rest from being listed.
#[tokio::test]
async fn odd_entries_are_each_listed_once() {
    let project = odd_project();
    let listed = project.list("", 0).await.expect("listed");
    assert_eq!(
        (listed.path.as_str(), listed.total, listed.next_offset),
        (".", 12, None)
    );
    let names: Vec<&str> = listed
        .entries
        .iter()
        .map(|entry| entry.name.as_str())
        .collect();
    assert_eq!(
        names,
        [
            "-rf",
            "a\nb.txt",
            "dangling",
            "e\u{301}.txt",
            "good.txt",
            "locked",
            "out",
            "pipe",
            "self",
            "sub",
            "\u{e9}.txt",
            "\u{fffd}\u{fffd}"
        ]
    );
    // Read as they are listed, as far as text can say their names.
    for (name, content) in [
        ("\u{e9}.txt", "composed"),
        ("e\u{301}.txt", "decomposed"),
        ("a\nb.txt", "newline"),
        ("-rf", "dash"),
    ] {
        assert_eq!(project.read(name).await.expect("read").content, content);
    }
}

#[tokio::test]
async fn entries_are_told_as_what_they_are() {
    let project = odd_project();
    let listed = project.list(".", 0).await.expect("listed");
    let entry = |name: &str| {
        let found = listed.entries.iter().find(|entry| entry.name == name);
        found.expect("listed").clone()
    };
    let good = entry("good.txt");
    assert_eq!(
        good,
        Entry {
            name: "good.txt".to_owned(),
            path: "good.txt".to_owned(),
            r#type: EntryType::File.into(),
            size: 4,
            modified_at_ms: good.modified_at_ms,
            ..Entry::default()
        }
    );
    assert!(good.modified_at_ms > 1_700_000_000_000);
    let link = |name: &str| {
        let entry = entry(name);
        assert_eq!(entry.r#type(), EntryType::Symlink);
        (
            entry.target.clone(),
            entry.target_type.is_some().then(|| entry.target_type()),
        )
    };
    assert_eq!(link("dangling"), (Some("nowhere".to_owned()), None));
    assert_eq!(
        link("self"),
        (Some(".".to_owned()), Some(EntryType::Directory))
    );
    assert_eq!(link("out").1, None);
    assert_eq!(entry("pipe").r#type(), EntryType::Other);
    assert_eq!(entry("locked").r#type(), EntryType::Directory);
    assert_eq!(
        entry("\u{fffd}\u{fffd}").name_bytes.as_deref(),
        Some("fffe")
    );
}

#[tokio::test]
async fn a_listing_through_a_link_says_where_it_led() {
    let project = Project::new();
    project.file("a/b/x", "x");
    project.link("dl", "a/b");
    let listed = project.list("dl", 0).await.expect("listed");
    assert_eq!(
        (listed.path.as_str(), listed.resolved_path.as_deref()),
        ("dl", Some("a/b"))
    );
    assert_eq!(listed.entries[0].path, "dl/x");
    let listed = project.list("a/b/", 0).await.expect("listed");
    assert_eq!((listed.path.as_str(), listed.resolved_path), ("a/b", None));
    assert_eq!(listed.entries[0].path, "a/b/x");
}

#[tokio::test]
async fn pages_cover_a_large_directory_exactly_once() {
    let project = Project::new();
    let directory = project.root.join("many");
    fs::create_dir(&directory).expect("directory");
    let total: u64 = 1_250;
    for number in (0..total).rev() {
        File::create(directory.join(format!("{number:05}"))).expect("file");
    }
    let begun = Instant::now();
    let mut names = Vec::new();
    let mut next = Some(0);
    while let Some(offset) = next {
        let page = project.list("many", offset).await.expect("listed");
        assert_eq!(page.total, total);
        assert!(page.entries.len() <= 500);
        names.extend(page.entries.into_iter().map(|entry| entry.name));
        next = page.next_offset;
    }
    let expected: Vec<String> = (0..total).map(|number| format!("{number:05}")).collect();
    assert_eq!(names, expected);
    assert!(begun.elapsed() < Duration::from_secs(2));
    for offset in [total, 100_000] {
        let past = project.list("many", offset).await.expect("listed");
        assert_eq!(
            (past.entries.len(), past.next_offset, past.total),
            (0, None, total)
        );
    }
    assert_eq!(
        code(project.list("many", 100_001).await),
        ErrorCode::InvalidArguments
    );
    assert_eq!(code(project.list("missing", 0).await), ErrorCode::NotFound);
}

/// B72: the pages of one state of a directory cost one pass, and a changed directory is looked at anew.
#[tokio::test]
async fn further_pages_need_no_pass_and_miss_no_change() {
    let project = Project::later();
    let directory = project.root.join("many");
    fs::create_dir(&directory).expect("directory");
    let name = |number: u64| format!("{number:05}");
    for number in 0..1_250 {
        File::create(directory.join(name(number))).expect("file");
    }
    let passes = Watch::new(WatchFlags::ACCESS, &[&directory]);
    let names = async |offset: u64| -> (u64, Vec<String>) {
        let page = project.list("many", offset).await.expect("listed");
        let names = page.entries.into_iter().map(|entry| entry.name);
        (page.total, names.collect())
    };
    let expected = |range: std::ops::Range<u64>| range.map(name).collect::<Vec<_>>();
    assert_eq!(names(0).await, (1_250, expected(0..500)));
    assert!(!passes.seen().is_empty());
    assert_eq!(names(1_000).await, (1_250, expected(1_000..1_250)));
    assert_eq!(names(500).await, (1_250, expected(500..1_000)));
    assert_eq!(passes.seen(), [""; 0]);

    File::create(directory.join("!")).expect("file");
    assert_eq!(names(1_001).await, (1_251, expected(1_000..1_250)));
    fs::remove_file(directory.join(name(0))).expect("removed");
    assert_eq!(names(1_000).await, (1_250, expected(1_000..1_250)));
    fs::rename(directory.join("!"), directory.join(name(0))).expect("renamed");
    assert_eq!(names(0).await, (1_250, expected(0..500)));
    fs::rename(directory.join(name(1)), directory.join(name(1_249))).expect("renamed");
    let (total, page) = names(0).await;
    assert_eq!((total, page[1].as_str()), (1_249, "00002"));
}
