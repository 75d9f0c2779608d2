//! The stack of `docker-compose.yml`, really started with a Docker engine: an agent works through it, commands spread over
//! the workers, a killed worker takes its own commands alone, and every service is restarted under load without an outcome
//! lost or an effect made twice. Where no engine can be started this fails.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::{StreamExt as _, stream};
use postern_tests::{Agent, Http, Stack, composed, wait_for};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use uuid::Uuid;

const WORKERS: usize = 4;
/// Commands that are spread.
const COMMANDS: usize = 100;
/// Agents that call while services restart.
const CALLERS: usize = 4;
/// Longest wait for what takes care of itself.
const LIMIT: Duration = Duration::from_secs(90);
/// Pause before a call is sent again, as a patient agent would.
const AGAIN: Duration = Duration::from_millis(200);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_works_through_the_stack_whatever_is_restarted_or_killed() {
    let stack = Stack::up(WORKERS).await;
    let agent = stack.agent().await;
    a_day_of_work(&agent).await;
    commands_spread_over_the_workers(&agent).await;
    a_killed_worker_takes_its_own_commands_alone(&stack, &agent).await;
    restarts_lose_nothing(&stack, &agent).await;
    stack
        .postern(
            "edge",
            &[
                "receipts",
                "verify",
                "--ledger",
                "ledger:7306",
                "--tls-dir",
                "/tls",
            ],
        )
        .await;
    nothing_may_be_reached_in_plaintext(&stack).await;
    containers_have_no_more_rights_than_they_need(&stack).await;
    one_trace_a_call(&stack, &agent).await;
}

/// `docker-compose` and `docker compose` take the files for the same stack. The second reads what the first made of them, so
/// that both are told in the same words.
#[tokio::test]
async fn both_composes_take_the_files_for_the_same_stack() {
    let folder = tempfile::tempdir().expect("folder");
    let first = folder.path().join("first.yml");
    std::fs::write(&first, composed(1, None, &[]).await).expect("written");
    let told = async |file| {
        let text = composed(2, file, &["--format", "json"]).await;
        let told: Value = serde_json::from_str(&text).expect("JSON");
        in_one_form(told)
    };
    let (by_first, by_second) = (told(Some(&first)).await, told(None).await);
    assert!(by_second["services"]["exec"]["healthcheck"]["test"].is_array());
    assert_eq!(by_first, by_second);
}

/// Without what does not matter: the order of volumes, and whether what is empty is written.
fn in_one_form(mut told: Value) -> Value {
    if let Some(whole) = told.as_object_mut() {
        whole.retain(|key, _| !key.starts_with("x-"));
    }
    let services = told["services"].as_object_mut().into_iter().flatten();
    for (_, service) in services {
        if let Some(volumes) = service["volumes"].as_array_mut() {
            volumes.sort_by_key(|volume| volume["target"].to_string());
        }
        for network in service["networks"].as_object_mut().into_iter().flatten() {
            if network.1.is_null() {
                *network.1 = json!({});
            }
        }
    }
    told
}

/// A file is written, read, patched and listed, a command sees it, the owner sees the receipts.
async fn a_day_of_work(agent: &Agent) {
    let write = json!({"path": "notes/one.txt", "content": "one\n", "expectedSha256": null});
    let written = agent.call("workspace_write", write).await.ok();
    let read = agent.call("workspace_read", json!({"path": "notes/one.txt"}));
    assert_eq!(read.await.ok()["sha256"], written["sha256"]);
    let finished = agent.run("cat notes/one.txt; id -u; touch /refused").await;
    let mut lines = finished.output.lines();
    assert_eq!(lines.next(), Some("one"));
    assert_ne!(lines.next(), Some("0"), "commands are not root's");
    assert!(lines.next().is_some_and(|line| line.contains("/refused")));
    let seen = agent.run("ls /tls /secrets /spool; env | grep POSTERN_; true");
    let seen = seen.await.output;
    for secret in ["key.pem", "pgpass", "POSTERN_"] {
        assert!(!seen.contains(secret), "a command sees {seen}");
    }
}

/// Which container each of a hundred commands ran in.
async fn commands_spread_over_the_workers(agent: &Agent) {
    let ran = stream::iter(0..COMMANDS)
        .map(|number| async move {
            let finished = agent.run(&format!("hostname; echo {number}")).await;
            assert_eq!(finished.last["exitCode"], 0);
            let mut lines = finished.output.lines().map(str::to_owned);
            let host = lines.next().unwrap_or_default();
            assert_eq!(lines.next(), Some(number.to_string()));
            host
        })
        .buffer_unordered(CALLERS)
        .collect::<Vec<_>>()
        .await;
    let mut counts = BTreeMap::<String, usize>::new();
    for host in ran {
        *counts.entry(host).or_default() += 1;
    }
    assert_eq!(counts.len(), WORKERS, "{counts:?}");
    assert!(
        counts
            .values()
            .all(|&count| count >= COMMANDS / WORKERS / 4),
        "{counts:?}"
    );
}

/// One long command on each worker; one worker is killed.
async fn a_killed_worker_takes_its_own_commands_alone(stack: &Stack, agent: &Agent) {
    let mut running = BTreeMap::<String, String>::new();
    while running.len() < WORKERS {
        let id = agent.exec("hostname; read line; echo \"read $line\"").await;
        let host = wait_for("the host's name", LIMIT, || async {
            let page = agent.poll(&id, 0).await;
            let output = page["output"].as_str().unwrap_or_default().to_owned();
            output.strip_suffix('\n').map(str::to_owned)
        });
        if let Some(twin) = running.insert(host.await, id) {
            let stopped = agent.call("workspace_stop", json!({"commandId": twin}));
            drop(stopped.await.ok());
        }
    }
    let Some((victim, lost)) = running.pop_first() else {
        panic!("no worker ran anything");
    };
    stack.docker(&["kill", &victim]).await;
    let page = wait_for("the command is told as lost", LIMIT, || async {
        let page = agent.poll(&lost, 0).await;
        (page["status"] != "running").then_some(page)
    });
    let page = page.await;
    assert_eq!(page["status"], "lost");
    assert_eq!(page["output"], format!("{victim}\n"), "what it said stays");
    for (host, id) in running {
        let input = json!({"commandId": id, "text": "on\n"});
        drop(agent.call("workspace_input", input).await.ok());
        let finished = agent.follow(&id).await;
        assert_eq!(finished.output, format!("{host}\nread on\n"));
        assert_eq!(finished.last["status"], "exited");
    }
    // The others take what comes, and the dead one's place is taken again.
    agent.run("true").await;
    let scale = format!("exec={WORKERS}");
    let up = ["up", "--detach", "--no-recreate", "--scale", &scale];
    stack.compose(&up).await;
}

/// Calls of every kind go on while one service after another restarts: each is asked for by its id until its outcome is
/// known, and each was done once.
async fn restarts_lose_nothing(stack: &Stack, agent: &Agent) {
    let done = Arc::new(AtomicBool::new(false));
    let load = stream::iter(0..CALLERS)
        .map(|caller| load(agent, caller, Arc::clone(&done)))
        .buffer_unordered(CALLERS)
        .collect::<Vec<_>>();
    let restarts = async {
        for service in ["ledger", "policy", "filesystem", "identity", "host", "edge"] {
            stack
                .compose(&["restart", "--timeout", "20", service])
                .await;
            stack.healthy(service).await;
        }
        done.store(true, Ordering::Relaxed);
    };
    let (made, ()) = tokio::join!(load, restarts);
    let expected: BTreeSet<String> = made.into_iter().flatten().collect();
    assert!(expected.len() > 6, "something was going on: {expected:?}");
    let lines = agent.run("cat load/commands").await.output;
    let mut lines: Vec<&str> = lines.lines().collect();
    lines.sort_unstable();
    let wanted: Vec<&str> = expected.iter().map(String::as_str).collect();
    assert_eq!(lines, wanted, "every command ran once");
    for id in &expected {
        let path = format!("load/{id}");
        let read = agent
            .call("workspace_read", json!({ "path": path }))
            .await
            .ok();
        assert_eq!(read["content"], format!("{id}\n"));
    }
}

/// Writes a file and appends to another by a command, over and over. Answers the ids.
async fn load(agent: &Agent, caller: usize, done: Arc<AtomicBool>) -> Vec<String> {
    let mut made = Vec::new();
    while !done.load(Ordering::Relaxed) {
        let id = format!("{caller}-{}", Uuid::now_v7());
        let write = json!({
            "path": format!("load/{id}"), "content": format!("{id}\n"), "expectedSha256": null,
        });
        settled(agent, "workspace_write", &write).await;
        let command = json!({"command": format!("echo {id} >> load/commands")});
        let started = settled(agent, "workspace_exec", &command).await;
        let poll = json!({"commandId": started["commandId"], "offset": 0});
        loop {
            let page = settled(agent, "workspace_poll", &poll).await;
            if page["status"] != "running" {
                assert_eq!(page["status"], "exited", "{page}");
                break;
            }
        }
        made.push(id);
    }
    made
}

/// Sends one call under one id until its outcome is known.
async fn settled(agent: &Agent, tool: &str, arguments: &Value) -> Value {
    let call_id = Uuid::now_v7().to_string();
    let arguments = arguments.to_string();
    wait_for(tool, LIMIT, || async {
        match agent.try_call(Some(&call_id), tool, &arguments).await {
            Ok(answer) if !answer.is_error => Some(answer.structured),
            Ok(answer) if ["UNAVAILABLE", "BUSY"].contains(&answer.code()) => {
                tokio::time::sleep(AGAIN).await;
                None
            }
            Ok(answer) => panic!("{tool}: {}", answer.structured),
            Err(_lost) => {
                tokio::time::sleep(AGAIN).await;
                None
            }
        }
    })
    .await
}

/// Each service answers mutual TLS alone.
async fn nothing_may_be_reached_in_plaintext(stack: &Stack) {
    for (service, port) in [
        ("identity", 7302),
        ("policy", 7303),
        ("filesystem", 7304),
        ("exec", 7305),
        ("ledger", 7306),
    ] {
        let probe = format!("postern healthcheck 127.0.0.1:{port} && echo open || true");
        let told = stack
            .compose(&["exec", "-T", service, "/bin/sh", "-c", &probe])
            .await;
        assert!(!told.contains("open"), "{service} answers plaintext");
    }
}

/// No root, no capability, nothing writable but volumes and the temporary folder.
async fn containers_have_no_more_rights_than_they_need(stack: &Stack) {
    let format = "{{.Config.User}} {{.HostConfig.ReadonlyRootfs}} {{.HostConfig.CapDrop}} {{.HostConfig.Privileged}}";
    for service in [
        "identity",
        "policy",
        "filesystem",
        "exec",
        "ledger",
        "host",
        "edge",
    ] {
        for id in stack.containers(service).await {
            let told = stack.docker(&["inspect", "--format", format, &id]).await;
            assert_eq!(told.trim(), "10001:10001 true [ALL] false", "{service}");
        }
    }
}

/// Jaeger shows one trace for a call, of every service that it went through.
async fn one_trace_a_call(stack: &Stack, agent: &Agent) {
    let call_id = Uuid::now_v7();
    let list = json!({"path": "."});
    let id = call_id.to_string();
    let listed = agent.call_as(&id, "workspace_list", &list).await;
    assert!(!listed.is_error);
    let url = format!("{}/api/traces/{}", stack.jaeger_url, call_id.simple());
    let wanted = BTreeSet::from(["edge", "filesystem", "host", "identity", "policy"]);
    let http = Http::default();
    wait_for("the call's trace in Jaeger", LIMIT, || async {
        let reply = http
            .send(http::Method::GET, &url, &[], Vec::new(), |_| true)
            .await
            .ok()?;
        let traces = reply.json["data"].as_array()?;
        let processes = traces.first()?["processes"].as_object()?;
        let names: BTreeSet<&str> = processes
            .values()
            .filter_map(|process| process["serviceName"].as_str())
            .map(|name| name.strip_prefix("postern-").unwrap_or(name))
            .collect();
        (traces.len() == 1 && wanted.is_subset(&names)).then_some(())
    })
    .await;
}
