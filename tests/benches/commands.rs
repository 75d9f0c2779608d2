//! What commands cost through a real edge and its worker, beside a plain spawn of the same shell. See README.md beside this
//! file.
#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]
#![expect(clippy::expect_used, reason = "a benchmark fails by panicking")]

use std::{
    env,
    io::Read as _,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use postern_tests::{
    CHANNEL_TOKEN, FakeHost, HostSide, WORKSPACE, World, call, process::Process, start_edge,
    text_of,
};
use serde_json::{Value, json};

/// Bytes of the flood.
const FLOOD: usize = 200_000_000;
/// Floods of each kind.
const FLOODS: usize = 7;
/// Bytes of the polled output.
const PAGE: usize = 64 * 1024;
/// Polls measured.
const POLLS: usize = 1000;
/// Commands measured of each kind.
const STARTS: usize = 200;
/// Pause before a command, as between two calls of an agent.
const PAUSE: Duration = Duration::from_millis(10);
/// Time between two looks at the memory.
const LOOK: Duration = Duration::from_millis(2);

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

/// An edge with a host that only asks.
struct Edge {
    world: World,
    channel: HostSide,
    pid: i32,
    calls: u64,
}

async fn measure() {
    let world = World::new();
    world.write("flood.txt", "0123456789abcde\n".repeat(FLOOD / 16));
    let host = FakeHost::listen().await;
    let program = start_edge(&world, host.url(), &["--listen-none"]);
    let channel = host.accept(WORKSPACE, CHANNEL_TOKEN).await;
    let mut edge = Edge {
        world,
        channel,
        pid: program.pid(),
        calls: 0,
    };
    println!("| what | plain | through the edge |");
    println!("| --- | ---: | ---: |");
    edge.starts("`true` to its end, 10 ms apart", PAUSE).await;
    edge.starts("`true` to its end, unbroken", Duration::ZERO)
        .await;
    edge.polls().await;
    edge.floods().await;
}

impl Edge {
    async fn ask(&mut self, tool: &str, args: Value) -> Value {
        self.calls += 1;
        let frame = call(&format!("bench-{}", self.calls), tool, &args);
        let mut result = self.channel.ask(&frame).await;
        assert!(result["isError"].is_null(), "{result}");
        result["structuredContent"].take()
    }

    async fn start(&mut self, command: &str) -> String {
        let started = self
            .ask("workspace_exec", json!({"command": command}))
            .await;
        text_of(&started, "commandId")
    }

    /// Follows the newest output until the command has ended; tells how many bytes it wrote.
    async fn finish(&mut self, id: &str) -> usize {
        let mut offset = json!(0);
        loop {
            let args = json!({"commandId": id, "offset": offset});
            let page = self.ask("workspace_poll", args).await;
            offset = page["totalBytes"].clone();
            if page["status"] != "running" {
                assert_eq!(page["exitCode"], 0, "{page}");
                return usize::try_from(offset.as_u64().expect("a number")).expect("it fits");
            }
        }
    }

    async fn starts(&mut self, what: &str, pause: Duration) {
        let (mut plain_taken, mut taken) = (Vec::new(), Vec::new());
        for _ in 0..STARTS {
            thread::sleep(pause);
            plain_taken.push(timed(|| plain("true", 0)));
            tokio::time::sleep(pause).await;
            let began = Instant::now();
            let id = self.start("true").await;
            self.finish(&id).await;
            taken.push(began.elapsed());
        }
        let (plain, ours) = (median(plain_taken), median(taken));
        println!(
            "| {what} | {} | {} |",
            milliseconds(plain),
            milliseconds(ours)
        );
    }

    async fn polls(&mut self) {
        let id = self.start(&format!("head -c {PAGE} flood.txt")).await;
        self.finish(&id).await;
        let mut taken = Vec::new();
        let args = json!({"commandId": id, "offset": 0});
        for number in 0..POLLS {
            let frame = call(&format!("bench-poll-{number}"), "workspace_poll", &args);
            let began = Instant::now();
            self.channel.send(&frame).await;
            let answer = self.channel.next_frame().await.expect("a result");
            // What reading it costs is the host's time, not the edge's.
            taken.push(began.elapsed());
            let answer: Value = serde_json::from_str(&answer).expect("JSON");
            let page = &answer["result"]["structuredContent"];
            assert_eq!(page["output"].as_str().map(str::len), Some(PAGE));
        }
        println!("| poll of 64 KiB | | {} |", milliseconds(median(taken)));
    }

    async fn floods(&mut self) {
        let memory = Memory::watch(self.pid, self.worker());
        let (mut plain_taken, mut taken) = (Vec::new(), Vec::new());
        for _ in 0..FLOODS {
            let flood = self.world.project().join("flood.txt");
            let command = format!("cat '{}'", flood.display());
            plain_taken.push(timed(|| plain(&command, FLOOD)));
            let began = Instant::now();
            let id = self.start(&command).await;
            assert_eq!(self.finish(&id).await, FLOOD);
            taken.push(began.elapsed());
        }
        let rate = |taken: Vec<Duration>| {
            format!(
                "{:.0} MB/s",
                FLOOD as f64 / 1e6 / median(taken).as_secs_f64()
            )
        };
        println!(
            "| 200 MB of output | {} | {} |",
            rate(plain_taken),
            rate(taken)
        );
        let most = memory.most() as f64 / 1_048_576.0;
        println!("| memory of edge and worker while it comes, at most | | {most:.1} MiB |");
    }

    fn worker(&self) -> i32 {
        let workers = self.world.workers();
        let own = |process: &&Process| process.parent == self.pid;
        workers.iter().find(own).expect("the edge has a worker").pid
    }
}

/// Looks at the resident memory of two processes until it is asked.
struct Memory {
    most: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
    looking: thread::JoinHandle<()>,
}

impl Memory {
    fn watch(edge: i32, worker: i32) -> Self {
        let (most, over) = (
            Arc::new(AtomicU64::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let looking = thread::spawn({
            let (most, over) = (Arc::clone(&most), Arc::clone(&over));
            move || {
                while !over.load(Ordering::Relaxed) {
                    let bytes = [edge, worker].map(postern_tests::process::resident_bytes);
                    most.fetch_max(bytes.iter().sum(), Ordering::Relaxed);
                    thread::sleep(LOOK);
                }
            }
        });
        Self {
            most,
            over,
            looking,
        }
    }

    fn most(self) -> u64 {
        self.over.store(true, Ordering::Relaxed);
        self.looking.join().expect("the look-out lives");
        self.most.load(Ordering::Relaxed)
    }
}

/// The same shell without any of it.
fn plain(command: &str, bytes: usize) {
    let mut child = Command::new("/bin/sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a shell");
    let mut output = child.stdout.take().expect("output");
    let (mut buffer, mut total) = (vec![0; 256 * 1024], 0);
    while let count @ 1.. = output.read(&mut buffer).expect("output") {
        total += count;
    }
    assert_eq!(total, bytes);
    child.wait().expect("an end");
}

fn timed(once: impl FnOnce()) -> Duration {
    let began = Instant::now();
    once();
    began.elapsed()
}

fn median(mut taken: Vec<Duration>) -> Duration {
    taken.sort_unstable();
    taken[taken.len() / 2]
}

fn milliseconds(duration: Duration) -> String {
    format!("{:.2} ms", duration.as_secs_f64() * 1000.0)
}
