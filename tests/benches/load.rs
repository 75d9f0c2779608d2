//! As many channels as a host holds, each with as many calls in flight as it may have, through the real host: calls a second,
//! times, memory, and whether every workspace gets its share. The edges are played by the benchmark and answer at once, so the
//! figures are the host's. See README.md beside this file.
#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]
#![expect(clippy::expect_used, reason = "a benchmark fails by panicking")]

use std::{
    env,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use postern_tests::{Agent, EDGE_INTENTION, FakeEdge, RealHost, text_of};
use serde_json::{Value, json};
use tokio::task::JoinSet;

/// Channels of a host at most (CONTRACT.md, `channel-v1.json`).
const CHANNELS: usize = 20;
/// Calls in flight of a channel at most.
const CALLS: usize = 4;
/// Before anything is counted.
const WARM_UP: Duration = Duration::from_secs(2);
/// What is counted.
const SPAN: Duration = Duration::from_secs(20);

fn main() {
    // `cargo test --all-targets` runs benchmarks too; only `cargo bench` says this word.
    if !env::args().any(|argument| argument == "--bench") {
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(measure());
}

async fn measure() {
    let host = RealHost::start().await;
    let idle = resident(&host);
    println!(
        "| calls | calls a second | p50 | p99 | CPU of the host a call | slowest to fastest workspace | memory idle | under load |"
    );
    println!("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    let mut doors = Vec::with_capacity(CHANNELS);
    for number in 0..CHANNELS {
        doors.push(open(&host, number).await);
    }
    for (what, tool, arguments) in [
        ("read", "workspace_read", json!({"path": "a.txt"})),
        (
            "write 4 KiB",
            "workspace_write",
            json!({"path": "a.txt", "content": "0123456789abcde\n".repeat(256), "expectedSha256": null}),
        ),
    ] {
        run(&host, &doors, what, tool, &arguments, &idle).await;
    }
}

/// A workspace with an open channel whose edge answers every call at once; the token of its agent.
#[expect(
    clippy::disallowed_methods,
    reason = "the benchmark's own edge ends with its runtime"
)]
async fn open(host: &RealHost, number: usize) -> String {
    let name = format!("Load {number}");
    let created = host.told(&["workspace", "create", "--name", &name]).await;
    let workspace = text_of(&created["workspace"], "id");
    let launch = [
        "launch",
        "--workspace",
        &workspace,
        "--intention",
        EDGE_INTENTION,
    ];
    let launch = host.told(&launch).await;
    let channel_token = text_of(&launch["launch"], "token");
    let token = [
        "token",
        "create",
        "--workspace",
        &workspace,
        "--role",
        "editor",
    ];
    let token = host.told(&token).await;
    let mut edge = FakeEdge::connect(&host.url, &workspace, &channel_token)
        .await
        .expect("the channel opens");
    tokio::spawn(async move {
        while let Ok(call) = edge.next_call().await {
            edge.answer(&call, &json!({"path": "a.txt", "bytes": 1}))
                .await;
        }
    });
    text_of(&token["token"], "secret")
}

async fn run(
    host: &RealHost,
    agents: &[String],
    what: &str,
    tool: &'static str,
    arguments: &Value,
    idle: &str,
) {
    let mut callers = JoinSet::new();
    let tallies: Vec<Arc<AtomicU64>> = agents.iter().map(|_| Arc::default()).collect();
    let from = Instant::now() + WARM_UP;
    for (token, answered) in agents.iter().zip(&tallies) {
        for _ in 0..CALLS {
            let agent = Agent::modern(&format!("{}/mcp", host.url), token);
            callers.spawn(call(
                agent,
                Arc::clone(answered),
                tool,
                arguments.clone(),
                from,
            ));
        }
    }
    tokio::time::sleep_until(from.into()).await;
    let before = cpu(host);
    tokio::time::sleep(SPAN).await;
    let (used, memory) = (cpu(host).saturating_sub(before), resident(host));
    let mut times = Vec::new();
    while let Some(ended) = callers.join_next().await {
        times.extend(ended.expect("no caller fails"));
    }
    times.sort_unstable();
    let shares: Vec<u64> = tallies
        .iter()
        .map(|answered| answered.load(Ordering::Relaxed))
        .collect();
    let (slowest, fastest) = (shares.iter().min(), shares.iter().max());
    let share =
        slowest.copied().unwrap_or_default() as f64 / fastest.copied().unwrap_or(1).max(1) as f64;
    let milliseconds = |time: Duration| format!("{:.1} ms", time.as_secs_f64() * 1e3);
    println!(
        "| {what} | {:.0} | {} | {} | {} | {share:.2} | {idle} | {memory} |",
        times.len() as f64 / SPAN.as_secs_f64(),
        milliseconds(times[times.len() / 2]),
        milliseconds(times[times.len() * 99 / 100]),
        milliseconds(used / u32::try_from(times.len()).expect("not that many")),
    );
}

/// Calls one after another, until the time is over; how long each took that was answered in it.
async fn call(
    agent: Agent,
    answered: Arc<AtomicU64>,
    tool: &'static str,
    arguments: Value,
    from: Instant,
) -> Vec<Duration> {
    let mut times = Vec::new();
    loop {
        let begun = Instant::now();
        let _answer = agent.call(tool, arguments.clone()).await.ok();
        let ended = Instant::now();
        if ended >= from + SPAN {
            return times;
        }
        if ended >= from {
            times.push(ended - begun);
            answered.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn cpu(host: &RealHost) -> Duration {
    let processes = host.world.processes();
    processes.iter().map(|process| process.cpu).sum()
}

fn resident(host: &RealHost) -> String {
    let processes = host.world.processes();
    let bytes: u64 = processes.iter().map(|process| process.resident_bytes).sum();
    format!("{:.1} MiB", bytes as f64 / 1_048_576.0)
}
