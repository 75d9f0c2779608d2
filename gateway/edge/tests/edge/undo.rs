//! Undo on the real ledger and filesystem, by the owner's API.

use std::{fs, os::unix::fs::PermissionsExt as _, path::PathBuf};

use postern_edge::owner::{Api, Settings};
use postern_kit::Clock;
use postern_proto::ledger::v1::{
    BeginRequest, Call, ListRequest, OpenIncarnationRequest, Receipt, State,
};
use postern_types::{Mode, Sha256, trace_id};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

use crate::{
    host::{Channel, PATIENCE, call, call_of},
    real::{Real, Running},
    services::sha256,
};

/// An edge with its channel and its owner's API.
pub(crate) struct Door {
    pub(crate) real: Real,
    running: Running,
    pub(crate) channel: Channel,
    address: std::net::SocketAddr,
    calls: u32,
}

impl Door {
    pub(crate) async fn open() -> Self {
        let real = Real::new().await;
        let (running, channel) = real.start(Mode::Full).await;
        let address = serve(&real, &running).await;
        Self {
            real,
            running,
            channel,
            address,
            calls: 0,
        }
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.real.directory.path().join("project").join(path)
    }

    pub(crate) fn put(&self, path: &str, content: impl AsRef<[u8]>, mode: u32) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().expect("parent")).expect("directories");
        fs::write(&path, content).expect("file");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("mode");
    }

    fn mode(&self, path: &str) -> u32 {
        let facts = fs::metadata(self.path(path)).expect("file");
        facts.permissions().mode() & 0o7777
    }

    /// A call of the session `session` that succeeds; answers its receipt.
    pub(crate) async fn done(&mut self, tool: &str, args: Value) -> Receipt {
        self.done_in("session", tool, args).await
    }

    async fn done_in(&mut self, session: &str, tool: &str, args: Value) -> Receipt {
        self.calls += 1;
        let id = format!("call-{}", self.calls);
        self.channel.call(&call_of(session, &id, tool, args)).await;
        let content = self.channel.content().await;
        assert!(content["error"].is_null(), "{content}");
        self.receipt_of(&id).await
    }

    async fn receipt_of(&self, call_id: &str) -> Receipt {
        let receipts = self.real.receipts().await;
        let found = receipts.into_iter().find(|it| it.call_id == call_id);
        found.expect("a receipt")
    }

    pub(crate) async fn write(
        &mut self,
        path: &str,
        content: &str,
        expected: Option<&str>,
    ) -> Receipt {
        let expected = expected.map(sha256);
        let args = json!({"path": path, "content": content, "expectedSha256": expected});
        self.done("workspace_write", args).await
    }

    pub(crate) async fn delete(&mut self, path: &str, content: &str) -> Receipt {
        let args = json!({"path": path, "expectedSha256": sha256(content)});
        self.done("workspace_delete", args).await
    }

    /// The body of an answer, as it is.
    pub(crate) async fn get(&self, path: &str) -> (u16, String) {
        ask_text(self.address, "GET", path).await
    }

    pub(crate) async fn post(&self, path: &str) -> (u16, Value) {
        ask(self.address, "POST", path).await
    }

    async fn undo(&self, receipt: &str) -> (u16, Value) {
        self.post(&format!("/owner/v1/receipts/{receipt}/undo"))
            .await
    }

    pub(crate) async fn undone(&self, receipt: &str) -> Value {
        let (status, body) = self.undo(receipt).await;
        assert_eq!(status, 200, "{body}");
        body
    }

    /// Why an undo is refused, which leaves no receipt.
    async fn refused(&self, receipt: &str) -> Value {
        let before = self.undo_receipts().await.len();
        let (status, body) = self.undo(receipt).await;
        assert_eq!(status, 409, "{body}");
        assert_eq!(self.undo_receipts().await.len(), before, "{body}");
        body
    }

    async fn undo_receipts(&self) -> Vec<Receipt> {
        let mut receipts = self.real.receipts().await;
        receipts.retain(|receipt| receipt.tool == "owner_undo");
        receipts
    }
}

async fn serve(real: &Real, running: &Running) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("listener");
    let address = listener.local_addr().expect("address");
    let (control, services) = (running.control.clone(), real.services.clone());
    let settings = Settings {
        token: "token".to_owned(),
        address,
        label: None,
        trace_url: None,
    };
    let api = Api::new(control, services, settings, Clock::system());
    real.tasks
        .spawn("owner api", api.serve(listener, real.tasks.stopping()));
    address
}

async fn ask(address: std::net::SocketAddr, method: &str, path: &str) -> (u16, Value) {
    let (status, body) = ask_text(address, method, path).await;
    (status, serde_json::from_str(&body).unwrap_or(Value::Null))
}

async fn ask_text(address: std::net::SocketAddr, method: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.expect("connection");
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer token\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut answer = String::new();
    let read = stream.read_to_string(&mut answer);
    tokio::time::timeout(PATIENCE * 3, read)
        .await
        .expect("an answer")
        .expect("text");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    (head[9..12].parse().expect("a status"), body.to_owned())
}

#[tokio::test]
async fn a_write_is_taken_back_and_done_again_with_bytes_and_mode() {
    let mut door = Door::open().await;
    door.put("tool.sh", b"\xff\x00old\r\n", 0o755);
    let expected = Sha256::of(b"\xff\x00old\r\n").to_string();
    let args = json!({"path": "tool.sh", "content": "new", "expectedSha256": expected});
    let receipt = door.done("workspace_write", args).await;
    // The owner's wish holds in every mode, and while the channel is closed.
    door.running.control.set_mode(Mode::ReadOnly);
    door.running.control.set_open(false);
    let undone = door.undone(&receipt.id).await;
    assert_eq!(
        fs::read(door.path("tool.sh")).expect("file"),
        b"\xff\x00old\r\n"
    );
    assert_eq!(door.mode("tool.sh"), 0o755);
    assert_eq!(undone["tool"], "owner_undo");
    assert_eq!(undone["state"], "completed");
    assert_eq!(undone["sessionId"], "session");
    assert_eq!(undone["undoes"], json!([receipt.id]));
    let id = undone["id"].as_str().expect("id").to_owned();
    let again = door.refused(&receipt.id).await;
    assert_eq!(again["code"], "already_undone");
    assert!(again["detail"].to_string().contains(&id), "{again}");
    door.undone(&id).await;
    assert_eq!(door.real.content("tool.sh").as_deref(), Some("new"));
    assert_eq!(door.mode("tool.sh"), 0o755);
    door.undone(&receipt.id).await;
    assert_eq!(
        fs::read(door.path("tool.sh")).expect("file"),
        b"\xff\x00old\r\n"
    );
    let undos = door.undo_receipts().await;
    assert!(undos.iter().all(|it| it.state() == State::Completed));
    assert_eq!(undos.len(), 3);
}

#[tokio::test]
async fn what_a_creation_made_goes_with_it_and_comes_back_and_a_deletion_keeps_its_mode() {
    let mut door = Door::open().await;
    door.put("kept/there", "x", 0o644);
    let created = door.write("kept/a/b/f", "new", None).await;
    let undone = door.undone(&created.id).await;
    assert!(door.path("kept/there").exists() && !door.path("kept/a").exists());
    door.undone(undone["id"].as_str().expect("id")).await;
    assert_eq!(door.real.content("kept/a/b/f").as_deref(), Some("new"));
    door.put("kept/a/mine", "mine", 0o644);
    let undone = door.undone(&created.id).await;
    assert_eq!(undone["keptDirectories"], json!(["kept/a"]));
    assert!(door.path("kept/a/mine").exists() && !door.path("kept/a/b").exists());
    door.put("secret", "s", 0o4750);
    let deleted = door.delete("secret", "s").await;
    door.undone(&deleted.id).await;
    assert_eq!(door.real.content("secret").as_deref(), Some("s"));
    assert_eq!(door.mode("secret"), 0o750, "a mode, but no power");
}

#[tokio::test]
async fn what_was_changed_since_is_not_destroyed() {
    let mut door = Door::open().await;
    let first = door.write("f", "one", None).await;
    let second = door.write("f", "two", Some("one")).await;
    let refused = door.refused(&first.id).await;
    assert_eq!(refused["code"], "stale");
    assert_eq!(refused["files"][0]["receipt"], json!(second.id));
    assert_eq!(refused["files"][0]["currentSha256"], json!(sha256("two")));
    fs::write(door.path("f"), "mine").expect("file");
    let refused = door.refused(&second.id).await;
    assert_eq!(refused["code"], "stale");
    assert!(refused["files"][0]["receipt"].is_null(), "{refused}");
    assert_eq!(door.real.content("f").as_deref(), Some("mine"));
    fs::remove_file(door.path("f")).expect("removed");
    fs::create_dir(door.path("f")).expect("directory");
    assert_eq!(door.refused(&second.id).await["code"], "cannot_be_undone");
    fs::remove_dir(door.path("f")).expect("removed");
    fs::write(door.path("g"), "two").expect("file");
    std::os::unix::fs::symlink("g", door.path("f")).expect("link");
    assert_eq!(door.refused(&second.id).await["code"], "cannot_be_undone");
    assert_eq!(door.real.content("g").as_deref(), Some("two"));
}

#[tokio::test]
async fn what_is_no_change_of_a_file_is_not_taken_back() {
    let mut door = Door::open().await;
    let exec = door
        .done("workspace_exec", json!({"command": "true"}))
        .await;
    let refused = door.refused(&exec.id).await;
    assert_eq!(refused["code"], "not_a_file_change");
    assert!(
        refused["detail"].to_string().contains("command"),
        "{refused}"
    );
    let args = json!({"path": "f", "content": "x", "expectedSha256": sha256("other")});
    door.channel
        .call(&call("stale", "workspace_write", args))
        .await;
    door.channel.content().await;
    let stale = door.receipt_of("stale").await;
    assert_eq!(door.refused(&stale.id).await["code"], "not_completed");
    let (status, _) = door.undo("0193a0e4-0000-7000-8000-000000000000").await;
    assert_eq!(status, 404);
    let (status, body) = door.post("/owner/v1/sessions/unknown/undo").await;
    assert_eq!((status, &body["code"]), (409, &json!("nothing_to_undo")));
}

#[tokio::test]
async fn an_image_that_is_gone_or_damaged_is_said_to_be() {
    let mut door = Door::open().await;
    door.put("f", "one", 0o644);
    let gone = door.write("f", "two", Some("one")).await;
    let image = door
        .real
        .directory
        .path()
        .join("before")
        .join(sha256("one"));
    let bytes = fs::read(&image).expect("an image");
    fs::write(&image, &bytes[..bytes.len() - 1]).expect("damaged");
    let (status, refused) = door.undo(&gone.id).await;
    assert_eq!(
        (status, &refused["code"]),
        (409, &json!("not_kept")),
        "{refused}"
    );
    assert_eq!(door.real.content("f").as_deref(), Some("two"));
    assert!(!image.exists(), "a damaged image is not offered again");
    assert_eq!(door.refused(&gone.id).await["code"], "not_kept");
}

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

/// The receipt of an undo that a run left behind which was killed.
async fn left_behind(real: &Real, files: Value) {
    let mut ledger = real.ledger();
    let opened = ledger.open_incarnation(OpenIncarnationRequest {
        workspace_id: "work".to_owned(),
    });
    let incarnation = opened.await.expect("incarnation").into_inner().incarnation;
    let request = BeginRequest {
        call: Some(Call {
            workspace_id: "work".to_owned(),
            session_id: "session".to_owned(),
            call_id: "postern-owner:1".to_owned(),
            intention: "Mend the roof".to_owned(),
            tool: "owner_undo".to_owned(),
            args_sha256: sha256("{}"),
            trace_id: trace_id("postern-owner:1"),
            summary: String::new(),
        }),
        incarnation,
        plan_json: json!({"undoes": [], "files": files}).to_string().into(),
        question: None,
        policy_id: "owner".to_owned(),
    };
    ledger.begin(request).await.expect("begin");
}

async fn ended(real: &Real) -> Receipt {
    let wait = async {
        loop {
            let request = ListRequest {
                tool: "owner_undo".to_owned(),
                ..ListRequest::default()
            };
            let page = real
                .ledger()
                .list(request)
                .await
                .expect("list")
                .into_inner();
            if page.receipts[0].state() != State::Executing {
                return page.receipts[0].clone();
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.expect("an end")
}

#[tokio::test]
async fn an_interrupted_undo_is_gone_on_with_at_the_next_start() {
    let mut door = Door::open().await;
    for name in ["done", "open"] {
        door.put(name, "old", 0o644);
        door.write(name, "new", Some("old")).await;
    }
    // Killed between two files: one is taken back, the other is not.
    fs::write(door.path("done"), "old").expect("file");
    let file = |path: &str| json!({"path": path, "before": sha256("new"), "after": sha256("old")});
    left_behind(&door.real, json!([file("done"), file("open")])).await;
    let (_running, _channel) = door.real.start(Mode::ReadOnly).await;
    let receipt = ended(&door.real).await;
    assert_eq!(
        (receipt.state(), receipt.outcome.as_str()),
        (State::Completed, "ok")
    );
    assert_eq!(door.real.content("done").as_deref(), Some("old"));
    assert_eq!(door.real.content("open").as_deref(), Some("old"));
}

#[tokio::test]
async fn an_interrupted_undo_of_what_is_neither_is_uncertain() {
    let mut door = Door::open().await;
    for name in ["a", "b"] {
        door.put(name, "old", 0o644);
        door.write(name, "new", Some("old")).await;
    }
    fs::write(door.path("a"), "mine").expect("file");
    let file = |path: &str| json!({"path": path, "before": sha256("new"), "after": sha256("old")});
    left_behind(&door.real, json!([file("a"), file("b")])).await;
    let (_running, _channel) = door.real.start(Mode::Full).await;
    let receipt = ended(&door.real).await;
    assert_eq!(receipt.state(), State::Uncertain);
    assert_eq!(door.real.content("a").as_deref(), Some("mine"));
    assert_eq!(door.real.content("b").as_deref(), Some("new"));
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

#[tokio::test]
async fn of_an_undo_and_a_write_of_the_same_revision_one_counts() {
    let mut door = Door::open().await;
    for round in 0..20 {
        let path = format!("f{round}");
        door.put(&path, "old", 0o644);
        let receipt = door.write(&path, "new", Some("old")).await;
        let args = json!({"path": path, "content": "newer", "expectedSha256": sha256("new")});
        let id = format!("race-{round}");
        door.channel.call(&call(&id, "workspace_write", args)).await;
        let (status, body) = door.undo(&receipt.id).await;
        let written = door.channel.content().await;
        let content = door.real.content(&path);
        match status {
            200 => {
                assert_eq!(written["error"]["code"], "STALE_REVISION", "{written}");
                assert_eq!(content.as_deref(), Some("old"));
            }
            _ => {
                assert_eq!(body["code"], "stale", "{body}");
                assert!(written["error"].is_null(), "{written}");
                assert_eq!(content.as_deref(), Some("newer"));
            }
        }
    }
}
