//! The ledger on a PostgreSQL server: kills of either, a replica that takes over, and a second ledger that stands by.

use std::{
    collections::BTreeMap,
    fs,
    path::PathBuf,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use postern_test_postgres::{Cluster, Moving, folder, socket};
use postern_tests::{Agent, World, wait_for};
use pretty_assertions::assert_eq;
use rustix::process::Signal;
use serde_json::json;

use crate::fleet::{Fleet, LIMIT, start_ledger, status, stop, until};

/// Time within which another ledger takes over (CONTRACT.md, section 8).
const TAKEOVER: Duration = Duration::from_secs(15);
/// More than two leases.
const AWAY: Duration = Duration::from_millis(2500);
/// Two leases of three seconds.
const TWO_LEASES: Duration = Duration::from_secs(6);
/// Half of the time in which keep-alive finds a dead connection.
const YOUNG: Duration = Duration::from_secs(5);
/// Calls that are answered between two kills.
const BETWEEN: usize = 12;
/// Conversations at once.
const LANES: [&str; 3] = ["a", "b", "c"];

fn socket_of(world: &World, name: &str) -> PathBuf {
    world.outside().join(format!("{name}.sock"))
}

async fn is_ready(world: &World, name: &str) -> bool {
    let address = format!("unix:{}", socket_of(world, name).display());
    let ended = world.run(&["healthcheck", &address]).await;
    ended.code == Some(0)
}

async fn becomes_ready(world: &World, name: &str) {
    wait_for("a ledger that is ready", LIMIT, async || {
        is_ready(world, name).await.then_some(())
    })
    .await;
}

/// Calls until the answer is none that passes.
async fn insist(agent: &Agent, id: &str, tool: &str, arguments: &serde_json::Value) -> String {
    wait_for(tool, LIMIT, async || {
        let answer = agent.call_as(id, tool, arguments).await;
        match answer.code() {
            "UNAVAILABLE" | "BUSY" => None,
            "" => Some(
                answer.structured["commandId"]
                    .as_str()
                    .unwrap_or("")
                    .to_owned(),
            ),
            code => panic!("{id}: {code}: {}", answer.structured),
        }
    })
    .await
}

/// What the callers were told.
#[derive(Default)]
struct Told {
    answered: AtomicUsize,
    over: AtomicBool,
}

impl Told {
    /// Waits until some more calls were answered, so that there is a load.
    async fn goes_on(&self) {
        let enough = self.answered.load(Ordering::SeqCst) + BETWEEN;
        wait_for("answers", LIMIT * 2, async || {
            (self.answered.load(Ordering::SeqCst) >= enough).then_some(())
        })
        .await;
    }
}

/// One line into a file after the other, each by a command under an id of its own. Tells what became of each.
async fn lines(agent: &Agent, lane: &str, told: &Told) -> Vec<(String, Result<String, String>)> {
    let mut all = Vec::new();
    for number in 0.. {
        if told.over.load(Ordering::SeqCst) {
            break;
        }
        let id = format!("line-{lane}-{number}");
        let arguments = json!({"command": format!("echo {id} >> lines")});
        let became = wait_for(&id, LIMIT * 2, async || {
            let answer = agent.call_as(&id, "workspace_exec", &arguments).await;
            match answer.code() {
                "UNAVAILABLE" | "BUSY" | "TOO_MANY_COMMANDS" => None,
                "" => Some(Ok(answer.structured["commandId"]
                    .as_str()
                    .expect("an id")
                    .to_owned())),
                code => Some(Err(code.to_owned())),
            }
        })
        .await;
        if became.is_ok() {
            told.answered.fetch_add(1, Ordering::SeqCst);
        }
        all.push((id, became));
    }
    all
}

/// Has commands run while something happens. Each command that was answered has run once, every other at most once, and one
/// that was not applied did not.
async fn under_load(fleet: Fleet, disturb: impl AsyncFnOnce(Fleet, &Told) -> Fleet) -> Fleet {
    let agents = LANES.map(|lane| fleet.agent(lane));
    let told = Told::default();
    let callers = join_all(
        agents
            .iter()
            .zip(LANES)
            .map(|(agent, lane)| lines(agent, lane, &told)),
    );
    let disturbing = async {
        let fleet = disturb(fleet, &told).await;
        told.goes_on().await;
        told.over.store(true, Ordering::SeqCst);
        fleet
    };
    let (became, fleet) = tokio::join!(callers, disturbing);
    for (agent, became) in agents.iter().zip(&became) {
        for (_, command) in became {
            if let Ok(command) = command {
                until(agent, command, "exited").await;
            }
        }
    }
    let path = fleet.world.project().join("lines");
    let mut times: BTreeMap<String, usize> = BTreeMap::new();
    for line in fs::read_to_string(path).expect("lines").lines() {
        *times.entry(line.to_owned()).or_default() += 1;
    }
    for (id, became) in became.into_iter().flatten() {
        let times = times.remove(&id).unwrap_or(0);
        match became {
            Ok(_) => assert_eq!(times, 1, "{id}"),
            Err(code) if code == "NOT_APPLIED" => assert_eq!(times, 0, "{id}"),
            Err(code) => assert!(times <= 1, "{id}: {code}: {times} times"),
        }
    }
    assert_eq!(times, BTreeMap::new(), "nobody asked for them");
    fleet
}

/// The program itself proves the ledger, up to what the edge has signed.
async fn assert_verifies(world: &World, url: &str) {
    let data = world.data();
    let data = data.to_str().expect("text");
    let words = ["receipts", "verify", "--database", url, "--data-dir", data];
    let ended = world.run(&words).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

async fn one_worker(url: &str) -> Fleet {
    let world = World::new();
    let ledger = start_ledger(&world, "ledger", url).await;
    becomes_ready(&world, "ledger").await;
    Fleet::with(world, ledger, url.to_owned(), &["one"], &[]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_of_the_ledger_and_of_its_server_lose_and_repeat_nothing() {
    let cluster = Cluster::start();
    let url = cluster.database();
    let fleet = one_worker(&url).await;
    let fleet = under_load(fleet, async |mut fleet, told| {
        for round in 0..6 {
            told.goes_on().await;
            if round % 2 == 0 {
                fleet.restart_ledger(Duration::ZERO).await;
            } else {
                tokio::task::block_in_place(|| {
                    cluster.crash();
                    cluster.restart();
                });
            }
        }
        fleet
    })
    .await;
    assert_verifies(&fleet.world, &url).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_is_promoted_under_load_loses_and_repeats_nothing() {
    let primary = Cluster::start();
    let url = primary.database();
    let replica = primary.replica();
    for sql in [
        "ALTER SYSTEM SET synchronous_standby_names = '*'",
        "SELECT pg_reload_conf()",
    ] {
        primary.execute(&url, sql);
    }
    let address = tempfile::tempdir().expect("folder");
    let server = folder(&url).expect("a folder");
    let moving = Moving::new(&socket(address.path()), &socket(server));
    let own = address.path().display().to_string();
    let by_address = url.replace(&server.display().to_string(), &own);
    let fleet = one_worker(&by_address).await;
    let there = replica.same(&url);
    let fleet = under_load(fleet, async |fleet, told| {
        told.goes_on().await;
        tokio::task::block_in_place(|| {
            primary.crash();
            replica.promote();
        });
        moving.leads_to(&socket(folder(&there).expect("a folder")));
        fleet
    })
    .await;
    assert_verifies(&fleet.world, &there).await;
}

/// A fleet whose ledger is behind an address, and a second ledger on the same database.
struct Pair {
    fleet: Fleet,
    second: postern_tests::Program,
    moving: Moving,
    url: String,
}

impl Pair {
    async fn start(cluster: &Cluster) -> Self {
        Self::start_with(cluster, &[]).await
    }

    /// With further options of the workers.
    async fn start_with(cluster: &Cluster, further: &[&str]) -> Self {
        let world = World::new();
        let url = cluster.database();
        let first = start_ledger(&world, "first", &url).await;
        becomes_ready(&world, "first").await;
        let second = start_ledger(&world, "second", &url).await;
        let (at, to) = (socket_of(&world, "ledger"), socket_of(&world, "first"));
        let moving = Moving::new(&at, &to);
        let fleet = Fleet::with(world, first, url.clone(), &["one", "two"], further).await;
        Self {
            fleet,
            second,
            moving,
            url,
        }
    }

    fn leads_to(&self, name: &str) {
        self.moving.leads_to(&socket_of(&self.fleet.world, name));
    }
}

#[tokio::test]
async fn a_ledger_that_stood_by_takes_over_from_a_killed_one_and_no_command_is_lost() {
    let cluster = Cluster::start();
    let mut pair = Pair::start(&cluster).await;
    let agent = pair.fleet.agent("a");
    let (first, on) = pair.fleet.begin(&agent, "read line; echo $line").await;
    let (second, other) = pair.fleet.begin(&agent, "sleep 300").await;
    assert_ne!(on, other);
    assert!(!is_ready(&pair.fleet.world, "second").await);
    pair.fleet.ledger.kill().await;
    let killed = Instant::now();
    pair.leads_to("second");
    becomes_ready(&pair.fleet.world, "second").await;
    assert!(killed.elapsed() < TAKEOVER, "{:?}", killed.elapsed());
    for command in [&first, &second] {
        assert_eq!(status(&agent, command).await.0, "running");
    }
    let line = json!({"commandId": first, "text": "typed\n"});
    insist(&agent, "type", "workspace_input", &line).await;
    let page = until(&agent, &first, "exited").await;
    let said = page["output"].as_str().expect("output");
    assert!(said.ends_with("typed\n"), "{said}");
    // Both workers are placed on as before: the one that runs nothing first, and then either.
    for name in ["next", "further"] {
        let arguments = json!({"command": "sleep 300"});
        let command = insist(&agent, name, "workspace_exec", &arguments).await;
        assert_eq!(status(&agent, &command).await.0, "running");
    }
    // The leases would be over by now.
    tokio::time::sleep(AWAY).await;
    assert_eq!(status(&agent, &second).await.0, "running");
    assert_eq!(stop(&agent, &second).await["status"], "stopped");
    // The first one again stands by.
    let _again = start_ledger(&pair.fleet.world, "first-again", &pair.url).await;
    assert!(!is_ready(&pair.fleet.world, "first-again").await);
    assert!(is_ready(&pair.fleet.world, "second").await);
    assert!(pair.second.runs());
    assert_verifies(&pair.fleet.world, &pair.url).await;
}

/// A connection that leads to the halted ledger swallows a renewal, and keep-alive finds that out after many short leases. The
/// next renewal goes over a new one all the same.
#[tokio::test]
async fn a_short_lease_outlives_a_ledger_that_was_halted() {
    let cluster = Cluster::start();
    let pair = Pair::start_with(&cluster, &["--lease", "3"]).await;
    let agent = pair.fleet.agent("a");
    let (first, on) = pair.fleet.begin(&agent, "read line; echo $line").await;
    let (second, other) = pair.fleet.begin(&agent, "sleep 300").await;
    assert_ne!(on, other);
    pair.fleet.ledger.signal(Signal::STOP);
    // No connection is old enough at the takeover that keep-alive would end it by then.
    tokio::time::sleep(YOUNG).await;
    pair.leads_to("first");
    becomes_ready(&pair.fleet.world, "second").await;
    pair.moving
        .leads_on_to(&socket_of(&pair.fleet.world, "second"));
    tokio::time::sleep(TWO_LEASES).await;
    for command in [&first, &second] {
        assert_eq!(status(&agent, command).await.0, "running");
    }
    for name in ["one", "two"] {
        pair.fleet.registered(name, 1).await;
    }
    let line = json!({"commandId": first, "text": "typed\n"});
    insist(&agent, "type", "workspace_input", &line).await;
    let page = until(&agent, &first, "exited").await;
    let said = page["output"].as_str().expect("output");
    assert!(said.ends_with("typed\n"), "{said}");
    assert_eq!(stop(&agent, &second).await["status"], "stopped");
}

#[tokio::test]
async fn of_two_ledger_processes_the_halted_one_writes_nothing_after_the_other_took_over() {
    let cluster = Cluster::start();
    let pair = Pair::start(&cluster).await;
    let world = &pair.fleet.world;
    let agent = pair.fleet.agent("a");
    let arguments = json!({"command": "true"});
    insist(&agent, "before", "workspace_exec", &arguments).await;
    // The one that stands by writes nothing while the other leads.
    pair.leads_to("second");
    let refused = agent.call_as("early", "workspace_exec", &arguments).await;
    assert_eq!(refused.code(), "UNAVAILABLE");
    pair.leads_to("first");
    insist(&agent, "early", "workspace_exec", &arguments).await;

    pair.fleet.ledger.signal(Signal::STOP);
    let halted = Instant::now();
    becomes_ready(world, "second").await;
    assert!(halted.elapsed() < TAKEOVER, "{:?}", halted.elapsed());
    let count = "SELECT count(*) FROM postern_ledger.events";
    let before = cluster.execute(&pair.url, count);
    pair.fleet.ledger.signal(Signal::CONT);
    let refused = agent.call_as("late", "workspace_exec", &arguments).await;
    assert_eq!(refused.code(), "UNAVAILABLE");
    assert!(!is_ready(world, "first").await);
    assert_eq!(cluster.execute(&pair.url, count), before);
    pair.leads_to("second");
    insist(&agent, "late", "workspace_exec", &arguments).await;
    assert_verifies(world, &pair.url).await;
}
