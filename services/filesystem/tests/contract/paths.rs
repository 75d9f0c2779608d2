//! Paths and links that try to lead out, and things that are no files.

use std::{fs, os::unix::net::UnixListener, time::Duration};

use postern_filesystem::root_identity;
use postern_types::ErrorCode;
use pretty_assertions::assert_eq;

use crate::{
    project::{Project, code, fifo, null_device, planned_patch, sha},
    watch::{ANYTHING, Watch},
};

/// What every call answers on a path that leads out.
async fn refusals(project: &Project, path: &str) -> Vec<postern_kit::Failure> {
    let mark = Some(sha("MARK"));
    vec![
        project.list(path, 0).await.expect_err(path),
        project.read(path).await.expect_err(path),
        project.write(path, "x", None).await.expect_err(path),
        project
            .write(path, "x", mark.clone())
            .await
            .expect_err(path),
        project
            .patch(path, "MARK", "x", mark.clone())
            .await
            .expect_err(path),
        project
            .plan(path, planned_patch("MARK", "x"), mark.clone())
            .await
            .expect_err(path),
        project.delete(path, mark).await.expect_err(path),
        project
            .inspect(path, crate::project::effect())
            .await
            .expect_err(path),
    ]
}

/// B01: inside is beneath the root, not a matter of how a path begins.
#[tokio::test]
async fn a_neighbour_with_the_same_prefix_is_outside() {
    let project = Project::new();
    let neighbour = project.outside.join("s.txt");
    let before = fs::metadata(&neighbour)
        .expect("metadata")
        .modified()
        .expect("time");
    let absolute = neighbour.to_str().expect("text").to_owned();
    for path in [
        "../proj-evil/s.txt",
        absolute.as_str(),
        "a/../../proj-evil/s.txt",
        "../proj-evil/new.txt",
    ] {
        for failure in refusals(&project, path).await {
            assert_eq!(failure.code, ErrorCode::PathEscapesProject, "{path}");
            assert!(!failure.to_json().to_string().contains("proj-evil"));
        }
    }
    assert_eq!(fs::read(&neighbour).expect("content"), b"MARK");
    let after = fs::metadata(&neighbour)
        .expect("metadata")
        .modified()
        .expect("time");
    assert_eq!(before, after);
    assert!(!project.outside.join("new.txt").exists());
}

/// B02: neither content nor existence, size or revision of what a link leads to.
#[tokio::test]
async fn a_link_out_of_the_project_tells_nothing() {
    let project = Project::new();
    project.link("leak", project.outside.join("s.txt"));
    project.link("nothing", project.outside.join("missing"));
    project.link("dir", &project.outside);
    let mut all = Vec::new();
    for path in ["leak", "nothing", "dir/s.txt", "dir/missing"] {
        // A delete acts on the link itself, so only the other calls follow it.
        if path.starts_with("dir/") {
            all.extend(refusals(&project, path).await);
            continue;
        }
        all.push(project.read(path).await.expect_err(path));
        all.push(project.write(path, "x", None).await.expect_err(path));
        all.push(
            project
                .write(path, "x", Some(sha("MARK")))
                .await
                .expect_err(path),
        );
        all.push(
            project
                .patch(path, "MARK", "x", Some(sha("MARK")))
                .await
                .expect_err(path),
        );
        assert_eq!(
            code(project.delete(path, Some(sha("MARK"))).await),
            ErrorCode::NotAFile
        );
    }
    for failure in &all {
        assert_eq!(failure, &all[0]);
    }
    assert_eq!(all[0].code, ErrorCode::PathEscapesProject);
    assert_eq!(
        fs::read(project.outside.join("s.txt")).expect("content"),
        b"MARK"
    );
    assert!(!project.outside.join("missing").exists());
    assert_eq!(
        fs::read_dir(&project.outside).expect("directory").count(),
        1
    );
}

/// B05: a link stays one.
#[tokio::test]
async fn a_write_through_a_link_changes_the_target_and_keeps_the_link() {
    let project = Project::new();
    project.file("real.txt", "old");
    project.link("link.txt", "real.txt");
    let written = project
        .write("link.txt", "new", Some(sha("old")))
        .await
        .expect("written");
    assert_eq!(written.path, "link.txt");
    assert_eq!(written.resolved_path.as_deref(), Some("real.txt"));
    assert_eq!(written.sha256, sha("new"));
    let patched = project
        .patch_now("link.txt", "new", "newer")
        .await
        .expect("patched");
    assert_eq!(patched.resolved_path.as_deref(), Some("real.txt"));
    assert_eq!(project.content("real.txt"), b"newer");
    let link = fs::symlink_metadata(project.root.join("link.txt")).expect("link");
    assert!(link.is_symlink());
    let read = project.read("link.txt").await.expect("read");
    assert_eq!(read.resolved_path.as_deref(), Some("real.txt"));
    assert_eq!(read.sha256, sha("newer"));
}

#[tokio::test]
async fn a_link_that_leads_to_nothing_is_not_written_through() {
    let project = Project::new();
    project.link("dangling", "nowhere");
    assert_eq!(
        code(project.write("dangling", "x", None).await),
        ErrorCode::NotFound
    );
    assert_eq!(code(project.read("dangling").await), ErrorCode::NotFound);
    assert_eq!(project.names(), ["dangling"]);
}

/// B07: a delete is of one regular file.
#[tokio::test]
async fn deleting_a_link_or_directory_is_refused_and_touches_nothing() {
    let project = Project::new();
    for name in ["1.txt", "2.txt", "3.txt"] {
        project.file(&format!("A/{name}"), name);
    }
    project.link("dl", "A");
    project.link("fl", "A/1.txt");
    project.link("broken", "nowhere");
    for path in ["fl", "broken", "dl", "dl/", "A", "A/", "."] {
        let refused = project.delete(path, Some(sha("1.txt"))).await;
        assert_eq!(code(refused), ErrorCode::NotAFile, "{path}");
    }
    assert_eq!(project.names(), ["A", "broken", "dl", "fl"]);
    assert_eq!(
        fs::read_dir(project.root.join("A"))
            .expect("directory")
            .count(),
        3
    );
}

/// B09: nothing is opened, nothing waits, and no thread is left behind.
#[tokio::test]
async fn named_pipes_sockets_and_devices_are_never_opened() {
    let project = Project::new();
    fifo(&project.root.join("p"));
    let _listener = UnixListener::bind(project.root.join("s")).expect("socket");
    project.link("z", "/dev/zero");
    project.link("lp", "p");
    project.file("normal", "x");
    let (pipe, socket) = (project.root.join("p"), project.root.join("s"));
    let mut watched = vec![pipe.as_path(), &socket];
    let device = project.root.join("null");
    let mut cases = vec![
        ("p", ErrorCode::NotAFile),
        ("s", ErrorCode::NotAFile),
        ("lp", ErrorCode::NotAFile),
        ("z", ErrorCode::PathEscapesProject),
    ];
    // Not everybody may make one.
    if null_device(&device) {
        watched.push(&device);
        cases.push(("null", ErrorCode::NotAFile));
    }
    let watch = Watch::new(ANYTHING, &watched);
    let threads = || fs::read_dir("/proc/self/task").expect("threads").count();
    let mut before = None;
    for _ in 0..100 {
        for (path, expected) in cases.iter().copied() {
            let calls = async {
                assert_eq!(code(project.read(path).await), expected, "{path}");
                let write = project.write(path, "x", Some(sha(""))).await;
                assert_eq!(code(write), expected, "{path}");
                assert_eq!(
                    code(project.write(path, "x", None).await),
                    expected,
                    "{path}"
                );
                let patch = project.patch(path, "a", "b", Some(sha(""))).await;
                assert_eq!(code(patch), expected, "{path}");
            };
            tokio::time::timeout(Duration::from_secs(1), calls)
                .await
                .expect("answered");
        }
        for path in ["p", "s"] {
            assert_eq!(
                code(project.delete(path, Some(sha(""))).await),
                ErrorCode::NotAFile
            );
        }
        assert_eq!(project.read("normal").await.expect("read").content, "x");
        before.get_or_insert_with(threads);
    }
    assert_eq!(watch.seen(), [""; 0], "opened");
    // Others of this program's tests run beside this one.
    let stuck = threads().saturating_sub(before.unwrap_or_default());
    assert!(stuck < 100, "{stuck} threads more");
    assert!(pipe.exists());
}

#[tokio::test]
async fn paths_that_cannot_be_are_refused_clearly() {
    let project = Project::new();
    project.file("f", "x");
    project.file("d/g", "x");
    let long = "x".repeat(256);
    for (path, expected) in [
        ("a\0b", ErrorCode::InvalidArguments),
        ("d//g", ErrorCode::InvalidArguments),
        (long.as_str(), ErrorCode::InvalidArguments),
        ("f/", ErrorCode::NotADirectory),
        ("f/x", ErrorCode::NotADirectory),
    ] {
        let read = project.read(path).await.expect_err(path);
        assert_eq!(read.code, expected, "{path}");
        assert_eq!(
            code(project.write(path, "y", None).await),
            expected,
            "{path}"
        );
        assert_eq!(
            code(project.delete(path, Some(sha("x"))).await),
            expected,
            "{path}"
        );
        if expected == ErrorCode::InvalidArguments {
            assert_eq!(read.details["pointer"], "/path");
        }
    }
    assert_eq!(
        code(project.write("new/", "y", None).await),
        ErrorCode::InvalidArguments
    );
    assert_eq!(code(project.read("d").await), ErrorCode::NotAFile);
    assert_eq!(code(project.read("").await), ErrorCode::NotAFile);
    assert_eq!(
        code(project.write("d", "y", None).await),
        ErrorCode::NotAFile
    );
    assert_eq!(
        code(project.write("d", "y", Some(sha("x"))).await),
        ErrorCode::NotAFile
    );
    assert_eq!(code(project.list("f", 0).await), ErrorCode::NotADirectory);
    assert_eq!(project.content("f"), b"x");
}

#[tokio::test]
async fn absolute_paths_inside_the_root_are_accepted() {
    let project = Project::new();
    let absolute = project.root.join("a/f.txt");
    let absolute = absolute.to_str().expect("text");
    let written = project.write(absolute, "x", None).await.expect("written");
    assert_eq!(
        (written.path.as_str(), written.resolved_path),
        ("a/f.txt", None)
    );
    assert_eq!(project.read(absolute).await.expect("read").path, "a/f.txt");
}

#[test]
fn the_root_is_known_by_device_and_inode() {
    let project = Project::new();
    let identity = root_identity(&project.root).expect("identity");
    assert_eq!(identity.real_path, project.root);
    let link = project.outside.join("link");
    std::os::unix::fs::symlink(&project.root, &link).expect("link");
    assert_eq!(root_identity(&link).expect("identity"), identity);
    assert_ne!(
        root_identity(&project.outside).expect("identity").inode,
        identity.inode
    );
    assert!(root_identity(&project.root.join("missing")).is_err());
}
