//! What is told after a crash is durable.

use std::{fs, os::unix::fs::MetadataExt as _, path::Path};

use postern_kit::{Clock, Effect};
use postern_types::ReceiptId;
use pretty_assertions::assert_eq;

use super::*;
use crate::{Config, change::Order, jobs::hold};

fn project(root: &Path) -> Arc<Project> {
    Arc::new(Project::open(Config::new(root.to_owned()), Clock::system()).expect("root"))
}

fn receipt() -> Receipt {
    Receipt {
        workspace: "w".parse().expect("id"),
        id: ReceiptId::generate(),
        incarnation: 1,
    }
}

fn inode(path: &Path) -> u64 {
    fs::metadata(path).expect("metadata").ino()
}

#[tokio::test]
async fn what_an_inspection_tells_of_is_durable_with_the_whole_way_to_it() {
    let home = tempfile::tempdir().expect("directory");
    let root = home.path();
    fs::create_dir_all(root.join("a/b")).expect("directories");
    fs::write(root.join("a/b/f"), "x").expect("file");
    let project = project(root);
    let way = [
        inode(&root.join("a/b")),
        inode(&root.join("a")),
        inode(root),
    ];
    let synced = || std::mem::take(&mut hold(&project.disk.trial).synced);

    let told = project.inspect(receipt(), "a/b/f".to_owned()).await;
    assert_eq!(
        told.expect("told").sha256,
        Some(Sha256::of(b"x").to_string())
    );
    let mut expected = vec![inode(&root.join("a/b/f"))];
    expected.extend(way);
    assert_eq!(synced(), expected);

    let told = project.inspect(receipt(), "a/b/deleted".to_owned()).await;
    assert_eq!(told.expect("told").sha256, None);
    assert_eq!(synced(), way);
}

#[tokio::test]
async fn what_cannot_be_made_durable_is_not_told_as_a_fact() {
    let home = tempfile::tempdir().expect("directory");
    fs::write(home.path().join("f"), "x").expect("file");
    let project = project(home.path());
    hold(&project.disk.trial).fails = true;
    for path in ["f", "missing"] {
        let told = project.inspect(receipt(), path.to_owned()).await;
        assert_eq!(told.expect_err("unknown").code, ErrorCode::Uncertain);
    }
}

#[tokio::test]
async fn a_change_whose_sync_failed_stays_uncertain_when_a_later_sync_succeeds() {
    let home = tempfile::tempdir().expect("directory");
    let project = project(home.path());
    let order = Order {
        receipt: receipt(),
        change: Change {
            path: "f".to_owned(),
            expected: None,
            place: None,
            kind: Kind::Write,
        },
        content: "x".to_owned(),
    };
    let receipt = order.receipt.clone();
    hold(&project.disk.trial).fails = true;
    let failed = project.change(order).await.expect_err("not durable");
    assert_eq!(
        (failed.code, failed.effect),
        (ErrorCode::Uncertain, Effect::Unknown)
    );
    hold(&project.disk.trial).fails = false;
    let told = project.inspect(receipt, "f".to_owned()).await;
    assert_eq!(told.expect_err("unknown").code, ErrorCode::Uncertain);
}
