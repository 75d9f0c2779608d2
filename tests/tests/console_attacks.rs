//! Who gets nothing from the owner's side: each test is an attack, and shows that it had no effect.
#![expect(
    clippy::expect_used,
    reason = "what a test needs and has not, fails it"
)]

use std::{
    os::unix::process::CommandExt as _,
    process::{Command, Output},
    sync::{Arc, Mutex},
};

use http::{Method, StatusCode};
use postern_kit::task::Tasks;
use postern_tests::{Door, Http, Look, Reply, World, wait_for};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

/// For what must come.
const SOON: std::time::Duration = std::time::Duration::from_secs(30);
/// A user that is not the one who runs the tests.
const OTHER_USER: u32 = 65534;

/// A server of somebody else's on this machine, such as an agent's development server. Keeps the heads of what it is asked.
struct Foreign {
    port: u16,
    heads: Arc<Mutex<Vec<String>>>,
    tasks: Tasks,
}

impl Foreign {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
        let port = listener.local_addr().expect("an address").port();
        let heads = Arc::<Mutex<Vec<String>>>::default();
        let (kept, tasks) = (Arc::clone(&heads), Tasks::new());
        tasks.spawn("foreign server", async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut head = vec![0; 16 * 1024];
                let read = stream.read(&mut head).await.unwrap_or_default();
                let head = String::from_utf8_lossy(&head[..read]).into_owned();
                kept.lock().expect("kept").push(head);
                let page = "<!doctype html><title>Foreign</title><body>";
                let answer = format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{page}",
                    page.len()
                );
                // A browser that does not want it any more is none of this server's business.
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        Self { port, heads, tasks }
    }

    fn heads(&self) -> Vec<String> {
        std::mem::take(&mut self.heads.lock().expect("kept"))
    }
}

/// `name.localhost` of the console, and its port.
fn named(door: &Door) -> (String, String) {
    let link = door.ready.console_link();
    let rest = link.strip_prefix("http://").expect("http");
    let (authority, _) = rest.split_once('/').expect("a path");
    let (name, port) = authority.rsplit_once(':').expect("a port");
    (name.to_owned(), port.to_owned())
}

/// What a foreign page tries on the console, and what it got: nothing of it may be true.
const TRY_ALL: &str = r#"
const base = arguments[0];
const outcome = {};
const within = (name, promise) => Promise.race([promise, new Promise((resolve) => setTimeout(resolve, 1500))])
  .then((got) => { outcome[name] = got === true; }, () => { outcome[name] = false; });
const event = (target, good) => new Promise((resolve) => {
  target.addEventListener(good, () => resolve(true));
  target.addEventListener("error", () => resolve(false));
});
const reads = (path, options) => fetch(base + path, {credentials: "include", ...options})
  .then((response) => response.type !== "opaque");
const image = new Image(); image.src = base + "/console.svg";
const frame = document.createElement("iframe"); frame.src = base + "/"; document.body.append(frame);
const script = document.createElement("script"); script.src = base + "/console.js"; document.body.append(script);
const json = {method: "POST", headers: {"content-type": "text/plain"}, body: '{"open":false}'};
const form = document.createElement("form");
form.method = "post"; form.action = base + "/console/mode"; form.target = "sink";
const mode = document.createElement("input"); mode.name = "mode"; mode.value = "full"; form.append(mode);
const sink = document.createElement("iframe"); sink.name = "sink"; document.body.append(sink, form);
form.submit();
return Promise.all([
  within("read", reads("/owner/v1/status")),
  within("page", reads("/")),
  within("blind", reads("/owner/v1/status", {mode: "no-cors"})),
  within("close", reads("/owner/v1/channel", {mode: "no-cors", ...json})),
  within("links", reads("/owner/v1/links", {mode: "no-cors", method: "POST"})),
  within("logout", reads("/console/logout", {mode: "no-cors", method: "POST"})),
  within("image", event(image, "load")),
  within("script", event(script, "load")),
  within("events", event(new EventSource(base + "/owner/v1/events", {withCredentials: true}), "open")),
  within("socket", event(new WebSocket(base.replace("http", "ws") + "/owner/v1/events"), "open")),
  within("frame", new Promise((resolve) => setTimeout(() => resolve(frame.contentDocument !== null), 1000))),
]).then(() => outcome);
"#;

#[tokio::test]
async fn a_foreign_web_page_in_the_owners_own_browser_gets_nothing() {
    let world = World::new();
    let door = world.up("ask").await;
    let foreign = Foreign::start().await;
    let browser = world.browser(Look::default()).await;
    browser.open(&door.ready.console_link()).await;
    let (name, port) = named(&door);
    let _ = foreign.heads();
    // Another host, another name of this machine, and the console's own name on another port.
    for host in ["127.0.0.1", "localhost", "other.localhost", &name] {
        browser
            .open(&format!("http://{host}:{}/", foreign.port))
            .await;
        for base in [&name, "127.0.0.1", "localhost"] {
            let base = format!("http://{base}:{port}");
            let got = browser.run_with(TRY_ALL, json!([base])).await;
            let got = got.as_object().expect("outcomes");
            assert_eq!(got.len(), 11, "{got:?}");
            for (attempt, worked) in got {
                assert_eq!(worked, false, "{attempt} from {host} on {base}");
            }
        }
        let status = door.owner().get("/owner/v1/status").await;
        assert_eq!(status["mode"], "ask", "from {host}");
        assert_eq!(status["channel"]["open"], true, "from {host}");
        if host != name {
            for head in foreign.heads() {
                assert!(!head.contains("postern-console"), "at {host}: {head}");
            }
        }
    }
    browser.open(&format!("http://{name}:{port}/")).await;
    assert_eq!(browser.title().await, "Now · Postern", "he is still in");
    foreign.tasks.shutdown(std::time::Duration::ZERO).await;
}

#[tokio::test]
async fn the_cookie_goes_to_no_other_port_of_the_usual_names() {
    let world = World::new();
    let door = world.up("ask").await;
    let foreign = Foreign::start().await;
    let browser = world.browser(Look::default()).await;
    browser.open(&door.ready.console_link()).await;
    for host in ["127.0.0.1", "localhost", "[::1]"] {
        browser
            .open(&format!("http://{host}:{}/", foreign.port))
            .await;
    }
    let heads = foreign.heads().join("\n");
    assert!(heads.contains("Host: 127.0.0.1"), "{heads}");
    assert!(!heads.to_lowercase().contains("cookie:"), "{heads}");
    foreign.tasks.shutdown(std::time::Duration::ZERO).await;
}

/// Asks the console as a program does that has this header.
async fn ask(door: &Door, method: Method, path: &str, header: (&str, &str)) -> Reply {
    let (_, port) = named(door);
    let url = format!("http://127.0.0.1:{port}{path}");
    let reply = Http::default()
        .send(method, &url, &[header], Vec::new(), |_| true)
        .await;
    reply.expect("an answer")
}

#[tokio::test]
async fn agent_channel_and_admin_tokens_open_no_page_and_make_no_link() {
    let world = World::new();
    let door = world.up("full").await;
    let (_, port) = named(&door);
    let kept = |name: &str| std::fs::read_to_string(world.data().join(name)).expect("a token");
    for token in [
        door.ready.agent_token.clone(),
        kept("channel-token"),
        kept("admin-token"),
    ] {
        let token = token.trim();
        let bearer = format!("Bearer {token}");
        let cookie = format!("postern-console-{port}={token}");
        for header in [("authorization", bearer.as_str()), ("cookie", &cookie)] {
            for (method, path) in [
                (Method::GET, "/"),
                (Method::GET, "/inbox"),
                (Method::GET, "/receipts"),
                (Method::GET, "/sessions"),
                (Method::POST, "/console/channel"),
                (Method::POST, "/owner/v1/links"),
                (Method::GET, "/owner/v1/commands"),
            ] {
                let reply = ask(&door, method, path, header).await;
                assert_eq!(reply.status, StatusCode::UNAUTHORIZED, "{path}");
                let said = String::from_utf8_lossy(&reply.body);
                assert!(!said.contains(token), "{path} repeats the token");
            }
        }
    }
    assert_eq!(
        door.owner().get("/owner/v1/status").await["channel"]["open"],
        true
    );
}

/// Runs a line of bash as another user of this machine.
fn as_another_user(line: &str) -> Output {
    let mut command = Command::new("/bin/bash");
    command
        .args(["-c", line])
        .current_dir("/")
        .env_clear()
        .uid(OTHER_USER)
        .gid(OTHER_USER);
    command.output().expect("only root can become another user")
}

#[tokio::test]
async fn a_second_user_of_the_machine_reads_no_token_and_gets_no_answer() {
    let world = World::new();
    // The way to the data directory is open to everybody: only the files' own modes stand in between.
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(world.outside(), open).expect("mode");
    let door = world.up("ask").await;
    for name in ["owner-token", "console-name", "console-url", "exec-key"] {
        let path = world.data().join(name);
        assert!(path.exists(), "{name}");
        let read = as_another_user(&format!("cat '{}'", path.display()));
        assert!(!read.status.success(), "{name} is readable");
        assert_eq!(String::from_utf8_lossy(&read.stdout), "", "{name}");
    }
    let listed = as_another_user(&format!("ls '{}'", world.data().display()));
    assert!(!listed.status.success(), "the data directory is readable");
    let (_, port) = named(&door);
    for (request, answer) in [
        ("GET /owner/v1/status", "401"),
        ("GET /owner/v1/inbox", "401"),
        ("GET /", "401"),
        ("GET /link/0000", "410"),
        ("POST /owner/v1/links", "401"),
        ("POST /console/channel", "401"),
    ] {
        let line = format!(
            r"exec 3<>/dev/tcp/127.0.0.1/{port}; printf '{request} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n' >&3; head -c 12 <&3"
        );
        let said = as_another_user(&line);
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        assert_eq!(said, format!("HTTP/1.1 {answer}"), "{request}");
    }
    let status = door.owner().get("/owner/v1/status").await;
    assert_eq!(status["channel"]["open"], true);
}

/// A form of the console's, as a browser sends it by a fresh link.
async fn form(door: &Door, path: &str, body: &str) -> Reply {
    let owner = door.owner();
    let link = owner
        .send(
            Method::POST,
            "/owner/v1/links",
            Some(&json!({"plain": true})),
        )
        .await;
    let link = link.json["url"].as_str().expect("a link").to_owned();
    let (origin, _) = link.split_once("/link/").expect("a link");
    let http = Http::default();
    let opened = http
        .send(Method::GET, &link, &[], Vec::new(), |_| true)
        .await
        .expect("an answer");
    let cookie = opened.headers["set-cookie"].to_str().expect("text");
    let (cookie, _) = cookie.split_once(';').expect("attributes");
    let headers = [
        ("cookie", cookie),
        ("origin", origin),
        ("content-type", "application/x-www-form-urlencoded"),
    ];
    let url = format!("{origin}{path}");
    let reply = http
        .send(Method::POST, &url, &headers, body.into(), |_| true)
        .await;
    reply.expect("an answer")
}

/// One way to decide, and what becomes of the call.
struct Way {
    tool: &'static str,
    arguments: Value,
    form: &'static str,
    /// The error's code; `None` when the call is done.
    refused: Option<&'static str>,
}

fn ways() -> Vec<Way> {
    let write = json!({"path": "new.txt", "content": "x", "expectedSha256": null});
    let way = |tool, arguments: &Value, form, refused| Way {
        tool,
        arguments: arguments.clone(),
        form,
        refused,
    };
    vec![
        way("workspace_write", &write, "decision=approve", None),
        way("workspace_write", &write, "decision=approve_session", None),
        way(
            "workspace_write",
            &write,
            "decision=deny&answer=no",
            Some("APPROVAL_DENIED"),
        ),
        way(
            "workspace_ask",
            &json!({"question": "Which?"}),
            "decision=answer&answer=blue",
            None,
        ),
    ]
}

#[tokio::test]
async fn a_decision_by_form_counts_whatever_is_killed_right_after_it() {
    for way in ways() {
        let world = World::new();
        let mut door = world.up("ask").await;
        let id = uuid::Uuid::now_v7().to_string();
        let agent = door.agent();
        let arguments = way.arguments.to_string();
        let decide = async {
            let item = wait_for("an item", SOON, || async {
                door.owner().inbox().await.into_iter().next()
            })
            .await;
            let path = format!("/inbox/{}/decision", item["id"].as_str().expect("an id"));
            let reply = form(&door, &path, way.form).await;
            assert_eq!(reply.status, StatusCode::SEE_OTHER, "{}", way.form);
            postern_tests::process::signal(door.program.pid(), rustix::process::Signal::KILL);
        };
        let (_lost, ()) = tokio::join!(agent.try_call(Some(&id), way.tool, &arguments), decide);
        door.program.kill().await;
        let door = world.up("ask").await;
        let answer = door.agent().call_as(&id, way.tool, &way.arguments).await;
        let changes = way.tool == "workspace_write" && way.refused.is_none();
        let done = match way.refused {
            // It was under way when it was killed: it happened, or it did not and never will, and that is what is told.
            None if changes && answer.is_error => {
                drop(answer.refused("NOT_APPLIED"));
                false
            }
            None => {
                drop(answer.ok());
                changes
            }
            Some(code) => {
                drop(answer.refused(code));
                false
            }
        };
        let exists = world.project().join("new.txt").exists();
        assert_eq!(exists, done, "{}", way.form);
        assert_eq!(door.owner().receipts_of(&id).await.len(), 1, "{}", way.form);
        assert!(door.owner().inbox().await.is_empty(), "{}", way.form);
    }
}
