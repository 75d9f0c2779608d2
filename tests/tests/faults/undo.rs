//! An undo into which the program is killed: all of it or nothing of it, and nobody has to ask again.

use std::fs;

use http::Method;
use postern_tests::{Strike, text_of, wait_for};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use super::rig::{RECOVERY_LIMIT, Rig, content};

/// Killed here, an undo is left for the next start.
const BEGUN: &str = "edge.undo.begun";
/// Reached by the next start.
const RESUMED: &str = "edge.undo.resumed";

/// Whether an undo reaches a point, and nothing else does.
pub(crate) fn is_of_undo(point: &str) -> bool {
    point.starts_with("edge.undo.") || point.starts_with("files.restore.")
}

/// What a session changes: a file, a new file in a new directory, and a file that goes.
struct Session {
    files: [(String, Option<String>, Option<String>); 3],
}

impl Session {
    async fn prepare(rig: &mut Rig) -> Self {
        let number = rig.number();
        let (old, new) = (format!("old {number}\n"), format!("new {number}\n"));
        let files = [
            (
                format!("undo-{number}.txt"),
                Some(old.clone()),
                Some(new.clone()),
            ),
            (format!("undo-new-{number}/deep/file.txt"), None, Some(new)),
            (format!("undo-gone-{number}.txt"), Some(old), None),
        ];
        let conversation = format!("undo-{number}");
        for (path, before, after) in &files {
            if let Some(before) = before {
                fs::write(rig.path(path), before).expect("the project is writable");
            }
            let expected = before
                .as_ref()
                .map(|text| postern_types::Sha256::of(text.as_bytes()).to_string());
            let mut arguments = json!({"path": path, "expectedSha256": expected});
            let tool = match after {
                Some(after) => {
                    arguments["content"] = after.as_str().into();
                    "workspace_write"
                }
                None => "workspace_delete",
            };
            let answer = rig.agent(&conversation).call(tool, arguments).await;
            assert!(!answer.is_error, "{answer:?}");
        }
        Self { files }
    }

    /// The id by which the owner knows the newest.
    async fn id(rig: &Rig) -> String {
        let receipts = rig.door.owner().get("/owner/v1/receipts?limit=1").await;
        text_of(&receipts["items"][0], "sessionId")
    }

    /// Each file is as before or as after, whole; tells how many are as before.
    fn taken_back(&self, rig: &Rig, context: &str) -> usize {
        let is_back = |(path, before, after): &&(String, Option<String>, Option<String>)| {
            let now = content(&rig.path(path));
            assert!(now == *before || now == *after, "{context}: {path}");
            now == *before
        };
        self.files.iter().filter(is_back).count()
    }
}

/// The undos of a session, newest first, once none is under way.
async fn ended(rig: &Rig, session: &str) -> Vec<Value> {
    let path = format!("/owner/v1/receipts?tool=owner_undo&session={session}");
    wait_for("the end of an undo", RECOVERY_LIMIT, || async {
        let page = rig.door.owner().get(&path).await;
        let items = page["items"].as_array().cloned().unwrap_or_default();
        let is_over = items.iter().all(|receipt| receipt["state"] != "executing");
        is_over.then_some(items)
    })
    .await
}

/// Undoes a session, is killed at the point, starts again, and looks. Tells whether the point was reached.
pub(crate) async fn strike(rig: &mut Rig, point: &str) -> bool {
    let session = Session::prepare(rig).await;
    let id = Session::id(rig).await;
    let path = format!("/owner/v1/sessions/{id}/undo");
    let first = if point == RESUMED { BEGUN } else { point };
    rig.faults.arm(first, Strike::Kill);
    let owner = rig.door.owner();
    let answer = owner.try_send(Method::POST, &path, Some(&json!({}))).await;
    assert!(answer.is_err(), "{point}: {:?}", answer.map(|it| it.json));
    let mut reached = !rig.faults.disarm(first);
    rig.kills += 1;
    session.taken_back(rig, point);
    if point == RESUMED {
        rig.faults.arm(point, Strike::Kill);
        rig.restart().await;
        reached = !rig.faults.disarm(point);
        if !rig.door.program.runs() {
            rig.kills += 1;
        }
    }
    rig.restart().await;
    let undos = ended(rig, &id).await;
    if undos.is_empty() {
        assert_eq!(
            session.taken_back(rig, point),
            0,
            "{point}: nothing was begun"
        );
        let undone = rig
            .door
            .owner()
            .send(Method::POST, &path, Some(&json!({})))
            .await;
        assert_eq!(
            undone.status,
            http::StatusCode::OK,
            "{point}: {}",
            undone.json
        );
    } else {
        assert_eq!(
            (undos.len(), &undos[0]["outcome"]),
            (1, &json!("ok")),
            "{point}"
        );
    }
    assert_eq!(
        session.taken_back(rig, point),
        session.files.len(),
        "{point}"
    );
    let made = rig.path(&session.files[1].0);
    let above = made.parent().and_then(|deep| deep.parent());
    assert!(
        above.is_some_and(|above| !above.exists()),
        "{point}: a directory stays"
    );
    reached
}
