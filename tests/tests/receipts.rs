//! Receipts outside the ledger's own process: checkpoints against whoever cuts the newest receipts off, and exported files.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use postern_tests::{World, wait_for};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

/// Longest that something may take that must come.
const LIMIT: std::time::Duration = std::time::Duration::from_secs(20);

/// Some writes, and the clean end of the program that did them.
async fn written(world: &World, prefix: &str) {
    let door = world.up("full").await;
    let agent = door.agent();
    for number in 0..4 {
        let arguments = json!({"path": format!("{prefix}-{number}.txt"), "content": "CONTENT", "expectedSha256": null});
        let _ = agent.call("workspace_write", arguments).await.ok();
    }
    let _ = door.stop().await;
}

async fn run(world: &World, arguments: &[&str]) -> (Option<i32>, Value, String) {
    let mut all: Vec<_> = arguments.iter().map(|it| (*it).into()).collect();
    all.extend([
        "--json".into(),
        "--data-dir".into(),
        world.data().into_os_string(),
    ]);
    let ended = world.run(&all).await;
    let told = ended.stdout.lines().last().unwrap_or("null");
    let told = serde_json::from_str(told).unwrap_or(Value::Null);
    (ended.code, told, ended.stderr)
}

/// The ledger's files.
const LEDGER: [&str; 3] = ["ledger.db", "ledger.db-wal", "ledger.db-shm"];

/// Puts the ledger as it was at `kept` back, index and all: the newest receipts are gone without a trace in it.
fn put_back(kept: &Path, data: &Path) {
    for name in LEDGER {
        // Only the first is always there.
        let _ = fs::remove_file(data.join(name));
        let _ = fs::copy(kept.join(name), data.join(name));
    }
}

#[tokio::test]
async fn newest_receipts_cut_off_are_told_by_verify_and_loudly_at_the_next_start() {
    let world = World::new();
    written(&world, "a").await;
    let (code, told, _) = run(&world, &["receipts", "verify"]).await;
    assert_eq!((code, &told["valid"]), (Some(0), &json!(true)), "{told}");
    assert_eq!(told["checkpoints"][0]["sequence"], told["events"], "{told}");

    let kept = world.outside().join("kept");
    fs::create_dir(&kept).expect("folder");
    put_back(&world.data(), &kept);
    written(&world, "b").await;
    assert_eq!(run(&world, &["receipts", "verify"]).await.0, Some(0));
    put_back(&kept, &world.data());
    let (code, told, _) = run(&world, &["receipts", "verify"]).await;
    let problem = told["problem"].as_str().unwrap_or_default();
    assert_eq!((code, &told["valid"]), (Some(1), &json!(false)), "{told}");
    assert!(problem.contains("ends before event"), "{problem}");
    let target = world.outside().join("cut.jsonl");
    let export = ["receipts", "export", target.to_str().expect("text")];
    assert_eq!(run(&world, &export).await.0, Some(1));
    assert!(!target.exists());

    // The door opens all the same, and says so; what is signed from then on hides nothing.
    let door = world.up("full").await;
    let status = door.owner().get("/owner/v1/status").await;
    let warning = status["warnings"][0].as_str().unwrap_or_default();
    assert!(warning.starts_with("RECEIPTS ARE MISSING"), "{status}");
    let _ = door.agent().call("workspace_list", json!({})).await.ok();
    assert!(door.program.stderr().contains("RECEIPTS ARE MISSING"));
    let _ = door.stop().await;
    assert_eq!(run(&world, &["receipts", "verify"]).await.0, Some(1));
    fs::remove_file(world.data().join("checkpoint-lost.json")).expect("removed");
    let (code, told, _) = run(&world, &["receipts", "verify"]).await;
    assert_eq!(code, Some(0), "{told}");
}

#[tokio::test]
async fn a_checkpoint_taken_away_or_signed_by_another_is_told() {
    let (world, other) = (World::new(), World::new());
    written(&world, "a").await;
    written(&other, "a").await;
    let checkpoint = world.data().join("checkpoint.json");
    let mode = fs::metadata(world.data().join("checkpoint-key")).expect("key");
    assert_eq!(mode.permissions().mode() & 0o777, 0o600);
    fs::copy(other.data().join("checkpoint.json"), &checkpoint).expect("copied");
    let (code, told, _) = run(&world, &["receipts", "verify"]).await;
    let problem = told["problem"].as_str().unwrap_or_default();
    assert_eq!(code, Some(1), "{told}");
    assert!(problem.contains("not signed by the key"), "{problem}");
    fs::remove_file(&checkpoint).expect("removed");
    let (code, told, _) = run(&world, &["receipts", "verify"]).await;
    let problem = told["problem"].as_str().unwrap_or_default();
    assert_eq!(code, Some(1), "{told}");
    assert!(problem.contains("taken away"), "{problem}");
}

/// A checkpoint that is gone, emptied or another's stays told after a start has signed anew, until the owner has looked.
#[tokio::test]
async fn a_start_does_not_heal_what_was_done_to_a_checkpoint() {
    let other = World::new();
    written(&other, "a").await;
    let foreign = fs::read(other.data().join("checkpoint.json")).expect("checkpoint");
    for done in [None, Some(Vec::new()), Some(foreign)] {
        let world = World::new();
        written(&world, "a").await;
        let checkpoint = world.data().join("checkpoint.json");
        match &done {
            None => fs::remove_file(&checkpoint).expect("removed"),
            Some(content) => fs::write(&checkpoint, content).expect("written"),
        }
        assert_eq!(run(&world, &["receipts", "verify"]).await.0, Some(1));
        let door = world.up("full").await;
        let warnings = door.owner().get("/owner/v1/status").await["warnings"].clone();
        assert_eq!(warnings.as_array().map(Vec::len), Some(1), "{warnings}");
        assert_eq!(door.stop().await.code, Some(0));
        let (code, told, _) = run(&world, &["receipts", "verify"]).await;
        assert_eq!(code, Some(1), "{told}");
        let aside = world.data().join("checkpoint.json.foreign");
        fs::remove_file(aside).expect("the owner has looked");
        let (code, told, _) = run(&world, &["receipts", "verify"]).await;
        assert_eq!(code, Some(0), "{told}");
    }
}

#[tokio::test]
async fn an_export_is_verified_anywhere_and_names_its_key() {
    let (world, elsewhere) = (World::new(), World::new());
    let door = world.up("full").await;
    let new = json!({"path": "a.txt", "content": "CONTENT", "expectedSha256": null});
    let _ = door.agent().call("workspace_write", new).await.ok();
    wait_for("a checkpoint of the write", LIMIT, || async {
        let text = fs::read_to_string(world.data().join("checkpoint.json")).unwrap_or_default();
        (!text.contains("\"sequence\":0,")).then_some(())
    })
    .await;
    let target = world.outside().join("export.jsonl");
    let path = target.to_str().expect("text");
    let (code, told, stderr) = run(&world, &["receipts", "export", path]).await;
    assert_eq!(code, Some(0), "{stderr}");
    assert!(told["receipts"].as_u64() >= Some(1), "{told}");
    let mode = fs::metadata(&target).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let (code, _, stderr) = run(&world, &["receipts", "export", path]).await;
    assert_eq!(code, Some(2), "nothing is overwritten: {stderr}");

    let (code, told, stderr) = run(&elsewhere, &["receipts", "verify", path]).await;
    assert_eq!(code, Some(0), "{stderr}");
    let key = told["checkpoints"][0]["publicKey"]
        .as_str()
        .expect("a key")
        .to_owned();
    let by = ["receipts", "verify", path, "--public-key", &key];
    assert_eq!(run(&elsewhere, &by).await.0, Some(0));
    let by = ["receipts", "verify", path, "--public-key", &"0".repeat(64)];
    assert_eq!(run(&elsewhere, &by).await.0, Some(1));

    let text = fs::read_to_string(&target).expect("text");
    let cut: Vec<_> = text.lines().collect();
    let cut = cut[..cut.len() - 1].join("\n") + "\n";
    fs::write(&target, cut).expect("written");
    let (code, told, stderr) = run(&elsewhere, &["receipts", "verify", path]).await;
    assert_eq!(code, Some(1), "{told}");
    assert!(stderr.contains("no signed checkpoint"), "{stderr}");
    let _ = door.stop().await;
}

#[tokio::test]
async fn lists_page_on_until_there_are_enough() {
    let world = World::new();
    let door = world.up("full").await;
    for _ in 0..3 {
        let _ = door.agent().call("workspace_list", json!({})).await.ok();
    }
    let owner = door.owner();
    wait_for("the receipts", LIMIT, || async {
        (owner.receipts().await.len() == 3).then_some(())
    })
    .await;
    let list = async |more: &[&str]| {
        let mut all: Vec<_> = ["receipts", "list"]
            .iter()
            .chain(more)
            .map(|it| (*it).into())
            .collect();
        all.extend(["--data-dir".into(), world.data().into_os_string()]);
        let ended = world.run(&all).await;
        assert_eq!(ended.code, Some(0), "{ended:?}");
        ended.stdout
    };
    assert_eq!(list(&["--json", "--all"]).await.lines().count(), 3);
    assert_eq!(list(&["--json", "--limit", "2"]).await.lines().count(), 2);
    let table = list(&[]).await;
    assert!(table.starts_with("CREATED"), "{table}");
    assert_eq!(table.lines().count(), 4, "{table}");
    assert!(
        list(&["--state", "refused"])
            .await
            .contains("no such receipts")
    );
    let _ = door.stop().await;
}

#[tokio::test]
async fn receipts_are_followed_as_they_happen_and_listed_by_their_outcome() {
    let world = World::new();
    let door = world.up("full").await;
    let agent = door.agent();
    let write = async |path: &str| {
        let arguments = json!({"path": path, "content": "x", "expectedSha256": null});
        agent.call("workspace_write", arguments).await
    };
    let _ = write("before.txt").await.ok();
    let data = world.data().display().to_string();
    let words = [
        "receipts",
        "list",
        "--follow",
        "--tool",
        "workspace_write",
        "--data-dir",
        &data,
    ];
    let mut following = world.start(&words);
    let listed = following.text_until("before.txt", LIMIT).await;
    assert!(listed.starts_with("CREATED"), "{listed}");
    let _other = agent.call("workspace_list", json!({})).await.ok();
    let refused = write("before.txt").await;
    let _ = refused.refused("ALREADY_EXISTS");
    let _ = write("after.txt").await.ok();
    let told = following.text_until("ok          after.txt", LIMIT).await;
    assert!(told.contains("ALREADY_EXISTS"), "{told}");
    assert!(!told.contains("workspace_list"), "{told}");
    let list = [
        "receipts",
        "list",
        "--json",
        "--outcome",
        "ALREADY_EXISTS",
        "--data-dir",
        &data,
    ];
    let ended = world.run(&list).await;
    assert_eq!(ended.stdout.lines().count(), 1, "{ended:?}");
    let one: Value = serde_json::from_str(ended.stdout.trim()).expect("a receipt");
    assert_eq!(one["summary"], "before.txt");
    assert_eq!(door.stop().await.code, Some(0));
    let ended = following.ended(LIMIT).await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("the edge"), "{ended:?}");
}
