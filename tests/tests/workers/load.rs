//! Workers come and go while commands are started all the time.

use std::{collections::BTreeMap, fs, time::Duration};

use futures_util::future::join_all;
use postern_tests::{Agent, Answer};
use pretty_assertions::assert_eq;
use rustix::process::Signal;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::fleet::{Fleet, LIMIT, TELL_WORKER, status, stop};

/// Conversations that start commands, one after the other each.
const AGENTS: usize = 4;
/// Commands of each.
const COMMANDS: usize = 20;
/// Between two attempts at what passes.
const AGAIN: Duration = Duration::from_millis(50);

/// What became of one command.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Outcome {
    Exited(i32),
    Lost,
    /// It cannot be known whether it started.
    Uncertain,
}

/// Starts a command under one id until there is an answer, and waits for its end.
async fn run(agent: &Agent, name: &str) -> Outcome {
    let command = format!("{TELL_WORKER}; echo >> ran-{name}; sleep 0.1; echo done");
    let (id, arguments) = (Uuid::new_v4().to_string(), json!({"command": command}));
    let started = loop {
        let answer = agent.call_as(&id, "workspace_exec", &arguments).await;
        match answer.code() {
            "BUSY" | "UNAVAILABLE" => tokio::time::sleep(AGAIN).await,
            "UNCERTAIN" => return Outcome::Uncertain,
            _ => break answer.ok(),
        }
    };
    let command = started["commandId"].as_str().expect("an id").to_owned();
    let page = loop {
        let arguments = json!({"commandId": command, "offset": 0});
        let answer = agent.call("workspace_poll", arguments).await;
        // A worker that was just killed is found out.
        if answer.code() == "UNAVAILABLE" {
            tokio::time::sleep(AGAIN).await;
            continue;
        }
        let page = answer.ok();
        if page["status"] != "running" {
            break page;
        }
        tokio::time::sleep(AGAIN).await;
    };
    // An end is told once.
    assert_eq!(status(agent, &command).await.0, page["status"]);
    match page["status"].as_str().expect("a status") {
        "exited" => {
            assert_eq!(page["exitCode"], 0);
            let said = page["output"].as_str().expect("output");
            let pid = said.lines().next().and_then(|line| line.parse().ok());
            Outcome::Exited(pid.expect("the worker's process id"))
        }
        "lost" => Outcome::Lost,
        other => panic!("{name}: {other}"),
    }
}

#[tokio::test]
async fn workers_that_come_and_go_under_load_lose_nothing_but_what_a_killed_one_ran() {
    let mut fleet = Fleet::start(&["one", "two"], &["--capacity", "3"]).await;
    let agents: Vec<_> = (0..AGENTS)
        .map(|number| fleet.agent(&format!("agent-{number}")))
        .collect();
    let load = join_all(
        agents
            .iter()
            .enumerate()
            .map(async |(agent_number, agent)| {
                let mut outcomes = BTreeMap::new();
                for number in 0..COMMANDS {
                    let name = format!("{agent_number}-{number}");
                    let outcome = run(agent, &name).await;
                    outcomes.insert(name, outcome);
                }
                outcomes
            }),
    );
    let changes = async move {
        fleet.add("three", &["--capacity", "3"]).await;
        let drained = fleet.workers.remove("one").expect("a worker");
        drained.signal(Signal::TERM);
        fleet.add("four", &["--capacity", "3"]).await;
        let mut killed = fleet.workers.remove("two").expect("a worker");
        killed.kill().await;
        assert_eq!(drained.ended(LIMIT).await.code, Some(0));
        fleet
    };
    let (outcomes, fleet) = tokio::join!(load, changes);
    let outcomes: BTreeMap<String, Outcome> = outcomes.into_iter().flatten().collect();
    assert_eq!(outcomes.len(), AGENTS * COMMANDS);
    let mut open = 0;
    for (name, outcome) in &outcomes {
        let ran = fs::read(fleet.world.project().join(format!("ran-{name}")));
        let times = ran.map_or(0, |content| content.len());
        match outcome {
            Outcome::Exited(_) => assert_eq!(times, 1, "{name}"),
            Outcome::Lost | Outcome::Uncertain => {
                open += 1;
                assert!(times <= 1, "{name} ran {times} times");
            }
        }
    }
    // Those that the killed one ran at that moment.
    assert!(open <= 3, "{outcomes:?}");
    // The new ones did their part.
    for name in ["three", "four"] {
        let pid = fleet.workers[name].pid();
        let ran = outcomes
            .values()
            .any(|outcome| *outcome == Outcome::Exited(pid));
        assert!(ran, "{name} ran nothing");
    }
}

#[tokio::test]
async fn a_session_runs_sixteen_commands_however_many_workers_there_are() {
    let mut fleet = Fleet::start(&["one", "two"], &[]).await;
    let agent = fleet.agent("a");
    let mut running = Vec::new();
    for _ in 0..16 {
        running.push(fleet.begin(&agent, "sleep 300").await);
    }
    let more = json!({"command": "touch too-much"});
    let refused = |answer: Answer| -> Value { answer.refused("TOO_MANY_COMMANDS") };
    let _told = refused(agent.call("workspace_exec", more.clone()).await);
    // Another conversation has its own sixteen.
    let other = fleet.agent("b");
    assert_eq!(other.run("echo mine").await.output, "mine\n");
    let (ended, _) = running.remove(0);
    stop(&agent, &ended).await;
    running.push(fleet.begin(&agent, "sleep 300").await);
    let _told = refused(agent.call("workspace_exec", more).await);
    // Those of a dead worker do not count.
    let dead = running.iter().filter(|(_, on)| on == "one").count();
    let mut killed = fleet.workers.remove("one").expect("a worker");
    killed.kill().await;
    for _ in 0..dead {
        let (_, on) = fleet.begin(&agent, "sleep 300").await;
        assert_eq!(on, "two");
    }
    let _told = refused(
        agent
            .call("workspace_exec", json!({"command": "true"}))
            .await,
    );
    assert!(!fleet.world.project().join("too-much").exists());
}
