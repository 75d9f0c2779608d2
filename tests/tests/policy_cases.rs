//! What the owner allowed is what happens, and what cannot be read allows nothing: rules of commands (B57), and broken
//! configuration (B59).

use std::{fs, time::Duration};

use http::StatusCode;
use postern_tests::{
    CHANNEL_TOKEN, Door, FakeHost, WORKSPACE, World, call, edge_arguments, error_code, text_of,
    wait_for,
};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

/// For a program to be ready, and for an item to reach the inbox.
const READY_LIMIT: Duration = Duration::from_secs(60);
/// For a program that has to end by itself.
const END_LIMIT: Duration = Duration::from_secs(60);

async fn waiting(door: &Door) -> Value {
    let owner = door.owner();
    wait_for("an item in the inbox", READY_LIMIT, || async {
        owner.inbox().await.into_iter().next()
    })
    .await
}

/// Asks for a command, tells the proposal that the owner saw, and decides it.
async fn asked(door: &Door, command: &str, decision: &str) -> Value {
    let agent = door.agent();
    let decide = async {
        let item = waiting(door).await;
        let decision = json!({"decision": decision});
        let decided = door.owner().decide(&text_of(&item, "id"), &decision).await;
        assert_eq!(decided.status, StatusCode::OK, "{}", decided.json);
        item["proposal"].clone()
    };
    let (answer, proposal) = tokio::join!(
        agent.call("workspace_exec", json!({"command": command})),
        decide
    );
    assert_eq!(answer.is_error, decision == "deny", "{}", answer.structured);
    proposal
}

/// Commands that begin like `git status` or do what it does, and more.
const COMPOUND: &[&str] = &[
    "git status && touch pwn",
    "git status ; touch pwn",
    "git status | touch pwn",
    "git status || touch pwn",
    "git status & touch pwn",
    "git status\ntouch pwn",
    "git status $(touch pwn)",
    "git status `touch pwn`",
    "git status <(touch pwn)",
    "git status > pwn",
    "git -c core.fsmonitor=\"touch pwn\" status",
    "GIT_PAGER='touch pwn' git status",
    // What git's settings name it runs without a word in the text.
    "git config alias.z '!touch pwn'",
    "git z",
    "git diff --no-index --output=pwn a b",
    "git -C bare status",
    "ls; git status",
    "env X=1 git status",
    "/usr/bin/git status",
    "Git status",
    "./git status",
    "git --config-env=core.fsmonitor=X status",
    "git --exec-p=. status",
    "git $(echo -c) core.fsmonitor='touch pwn' status",
    "xargs git < list",
    "git status 'unclosed; touch pwn",
    "git status \\",
    "if git status; then touch pwn; fi",
];

/// The same program, whatever it is told to do.
const LIKE: &[&str] = &[
    "ls -la | wc -l",
    "'ls' .",
    " wc  -c < /dev/null #",
    "ls -R; ls | wc",
];

/// B57: a session's approval of a command covers what starts the same programs. Everything else is asked as a whole, as it is, and what is
/// denied does not happen in part either; nor does a rule that forbids programs let a command pass that it cannot parse.
#[tokio::test]
async fn an_approved_command_lets_no_other_one_pass() {
    let world = World::new();
    world.write("victim.txt", "precious");
    let door = world.up("ask").await;
    let proposal = asked(&door, "git status", "approve_session").await;
    assert!(proposal.to_string().contains("git status"), "{proposal}");
    let _ = asked(&door, "ls | wc", "approve_session").await;
    // The very same one asks no more.
    let same = json!({"command": "git status"});
    let _ = door.agent().call("workspace_exec", same).await.ok();
    for command in LIKE {
        let like = json!({"command": command});
        let _ = door.agent().call("workspace_exec", like).await.ok();
    }
    for command in COMPOUND {
        let proposal = asked(&door, command, "deny").await;
        let shown = json!(command).to_string();
        assert!(
            proposal.to_string().contains(shown.trim_matches('"')),
            "the owner judged something else than {command:?}: {proposal}"
        );
    }
    // The same words elsewhere are another command.
    let elsewhere = json!({"command": "git status", "cwd": ".git"});
    let agent = door.agent();
    let (answer, ()) = tokio::join!(agent.call("workspace_exec", elsewhere), async {
        let id = text_of(&waiting(&door).await, "id");
        let deny = json!({"decision": "deny"});
        assert_eq!(door.owner().decide(&id, &deny).await.status, StatusCode::OK);
    });
    let _ = answer.refused("APPROVAL_DENIED");
    assert!(!world.project().join("pwn").exists());
    assert_eq!(world.read("victim.txt"), b"precious");
}

/// B57 with a rule of the owner's: it speaks of the programs of a command however they are written, and a command of which
/// the programs cannot be told waits for the owner, also in a mode that asks about nothing.
#[tokio::test]
async fn a_denied_program_is_denied_in_every_spelling_and_what_cannot_be_parsed_asks() {
    let world = World::new();
    world.write("victim.txt", "precious");
    let policies = world.outside().join("policies");
    fs::create_dir(&policies).expect("writable");
    fs::write(
        policies.join("no-rm.cedar"),
        "@id(\"no-rm\") forbid (principal, action, resource == Tool::\"workspace_exec\")\n\
         when { context has programs && context.programs.contains(\"rm\") };\n",
    )
    .expect("writable");
    let folder = policies.display().to_string();
    let door = world.up_with("full", &["--policies", &folder]).await;
    let agent = door.agent();
    for command in [
        "rm victim.txt",
        "/bin/rm victim.txt",
        "true; rm victim.txt",
        "'r'm victim.txt",
        "r\"\"m victim.txt",
    ] {
        let sent = json!({ "command": command });
        let refused = agent.call("workspace_exec", sent).await;
        let error = refused.refused("PERMISSION_DENIED");
        assert!(error["details"].to_string().contains("no-rm"), "{error}");
    }
    for command in ["$(echo r)m victim.txt", "remove=rm; $remove victim.txt"] {
        let _ = asked(&door, command, "deny").await;
    }
    // Another program with the word among its arguments is none of the rule's business.
    assert_eq!(
        agent.run("echo rm victim.txt").await.output,
        "rm victim.txt\n"
    );
    assert_eq!(world.read("victim.txt"), b"precious");
}

/// Starts `up` in mode `full` with something broken, and expects one clear line and no door.
async fn refused(world: &World, further: &[&str], names: &str) {
    let mut program = world.start(&world.up_arguments("full", further));
    let line = program.event_or_end("ready", END_LIMIT).await;
    assert_eq!(line, None, "{names}: it opened");
    let ended = program.ended(END_LIMIT).await;
    assert!(matches!(ended.code, Some(1 | 2)), "{names}: {ended:?}");
    let told = ended.stderr.trim();
    assert!(
        told.starts_with("postern: ") && told.contains(names) && !told.contains("panicked"),
        "{told}"
    );
    // What follows is for whoever reads the first line.
    let first = told.lines().next().unwrap_or_default();
    assert!(first.len() < 1000, "{first}");
}

/// B59: a policy folder that cannot be read as one opens nothing, in whatever way it is broken.
#[tokio::test]
async fn broken_policies_open_nothing() {
    let world = World::new();
    let folder = world.outside().join("mine");
    let option = folder.display().to_string();
    let further = ["--policies", option.as_str()];
    let unreadable = format!("the rules in {option} cannot be read");
    refused(&world, &further, &unreadable).await;
    fs::write(&folder, "forbid (principal, action, resource);").expect("writable");
    refused(&world, &further, &unreadable).await;
    fs::remove_file(&folder).expect("removable");
    fs::create_dir(&folder).expect("writable");
    let file = folder.join("rules.cedar");
    let broken: &[&[u8]] = &[
        b"",
        b"// nothing but a remark\n",
        b"forbid (principal, action",
        b"permit (principal, action, resource);",
        b"{\"deny\": \"*\"}",
        b"forbid (principal, action, resource) when { context.nonsense };",
        b"forbid (principal, action, resource == Tool::\"workspace_exec\") when { context.command };",
        b"forbid (principal, action, resource); \xff\xfe",
        b"@id(\"a\") forbid (principal, action, resource); @id(\"a\") forbid (principal, action, resource);",
    ];
    for text in broken {
        fs::write(&file, text).expect("writable");
        refused(&world, &further, "rules.cedar").await;
    }
    fs::remove_file(&file).expect("removable");
    fs::create_dir(&file).expect("writable");
    refused(&world, &further, "rules.cedar").await;
    fs::remove_dir(&file).expect("removable");
    std::os::unix::fs::symlink("/nowhere", &file).expect("writable");
    refused(&world, &further, "rules.cedar").await;
    // A folder without rules forbids nothing more than the mode does: it is no list of what is allowed.
    fs::remove_file(&file).expect("removable");
    let door = world.up_with("read-only", &further).await;
    let write = json!({"path": "a", "content": "", "expectedSha256": null});
    let _ = door
        .agent()
        .call("workspace_write", write)
        .await
        .refused("PERMISSION_DENIED");
}

/// B59: an edge whose token or pins cannot be read opens no channel.
#[tokio::test]
async fn broken_tokens_and_pins_open_no_channel() {
    let (world, host) = (World::new(), FakeHost::listen().await);
    let arguments = edge_arguments(&world, host.url(), &world.data(), &["--listen-none"]);
    let token = world.outside().join("channel-token");
    for broken in ["", "\n", "two words", "a\nb", "t\u{fc}r", "nul\0l"] {
        fs::write(&token, broken).expect("writable");
        let ended = world.start(&arguments).ended(END_LIMIT).await;
        assert_eq!(ended.code, Some(2), "{broken:?}: {ended:?}");
        assert!(ended.stderr.contains("channel-token"), "{ended:?}");
        assert!(
            broken.len() < 3 || !ended.stderr.contains(broken),
            "{ended:?}"
        );
    }
    fs::remove_file(&token).expect("removable");
    let ended = world.start(&arguments).ended(END_LIMIT).await;
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(host.is_left_alone(Duration::from_millis(200)).await);

    // One good start, so that there is something to break.
    let token = world.secret("channel-token", CHANNEL_TOKEN);
    assert!(token.is_file());
    let program = world.start(&arguments);
    let mut channel = host.accept(WORKSPACE, CHANNEL_TOKEN).await;
    let read = call("1", "workspace_read", &json!({"path": "greeting.txt"}));
    assert_eq!(error_code(&channel.ask(&read).await), "");
    program.signal(rustix::process::Signal::TERM);
    assert_eq!(program.ended(END_LIMIT).await.code, Some(0));
    let pins = world.data().join("edge-identity.db");
    assert!(pins.is_file(), "no pins");
    fs::write(pins, b"this was a database once, and is none any more").expect("writable");
    let ended = world.start(&arguments).ended(END_LIMIT).await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.starts_with("postern: "), "{ended:?}");
    assert!(host.is_left_alone(Duration::from_millis(200)).await);
}

/// B59: while identity cannot be asked nothing is admitted, and nobody takes that for a yes.
#[tokio::test]
async fn without_identity_nothing_happens() {
    let (world, host) = (World::new(), FakeHost::listen().await);
    let socket = world.outside().join("identity.sock");
    let listen = format!("unix:{}", socket.display());
    let database = format!("sqlite://{}", world.outside().join("pins.db").display());
    let arguments = [
        "serve",
        "identity",
        "--json",
        "--listen",
        &listen,
        "--database",
        &database,
    ];
    let mut identity = world.start(&arguments);
    identity.event("listening", READY_LIMIT).await;
    let further = ["--listen-none", "--identity", &listen];
    let edge = world.start(&edge_arguments(&world, host.url(), &world.data(), &further));
    let mut channel = host.accept(WORKSPACE, CHANNEL_TOKEN).await;
    let write = |id: &str| {
        let args = json!({"path": format!("{id}.txt"), "content": "x", "expectedSha256": null});
        call(id, "workspace_write", &args)
    };
    assert_eq!(error_code(&channel.ask(&write("before")).await), "");
    identity.kill().await;
    let away = channel.ask(&write("during")).await;
    assert_eq!(error_code(&away), "UNAVAILABLE", "{away}");
    assert!(!world.project().join("during.txt").exists());
    let mut identity = world.start(&arguments);
    identity.event("listening", READY_LIMIT).await;
    // It left nothing behind: the same id acts once identity is back.
    let again = tokio::time::timeout(END_LIMIT, async {
        loop {
            let answer = channel.ask(&write("during")).await;
            if error_code(&answer) != "UNAVAILABLE" {
                return answer;
            }
        }
    });
    let again = again.await.expect("identity is found again");
    assert_eq!(error_code(&again), "");
    drop(edge);
}
