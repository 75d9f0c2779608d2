//! A full disk. Needs the right to mount a file system of its own; run as root or in a user namespace.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::Path,
    process::Command,
};

use postern_filesystem::Config;
use postern_types::ErrorCode;
use pretty_assertions::assert_eq;

use crate::project::{at, code, sha};

struct Mount<'a>(&'a Path);

impl<'a> Mount<'a> {
    fn small(directory: &'a Path) -> Self {
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"])
            .arg(directory)
            .output()
            .expect("mount can be run");
        let said = String::from_utf8_lossy(&mounted.stderr);
        assert!(
            mounted.status.success(),
            "this test must be able to mount a tmpfs: {said}"
        );
        Self(directory)
    }
}

impl Drop for Mount<'_> {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("--lazy").arg(self.0).output());
    }
}

/// B20: the old file or the new one.
#[tokio::test]
async fn a_full_disk_leaves_the_old_file_whole() {
    let directory = tempfile::tempdir().expect("directory");
    let root = directory.path().canonicalize().expect("real path");
    let _mount = Mount::small(&root);
    let project = at(&root, Config::new(root.clone()));
    let old = "x".repeat(400 * 1024);
    let path = project.file("f", &old);
    fs::set_permissions(&path, Permissions::from_mode(0o640)).expect("mode");
    let large = "y".repeat(1_000_000);
    let write = project
        .write("f", &large, Some(sha(&old)))
        .await
        .expect_err("full");
    assert_eq!(
        (write.code, write.code.retryable()),
        (ErrorCode::DiskFull, true)
    );
    project.file("g", format!("{old}needle"));
    let grown = project.patch_now("g", "needle", &"z".repeat(500_000)).await;
    assert_eq!(code(grown), ErrorCode::DiskFull);
    assert_eq!(
        code(project.write("new/dir/h", &large, None).await),
        ErrorCode::DiskFull
    );
    assert_eq!(project.content("f"), old.as_bytes());
    assert_eq!(fs::metadata(&path).expect("metadata").mode() & 0o777, 0o640);
    assert_eq!(project.names(), ["f", "g"]);
    fs::remove_file(root.join("g")).expect("removed");
    project
        .patch_now("f", &old[..1000], "z")
        .await
        .expect_err("ambiguous");
    let smaller = "y".repeat(500_000);
    project
        .write("f", &smaller, Some(sha(&old)))
        .await
        .expect("there is room again");
    assert_eq!(project.content("f"), smaller.as_bytes());
}

#[tokio::test]
async fn a_read_only_file_system_refuses_clearly() {
    let directory = tempfile::tempdir().expect("directory");
    let root = directory.path().canonicalize().expect("real path");
    let _mount = Mount::small(&root);
    let project = at(&root, Config::new(root.clone()));
    project.file("f", "old");
    let remounted = Command::new("mount")
        .args(["-o", "remount,ro"])
        .arg(&root)
        .status();
    assert!(remounted.expect("mount").success());
    assert_eq!(
        code(project.patch_now("f", "old", "new").await),
        ErrorCode::PermissionDenied
    );
    assert_eq!(
        code(project.write("new/f", "x", None).await),
        ErrorCode::PermissionDenied
    );
    assert_eq!(
        code(project.delete("f", Some(sha("old"))).await),
        ErrorCode::PermissionDenied
    );
    assert_eq!(project.content("f"), b"old");
}
