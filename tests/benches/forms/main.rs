//! The two forms side by side: everything in one command, and every piece a process of its own (over Unix sockets). Latency
//! of one caller, calls a second of several, and where the time goes by the program's own traces. See README.md above this folder.
#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]
#![expect(clippy::expect_used, reason = "a benchmark fails by panicking")]

mod by_trace;
#[expect(dead_code, reason = "the tests of traces use the rest")]
#[path = "../../tests/tracing/collector.rs"]
mod collector;

use std::{
    env,
    time::{Duration, Instant},
};

use futures_util::{StreamExt as _, stream};
use postern_tests::{Agent, Apart, World};
use serde_json::{Value, json};

/// Rounds in which the forms take turns, so that what else the machine does meets both.
const ROUNDS: usize = 10;
/// Reads or writes of a round.
const CALLS: usize = 100;
/// Commands of a round.
const COMMANDS: usize = 30;
/// Callers at once, as many as a channel has calls in flight.
const CALLERS: usize = 4;
/// Content of the written file.
const SMALL: usize = 4096;

fn main() {
    // `cargo test --all-targets` runs benchmarks too; only `cargo bench` says this word.
    if !env::args().any(|argument| argument == "--bench") {
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        measure().await;
        by_trace::print().await;
    });
}

/// What is called.
#[derive(Clone, Copy, Debug)]
enum Call {
    Read,
    Write,
    Exec,
}

/// Each of them.
const KINDS: [Call; 3] = [Call::Read, Call::Write, Call::Exec];

impl Call {
    fn name(self) -> &'static str {
        match self {
            Self::Read => "read 4 KiB",
            Self::Write => "write 4 KiB",
            Self::Exec => "`true` to its end",
        }
    }

    fn tool(self) -> &'static str {
        match self {
            Self::Read => "workspace_read",
            Self::Write => "workspace_write",
            Self::Exec => "workspace_exec",
        }
    }

    /// Calls of a round.
    fn count(self) -> usize {
        match self {
            Self::Read | Self::Write => CALLS,
            Self::Exec => COMMANDS,
        }
    }
}

async fn measure() {
    let one = World::new();
    let door = one.up("full").await;
    let together = door.agent();
    let apart = Apart::start(World::new()).await;
    let separate = apart.agent();
    for agent in [&together, &separate] {
        prepare(agent).await;
    }
    println!(
        "| call | one command, p50 | p99 | separate, p50 | p99 | ratio | one command, calls/s | separate, calls/s |"
    );
    println!("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    for call in KINDS {
        let mut taken = [Vec::new(), Vec::new()];
        let mut rates = [0.0, 0.0];
        for round in 0..ROUNDS {
            for (form, agent) in [&together, &separate].into_iter().enumerate() {
                taken[form].extend(alone(agent, call, round).await);
                rates[form] += at_once(agent, call, round).await / ROUNDS as f64;
            }
        }
        let [mut first, mut second] = taken;
        let (p50, p99) = (at(&mut first, 0.5), at(&mut first, 0.99));
        let (other, other99) = (at(&mut second, 0.5), at(&mut second, 0.99));
        println!(
            "| {} | {p50:.2} ms | {p99:.1} ms | {other:.2} ms | {other99:.1} ms | {:.2} | {:.0} | {:.0} |",
            call.name(),
            other / p50,
            rates[0],
            rates[1]
        );
    }
    assert_eq!(door.stop().await.code, Some(0));
}

/// Makes the file that is read.
async fn prepare(agent: &Agent) {
    let write = json!({"path": "small.txt", "content": content(0), "expectedSha256": null});
    drop(agent.call("workspace_write", write).await.ok());
}

fn content(number: usize) -> String {
    format!("{number:.>SMALL$}")
}

/// One call after another; how long each took, in milliseconds.
async fn alone(agent: &Agent, call: Call, round: usize) -> Vec<f64> {
    let mut taken = Vec::with_capacity(call.count());
    for number in 0..call.count() {
        let started = Instant::now();
        make(agent, call, round, number, "alone").await;
        taken.push(milliseconds(started.elapsed()));
    }
    taken
}

/// Several at once; calls a second.
async fn at_once(agent: &Agent, call: Call, round: usize) -> f64 {
    let started = Instant::now();
    stream::iter(0..call.count())
        .map(|number| make(agent, call, round, number, "at-once"))
        .buffer_unordered(CALLERS)
        .collect::<()>()
        .await;
    call.count() as f64 / started.elapsed().as_secs_f64()
}

async fn make(agent: &Agent, call: Call, round: usize, number: usize, how: &str) {
    match call {
        Call::Read => {
            let read = agent.call("workspace_read", json!({"path": "small.txt"}));
            assert_eq!(read.await.ok()["bytes"], SMALL);
        }
        Call::Write => {
            let path = format!("written/{how}-{round}-{number}.txt");
            let arguments =
                json!({"path": path, "content": content(number), "expectedSha256": Value::Null});
            drop(agent.call("workspace_write", arguments).await.ok());
        }
        Call::Exec => {
            assert_eq!(agent.run("true").await.last["exitCode"], 0);
        }
    }
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

fn at(taken: &mut [f64], part: f64) -> f64 {
    taken.sort_by(f64::total_cmp);
    taken[((taken.len() - 1) as f64 * part) as usize]
}
