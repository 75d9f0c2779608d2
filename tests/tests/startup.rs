//! Bad input to the program: one clear line, the right exit code, and nothing half made.
#![expect(clippy::expect_used, reason = "tests fail by panicking")]

use std::{
    collections::BTreeSet, fs, net::TcpListener, path::Path, process::Command, time::Duration,
};

use postern_tests::{Ended, World, text_of};
use pretty_assertions::assert_eq;

/// Exit code of something that failed.
const FAILED: Option<i32> = Some(1);
/// Exit code of a wrong command line.
const USAGE: Option<i32> = Some(2);

/// For a program to be ready.
const READY_LIMIT: Duration = Duration::from_secs(60);

/// A failure says one line, names what is wrong, and is no panic.
fn assert_one_line(ended: &Ended, names: &str) {
    let said: Vec<&str> = ended
        .stderr
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    assert_eq!(ended.code, FAILED, "{ended:?}");
    assert_eq!(said.len(), 1, "one line: {ended:?}");
    assert!(said[0].contains(names), "it names `{names}`: {ended:?}");
    assert!(ended.stdout.is_empty(), "nothing is ready: {ended:?}");
}

fn is_empty_or_absent(path: &Path) -> bool {
    fs::read_dir(path).map_or(true, |mut entries| entries.next().is_none())
}

#[tokio::test]
async fn ready_line_has_the_fields_of_the_contract() {
    let world = World::new();
    let door = world.up("full").await;
    let line = &door.ready.line;
    let fields: BTreeSet<&str> = line
        .as_object()
        .expect("an object")
        .keys()
        .map(String::as_str)
        .collect();
    let expected = BTreeSet::from([
        "event",
        "mcpUrl",
        "agentToken",
        "consoleUrl",
        // Beyond the contract: a link for a browser, good for one login.
        "consoleLink",
        "ownerToken",
        "workspaceId",
        "intention",
        "dataDir",
    ]);
    assert_eq!(fields, expected);
    assert_eq!(text_of(line, "intention"), postern_tests::INTENTION);
    let data = fs::canonicalize(world.data()).expect("it is there");
    assert_eq!(Path::new(&text_of(line, "dataDir")), data);
    for field in ["mcpUrl", "consoleUrl"] {
        let url: http::Uri = text_of(line, field).parse().expect("a URL");
        assert_eq!(url.host(), Some("127.0.0.1"), "{field} is on loopback");
        assert_ne!(url.port_u16(), Some(0), "{field} tells the real port");
    }
    let status = door.owner().get("/owner/v1/status").await;
    assert!(status.is_object(), "the owner token opens the owner API");
    let said = door.program.stderr();
    for secret in [&door.ready.agent_token, &door.ready.owner_token] {
        assert!(!said.contains(secret.as_str()), "no token in the log");
    }
    assert_eq!(door.stop().await.code, Some(0));
}

#[tokio::test]
async fn second_start_on_the_same_data_keeps_workspace_and_tokens() {
    let world = World::new();
    let door = world.up("full").await;
    let (workspace, token) = (
        door.ready.workspace_id.clone(),
        door.ready.agent_token.clone(),
    );
    assert_eq!(door.stop().await.code, Some(0));
    let door = world.up("full").await;
    assert_eq!(door.ready.workspace_id, workspace);
    let info = door
        .agent_with(&token)
        .call("workspace_info", serde_json::json!({}))
        .await
        .ok();
    assert_eq!(info["workspaceId"], workspace.as_str());
}

#[tokio::test]
async fn files_with_tokens_are_the_owners_alone() {
    use std::os::unix::fs::PermissionsExt as _;

    let world = World::new();
    let _door = world.up("full").await;
    let mode = |path: &str| {
        let meta = fs::metadata(world.data().join(path)).expect("it is there");
        meta.permissions().mode() & 0o777
    };
    assert_eq!(mode("owner-token"), 0o600);
    assert_eq!(mode("."), 0o700);
}

#[tokio::test]
async fn missing_project_directory() {
    let world = World::new();
    let missing = world.outside().join("nowhere");
    let mut arguments = world.up_arguments("full", &[]);
    replace(&mut arguments, "--project", &missing);
    assert_one_line(&world.run(&arguments).await, "nowhere");
    assert!(!missing.exists(), "it is not made either");
    assert!(
        is_empty_or_absent(&world.data()),
        "no data directory for nothing"
    );
}

#[tokio::test]
async fn project_that_is_a_file() {
    let world = World::new();
    let mut arguments = world.up_arguments("full", &[]);
    replace(
        &mut arguments,
        "--project",
        &world.project().join("AGENTS.md"),
    );
    assert_one_line(&world.run(&arguments).await, "AGENTS.md");
    assert!(
        is_empty_or_absent(&world.data()),
        "no data directory for nothing"
    );
}

#[tokio::test]
async fn port_in_use() {
    let world = World::new();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    for option in ["--listen", "--console"] {
        let arguments = world.up_arguments("full", &[option, &address]);
        assert_one_line(&world.run(&arguments).await, &address);
        assert_eq!(world.processes(), [], "nothing is left running");
    }
    drop(taken);
    let door = world.up("full").await;
    door.agent().run("true").await;
}

#[tokio::test]
async fn data_directory_that_cannot_be_one() {
    let world = World::new();
    let file = world.outside().join("a-file");
    fs::write(&file, "mine").expect("writable");
    // Permission bits do not stop root, so: a file, below a file, and where nothing can be made.
    for place in [&file, &file.join("below"), Path::new("/proc/postern-data")] {
        let mut arguments = world.up_arguments("full", &[]);
        replace(&mut arguments, "--data-dir", place);
        let named = place.file_name().expect("a name").to_string_lossy();
        assert_one_line(&world.run(&arguments).await, &named);
    }
    assert_eq!(fs::read(&file).expect("still there"), b"mine");
}

#[tokio::test]
async fn data_directory_inside_the_project() {
    let world = World::new();
    let mut arguments = world.up_arguments("full", &[]);
    let inside = world.project().join("state");
    replace(&mut arguments, "--data-dir", &inside);
    let ended = world.run(&arguments).await;
    assert_eq!(ended.code, USAGE, "{ended:?}");
    assert!(ended.stderr.contains("inside the project"), "{ended:?}");
    assert!(!inside.exists(), "nothing is made in the project");
}

#[tokio::test]
async fn data_directory_of_a_newer_layout() {
    let world = World::new();
    assert_eq!(world.up("full").await.stop().await.code, Some(0));
    let version = world.data().join("version");
    fs::write(&version, "4000000000\n").expect("writable");
    let ended = world.run(&world.up_arguments("full", &[])).await;
    assert_one_line(&ended, "newer");
    assert_eq!(
        fs::read(&version).expect("readable"),
        b"4000000000\n",
        "it is left alone"
    );
}

#[tokio::test]
async fn database_of_a_newer_version() {
    let world = World::new();
    assert_eq!(world.up("full").await.stop().await.code, Some(0));
    let aged = Command::new("/usr/bin/python3")
        .args(["-c", MAKE_NEWER])
        .arg(world.data())
        .status();
    assert!(
        aged.is_ok_and(|status| status.success()),
        "databases were found"
    );
    let ended = world.run(&world.up_arguments("full", &[])).await;
    assert_one_line(&ended, "newer");
    assert_eq!(world.processes(), [], "nothing is left running");
}

/// Raises, in every SQLite database below a directory, the version of its schema past what any program knows: the
/// number that SQLite keeps for it, or the last migration that sqlx has noted.
const MAKE_NEWER: &str = r"
import pathlib, sqlite3, sys
changed = 0
for path in pathlib.Path(sys.argv[1]).rglob('*'):
    if not path.is_file() or path.read_bytes()[:15] != b'SQLite format 3':
        continue
    database = sqlite3.connect(path)
    if database.execute('select 1 from sqlite_master where name = ?', ['_sqlx_migrations']).fetchone():
        database.execute('insert into _sqlx_migrations (version, description, success, checksum, execution_time)'
                         ' values (99991231235959, ?, 1, ?, 0)', ['of the future', b'x'])
    else:
        database.execute('pragma user_version = 4000000')
    database.commit()
    database.close()
    changed += 1
sys.exit(changed == 0)
";

#[tokio::test]
async fn second_up_on_the_same_data_directory() {
    let world = World::new();
    let first = world.up("full").await;
    let ended = world.run(&world.up_arguments("full", &[])).await;
    assert_one_line(&ended, "in use");
    let output = first.agent().run("echo still here").await.output;
    assert_eq!(output, "still here\n");
    assert_eq!(first.stop().await.code, Some(0));
    let next = world.up("full").await;
    next.agent().run("true").await;
}

#[tokio::test]
async fn another_project_for_the_pinned_workspace() {
    let world = World::new();
    assert_eq!(world.up("full").await.stop().await.code, Some(0));
    let other = world.outside().join("other");
    fs::create_dir(&other).expect("writable");
    let mut arguments = world.up_arguments("full", &[]);
    replace(&mut arguments, "--project", &other);
    assert_one_line(&world.run(&arguments).await, "--repin");
    assert_eq!(world.processes(), [], "nothing is left running");
}

#[tokio::test]
async fn another_intention_for_the_pinned_workspace() {
    let world = World::new();
    assert_eq!(world.up("full").await.stop().await.code, Some(0));
    let mut arguments = world.up_arguments("full", &[]);
    replace(&mut arguments, "--intention", Path::new("Something else"));
    let ended = world.run(&arguments).await;
    assert!(matches!(ended.code, FAILED | USAGE), "{ended:?}");
    assert!(ended.stderr.contains("--repin"), "{ended:?}");
    arguments.push("--repin".into());
    let mut program = world.start(&arguments);
    let ready = program.event("ready", READY_LIMIT).await;
    assert_eq!(text_of(&ready, "intention"), "Something else");
}

#[tokio::test]
async fn wrong_command_lines() {
    let world = World::new();
    let cases: &[(&[&str], &str)] = &[
        (&["up", "--no-such-option"], "--no-such-option"),
        (&["up", "--mode", "everything"], "everything"),
        (&["up", "--listen", "nonsense"], "nonsense"),
        (&["no-such-command"], "no-such-command"),
        (&["host"], "--data-dir"),
        (&["edge"], "--host"),
        (&["serve", "nothing"], "nothing"),
    ];
    for (arguments, names) in cases {
        let ended = world.run(arguments).await;
        assert_eq!(ended.code, USAGE, "{arguments:?}: {ended:?}");
        assert!(ended.stderr.contains(names), "{arguments:?}: {ended:?}");
        assert!(ended.stdout.is_empty(), "{arguments:?}: {ended:?}");
    }
    assert!(
        is_empty_or_absent(&world.data()),
        "a wrong command line makes nothing"
    );
    assert!(
        is_empty_or_absent(&world.home()),
        "nor in the home directory"
    );
}

#[tokio::test]
async fn mode_from_the_environment_is_checked_too() {
    let mut world = World::new();
    world.set("POSTERN_MODE", "everything");
    let ended = world.run(&["up", "--json"]).await;
    assert_eq!(ended.code, USAGE, "{ended:?}");
    assert!(ended.stderr.contains("everything"), "{ended:?}");
}

#[tokio::test]
async fn the_configuration_of_a_data_directory_holds_unless_something_wins_over_it() {
    let mut world = World::new();
    let up: Vec<std::ffi::OsString> = world
        .up_arguments("ask", &[])
        .into_iter()
        .filter(|argument| argument != "--mode" && argument != "ask")
        .collect();
    // A new directory starts with one that says nothing.
    let door = world.up_of(&up).await;
    assert_eq!(door.owner().get("/owner/v1/status").await["mode"], "ask");
    assert_eq!(door.stop().await.code, Some(0));
    let file = world.data().join("postern.toml");
    let text = fs::read_to_string(&file).expect("it is there");
    assert!(text.contains("# mode = \"ask\""), "{text}");
    fs::write(&file, text.replace("# mode = \"ask\"", "mode = \"edit\"")).expect("written");
    let door = world.up_of(&up).await;
    assert_eq!(door.owner().get("/owner/v1/status").await["mode"], "edit");
    assert_eq!(door.stop().await.code, Some(0));
    world.set("POSTERN_MODE", "full");
    let mut dump = up.clone();
    dump.push("--dump-config".into());
    let told: serde_json::Value =
        serde_json::from_str(&world.run(&dump).await.stdout).expect("one object");
    assert_eq!(
        told["mode"],
        serde_json::json!({"value": "full", "source": "POSTERN_MODE"})
    );
    // A file of which a part cannot be used chooses nothing, and nothing is opened.
    fs::write(&file, "sandbox = \"required\"\nsessions = \"closed\"\n").expect("written");
    let ended = world.run(&up).await;
    assert_eq!(ended.code, USAGE, "{ended:?}");
    assert!(ended.stderr.contains("postern.toml:2: "), "{ended:?}");
    assert!(ended.stdout.is_empty(), "{ended:?}");
}

#[tokio::test]
async fn help_shows_how_it_is_used() {
    let world = World::new();
    let help = world.run(&["--help"]).await;
    assert_eq!(help.code, Some(0));
    assert!(help.stdout.contains("Examples"), "{}", help.stdout);
    assert!(help.stdout.contains("postern up"), "{}", help.stdout);
    let version = world.run(&["--version"]).await;
    assert_eq!(version.code, Some(0));
    assert!(version.stdout.starts_with("postern "), "{}", version.stdout);
}

fn replace(arguments: &mut [std::ffi::OsString], option: &str, value: &Path) {
    let at = arguments.iter().position(|argument| argument == option);
    arguments[at.expect("the option is there") + 1] = value.into();
}

#[tokio::test]
async fn a_good_start_has_nothing_to_complain_about() {
    let world = World::new();
    let door = world.up("ask").await;
    let ended = door.stop().await;
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
}
