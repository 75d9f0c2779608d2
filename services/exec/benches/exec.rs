//! What a command costs: from its start to the answer that says its end, beside a plain spawn of the same shell.
#![expect(clippy::expect_used, reason = "a benchmark that cannot go on stops")]
#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::{
    ffi::OsString,
    io::Read as _,
    process::{Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

use criterion::{Criterion, Throughput};
use postern_exec::{Config, Service, sandbox::Level};
use postern_kit::{
    Clock,
    task::Tasks,
    transport::{Transport, local},
};
use postern_proto::exec::v1::{Effect, PollRequest, StartRequest, Status, exec_client::ExecClient};
use postern_types::ReceiptId;
use tokio::runtime::Runtime;

const WRAPPER: &str = "wrapper-process";
const SESSION: &str = "bench";
/// Time between two commands, as between two calls of an agent: a wrapper waits again then.
const BETWEEN: Duration = Duration::from_millis(10);
/// Commands of each kind and side that take turns.
const TURNS: usize = 512;
const FLOOD: &str = "head -c 200000000 /dev/zero";

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    if args.next().is_some_and(|first| first == WRAPPER) {
        return postern_exec::wrapper_main(args.collect::<Vec<OsString>>());
    }
    let mut criterion = Criterion::default().configure_from_args();
    side_by_side();
    commands(&mut criterion);
    criterion.final_summary();
    ExitCode::SUCCESS
}

/// The aim is a ratio, and what a machine does besides moves both sides: so they take turns, and the medians are compared.
fn side_by_side() {
    let folder = tempfile::tempdir().expect("folder");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("runtime");
    let client = runtime.block_on(async { open(folder.path(), Level::Project) });
    println!("| `true`, taking turns | plain spawn | the worker | ratio |");
    println!("| --- | ---: | ---: | ---: |");
    for (what, burst, pause) in [
        ("10 ms apart", 1, BETWEEN),
        ("four at a time, then 10 ms", 4, BETWEEN),
        ("thirty-two at a time, then 10 ms", 32, BETWEEN),
    ] {
        let (mut spawned, mut run_here) = (Vec::new(), Vec::new());
        for _ in 0..TURNS / burst {
            std::thread::sleep(pause);
            for _ in 0..burst {
                let began = Instant::now();
                plain("true");
                spawned.push(began.elapsed());
            }
            runtime.block_on(async { tokio::time::sleep(pause).await });
            for _ in 0..burst {
                let began = Instant::now();
                runtime.block_on(run(&client, "true"));
                run_here.push(began.elapsed());
            }
        }
        let (spawned, run_here) = (median(spawned), median(run_here));
        let ratio = run_here.as_secs_f64() / spawned.as_secs_f64();
        println!("| {what} | {spawned:.2?} | {run_here:.2?} | {ratio:.2} |");
    }
}

fn median(mut taken: Vec<Duration>) -> Duration {
    taken.sort_unstable();
    taken[taken.len() / 2]
}

fn commands(criterion: &mut Criterion) {
    let folder = tempfile::tempdir().expect("folder");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("runtime");
    let client = runtime.block_on(async { open(folder.path(), Level::Project) });
    let free = runtime.block_on(async { open(folder.path(), Level::Off) });
    true_to_its_end(criterion, &runtime, &client, &free);
    poll(criterion, &runtime, &client);
    flood(criterion, &runtime, &client);
}

fn open(folder: &std::path::Path, level: Level) -> ExecClient<Transport> {
    let program = std::env::current_exe().expect("this program");
    let wrapper = vec![program.into(), WRAPPER.into()];
    let project = folder.join("project");
    std::fs::create_dir_all(&project).expect("project");
    let spool = folder.join(format!("spool-{level}"));
    let mut config = Config::new(project, spool, wrapper);
    config.environment = std::env::vars_os().collect();
    config.sandbox.level = level;
    config.sandbox.homes = std::env::home_dir().into_iter().collect();
    let service = Service::open(config, Clock::system(), Tasks::new()).expect("worker");
    ExecClient::new(local(service.into_server()))
}

fn true_to_its_end(
    criterion: &mut Criterion,
    runtime: &Runtime,
    client: &ExecClient<Transport>,
    free: &ExecClient<Transport>,
) {
    let mut group = criterion.benchmark_group("true");
    group.measurement_time(Duration::from_secs(10));
    group.bench_function("plain spawn", |bencher| {
        bencher.iter_custom(|count| {
            with_pauses(runtime, count, || {
                plain("true");
            })
        });
    });
    group.bench_function("start to exited", |bencher| {
        bencher.iter_custom(|count| {
            with_pauses(runtime, count, || {
                runtime.block_on(run(client, "true"));
            })
        });
    });
    group.bench_function("start to exited, not confined", |bencher| {
        bencher.iter_custom(|count| {
            with_pauses(runtime, count, || {
                runtime.block_on(run(free, "true"));
            })
        });
    });
    group.bench_function("start alone", |bencher| {
        bencher.iter_custom(|count| {
            let mut spent = Duration::ZERO;
            for _ in 0..count {
                let began = Instant::now();
                let id = runtime.block_on(start(client, "true"));
                spent += began.elapsed();
                runtime.block_on(finish(client, &id));
                runtime.block_on(async { tokio::time::sleep(BETWEEN).await });
            }
            spent
        });
    });
    group.bench_function("plain spawn, back to back", |bencher| {
        bencher.iter(|| plain("true"));
    });
    group.bench_function("start to exited, back to back", |bencher| {
        bencher.iter(|| runtime.block_on(run(client, "true")));
    });
    group.finish();
}

fn poll(criterion: &mut Criterion, runtime: &Runtime, client: &ExecClient<Transport>) {
    let id = runtime.block_on(run(client, "head -c 65536 /dev/zero | tr '\\0' x"));
    criterion.bench_function("poll of 64 KiB", |bencher| {
        bencher.iter(|| runtime.block_on(page(client, &id)));
    });
}

fn flood(criterion: &mut Criterion, runtime: &Runtime, client: &ExecClient<Transport>) {
    let mut group = criterion.benchmark_group("200 MB");
    group
        .sample_size(10)
        .throughput(Throughput::Bytes(200_000_000));
    group.bench_function("plain spawn, read and dropped", |bencher| {
        bencher.iter(|| plain(FLOOD));
    });
    group.bench_function("start to exited", |bencher| {
        bencher.iter(|| runtime.block_on(run(client, FLOOD)));
    });
    group.finish();
}

fn with_pauses(runtime: &Runtime, count: u64, mut once: impl FnMut()) -> Duration {
    let mut spent = Duration::ZERO;
    for _ in 0..count {
        let began = Instant::now();
        once();
        spent += began.elapsed();
        runtime.block_on(async { tokio::time::sleep(BETWEEN).await });
    }
    spent
}

/// The same shell without any of it.
fn plain(command: &str) -> usize {
    let mut child = Command::new("/bin/sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("shell");
    let mut output = child.stdout.take().expect("output");
    let mut buffer = vec![0; 256 * 1024];
    let mut total = 0;
    loop {
        match output.read(&mut buffer).expect("read") {
            0 => break,
            count => total += count,
        }
    }
    child.wait().expect("wait");
    total
}

async fn start(client: &ExecClient<Transport>, command: &str) -> String {
    let request = StartRequest {
        effect: Some(Effect {
            workspace_id: "bench".to_owned(),
            receipt_id: ReceiptId::generate().to_string(),
            incarnation: 1,
        }),
        session_id: SESSION.to_owned(),
        command: command.to_owned(),
        cwd: String::new(),
        timeout_ms: 60_000,
        place: None,
    };
    let started = client.clone().start(request).await;
    started.expect("started").into_inner().command_id
}

async fn page(client: &ExecClient<Transport>, id: &str) -> (u64, Status) {
    let request = PollRequest {
        session_id: SESSION.to_owned(),
        command_id: id.to_owned(),
        offset: 0,
        wait_ms: 2000,
    };
    let page = client
        .clone()
        .poll(request)
        .await
        .expect("page")
        .into_inner();
    (page.total_bytes, page.state.expect("state").status())
}

async fn finish(client: &ExecClient<Transport>, id: &str) {
    let mut offset = 0;
    loop {
        let request = PollRequest {
            session_id: SESSION.to_owned(),
            command_id: id.to_owned(),
            offset,
            wait_ms: 2000,
        };
        let page = client
            .clone()
            .poll(request)
            .await
            .expect("page")
            .into_inner();
        if page.state.expect("state").status() != Status::Running {
            return;
        }
        // As one who only waits for the end: from the newest output on.
        offset = page.total_bytes;
    }
}

async fn run(client: &ExecClient<Transport>, command: &str) -> String {
    let id = start(client, command).await;
    finish(client, &id).await;
    id
}
