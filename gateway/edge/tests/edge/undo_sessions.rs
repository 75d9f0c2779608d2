//! All that a session changed is taken back on the real ledger and filesystem, or nothing of it.

use std::fs;

use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use crate::{host::call, services::sha256, undo::Door};

#[tokio::test]
async fn a_session_is_taken_back_whole_or_not_at_all() {
    let mut door = Door::open().await;
    door.put("a", "a0", 0o600);
    door.put("b", "b0", 0o755);
    door.write("a", "a1", Some("a0")).await;
    let made = door.write("new/c", "c1", None).await;
    door.write("a", "a2", Some("a1")).await;
    door.delete("b", "b0").await;
    door.write("b", "b1", None).await;
    door.write("new/c", "c2", Some("c1")).await;
    door.write("d", "d1", None).await;
    door.delete("d", "d1").await;
    fs::write(door.path("a"), "mine").expect("file");
    let (status, refused) = door.post("/owner/v1/sessions/session/undo").await;
    assert_eq!(
        (status, &refused["code"]),
        (409, &json!("stale")),
        "{refused}"
    );
    assert_eq!(
        door.real.content("b").as_deref(),
        Some("b1"),
        "nothing happened"
    );
    fs::write(door.path("a"), "a2").expect("file");
    let (status, undone) = door.post("/owner/v1/sessions/session/undo").await;
    assert_eq!(status, 200, "{undone}");
    assert_eq!(door.real.content("a").as_deref(), Some("a0"));
    assert_eq!(door.real.content("b").as_deref(), Some("b0"));
    assert_eq!((door.mode("a"), door.mode("b")), (0o600, 0o755));
    assert!(!door.path("new").exists() && !door.path("d").exists());
    assert_eq!(door.refused(&made.id).await["code"], "already_undone");
    let (status, again) = door.post("/owner/v1/sessions/session/undo").await;
    assert_eq!((status, &again["code"]), (409, &json!("nothing_to_undo")));
    door.undone(undone["id"].as_str().expect("id")).await;
    assert_eq!(door.real.content("a").as_deref(), Some("a2"));
    assert_eq!(door.real.content("b").as_deref(), Some("b1"));
    assert_eq!(door.real.content("new/c").as_deref(), Some("c2"));
    assert_eq!(door.mode("b"), 0o644);
}

#[tokio::test]
async fn what_another_changed_in_between_is_not_taken_back_with_a_session() {
    let mut door = Door::open().await;
    door.write("f", "one", None).await;
    let args = json!({"path": "f", "content": "two", "expectedSha256": sha256("one")});
    door.done_in("other", "workspace_write", args).await;
    let third = door.write("f", "three", Some("two")).await;
    let (status, refused) = door.post("/owner/v1/sessions/session/undo").await;
    assert_eq!((status, &refused["code"]), (409, &json!("changed_between")));
    assert_eq!(refused["files"][0]["receipt"], json!(third.id));
    assert_eq!(door.real.content("f").as_deref(), Some("three"));
    // What is undone already counts no more, so now the session's changes are its first alone, which is not what is there.
    door.undone(&third.id).await;
    let (_, refused) = door.post("/owner/v1/sessions/session/undo").await;
    assert_eq!(refused["code"], "stale");
    let (status, _) = door.post("/owner/v1/sessions/other/undo").await;
    assert_eq!(status, 200);
    let (status, _) = door.post("/owner/v1/sessions/session/undo").await;
    assert_eq!(status, 200);
    assert!(!door.path("f").exists());
}

/// Somebody whose shell put nothing in the place of the session's name must not take back all that ever happened.
#[tokio::test]
async fn no_name_stands_for_every_session() {
    let mut door = Door::open().await;
    door.write("f", "one", None).await;
    let args = json!({"path": "g", "content": "two", "expectedSha256": null});
    door.done_in("other", "workspace_write", args).await;
    for name in ["", "%20", "%00", "%C3%A9", &"x".repeat(201)] {
        let (status, body) = door.post(&format!("/owner/v1/sessions/{name}/undo")).await;
        assert_eq!(
            (status, &body["code"]),
            (404, &json!("no_such_session")),
            "{name}"
        );
        let (status, body) = door.get(&format!("/owner/v1/sessions/{name}/diff")).await;
        assert_eq!(status, 404, "{name}: {body}");
        assert!(body.contains("no_such_session"), "{name}: {body}");
    }
    assert_eq!(door.real.content("f").as_deref(), Some("one"));
    assert_eq!(door.real.content("g").as_deref(), Some("two"));
}

fn old_path(at: u32) -> String {
    format!("d{}/{at}", at % 7)
}

fn write_call(path: String, content: String, expected: Option<String>) -> (String, Value) {
    let expected = expected.as_deref().map(sha256);
    let args = json!({"path": path, "content": content, "expectedSha256": expected});
    ("workspace_write".to_owned(), args)
}

#[tokio::test]
async fn a_thousand_changes_are_taken_back_exactly() {
    let mut door = Door::open().await;
    for at in 0..250 {
        door.put(
            &format!("d{}/{at}", at % 7),
            format!("old {at}"),
            0o600 + at % 8,
        );
    }
    let steps: [fn(u32) -> (String, Value); 4] = [
        |at| write_call(old_path(at), format!("new {at}"), Some(format!("old {at}"))),
        |at| {
            let expected = sha256(&format!("new {at}"));
            let args = json!({"path": old_path(at), "expectedSha256": expected});
            ("workspace_delete".to_owned(), args)
        },
        |at| write_call(old_path(at), format!("old {at}"), None),
        |at| write_call(format!("made{}/x/{at}", at % 50), format!("new {at}"), None),
    ];
    for (number, step) in steps.into_iter().enumerate() {
        // As many at once as may be.
        for first in (0..250).step_by(4) {
            let at_once = first..250.min(first + 4);
            for at in at_once.clone() {
                let (tool, args) = step(at);
                let id = format!("{number}-{at}");
                door.channel.call(&call(&id, &tool, args)).await;
            }
            for _ in at_once {
                let content = door.channel.content().await;
                assert!(content["error"].is_null(), "{content}");
            }
        }
    }
    let begun = std::time::Instant::now();
    let (status, undone) = door.post("/owner/v1/sessions/session/undo").await;
    eprintln!("taken back in {:?}", begun.elapsed());
    assert_eq!(status, 200, "{undone}");
    for at in 0..250 {
        let path = old_path(at);
        assert_eq!(door.real.content(&path), Some(format!("old {at}")));
        assert_eq!(door.mode(&path), 0o600 + at % 8);
    }
    let left = fs::read_dir(door.path("")).expect("root").count();
    assert_eq!(left, 7, "no directory that was made stays");
}
