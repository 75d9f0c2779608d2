//! Secrets stay where they belong (B63): with every process logging all it can, no token, content or answer is in a log, and no
//! token in what is stored.
#![expect(clippy::expect_used, reason = "tests fail by panicking")]

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use http::{Method, StatusCode};
use memchr::memmem;
use postern_tests::{Agent, Door, Fault, Http, World, text_of, wait_for};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

/// For an item to reach the inbox.
const ITEM_LIMIT: Duration = Duration::from_secs(30);
/// What stands in contents, input and answers.
const CONTENT: &str = "canary-of-a-file-7f3a";
const INPUT: &str = "canary-of-typed-text-91bd";
const ANSWER: &str = "canary-of-an-answer-c04e";
const COMMAND: &str = "canary-of-a-command-5d21";
const ENVIRONMENT: &str = "canary-of-the-environment-e8f6";
/// A token that nobody has, in the header and where none belongs.
const STRANGER: &str = "canary-of-a-stranger-2b9c";

/// The files whose whole purpose is to hold a token, which are the owner's alone.
const TOKEN_FILES: [&str; 4] = ["admin-token", "agent-token", "channel-token", "owner-token"];

/// The file with the output of a command, as long as it is short.
const SPOOL_FILE: &str = "head";

/// Every file below a directory.
fn files(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("readable") {
        let path = entry.expect("an entry").path();
        match path.is_dir() && !path.is_symlink() {
            true => files(&path, found),
            false => found.push(path),
        }
    }
}

/// The files of those that hold a mark, by name.
fn holding(files: &[PathBuf], mark: &str) -> Vec<String> {
    let holds = |path: &&PathBuf| {
        fs::read(path).is_ok_and(|bytes| memmem::find(&bytes, mark.as_bytes()).is_some())
    };
    let name = |path: &PathBuf| path.file_name().unwrap_or_default().display().to_string();
    files.iter().filter(holds).map(name).collect()
}

/// One call of each tool, with marks in all that they carry.
async fn use_everything(world: &World, door: &Door) {
    let agent = door.agent();
    let write = json!({"path": "a.txt", "content": CONTENT, "expectedSha256": null});
    let written = agent.call("workspace_write", write).await.ok();
    let patch = json!({"path": "a.txt", "oldText": CONTENT, "newText": format!("{CONTENT}!"),
        "expectedSha256": written["sha256"]});
    let patched = agent.call("workspace_patch", patch).await.ok();
    let read = agent.call("workspace_read", json!({"path": "a.txt"})).await;
    assert_eq!(read.ok()["content"], format!("{CONTENT}!"));
    for (tool, arguments) in [
        ("workspace_info", json!({})),
        ("workspace_tools", json!({})),
        ("workspace_list", json!({"path": ""})),
        ("workspace_image", json!({"path": "a.txt"})),
        ("workspace_document", json!({"path": "a.txt"})),
        (
            "workspace_tool",
            json!({"name": "none", "arguments": {"x": CONTENT}}),
        ),
        ("workspace_nothing", json!({"x": CONTENT})),
        (
            "workspace_read",
            json!({"path": "a.txt", "offset": CONTENT}),
        ),
        ("sosoapi_get_workspace_context", json!({})),
    ] {
        let _whatever = agent.try_call(None, tool, &arguments.to_string()).await;
    }
    let command = format!("echo {COMMAND}; read line; echo \"$line\"; echo $SECRET_OF_MINE");
    let id = agent.exec(&command).await;
    let typed = json!({"commandId": id, "text": format!("{INPUT}\n")});
    let _ = agent.call("workspace_input", typed).await.ok();
    let ran = agent.follow(&id).await;
    for mark in [COMMAND, INPUT, ENVIRONMENT] {
        assert!(ran.output.contains(mark), "{}", ran.output);
    }
    let _ = agent
        .call("workspace_stop", json!({"commandId": id}))
        .await
        .ok();
    let owner = door.owner();
    let (asked, ()) = tokio::join!(
        agent.call("workspace_ask", json!({"question": "Which?"})),
        async {
            let item = wait_for("a question", ITEM_LIMIT, || async {
                owner.inbox().await.into_iter().next()
            })
            .await;
            let answer = json!({"decision": "answer", "answer": ANSWER});
            owner.decide(&text_of(&item, "id"), &answer).await;
        }
    );
    assert_eq!(asked.ok()["answer"], ANSWER);
    let delete = json!({"path": "a.txt", "expectedSha256": patched["sha256"]});
    let _ = agent.call("workspace_delete", delete).await.ok();
    assert!(!world.project().join("a.txt").exists());
}

/// Requests that are refused, with a stranger's token wherever one could be put: method, path, header and status.
fn requests(workspace: &str, bearer: &str) -> Vec<(Method, String, (&'static str, String), u16)> {
    let channel = format!("/api/ai-gateway/v1/workspaces/{workspace}/channel");
    let (get, post) = (Method::GET, Method::POST);
    [
        (&post, "/mcp", ("authorization", bearer), 401),
        (
            &post,
            &format!("/mcp?token={STRANGER}"),
            ("accept", "*/*"),
            401,
        ),
        (&post, "/mcp", ("authorization", STRANGER), 401),
        (&get, &channel, ("authorization", bearer), 401),
        (
            &get,
            &format!("{channel}?token={STRANGER}"),
            ("accept", "*/*"),
            400,
        ),
        (
            &post,
            "/identity-api/token/list",
            ("authorization", bearer),
            401,
        ),
        (&get, &format!("/{STRANGER}"), ("cookie", STRANGER), 404),
        (&get, "/healthz", ("origin", STRANGER), 403),
    ]
    .map(|(method, path, (name, value), status)| {
        (
            method.clone(),
            path.to_owned(),
            (name, value.to_owned()),
            status,
        )
    })
    .to_vec()
}

async fn knock(door: &Door) {
    let host = door.ready.mcp_url.trim_end_matches("/mcp");
    let bearer = format!("Bearer {STRANGER}");
    for (method, path, (name, value), status) in requests(&door.ready.workspace_id, &bearer) {
        let header = (name, value.as_str());
        let url = format!("{host}{path}");
        let body = json!({"token": STRANGER}).to_string().into_bytes();
        let client = Http::default();
        let reply = client.send(method, &url, &[header], body, |_| true).await;
        let reply = reply.expect("an answer");
        assert_eq!(reply.status.as_u16(), status, "{path}");
        let told = String::from_utf8_lossy(&reply.body);
        assert!(!told.contains(STRANGER), "{path}: {told}");
    }
    let stranger = Agent::modern(&door.ready.mcp_url, STRANGER);
    match stranger.try_call(None, "workspace_info", "{}").await {
        Err(Fault::Http(StatusCode::UNAUTHORIZED, told)) => {
            assert!(!told.to_string().contains(STRANGER), "{told}");
        }
        other => panic!("{other:?}"),
    }
}

/// B63: what is secret is in no log of any process at any level, and tokens are in no file but their own.
#[tokio::test]
async fn no_secret_is_logged_and_no_token_is_stored() {
    let mut world = World::new();
    world.set("POSTERN_LOG", "trace");
    world.set("SECRET_OF_MINE", ENVIRONMENT);
    let door = world.up("full").await;
    use_everything(&world, &door).await;
    knock(&door).await;
    let token_of = |file: &str| fs::read_to_string(world.data().join(file)).expect("a token");
    let mut tokens = vec![
        door.ready.agent_token.clone(),
        door.ready.owner_token.clone(),
    ];
    tokens.extend(["admin-token", "channel-token"].map(token_of));
    let tokens: Vec<_> = tokens.iter().map(|token| token.trim()).collect();
    let receipts: Vec<Value> = door.owner().receipts().await;
    assert!(receipts.len() >= 10, "{}", receipts.len());
    let _ = door.stop().await;

    let (mut stored, mut logs) = (Vec::new(), Vec::new());
    files(&world.data(), &mut stored);
    files(world.outside(), &mut logs);
    logs.retain(|path| path.extension().is_some_and(|extension| extension == "log"));
    let lines: usize = logs
        .iter()
        .map(|path| fs::read_to_string(path).expect("text").lines().count())
        .sum();
    assert!(lines > 100, "nothing was logged: {lines} lines in {logs:?}");
    for mark in [CONTENT, INPUT, ANSWER, COMMAND, ENVIRONMENT, STRANGER] {
        assert_eq!(holding(&logs, mark), Vec::<String>::new(), "{mark}");
    }
    assert!(
        holding(&stored, STRANGER).is_empty(),
        "{:?}",
        holding(&stored, STRANGER)
    );
    for token in tokens {
        assert!(token.len() > 20, "no token: {token}");
        assert_eq!(holding(&logs, token), Vec::<String>::new());
        let mut elsewhere = holding(&stored, token);
        elsewhere.retain(|name| !TOKEN_FILES.contains(&name.as_str()));
        assert_eq!(elsewhere, Vec::<String>::new());
        let receipts = json!(receipts).to_string();
        assert!(!receipts.contains(token));
    }
    // What a command was given and printed is in its own output, and nowhere else.
    for mark in [ENVIRONMENT, INPUT] {
        let mut elsewhere = holding(&stored, mark);
        elsewhere.retain(|name| name != SPOOL_FILE);
        assert_eq!(elsewhere, Vec::<String>::new(), "{mark}");
    }
}
