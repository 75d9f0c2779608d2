//! What the commonest calls cost, and those on what is large, from a client in the same process through the real server to the disk.
//!
//! The files lie in the directory that `TMPDIR` names; a write costs what that disk's syncs cost.
#![expect(clippy::expect_used, reason = "a benchmark that fails should stop")]

use std::{
    fs::{self, File},
    hint::black_box,
    io::Write as _,
    path::Path,
    time::{Duration, Instant},
};

use criterion::{Criterion, criterion_group, criterion_main};
use postern_filesystem::{Config, Service};
use postern_kit::{Clock, transport};
use postern_proto::filesystem::v1::{
    Effect, ListRequest, PatchRequest, ReadRequest, WriteRequest,
    filesystem_client::FilesystemClient,
};
use postern_types::{ReceiptId, Sha256};
use tokio::runtime::Runtime;

/// Bytes of the large file.
const LARGE: u64 = 1 << 30;
/// Entries of the large directory.
const ENTRIES: usize = 100_000;

type Client = FilesystemClient<transport::Transport>;

fn effect() -> Option<Effect> {
    Some(Effect {
        workspace_id: "workspace".to_owned(),
        receipt_id: ReceiptId::generate().to_string(),
        incarnation: 1,
    })
}

fn sha(content: &str) -> Option<String> {
    Some(Sha256::of(content.as_bytes()).to_string())
}

fn project(root: &Path) -> Client {
    fs::write(root.join("small"), "x".repeat(4096)).expect("file");
    fs::write(root.join("written"), "x".repeat(4096)).expect("file");
    fs::create_dir(root.join("thousand")).expect("directory");
    for number in 0..1000 {
        fs::write(root.join(format!("thousand/{number}.txt")), "x").expect("file");
    }
    client(Config::new(root.to_owned()))
}

fn client_keeping(root: &Path, before: &Path) -> Client {
    let mut config = Config::new(root.to_owned());
    config.before = Some(before.join("before"));
    config.keep_before = 1 << 30;
    client(config)
}

fn client(config: Config) -> Client {
    let service = Service::open(config, Clock::system()).expect("root");
    FilesystemClient::new(transport::local(service.into_server()))
}

async fn read(client: &Client) {
    let request = ReadRequest {
        path: "small".to_owned(),
        offset: 0,
        limit: 0,
        place: None,
    };
    black_box(client.clone().read(request).await.expect("read"));
}

async fn list(client: &Client) {
    for offset in [0, 500] {
        list_page(client, "thousand", offset).await;
    }
}

async fn list_page(client: &Client, path: &str, offset: u64) {
    let request = ListRequest {
        path: path.to_owned(),
        offset,
        place: None,
    };
    black_box(client.clone().list(request).await.expect("listed"));
}

/// A page of the large file, which comes with the file's revision.
async fn read_large(client: &Client, offset: u64) {
    let request = ReadRequest {
        path: "large".to_owned(),
        offset,
        limit: 0,
        place: None,
    };
    let page = client.clone().read(request).await.expect("read");
    assert!(!page.get_ref().sha256.is_empty(), "without its revision");
    black_box(page);
}

/// Writes one of two contents in turn.
async fn write(client: &Client, rounds: u64) -> Duration {
    // Another content each time, as what is kept for undo is kept once.
    let mut before = "x".repeat(4096);
    let mut taken = Duration::ZERO;
    for round in 0..rounds {
        let after = format!("{round:0>64}").repeat(64);
        let request = WriteRequest {
            effect: effect(),
            path: "written".to_owned(),
            content: after.clone(),
            expected_sha256: sha(&before),
            place: None,
        };
        let begun = Instant::now();
        client.clone().write(request).await.expect("written");
        taken += begun.elapsed();
        before = after;
    }
    taken
}

/// Patches a file of 100 KiB and its result in turn.
async fn patch(client: &Client, rounds: u64) -> Duration {
    let filler = "0123456789abcde\n".repeat(3200);
    let contents = [
        format!("{filler}needle{filler}"),
        format!("{filler}pin{filler}"),
    ];
    let revisions = [sha(&contents[0]), sha(&contents[1])];
    let begun = Instant::now();
    for round in 0..rounds {
        let (old, new, revision) = if round % 2 == 0 {
            ("needle", "pin", &revisions[0])
        } else {
            ("pin", "needle", &revisions[1])
        };
        let request = PatchRequest {
            effect: effect(),
            path: "hundred".to_owned(),
            old_text: old.to_owned(),
            new_text: new.to_owned(),
            expected_sha256: revision.clone(),
            place: None,
        };
        client.clone().patch(request).await.expect("patched");
    }
    begun.elapsed()
}

fn files(criterion: &mut Criterion) {
    let home = tempfile::tempdir().expect("directory");
    let runtime = Runtime::new().expect("runtime");
    let client = project(home.path());
    // So that the revisions of what is only read are remembered, as in a project that lies still.
    std::thread::sleep(Duration::from_millis(2100));
    criterion.bench_function("read 4 KiB", |bencher| {
        bencher.to_async(&runtime).iter(|| read(&client));
    });
    criterion.bench_function("list 1000", |bencher| {
        bencher.to_async(&runtime).iter(|| list(&client));
    });
    criterion.bench_function("write 4 KiB", |bencher| {
        bencher.to_async(&runtime).iter_custom(async |rounds| {
            fs::write(home.path().join("written"), "x".repeat(4096)).expect("file");
            write(&client, rounds).await
        });
    });
    let kept = tempfile::tempdir().expect("directory");
    let keeping = client_keeping(home.path(), kept.path());
    criterion.bench_function("write 4 KiB, the bytes before kept", |bencher| {
        bencher.to_async(&runtime).iter_custom(async |rounds| {
            fs::write(home.path().join("written"), "x".repeat(4096)).expect("file");
            write(&keeping, rounds).await
        });
    });
    criterion.bench_function("patch in 100 KiB", |bencher| {
        bencher.to_async(&runtime).iter_custom(async |rounds| {
            let filler = "0123456789abcde\n".repeat(3200);
            let content = format!("{filler}needle{filler}");
            fs::write(home.path().join("hundred"), content).expect("file");
            patch(&client, rounds).await
        });
    });
}

/// A project with a file and a directory that are large.
fn large_project(root: &Path) -> Config {
    let file = File::create(root.join("large")).expect("file");
    let line = "0123456789abcde\n".repeat(4096);
    for _ in 0..LARGE / line.len() as u64 {
        (&file).write_all(line.as_bytes()).expect("written");
    }
    fs::create_dir(root.join("many")).expect("directory");
    for number in 0..ENTRIES {
        File::create(root.join(format!("many/{number:06}"))).expect("file");
    }
    // So that their revisions are remembered, as in a project that lies still.
    std::thread::sleep(Duration::from_millis(2100));
    let mut config = Config::new(root.to_owned());
    config.effect_wait = Duration::from_secs(60);
    config
}

/// What a call costs a service that knows nothing yet.
async fn first(config: &Config, rounds: u64, call: impl AsyncFn(&Client)) -> Duration {
    let mut spent = Duration::ZERO;
    for _ in 0..rounds {
        let client = client(config.clone());
        let begun = Instant::now();
        call(&client).await;
        spent += begun.elapsed();
    }
    spent
}

/// Pages of what is large: wherever they are, they cost the same once its revision or its names are known.
fn large(criterion: &mut Criterion) {
    let home = tempfile::tempdir().expect("directory");
    let runtime = Runtime::new().expect("runtime");
    let config = large_project(home.path());
    let client = client(config.clone());
    let mut group = criterion.benchmark_group("1 GiB file");
    group.sample_size(10);
    group.bench_function("first page, with its revision", |bencher| {
        bencher.to_async(&runtime).iter_custom(|rounds| {
            first(&config, rounds, async |client| read_large(client, 0).await)
        });
    });
    for (place, offset) in [
        ("start", 0),
        ("middle", LARGE / 2),
        ("end", LARGE - 131_072),
    ] {
        group.bench_function(format!("page at the {place}"), |bencher| {
            bencher
                .to_async(&runtime)
                .iter(|| read_large(&client, offset));
        });
    }
    group.finish();
    let mut group = criterion.benchmark_group("100,000 entries");
    group.sample_size(10);
    group.bench_function("first look, page 1", |bencher| {
        bencher.to_async(&runtime).iter_custom(|rounds| {
            let look = async |client: &Client| list_page(client, "many", 0).await;
            first(&config, rounds, look)
        });
    });
    for (page, offset) in [(1, 0), (200, 99_500)] {
        group.bench_function(format!("page {page}"), |bencher| {
            bencher
                .to_async(&runtime)
                .iter(|| list_page(&client, "many", offset));
        });
    }
    group.finish();
}

criterion_group!(benches, files, large);
criterion_main!(benches);
