//! What a call costs from an agent to the disk and back, through the real binary. See README.md beside this file.
#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]
#![expect(clippy::expect_used, reason = "a benchmark fails by panicking")]

use std::{
    env, fs,
    time::{Duration, Instant},
};

use postern_tests::{Agent, Door, World, process::Process};
use serde_json::{Value, json};

/// Starts of the program, on a new and on an existing data directory each.
const STARTS: usize = 15;
/// Calls before any is measured.
const WARM_UP: usize = 50;
/// Calls measured for a read, which is quick.
const READS: usize = 3000;
/// Calls measured for everything else.
const CALLS: usize = 500;
/// Time without calls before memory is looked at.
const IDLE: Duration = Duration::from_secs(2);
/// Size of a small file in bytes.
const SMALL: usize = 4096;
/// Size of the patched file in bytes.
const LARGE: usize = 100 * 1024;
/// Entries of the listed directory.
const ENTRIES: usize = 1000;

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
    println!("| what | median | p99 | CPU a call |");
    println!("| --- | ---: | ---: | ---: |");
    let world = starts().await;
    fill(&world);
    let door = world.up("full").await;
    tokio::time::sleep(IDLE).await;
    let idle = world.processes();
    calls(&world, &door.agent()).await;
    let after = world.processes();
    println!();
    println!("| memory (RSS) | processes | idle | after the calls |");
    println!("| --- | ---: | ---: | ---: |");
    let total = |processes: &[Process]| {
        let bytes: u64 = processes.iter().map(|process| process.resident_bytes).sum();
        format!("{:.1} MiB", bytes as f64 / 1_048_576.0)
    };
    println!(
        "| all processes of `postern up` | {} | {} | {} |",
        idle.len(),
        total(&idle),
        total(&after)
    );
    stop(door).await;
}

async fn stop(door: Door) {
    assert_eq!(door.stop().await.code, Some(0));
}

/// Ready times; answers the last world, whose data directory is an existing one.
async fn starts() -> World {
    let mut fresh = Vec::new();
    let mut world = World::new();
    for _ in 0..STARTS {
        world = World::new();
        fresh.push(one_start(&world).await);
    }
    let mut existing = Vec::new();
    for _ in 0..STARTS {
        existing.push(one_start(&world).await);
    }
    row("ready, new data directory", fresh, None);
    row("ready, existing data directory", existing, None);
    world
}

async fn one_start(world: &World) -> Duration {
    let started = Instant::now();
    let door = world.up("full").await;
    let taken = started.elapsed();
    stop(door).await;
    taken
}

fn fill(world: &World) {
    world.write("small.txt", "0123456789abcde\n".repeat(SMALL / 16));
    world.write("large.txt", "0123456789abcde\n".repeat(LARGE / 16));
    world.write("count.txt", "x");
    let many = world.project().join("many");
    fs::create_dir(&many).expect("writable");
    for number in 0..ENTRIES {
        fs::write(many.join(format!("entry-{number:04}.txt")), "x").expect("writable");
    }
}

async fn calls(world: &World, agent: &Agent) {
    series(world, "read 4 KiB", READS, async || {
        let page = call(agent, "workspace_read", json!({"path": "small.txt"})).await;
        assert_eq!(page["bytes"], SMALL);
    })
    .await;

    let mut sha256 = Value::Null;
    series(world, "write 4 KiB", CALLS, async || {
        let content = format!("{:.>SMALL$}", sha256.as_str().unwrap_or(""));
        let arguments =
            json!({"path": "written.txt", "content": content, "expectedSha256": sha256});
        sha256 = call(agent, "workspace_write", arguments).await["sha256"].clone();
    })
    .await;

    series(world, "list 1,000 entries (two pages)", CALLS, async || {
        list(agent).await;
    })
    .await;

    let (mut sha256, mut round) = (with_a_counter(agent).await, 0);
    series(world, "patch in 100 KiB", CALLS, async || {
        let arguments = json!({
            "path": "large.txt",
            "oldText": counter(round),
            "newText": counter(round + 1),
            "expectedSha256": sha256,
        });
        sha256 = call(agent, "workspace_patch", arguments).await["sha256"].clone();
        round += 1;
    })
    .await;

    series(
        world,
        "`true`, from the call to its end",
        CALLS,
        async || {
            assert_eq!(agent.run("true").await.last["exitCode"], 0);
        },
    )
    .await;
}

async fn call(agent: &Agent, tool: &str, arguments: Value) -> Value {
    agent.call(tool, arguments).await.ok()
}

async fn series(world: &World, what: &str, count: usize, mut step: impl AsyncFnMut()) {
    let cpu = || -> Duration { world.processes().iter().map(|process| process.cpu).sum() };
    for _ in 0..WARM_UP {
        step().await;
    }
    let before = cpu();
    let mut taken = Vec::with_capacity(count);
    for _ in 0..count {
        let started = Instant::now();
        step().await;
        taken.push(started.elapsed());
    }
    let spent = cpu().saturating_sub(before);
    row(what, taken, Some(spent.div_f64(count as f64)));
}

async fn list(agent: &Agent) {
    let (mut next, mut seen) = (json!(0), 0);
    while !next.is_null() {
        let page = call(
            agent,
            "workspace_list",
            json!({"path": "many", "offset": next}),
        )
        .await;
        seen += page["entries"].as_array().map_or(0, Vec::len);
        next = page["nextOffset"].clone();
    }
    assert_eq!(seen, ENTRIES);
}

fn counter(round: u32) -> String {
    format!("round {round:06}")
}

/// Puts a counter into the middle of the large file; answers the file's revision.
async fn with_a_counter(agent: &Agent) -> Value {
    let half = "0123456789abcde\n".repeat(LARGE / 32);
    let read = call(agent, "workspace_read", json!({"path": "large.txt"})).await;
    let arguments = json!({
        "path": "large.txt",
        "content": format!("{half}{}\n{half}", counter(0)),
        "expectedSha256": read["sha256"],
    });
    call(agent, "workspace_write", arguments).await["sha256"].clone()
}

fn row(what: &str, mut taken: Vec<Duration>, cpu: Option<Duration>) {
    taken.sort_unstable();
    let at = |share: f64| {
        let index = ((taken.len() - 1) as f64 * share).round() as usize;
        milliseconds(taken[index])
    };
    let cpu = cpu.map_or_else(String::new, milliseconds);
    println!("| {what} | {} | {} | {cpu} |", at(0.5), at(0.99));
}

fn milliseconds(duration: Duration) -> String {
    format!("{:.2} ms", duration.as_secs_f64() * 1000.0)
}
