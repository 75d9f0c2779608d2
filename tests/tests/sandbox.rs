//! The sandbox of commands through the whole way: what the owner keeps for himself is out of an agent's reach, and what is
//! in force is told.

use std::{fs, time::Duration};

use postern_tests::{Door, World, wait_for};
use pretty_assertions::assert_eq;
use serde_json::json;

/// For the worker's first sign of life to reach the owner's status.
const STATUS_LIMIT: Duration = Duration::from_secs(30);

#[tokio::test]
async fn commands_stay_in_the_project() {
    let world = World::new();
    fs::create_dir(world.home().join(".ssh")).expect("folder");
    fs::write(world.home().join(".ssh/id"), "MARK-of-the-owner\n").expect("secret");
    fs::write(world.outside().join("file"), "before\n").expect("file");
    let door = world.up("full").await;
    let agent = door.agent();
    let info = agent.call("workspace_info", json!({})).await.ok();
    assert_eq!(info["sandbox"], "project");
    let data = world.data().display().to_string();
    let outside = world.outside().display().to_string();
    for attack in [
        format!("cat {data}/owner-token {data}/agent-token {data}/channel-token"),
        format!("ls {data}"),
        format!("grep -r . {data}/spool"),
        "cat ~/.ssh/id".to_owned(),
        "ls ~/.ssh".to_owned(),
        format!("echo after > {outside}/file"),
        format!("touch {outside}/new"),
        "kill -KILL $PPID".to_owned(),
    ] {
        let finished = agent.run(&attack).await;
        assert_ne!(
            finished.last["exitCode"], 0,
            "{attack}: {}",
            finished.output
        );
        for secret in [
            "MARK-of-the-owner",
            &door.ready.owner_token,
            &door.ready.agent_token,
        ] {
            assert!(
                !finished.output.contains(secret),
                "{attack}: {}",
                finished.output
            );
        }
    }
    let kept = fs::read_to_string(world.outside().join("file")).expect("file");
    assert_eq!(
        (kept.as_str(), world.outside().join("new").exists()),
        ("before\n", false)
    );
    let work = agent
        .run("echo x > made && git add made && git -c user.name=a -c user.email=a@b commit -qm x && echo y > $TMPDIR/y && git log -1 --format=%s")
        .await;
    assert_eq!(
        (work.output.as_str(), &work.last["exitCode"]),
        ("x\n", &json!(0))
    );
    the_owner_is_told(&door).await;
    door.stop().await;
    let left = fs::read_dir(world.temporary()).expect("folder").count();
    assert_eq!(left, 0, "temporary directories went with their commands");
}

async fn the_owner_is_told(door: &Door) {
    let owner = door.owner();
    let told = wait_for("the worker's sign of life", STATUS_LIMIT, async || {
        let sandbox = owner.get("/owner/v1/status").await["sandbox"].clone();
        (!sandbox.is_null()).then_some(sandbox)
    })
    .await;
    assert_eq!(told["level"], "project");
    assert!(told["missing"].is_array(), "{told}");
}

/// The worker of a killed edge runs under the wishes of that edge; the next edge's wishes win.
#[tokio::test]
async fn a_wish_is_in_force_after_a_killed_edge_too() {
    let world = World::new();
    fs::create_dir(world.home().join(".aws")).expect("folder");
    fs::write(world.home().join(".aws/key"), "MARK-of-the-owner\n").expect("secret");
    let door = world.up_with("full", &["--sandbox", "off"]).await;
    let agent = door.agent();
    assert_eq!(
        agent.call("workspace_info", json!({})).await.ok()["sandbox"],
        "off"
    );
    assert_eq!(
        agent.run("cat ~/.aws/key").await.output,
        "MARK-of-the-owner\n"
    );
    door.program.signal(rustix::process::Signal::KILL);
    door.program.ended(STATUS_LIMIT).await;
    let door = world.up_with("full", &["--sandbox", "required"]).await;
    let agent = door.agent();
    assert_eq!(
        agent.call("workspace_info", json!({})).await.ok()["sandbox"],
        "required"
    );
    let refused = agent.run("cat ~/.aws/key").await;
    assert!(!refused.output.contains("MARK"), "{}", refused.output);
    door.stop().await;
}

/// A colon is part of a path on the command line, and separates paths in the environment.
#[tokio::test]
async fn a_data_directory_with_a_colon_is_hidden_whole() {
    let mut world = World::new();
    let hidden = ["one", "two", "given:word/for-word"].map(|name| world.outside().join(name));
    for folder in &hidden {
        fs::create_dir_all(folder).expect("folder");
        fs::write(folder.join("secret"), "MARK-of-the-owner\n").expect("secret");
    }
    let data = world.outside().join("a:b").join("data");
    let mut arguments = world.up_arguments("full", &["--sandbox", "required"]);
    let place = arguments
        .iter()
        .position(|argument| *argument == *world.data().as_os_str())
        .expect("a data directory");
    arguments[place] = data.clone().into();
    let listed = std::env::join_paths(&hidden[..2]).expect("no colon");
    world.set("POSTERN_SANDBOX_HIDE", listed);
    for option in [None, Some(&hidden[2])] {
        let mut arguments = arguments.clone();
        arguments.extend(
            option
                .iter()
                .flat_map(|path| ["--sandbox-hide".into(), path.as_os_str().to_owned()]),
        );
        let door = world.up_of(&arguments).await;
        let agent = door.agent();
        let said = agent
            .run(&format!(
                "cat '{0}/owner-token' || ls '{0}'",
                data.display()
            ))
            .await;
        assert_ne!(said.last["exitCode"], 0, "{}", said.output);
        assert!(!said.output.contains(&door.ready.owner_token));
        // The command line wins over the environment.
        for path in option.map_or(&hidden[..2], |_| &hidden[2..]) {
            let said = agent.run(&format!("cat '{}/secret'", path.display())).await;
            assert!(!said.output.contains("MARK"), "{path:?}: {}", said.output);
        }
        door.stop().await;
    }
}

/// The sandbox of a worker elsewhere is its own; a wish that would be dropped without a word is refused.
#[tokio::test]
async fn a_wish_for_a_worker_elsewhere_is_refused() {
    let mut world = World::new();
    let token = world.secret("token", "token").display().to_string();
    let data = world.data().display().to_string();
    let common = [
        "edge",
        "--host",
        "http://127.0.0.1:9",
        "--workspace",
        "01234567-89ab-4cde-8f01-23456789abcd",
        "--intention",
        "Try",
        "--token-file",
        &token,
        "--data-dir",
        &data,
        "--exec",
        "unix:/nowhere.sock",
    ];
    let given = world
        .run(&[&common[..], &["--sandbox", "required"]].concat())
        .await;
    world.set("POSTERN_SANDBOX", "required");
    let set = world.run(&common).await;
    for refused in [given, set] {
        assert_eq!(refused.code, Some(2), "{}", refused.stderr);
        assert!(
            refused.stderr.contains("postern serve exec"),
            "{}",
            refused.stderr
        );
    }
    assert!(!world.data().exists(), "nothing is made");
}

/// A kernel that cannot is told before anything is made; here the wishes are what cannot be held.
#[tokio::test]
async fn wishes_that_cannot_be_held_are_refused_at_the_start() {
    let world = World::new();
    let project = world.project().display().to_string();
    let refused = world
        .run(&world.up_arguments("full", &["--sandbox-hide", &project]))
        .await;
    assert_eq!(refused.code, Some(1), "{}", refused.stderr);
    assert!(
        refused.stderr.contains("the project itself is hidden"),
        "{}",
        refused.stderr
    );
    assert!(world.workers().is_empty());
}

/// `postern doctor`: the same lines for people and for programs, an exit code, and nothing left behind.
#[tokio::test]
async fn the_doctor_tells_and_leaves_nothing() {
    let world = World::new();
    let listing = || {
        let mut names: Vec<_> = fs::read_dir(world.outside())
            .expect("folder")
            .flatten()
            .map(|entry| entry.file_name())
            .filter(|name| !name.to_string_lossy().ends_with(".log"))
            .collect();
        names.sort_unstable();
        names
    };
    let before = listing();
    let data = world.data().display().to_string();
    let common = ["--data-dir", &data, "--console", "127.0.0.1:0", "--listen"];
    let arguments = [&["doctor", "--json"], &common[..], &["127.0.0.1:0"]].concat();
    let sound = world.run(&arguments).await;
    let lines: Vec<serde_json::Value> = sound
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).expect("one JSON object a line"))
        .collect();
    assert_eq!(sound.code, Some(0), "{}", sound.stdout);
    for check in [
        "sandbox", "terminal", "shell", "openat2", "database", "mcp-port",
    ] {
        let line = lines.iter().find(|line| line["check"] == check);
        assert_eq!(line.expect(check)["state"], "ok", "{check}");
    }
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = taken.local_addr().expect("address").to_string();
    let arguments = [&["doctor"], &common[..], &[&*address]].concat();
    let failed = world.run(&arguments).await;
    assert_eq!(failed.code, Some(1));
    assert!(
        failed
            .stdout
            .contains(&format!("fail  mcp-port          {address}")),
        "{}",
        failed.stdout
    );
    assert!(failed.stderr.contains("mcp-port"), "{}", failed.stderr);
    assert_eq!(listing(), before, "nothing is left");
}
