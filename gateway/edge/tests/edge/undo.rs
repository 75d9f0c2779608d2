//! Undo on the real ledger and filesystem, by the owner's API.

use std::{fs, os::unix::fs::PermissionsExt as _, path::PathBuf};

use postern_edge::owner::{Api, Settings};
use postern_kit::Clock;
use postern_proto::ledger::v1::{Receipt, State};
use postern_types::{Mode, Sha256};
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
    pub(crate) address: std::net::SocketAddr,
    calls: u32,
}

impl Door {
    pub(crate) async fn open() -> Self {
        Self::over(Real::new().await).await
    }

    pub(crate) async fn over(real: Real) -> Self {
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

    pub(crate) fn mode(&self, path: &str) -> u32 {
        let facts = fs::metadata(self.path(path)).expect("file");
        facts.permissions().mode() & 0o7777
    }

    /// A call of the session `session` that succeeds; answers its receipt.
    pub(crate) async fn done(&mut self, tool: &str, args: Value) -> Receipt {
        self.done_in("session", tool, args).await
    }

    pub(crate) async fn done_in(&mut self, session: &str, tool: &str, args: Value) -> Receipt {
        self.calls += 1;
        let id = format!("call-{}", self.calls);
        self.channel.call(&call_of(session, &id, tool, args)).await;
        let content = self.channel.content().await;
        assert!(content["error"].is_null(), "{content}");
        self.receipt_of(&id).await
    }

    /// By which undo a receipt is told to be taken back now.
    async fn undone_by(&self, receipt: &str) -> Value {
        let (status, body) = ask(
            self.address,
            "GET",
            &format!("/owner/v1/receipts/{receipt}"),
        )
        .await;
        assert_eq!(status, 200, "{body}");
        body["undoneBy"].clone()
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
    pub(crate) async fn refused(&self, receipt: &str) -> Value {
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
    assert_eq!(door.undone_by(&receipt.id).await, json!(id));
    let again = door.refused(&receipt.id).await;
    assert_eq!(again["code"], "already_undone");
    assert!(again["detail"].to_string().contains(&id), "{again}");
    let redone = door.undone(&id).await;
    assert_eq!(door.undone_by(&id).await, redone["id"]);
    assert_eq!(door.undone_by(&receipt.id).await, Value::Null);
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
    assert_eq!((status, &body["code"]), (404, &json!("no_such_session")));
    // What never ran did nothing that could not be taken back.
    door.running.control.set_mode(Mode::ReadOnly);
    let args = json!({"command": "true"});
    door.channel
        .call(&call("denied", "workspace_exec", args))
        .await;
    door.channel.content().await;
    let denied = door.receipt_of("denied").await;
    let refused = door.refused(&denied.id).await;
    assert_eq!(refused["code"], "not_completed");
    assert!(
        refused["detail"].to_string().contains("was refused"),
        "{refused}"
    );
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
