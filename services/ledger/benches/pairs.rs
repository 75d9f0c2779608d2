//! Durable pairs of Begin and Complete by 1, 16 and 64 callers, through the generated client on the generated server, and
//! a lookup of unknown and of known ids: on a SQLite file, and on a PostgreSQL server of the benchmark's own, beside it on the
//! same disk.

#![expect(clippy::expect_used, reason = "a benchmark stops at the first failure")]

use std::{
    hint::black_box,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use postern_kit::{Clock, task::Tasks, transport};
use postern_ledger::{Config, Database, Service};
use postern_proto::ledger::v1::{
    BeginRequest, Call, CompleteRequest, LookupRequest, OpenIncarnationRequest, State,
    begin_response::Outcome, ledger_client::LedgerClient,
};
use postern_test_postgres::Cluster;
use postern_types::{Sha256, trace_id};
use tokio::runtime::Runtime;

type Client = LedgerClient<transport::Transport>;

const WORKSPACE: &str = "3f1c2d44-0000-7000-8000-000000000001";
const RESULT: [u8; 512] = [b'x'; 512];

static NEXT: AtomicU64 = AtomicU64::new(0);

fn call(number: u64) -> Call {
    let call_id = format!("0193a0e4-5b1c-7000-8000-{number:012x}");
    Call {
        workspace_id: WORKSPACE.to_owned(),
        session_id: "0193a0e4-5b1c-7000-8000-00000000abcd".to_owned(),
        trace_id: trace_id(&call_id),
        call_id,
        summary: "src/main.rs".to_owned(),
        intention: "Mend the door and say what was wrong with it".to_owned(),
        tool: "workspace_write".to_owned(),
        args_sha256: Sha256::of(&number.to_le_bytes()).to_string(),
    }
}

async fn pair(client: &mut Client, incarnation: u64) {
    let begin = BeginRequest {
        call: Some(call(NEXT.fetch_add(1, Ordering::Relaxed))),
        incarnation,
        plan_json: br#"{"path":"src/main.rs","before":null}"#.as_slice().into(),
        question: None,
        policy_id: "mode:full".to_owned(),
    };
    let begun = client.begin(begin).await.expect("begins").into_inner();
    let Some(Outcome::Started(receipt)) = begun.outcome else {
        panic!("a fresh call starts");
    };
    let complete = CompleteRequest {
        receipt_id: receipt.id,
        incarnation,
        state: State::Completed.into(),
        outcome: "ok".to_owned(),
        result: RESULT.as_slice().into(),
    };
    client.complete(complete).await.expect("ends");
}

async fn pairs(
    client: &Client,
    tasks: &Tasks,
    callers: u64,
    incarnation: u64,
    count: u64,
) -> Duration {
    let started = Instant::now();
    let running: Vec<_> = (0..callers)
        .map(|caller| {
            let mut client = client.clone();
            let mine = count / callers + u64::from(caller < count % callers);
            tasks.spawn("caller", async move {
                for _ in 0..mine {
                    pair(&mut client, incarnation).await;
                }
            })
        })
        .collect();
    for caller in running {
        caller.await.expect("joins");
    }
    started.elapsed()
}

async fn lookups(client: &Client, incarnation: u64, first: u64, count: u64) -> Duration {
    let mut client = client.clone();
    let started = Instant::now();
    for number in 0..count {
        let request = LookupRequest {
            call: Some(call(first + number % 100)),
            incarnation,
        };
        black_box(client.lookup(request).await.expect("answers"));
    }
    started.elapsed()
}

async fn opened(database: Database, tasks: &Tasks) -> (Client, u64) {
    let service = Service::open(Config { database }, Clock::system(), tasks)
        .await
        .expect("opens");
    let mut readiness = service.readiness();
    readiness
        .wait_for(|is_ready| *is_ready)
        .await
        .expect("serves");
    let mut client = LedgerClient::new(transport::local(service.into_server()));
    let request = OpenIncarnationRequest {
        workspace_id: WORKSPACE.to_owned(),
    };
    let opened = client.open_incarnation(request).await.expect("opens");
    (client, opened.into_inner().incarnation)
}

fn on(criterion: &mut Criterion, runtime: &Runtime, name: &str, database: Database) {
    let tasks = Tasks::new();
    let first = NEXT.load(Ordering::Relaxed);
    let (client, incarnation) = runtime.block_on(opened(database, &tasks));
    let mut group = criterion.benchmark_group(format!("{name} pairs"));
    group.throughput(Throughput::Elements(1));
    for callers in [1, 16, 64] {
        group.bench_function(format!("{callers} callers"), |bencher| {
            bencher.to_async(runtime).iter_custom(|count| {
                let (client, tasks) = (client.clone(), tasks.clone());
                async move { pairs(&client, &tasks, callers, incarnation, count).await }
            });
        });
    }
    group.finish();
    for (ids, first) in [
        ("lookup unknown", u64::MAX / 0x10000),
        ("lookup known", first),
    ] {
        criterion.bench_function(&format!("{name} {ids}"), |bencher| {
            bencher.to_async(runtime).iter_custom(|count| {
                let client = client.clone();
                async move { lookups(&client, incarnation, first, count).await }
            });
        });
    }
    runtime.block_on(tasks.shutdown(Duration::from_secs(5)));
}

fn benches(criterion: &mut Criterion) {
    let runtime = Runtime::new().expect("runtime");
    let directory = tempfile::tempdir().expect("temporary directory");
    let file = Database::Sqlite(directory.path().join("ledger.db"));
    on(criterion, &runtime, "sqlite", file);
    let cluster = Cluster::durable();
    let server = cluster.database().parse().expect("a URL");
    on(criterion, &runtime, "postgres", server);
}

criterion_group!(pairs_and_lookups, benches);
criterion_main!(pairs_and_lookups);
