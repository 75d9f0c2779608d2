//! Who comes in, what pages may do, and that nothing of others becomes markup.

mod access;
mod bounds;
mod shown;
mod speed;

use axum::{
    body::{Body, to_bytes},
    http::{HeaderMap, Request},
};
use bytes::Bytes;
use http::{Method, StatusCode, header};
use postern_kit::{Clock, task::Tasks, transport};
use postern_proto::ledger::v1::{
    BeginRequest, Call, Decision, InboxKind, OpenIncarnationRequest, Question,
};
use postern_types::{Mode, Sha256, Timestamp, trace_id};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::{
    ChannelState,
    control::test_control,
    owner::{
        Api,
        tests::{only_ledger, settings},
    },
};

/// The console's own name, as the tests' settings have it.
const NAMED: &str = "label.localhost:7301";
const PLAIN: &str = "127.0.0.1:7301";

struct World {
    api: Api,
    incarnation: u64,
    _tasks: Tasks,
    _directory: tempfile::TempDir,
}

struct Reply {
    status: StatusCode,
    headers: HeaderMap,
    text: String,
}

impl Reply {
    fn header(&self, name: header::HeaderName) -> &str {
        let value = self.headers.get(&name);
        value.map_or("", |value| value.to_str().expect("text"))
    }
}

impl World {
    async fn new() -> Self {
        let directory = tempfile::tempdir().expect("directory");
        let (clock, tasks) = (Clock::system(), Tasks::new());
        let config = postern_ledger::Config {
            database: postern_ledger::Database::Sqlite(directory.path().join("ledger.db")),
        };
        let ledger = postern_ledger::Service::open(config, clock.clone(), &tasks);
        let ledger = transport::local(ledger.await.expect("ledger").into_server());
        let address = PLAIN.parse().expect("address");
        let control = test_control(Mode::Ask);
        let api = Api::new(control, only_ledger(&ledger), settings(address), clock);
        let workspace_id = "w".to_owned();
        let opened = api.0.ledger.clone();
        let opened = { opened }
            .open_incarnation(OpenIncarnationRequest { workspace_id })
            .await
            .expect("incarnation");
        Self {
            incarnation: opened.into_inner().incarnation,
            api,
            _tasks: tasks,
            _directory: directory,
        }
    }

    async fn send(&self, request: Request<Body>) -> Reply {
        let answer = self.api.clone().router().oneshot(request).await;
        let (parts, body) = answer.expect("an answer").into_parts();
        let bytes = to_bytes(body, 1 << 24).await.expect("a body");
        Reply {
            status: parts.status,
            headers: parts.headers,
            text: String::from_utf8(bytes.into()).expect("text"),
        }
    }

    async fn ask(&self, method: Method, host: &str, path: &str, headers: &[(&str, &str)]) -> Reply {
        self.ask_with(method, host, path, headers, "").await
    }

    async fn ask_with(
        &self,
        method: Method,
        host: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Reply {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", host);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::from(body.to_owned())).expect("request");
        self.send(request).await
    }

    /// The cookie of a browser that used a link.
    async fn cookie(&self) -> String {
        let link = self.api.link().expect("link").url;
        let path = link
            .strip_prefix("http://label.localhost:7301")
            .expect("named");
        let reply = self.ask(Method::GET, NAMED, path, &[]).await;
        assert_eq!(reply.status, StatusCode::SEE_OTHER, "{}", reply.text);
        assert_eq!(reply.header(header::LOCATION), "/");
        let cookie = reply.header(header::SET_COOKIE);
        let (cookie, attributes) = cookie.split_once("; ").expect("attributes");
        assert_eq!(
            attributes,
            "HttpOnly; SameSite=Strict; Path=/; Max-Age=43200"
        );
        cookie.to_owned()
    }

    async fn page(&self, path: &str) -> Reply {
        let cookie = self.cookie().await;
        self.ask(Method::GET, NAMED, path, &[("cookie", &cookie)])
            .await
    }

    /// Sends a form as a browser does from the console's page.
    async fn form(&self, path: &str, body: &str) -> Reply {
        let cookie = self.cookie().await;
        let headers = [
            ("cookie", cookie.as_str()),
            ("origin", "http://label.localhost:7301"),
            ("content-type", "application/x-www-form-urlencoded"),
        ];
        self.ask_with(Method::POST, NAMED, path, &headers, body)
            .await
    }

    /// An item that waits for the owner.
    async fn item(&self, tool: &str, session: &str, kind: InboxKind, proposal: &Value) -> String {
        let request = BeginRequest {
            call: Some(Call {
                workspace_id: "w".to_owned(),
                session_id: session.to_owned(),
                call_id: "c".to_owned(),
                intention: "i".to_owned(),
                tool: tool.to_owned(),
                args_sha256: Sha256::of(b"").to_string(),
                trace_id: trace_id("c"),
                ..Call::default()
            }),
            incarnation: self.incarnation,
            plan_json: Bytes::new(),
            question: Some(Question {
                kind: kind.into(),
                proposal_json: proposal.to_string().into(),
                expires_at_ms: Timestamp::now().as_millis() + 60_000,
            }),
            policy_id: "<policy>".to_owned(),
        };
        let begun = self.api.0.ledger.clone().begin(request).await;
        let outcome = begun.expect("begun").into_inner().outcome;
        match outcome {
            Some(postern_proto::ledger::v1::begin_response::Outcome::Started(receipt)) => {
                receipt.id
            }
            other => panic!("not begun: {other:?}"),
        }
    }

    async fn decision(&self, id: &str) -> (Decision, String, String) {
        let found = crate::owner::receipts::find(&self.api.0, id).await;
        let receipt = found.expect("found").receipt.expect("a receipt");
        (receipt.decision(), receipt.answer, receipt.decided_by)
    }
}

const PAGES: [&str; 4] = ["/", "/inbox", "/receipts", "/sessions"];

#[tokio::test]
async fn pages_are_the_owners_alone() {
    let world = World::new().await;
    for path in PAGES {
        for headers in [
            &[][..],
            &[("authorization", "Bearer postern_agent_x")],
            &[("cookie", "postern-console-7301=0123")],
            &[("cookie", "postern-console-7301=")],
        ] {
            let reply = world.ask(Method::GET, NAMED, path, headers).await;
            assert_eq!(reply.status, StatusCode::UNAUTHORIZED, "{path} {headers:?}");
            assert!(reply.text.contains("postern console"), "says what to do");
            assert_eq!(reply.header(header::CONNECTION), "close");
        }
        let reply = world.page(path).await;
        assert_eq!(reply.status, StatusCode::OK, "{path}: {}", reply.text);
        assert_eq!(reply.header(header::CONNECTION), "", "he keeps it");
        let token = [("authorization", "Bearer token")];
        let reply = world.ask(Method::GET, PLAIN, path, &token).await;
        assert_eq!(reply.status, StatusCode::OK, "{path}");
    }
}

#[tokio::test]
async fn pages_load_nothing_but_their_own_style_and_script() {
    let world = World::new().await;
    for path in PAGES {
        let reply = world.page(path).await;
        let policy = reply.header(header::CONTENT_SECURITY_POLICY);
        for rule in [
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "form-action 'self'",
            "base-uri 'none'",
            "frame-ancestors 'none'",
            "trusted-types 'none'",
        ] {
            assert!(policy.split("; ").any(|one| one == rule), "{policy}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");
        for (name, value) in [
            ("x-content-type-options", "nosniff"),
            ("cache-control", "no-store"),
            ("cross-origin-resource-policy", "same-origin"),
            ("cross-origin-opener-policy", "same-origin"),
            ("referrer-policy", "same-origin"),
            ("x-frame-options", "DENY"),
        ] {
            assert_eq!(reply.headers[name], value, "{name}");
        }
        for inline in ["<script>", "<style", " style=", " onclick="] {
            assert!(!reply.text.contains(inline), "{inline} on {path}");
        }
    }
    for path in ["/console.css", "/console.js"] {
        let reply = world.ask(Method::GET, NAMED, path, &[]).await;
        assert_eq!(reply.status, StatusCode::OK);
        assert_eq!(
            reply.header(header::CONTENT_SECURITY_POLICY),
            "default-src 'none'; frame-ancestors 'none'"
        );
    }
}

/// What a page names under its attribute, up to the closing quote.
fn named<'a>(page: &'a str, start: &str) -> &'a str {
    let from = page.find(start).expect("it is named");
    let rest = &page[from..];
    &rest[..rest.find('"').expect("a closing quote")]
}

#[tokio::test]
async fn a_browser_keeps_the_files_that_a_page_names_and_no_others() {
    let world = World::new().await;
    let cookie = world.cookie().await;
    let page = world.page("/").await.text;
    for path in ["/console.css", "/console.js", "/console.svg"] {
        let address = named(&page, path);
        let owner = [("cookie", cookie.as_str())];
        let reply = world.ask(Method::GET, NAMED, address, &owner).await;
        assert_eq!(reply.status, StatusCode::OK, "{address}");
        let kept = reply.header(header::CACHE_CONTROL);
        assert_eq!(kept, "private, max-age=31536000, immutable");
        assert_eq!(reply.header(header::CONNECTION), "", "the page's own");
        let foreign = world.ask(Method::GET, NAMED, address, &[]).await;
        assert_eq!(foreign.text, reply.text);
        assert_eq!(foreign.header(header::CONNECTION), "close");
        let of_another = format!("{path}?0123456789abcdef");
        for address in [path, &of_another, &address[..address.len() - 1]] {
            let other = world.ask(Method::GET, NAMED, address, &owner).await;
            assert_eq!(other.text, reply.text, "{address}");
            assert_eq!(other.header(header::CACHE_CONTROL), "no-store", "{address}");
        }
    }
}

#[tokio::test]
async fn forms_decide_as_the_api_does_and_once() {
    let world = World::new().await;
    let proposal = json!({"tool": "workspace_exec", "arguments": {"command": "make"}});
    let kind = InboxKind::Approval;
    let id = world.item("workspace_exec", "s", kind, &proposal).await;
    let path = format!("/inbox/{id}/decision");
    let wrong = world.form(&path, "decision=answer&answer=x").await;
    assert_eq!(wrong.status, StatusCode::BAD_REQUEST, "{}", wrong.text);
    let denied = world
        .form(
            &path,
            "decision=deny&answer=not+%26+now%0D%0Ano&back=%2Finbox",
        )
        .await;
    assert_eq!(denied.status, StatusCode::SEE_OTHER, "{}", denied.text);
    assert_eq!(denied.header(header::LOCATION), "/inbox");
    let decided = (
        Decision::Deny,
        "not & now\nno".to_owned(),
        "console".to_owned(),
    );
    assert_eq!(world.decision(&id).await, decided);
    let late = world.form(&path, "decision=approve").await;
    assert_eq!(late.status, StatusCode::CONFLICT);
    assert_eq!(world.decision(&id).await, decided);
}

#[tokio::test]
async fn forms_set_the_mode_and_close_the_door() {
    let world = World::new().await;
    let control = &world.api.0.control;
    let reply = world.form("/console/mode", "mode=read-only").await;
    assert_eq!(reply.status, StatusCode::SEE_OTHER, "{}", reply.text);
    assert_eq!(control.mode(), Mode::ReadOnly);
    let reply = world
        .form("/console/channel", "open=false&back=%2Freceipts")
        .await;
    assert_eq!(reply.header(header::LOCATION), "/receipts");
    assert!(!control.status().open);
    let wrong = world.form("/console/mode", "mode=everything").await;
    assert_eq!(wrong.status, StatusCode::BAD_REQUEST);
    assert_eq!(control.mode(), Mode::ReadOnly);
}

#[tokio::test]
async fn what_an_agent_says_is_text_on_every_page() {
    const MARK: &str = "<img src=x onerror=pwned()>";
    let world = World::new().await;
    let command = format!("echo {MARK} \u{202e}");
    let proposal =
        json!({"tool": "workspace_exec", "arguments": {"command": command, "cwd": MARK}});
    let session = "<img/src=x>";
    let kind = InboxKind::Approval;
    let id = world.item(MARK_TOOL, session, kind, &proposal).await;
    for path in [
        "/".to_owned(),
        "/inbox".to_owned(),
        format!("/inbox/{id}"),
        "/receipts".to_owned(),
        "/sessions".to_owned(),
        format!("/receipts/{id}"),
        "/receipts?session=%3Cimg/src%3Dx%3E".to_owned(),
    ] {
        let reply = world.page(&path).await;
        assert_eq!(reply.status, StatusCode::OK, "{path}: {}", reply.text);
        assert!(!reply.text.contains("<img"), "{path}: {}", reply.text);
    }
    let whole = world.page(&format!("/inbox/{id}/proposal.txt")).await;
    assert!(whole.text.contains(MARK), "as it is");
    assert_eq!(
        whole.header(header::CONTENT_TYPE),
        "text/plain; charset=utf-8"
    );
    assert_eq!(
        whole.header(header::CONTENT_SECURITY_POLICY),
        "default-src 'none'; frame-ancestors 'none'"
    );
    let item = world.page(&format!("/inbox/{id}")).await;
    assert!(item.text.contains(r#"<span class="odd">U+202E</span>"#));
}

/// A tool by whose name markup is tried.
const MARK_TOOL: &str = "<img/src=x>";

#[tokio::test]
async fn a_question_is_answered_by_its_form() {
    let world = World::new().await;
    let proposal = json!({"question": "Which <b>colour</b>?"});
    let kind = InboxKind::Question;
    let id = world.item("workspace_ask", "s", kind, &proposal).await;
    let page = world.page("/inbox").await;
    assert!(page.text.contains("Which &lt;b&gt;colour&lt;/b&gt;?"));
    assert!(page.text.contains("<title>(1) Inbox"), "the title counts");
    let empty = world
        .form(&format!("/inbox/{id}/decision"), "decision=answer&answer=")
        .await;
    assert_eq!(empty.status, StatusCode::BAD_REQUEST);
    let answered = world
        .form(
            &format!("/inbox/{id}/decision"),
            "decision=answer&answer=blue",
        )
        .await;
    assert_eq!(answered.status, StatusCode::SEE_OTHER, "{}", answered.text);
    let (decision, answer, _) = world.decision(&id).await;
    assert_eq!((decision, answer.as_str()), (Decision::Answer, "blue"));
    let page = world.page("/inbox").await;
    assert!(page.text.contains("Nothing waits for you"));
}
