//! Receipts and incarnations.

use std::fs;

use postern_kit::{Effect as Had, Failure};
use postern_proto::filesystem::v1::{Effect, InspectResponse, WriteRequest, WriteResponse};
use postern_types::{ErrorCode, ReceiptId};
use pretty_assertions::assert_eq;

use crate::project::{Project, code, effect, fifo, sha};

async fn write_as(
    project: &Project,
    effect: Option<Effect>,
    path: &str,
    expected: Option<String>,
) -> Result<WriteResponse, Failure> {
    let request = WriteRequest {
        effect,
        path: path.to_owned(),
        content: "x".to_owned(),
        expected_sha256: expected,
        place: None,
    };
    Ok(project.client.clone().write(request).await?.into_inner())
}

fn effect_of(incarnation: u64) -> Option<Effect> {
    effect().map(|effect| Effect {
        incarnation,
        ..effect
    })
}

#[tokio::test]
async fn a_receipt_sent_twice_acts_once() {
    let project = Project::new();
    let receipt = effect();
    write_as(&project, receipt.clone(), "f", None)
        .await
        .expect("written");
    fs::remove_file(project.root.join("f")).expect("removed");
    let again = write_as(&project, receipt, "f", None)
        .await
        .expect_err("acted on");
    assert_eq!(
        (again.code, again.effect),
        (ErrorCode::Uncertain, Had::Unknown)
    );
    assert_eq!(project.names(), [""; 0]);
}

#[tokio::test]
async fn a_refused_receipt_may_be_used_again() {
    let project = Project::new();
    let receipt = effect();
    let refused = write_as(&project, receipt.clone(), "f", Some(sha("y"))).await;
    assert_eq!(code(refused), ErrorCode::StaleRevision);
    write_as(&project, receipt, "f", None)
        .await
        .expect("written");
}

#[tokio::test]
async fn an_effect_of_an_older_incarnation_never_happens() {
    let project = Project::new();
    let late = effect_of(1);
    let inspected = project.inspect("f", effect_of(2)).await.expect("inspected");
    assert_eq!((inspected.sha256, inspected.size), (None, None));
    let refused = write_as(&project, late, "f", None)
        .await
        .expect_err("fenced");
    assert_eq!(
        (refused.code, refused.effect),
        (ErrorCode::NotApplied, Had::None)
    );
    assert_eq!(
        code(project.inspect("f", effect_of(1)).await),
        ErrorCode::NotApplied
    );
    assert_eq!(project.names(), [""; 0]);
    write_as(&project, effect_of(2), "f", None)
        .await
        .expect("of the present one");
    let other = Effect {
        workspace_id: "other".to_owned(),
        ..effect_of(1).expect("effect")
    };
    write_as(&project, Some(other), "g", None)
        .await
        .expect("of another workspace");
}

#[tokio::test]
async fn an_effect_without_a_receipt_is_refused() {
    let project = Project::new();
    let mut broken = vec![None, effect_of(0)];
    for receipt_id in ["", "x", "0193A0E4-5B1C-7000-8000-00000000ABCD"] {
        broken.push(effect().map(|effect| Effect {
            receipt_id: receipt_id.to_owned(),
            ..effect
        }));
    }
    broken.push(effect().map(|effect| Effect {
        workspace_id: String::new(),
        ..effect
    }));
    for effect in broken {
        assert_eq!(
            code(write_as(&project, effect, "f", None).await),
            ErrorCode::InvalidArguments
        );
    }
    assert_eq!(project.names(), [""; 0]);
}

#[tokio::test]
async fn an_inspection_tells_the_file_and_removes_what_was_left() {
    let project = Project::new();
    project.file("d/real", "content");
    project.link("link", "d/real");
    let receipt = effect_of(2).expect("effect");
    let left = format!("d/.postern-{}.tmp", receipt.receipt_id);
    let other = format!("d/.postern-{}.tmp", ReceiptId::generate());
    project.file(&left, "half");
    project.file(&other, "half");
    let inspected = project
        .inspect("link", Some(receipt))
        .await
        .expect("inspected");
    assert_eq!(
        inspected,
        InspectResponse {
            sha256: Some(sha("content")),
            size: Some(7),
            path: "link".to_owned(),
            resolved_path: Some("d/real".to_owned()),
        }
    );
    assert!(!project.root.join(&left).exists());
    assert!(project.root.join(&other).exists());
}

#[tokio::test]
async fn names_of_changes_under_way_are_out_of_reach() {
    let project = Project::new();
    let name = format!(".postern-{}.tmp", ReceiptId::generate());
    project.file(&format!("d/{name}"), "half");
    project.link("link", format!("d/{name}"));
    for path in [format!("d/{name}"), "link".to_owned()] {
        assert_eq!(code(project.read(&path).await), ErrorCode::InvalidArguments);
        let write = project.write(&path, "x", Some(sha("half"))).await;
        assert_eq!(code(write), ErrorCode::InvalidArguments);
    }
    let delete = project
        .delete(&format!("d/{name}"), Some(sha("half")))
        .await;
    assert_eq!(code(delete), ErrorCode::InvalidArguments);
    let listed = project.list("d", 0).await.expect("listed");
    assert_eq!((listed.total, listed.entries), (0, Vec::new()));
}

#[tokio::test]
async fn a_change_removes_what_dead_processes_left_in_its_directory_and_nothing_else() {
    let project = Project::new();
    let name = || format!(".postern-{}.tmp", ReceiptId::generate());
    let (left, under_way, elsewhere, directory) = (name(), name(), name(), name());
    let left = project.file(&format!("d/{left}"), "half");
    let under_way = project.file(&format!("d/{under_way}"), "half");
    let elsewhere = project.file(&format!("e/{elsewhere}"), "half");
    let directory = project.root.join("d").join(directory);
    fs::create_dir(&directory).expect("directory");
    let fifo_path = project.root.join("d").join(name());
    fifo(&fifo_path);
    let alike = project.file("d/.postern-notes.tmp", "mine");
    let held = fs::File::open(&under_way).expect("file");
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).expect("locked");
    project.write("d/f", "x", None).await.expect("written");
    assert!(!left.exists());
    for kept in [under_way, elsewhere, directory, fifo_path, alike] {
        assert!(kept.exists(), "{}", kept.display());
    }
}
