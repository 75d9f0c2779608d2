//! Commands by one, two and four exec workers of a ledger, through host, edge, ledger and workers as processes of their own. See
//! README.md beside this file.
#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]
#![expect(clippy::expect_used, reason = "a benchmark fails by panicking")]

#[expect(dead_code, reason = "the tests use the rest")]
#[path = "../tests/workers/fleet.rs"]
mod fleet;

use std::{
    env,
    time::{Duration, Instant},
};

use fleet::Fleet;
use futures_util::future::join_all;
use postern_tests::Agent;

/// Conversations that run commands at once: as many calls of a workspace are in flight.
const AGENTS: usize = 4;
/// Commands of each, of each kind.
const COMMANDS: usize = 15;
/// Pause before a command for which there was no room is offered again.
const PAUSE: Duration = Duration::from_millis(10);
/// A command that waits, and one that works.
const KINDS: [(&str, &str); 2] = [
    ("sleep 0.5", "sleep 0.5"),
    (
        "count to 100,000",
        "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done",
    ),
];

fn main() {
    // `cargo test --all-targets` runs benchmarks too; only `cargo bench` says this word.
    if !env::args().any(|argument| argument == "--bench") {
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(measure());
}

async fn measure() {
    println!("| workers of 2 commands each | command | commands a second |");
    println!("| ---: | --- | ---: |");
    for names in [
        &["one"][..],
        &["one", "two"],
        &["one", "two", "three", "four"],
    ] {
        let fleet = Fleet::start(names, &["--capacity", "2", "--lease", "10"]).await;
        let agents: Vec<_> = (0..AGENTS)
            .map(|number| fleet.agent(&format!("agent-{number}")))
            .collect();
        for (name, command) in KINDS {
            let begun = Instant::now();
            join_all(agents.iter().map(|agent| run_all(agent, command))).await;
            let count = u32::try_from(AGENTS * COMMANDS).expect("few");
            let rate = f64::from(count) / begun.elapsed().as_secs_f64();
            println!("| {} | {name} | {rate:.0} |", names.len());
        }
    }
}

/// Starts commands as there is room for them, and follows them when all are started: a poll that waits holds one of the four
/// calls that a workspace has in flight.
async fn run_all(agent: &Agent, command: &str) {
    let arguments = serde_json::json!({"command": command});
    let mut started = Vec::with_capacity(COMMANDS);
    while started.len() < COMMANDS {
        let answer = agent.call("workspace_exec", arguments.clone()).await;
        if answer.code() == "BUSY" {
            tokio::time::sleep(PAUSE).await;
        } else {
            let answer = answer.ok();
            started.push(answer["commandId"].as_str().expect("an id").to_owned());
        }
    }
    for id in started {
        agent.follow(&id).await;
    }
}
