//! The console in a real browser: the owner sees what happens, decides by keyboard or mouse, with scripts and without.
#![expect(
    clippy::expect_used,
    reason = "what a test needs and has not, fails it"
)]

use std::time::Duration;

use http::StatusCode;
use postern_tests::{Browser, Door, Look, World, text_of, wait_for};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

/// For what must come of a decision, or a file to appear.
const SOON: Duration = Duration::from_secs(30);
/// WebDriver's keys.
const TAB: char = '\u{e004}';
const ENTER: char = '\u{e007}';

fn new_file(name: &str) -> Value {
    json!({"path": name, "content": "one\ntwo\n", "expectedSha256": null})
}

/// A browser in which the link of a door was opened.
async fn inside(world: &World, door: &Door, look: Look) -> Browser {
    let browser = world.browser(look).await;
    browser.open(&door.ready.console_link()).await;
    browser
}

/// Where the console is under its own name.
fn console(door: &Door) -> String {
    let link = door.ready.console_link();
    let (start, _) = link.split_once("/link/").expect("a link");
    start.to_owned()
}

/// Waits until so many items wait for the owner.
async fn waiting(door: &Door, count: usize) -> Vec<Value> {
    wait_for("items in the inbox", SOON, || async {
        Some(door.owner().inbox().await).filter(|items| items.len() == count)
    })
    .await
}

/// Presses Tab until what has the focus matches a selector, as a person does who uses no mouse.
async fn tab_to(browser: &Browser, selector: &str) {
    for _ in 0..60 {
        browser.press(TAB).await;
        let focused = format!("return document.activeElement.matches({})", json!(selector));
        if browser.run(&focused).await == true {
            return;
        }
    }
    panic!("{selector} is not reached by the keyboard");
}

#[tokio::test]
async fn a_link_lets_a_browser_in_once_and_the_keyboard_alone_approves() {
    let world = World::new();
    let door = world.up("ask").await;
    let agent = door.agent();
    let decide = async {
        waiting(&door, 1).await;
        let browser = inside(&world, &door, Look::default()).await;
        assert_eq!(browser.url().await, format!("{}/", console(&door)));
        assert_eq!(browser.title().await, "(1) Now · Postern");
        assert_eq!(browser.run("return document.cookie").await, "");
        let cookies = browser.cookies().await;
        let facts = ["httpOnly", "sameSite", "path"].map(|name| &cookies[0][name]);
        assert_eq!(facts, [&json!(true), &json!("Strict"), &json!("/")]);

        tab_to(&browser, "nav a[href='/inbox']").await;
        browser.press(ENTER).await;
        browser.until("document.title.includes('Inbox')").await;
        tab_to(&browser, "button[value=approve]").await;
        browser.press(ENTER).await;
        browser
            .until("document.body.innerText.includes('Nothing waits for you')")
            .await;
        assert_eq!(browser.title().await, "Inbox · Postern");

        let other = world.browser(Look::default()).await;
        other.open(&door.ready.console_link()).await;
        assert_eq!(other.text("h1").await, "This link cannot be used");
        assert_eq!(other.cookies().await, json!([]));
    };
    let (written, ()) = tokio::join!(agent.call("workspace_write", new_file("new.txt")), decide);
    let _ = written.ok();
    assert_eq!(world.read("new.txt"), b"one\ntwo\n");
    let receipt = &door.owner().receipts().await[0];
    assert_eq!(receipt["decidedBy"], "console");
}

#[tokio::test]
async fn an_owner_denies_answers_changes_the_mode_and_closes_the_door() {
    let world = World::new();
    let door = world.up("ask").await;
    let agent = door.agent();
    let browser = inside(&world, &door, Look::default()).await;
    browser.open(&format!("{}/inbox", console(&door))).await;

    // What comes while the page is open appears on it.
    let deny = async {
        browser.until("document.querySelector('.card .diff')").await;
        assert_eq!(browser.title().await, "(1) Inbox · Postern");
        browser.fill("input[name=answer]", "not this one").await;
        browser.click("button[value=deny]").await;
        browser.until("document.querySelector('#none')").await;
    };
    let (denied, ()) = tokio::join!(agent.call("workspace_write", new_file("new.txt")), deny);
    let told = denied.refused("APPROVAL_DENIED");
    assert_eq!(told["details"]["answer"], "not this one");
    assert!(!world.project().join("new.txt").exists());

    let answer = async {
        browser.until("document.querySelector('textarea')").await;
        browser.fill("textarea", "blue\nor green").await;
        browser.click("button[value=answer]").await;
        browser.until("document.querySelector('#none')").await;
    };
    let question = json!({"question": "Which colour?"});
    let (answered, ()) = tokio::join!(agent.call("workspace_ask", question), answer);
    assert_eq!(answered.ok()["answer"], "blue\nor green");

    browser.open(&console(&door)).await;
    browser.click("#mode-edit").await;
    browser
        .until("document.querySelector('#mode-edit[aria-pressed=true]')")
        .await;
    let _ = agent
        .call("workspace_write", new_file("edit.txt"))
        .await
        .ok();
    browser.click("button.door").await;
    browser.until("document.querySelector('.door.shut')").await;
    let closed = async {
        wait_for("a closed channel", SOON, || async {
            let status = door.owner().get("/owner/v1/status").await;
            (status["channel"]["connected"] == false).then_some(())
        })
        .await;
        assert!(!world.project().join("shut.txt").exists());
        browser.click("button.door").await;
        browser.until("!document.querySelector('.door.shut')").await;
    };
    let (written, ()) = tokio::join!(agent.call("workspace_write", new_file("shut.txt")), closed);
    let _ = written.ok();
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}

#[tokio::test]
async fn approving_for_the_session_lets_the_like_go_ahead() {
    let world = World::new();
    let door = world.up("ask").await;
    let agent = door.agent();
    let browser = inside(&world, &door, Look::default()).await;
    let approve = async {
        waiting(&door, 1).await;
        browser.open(&format!("{}/inbox", console(&door))).await;
        browser.click("button[value=approve_session]").await;
        browser.until("document.querySelector('#none')").await;
    };
    let (first, ()) = tokio::join!(agent.call("workspace_write", new_file("a.txt")), approve);
    let _ = first.ok();
    let _ = agent.call("workspace_write", new_file("b.txt")).await.ok();
    let receipt = &door.owner().receipts().await[0];
    assert_eq!(receipt["policyId"], "owner.session-approval");
}

#[tokio::test]
async fn changes_are_taken_back_by_receipt_and_by_session() {
    let world = World::new();
    let door = world.up("full").await;
    let agent = door.agent();
    for name in ["a.txt", "b.txt", "c.txt"] {
        let _ = agent.call("workspace_write", new_file(name)).await.ok();
    }
    let receipt = text_of(&door.owner().receipts().await[0], "id");
    let browser = inside(&world, &door, Look::default()).await;
    let page = format!("{}/receipts/{receipt}", console(&door));
    browser.open(&page).await;
    browser.says("#receipt .patch", "+two").await;
    let link = "document.querySelector('a[download]').href";
    let fetched =
        format!("return fetch({link}).then(async (got) => [got.status, await got.text()])");
    let patch = browser.run(&fetched).await;
    assert_eq!(patch[0], 200, "{patch}");
    assert!(
        text_of(&json!({"patch": patch[1]}), "patch").contains("+++ b/c.txt\n"),
        "{patch}"
    );
    let session = text_of(&door.owner().receipts().await[0], "sessionId");
    browser
        .open(&format!("{}/sessions/{session}", console(&door)))
        .await;
    browser.says("main", "b.txt").await;
    browser.says(".patch", "+one").await;
    browser.open(&page).await;
    browser.click("#receipt form button").await;
    browser.says("#receipt", "owner_undo").await;
    browser.says("#receipt", &receipt).await;
    let there = || ["a.txt", "b.txt", "c.txt"].map(|name| world.project().join(name).exists());
    assert_eq!(there(), [true, true, false]);
    browser.open(&page).await;
    browser.says("#receipt", "Taken back by").await;
    assert_eq!(
        browser
            .run("return !document.querySelector('#receipt form')")
            .await,
        true
    );

    browser.open(&format!("{}/sessions", console(&door))).await;
    world.write("a.txt", "the owner's");
    browser.click("#sessions form button").await;
    browser.says("h1", "Not undone").await;
    browser.says("main", "a.txt").await;
    assert_eq!(there(), [true, true, false], "all or nothing");
    world.write("a.txt", "one\ntwo\n");
    browser.open(&format!("{}/sessions", console(&door))).await;
    browser.click("#sessions form button").await;
    browser.titled("Receipt · Postern").await;
    assert_eq!(there(), [false; 3]);
}

#[tokio::test]
async fn a_command_is_followed_as_it_speaks_and_is_stopped() {
    let world = World::new();
    let door = world.up("full").await;
    let browser = inside(&world, &door, Look::default()).await;
    browser
        .until("document.body.innerText.includes('No command runs')")
        .await;
    let agent = door.agent();
    let command = json!({"command": "echo first; while [ ! -e go ]; do sleep 0.05; done; echo second; printf '[\\342\\200\\256\\033]\\n'; sleep 1000"});
    let started = agent.call("workspace_exec", command).await.ok();
    let id = text_of(&started, "commandId");
    let says = |text: &str| {
        format!("document.getElementById('output-{id}')?.textContent.includes('{text}')")
    };
    browser.until(&says("first")).await;
    assert_eq!(
        browser.run(&format!("return {}", says("second"))).await,
        false
    );
    world.write("go", "");
    browser.until(&says("second")).await;
    // What would turn the text around or steer a terminal is seen, as on a page that is loaded then.
    browser.until(&says("[U+202E␛]")).await;
    browser.picture("command", Look::default()).await;
    browser.click(&format!("#command-{id} button.danger")).await;
    browser
        .until("document.body.innerText.includes('No command runs')")
        .await;
    browser
        .open(&format!("{}/commands/{id}", console(&door)))
        .await;
    assert!(browser.text("#status").await.contains("stopped"));
    let polled = agent
        .call("workspace_poll", json!({"commandId": id, "offset": 0}))
        .await
        .ok();
    assert_eq!(polled["status"], "stopped");
    let owner = door.owner();
    let stops = owner.get("/owner/v1/receipts?tool=workspace_stop").await;
    assert_eq!(stops["items"][0]["state"], "completed", "{stops}");
    assert_eq!(stops["items"][0]["policyId"], "owner.stop");
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}

#[tokio::test]
async fn everything_that_matters_works_without_scripts() {
    let world = World::new();
    let door = world.up("ask").await;
    let agent = door.agent();
    let look = Look {
        scripts: false,
        ..Look::default()
    };
    let approve = async {
        waiting(&door, 1).await;
        let browser = inside(&world, &door, look).await;
        assert_eq!(browser.title().await, "(1) Now · Postern");
        browser.click(".notice a").await;
        browser.says(".diff", "two").await;
        browser.click("button[value=approve]").await;
        browser.titled("Inbox · Postern").await;
        browser.click("nav a[href='/receipts']").await;
        browser.click(".timeline a").await;
        browser.says("#receipt", "approve by console").await;
        browser.click("button.door").await;
        browser.says("button.door", "Open the door again").await;
        browser.click("button.door").await;
        browser.says("button.door", "Close the door").await;
        browser.click("footer button").await;
        browser.says("main", "postern console").await;
    };
    let (written, ()) = tokio::join!(agent.call("workspace_write", new_file("new.txt")), approve);
    let _ = written.ok();
}

/// What a page would do if something of an agent's were markup or script on it.
const TRAP: &str = "\"'><script>window.pwned=1</script><img src=x onerror='window.pwned=1'><a href=javascript:window.pwned=1>x</a></textarea></pre>";

/// The page is loaded, and its script has begun to work.
const IS_THERE: &str = "document.readyState === 'complete' && (!document.querySelector('[data-output]') || document.querySelector('[data-output]').dataset.followed)";
/// Whether a trap was sprung, and how much of the page's content is markup that only a trap can be.
const MARKUP: &str = "return [typeof window.pwned, document.querySelectorAll('main img, main script, main a[href^=javascript]').length]";

#[tokio::test]
async fn what_agents_and_files_say_is_never_markup_or_script() {
    let world = World::new();
    let door = world.up("full").await;
    let agent = door.agent();
    let name = "<img src=x onerror=window.pwned=1>.txt";
    world.write(name, TRAP);
    let read = agent
        .call("workspace_read", json!({"path": name}))
        .await
        .ok();
    let command = format!(
        "printf '%s' \"{}\"; sleep 1000 # {TRAP}",
        TRAP.replace('"', "'")
    );
    let started = agent
        .call("workspace_exec", json!({"command": command}))
        .await
        .ok();
    let id = text_of(&started, "commandId");
    door.owner().set_mode("ask").await;
    let browser = inside(&world, &door, Look::default()).await;
    let calls = async {
        let write = json!({"path": name, "content": format!("{TRAP}\n{TRAP}"), "expectedSha256": read["sha256"]});
        let exec = json!({"command": TRAP});
        let ask = json!({"question": TRAP});
        tokio::join!(
            agent.call("workspace_write", write),
            agent.call("workspace_exec", exec),
            agent.call("workspace_ask", ask),
        )
    };
    let look = async {
        let items = waiting(&door, 3).await;
        let mut paths = vec!["/".to_owned(), "/inbox".to_owned(), "/receipts".to_owned()];
        paths.extend(["/sessions".to_owned(), format!("/commands/{id}")]);
        for item in &items {
            let id = text_of(item, "id");
            paths.extend([format!("/inbox/{id}"), format!("/receipts/{id}")]);
            paths.push(format!("/inbox/{id}/proposal.txt"));
        }
        for path in paths {
            browser.open(&format!("{}{path}", console(&door))).await;
            browser.until(IS_THERE).await;
            assert_eq!(browser.run(MARKUP).await, json!(["undefined", 0]), "{path}");
        }
        browser.open(&format!("{}/inbox", console(&door))).await;
        browser.picture("traps", Look::default()).await;
        let words = json!({"decision": "deny", "answer": TRAP});
        for item in &items {
            let reply = door.owner().decide(&text_of(item, "id"), &words).await;
            assert_eq!(reply.status, StatusCode::OK, "{}", reply.json);
        }
        for item in &items {
            let path = format!("{}/receipts/{}", console(&door), text_of(item, "id"));
            browser.open(&path).await;
            assert!(browser.text("#receipt").await.contains("window.pwned=1"));
            assert_eq!(browser.run("return typeof window.pwned").await, "undefined");
        }
    };
    tokio::join!(calls, look);
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}

#[tokio::test]
async fn what_was_changed_is_never_markup_or_script() {
    let world = World::new();
    let door = world.up("full").await;
    let write = json!({"path": "t<b>.txt", "content": format!("{TRAP}\n"), "expectedSha256": null});
    let _ = door.agent().call("workspace_write", write).await.ok();
    let changed = door.owner().receipts().await.remove(0);
    let browser = inside(&world, &door, Look::default()).await;
    for page in change_pages(&changed) {
        browser.open(&format!("{}{page}", console(&door))).await;
        browser.says(".patch", "window.pwned=1").await;
        assert_eq!(browser.run(MARKUP).await, json!(["undefined", 0]), "{page}");
    }
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}

/// The pages that tell what a receipt and its session changed.
fn change_pages(receipt: &Value) -> [String; 2] {
    let (id, session) = (text_of(receipt, "id"), text_of(receipt, "sessionId"));
    [format!("/receipts/{id}"), format!("/sessions/{session}")]
}

/// What keeps people out of the page, as far as a program can tell (axe-core): rules of WCAG 2.2 AA and good practice.
async fn barriers(browser: &Browser) -> Value {
    let path = postern_tests::client::node_folder().join("node_modules/axe-core/axe.min.js");
    let axe = std::fs::read_to_string(path).expect("axe-core is installed by tests/run");
    let ask = "return axe.run(document, {resultTypes: ['violations']}).then((found) => found.violations.map((one) => [one.id, one.nodes[0].html]))";
    browser.run(&format!("{axe}; {ask}")).await
}

/// Name, width, scale and darkness of what pages are looked at with.
const LOOKS: [(&str, u64, u64, bool); 4] = [
    ("wide", 1200, 1, false),
    ("wide-dark", 1200, 1, true),
    ("zoomed", 640, 2, false),
    ("narrow-dark", 320, 1, true),
];

/// Looks at the open page in every way: nothing of it is out of sight, and nothing keeps people out.
async fn fits(browser: &Browser, name: &str) {
    for (kind, width, scale, dark) in LOOKS {
        let look = Look {
            width,
            scale,
            dark,
            ..Look::default()
        };
        browser.look(look, 900).await;
        browser
            .until("document.documentElement.scrollWidth <= innerWidth")
            .await;
        if scale == 1 {
            assert_eq!(barriers(browser).await, json!([]), "{name} {kind}");
        }
        browser.picture(&format!("{name}-{kind}"), look).await;
    }
}

#[tokio::test]
async fn pages_fit_narrow_screens_zoom_and_dark_rooms() {
    let world = World::new();
    world.write("long.txt", format!("{}\nold\n", "word ".repeat(300)));
    let door = world.up("full").await;
    let agent = door.agent();
    let path = json!({"path": "long.txt"});
    let read = agent.call("workspace_read", path).await.ok();
    let command = json!({"command": "seq 1 40; sleep 1000"});
    let started = agent.call("workspace_exec", command).await.ok();
    let id = text_of(&started, "commandId");
    let missing = json!({"path": "nothing", "expectedSha256": "0".repeat(64)});
    let _ = agent.call("workspace_delete", missing).await;
    let write = json!({"path": "long.txt", "content": format!("{}\nold\n", "weird ".repeat(300)), "expectedSha256": read["sha256"]});
    let read = agent.call("workspace_write", write).await.ok();
    let changed = door.owner().receipts().await.remove(0);
    let [change, session] = change_pages(&changed);
    door.owner().set_mode("ask").await;
    let browser = inside(&world, &door, Look::default()).await;
    let patch = json!({"path": "long.txt", "oldText": "old", "newText": "new\u{202e}", "expectedSha256": read["sha256"]});
    let long = json!({"command": format!("echo {}", "unbroken".repeat(100))});
    let calls = async {
        tokio::join!(
            agent.call("workspace_patch", patch),
            agent.call("workspace_exec", long),
            agent.call("workspace_ask", json!({"question": "Which colour?"})),
        )
    };
    let look = async {
        let items = waiting(&door, 3).await;
        let receipt = format!("/receipts/{}", text_of(&items[0], "id"));
        let command = format!("/commands/{id}");
        for (name, path) in [
            ("now", "/"),
            ("inbox", "/inbox"),
            ("receipts", "/receipts"),
            ("sessions", "/sessions"),
            ("receipt", &receipt),
            ("command", &command),
            ("change", &change),
            ("session", &session),
        ] {
            browser.open(&format!("{}{path}", console(&door))).await;
            fits(&browser, name).await;
        }
        for item in &items {
            let deny = json!({"decision": "deny"});
            door.owner().decide(&text_of(item, "id"), &deny).await;
        }
    };
    tokio::join!(calls, look);
}
