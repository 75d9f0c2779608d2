//! What the four commonest calls cost, from a client in the same process through the real server to the disk.
//!
//! The files lie in the directory that `TMPDIR` names; a write costs what that disk's syncs cost.
#![expect(clippy::expect_used, reason = "a benchmark that fails should stop")]

use std::{
    fs,
    hint::black_box,
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
    let config = Config::new(root.to_owned());
    let service = Service::open(config, Clock::system()).expect("root");
    FilesystemClient::new(transport::local(service.into_server()))
}

async fn read(client: &Client) {
    let request = ReadRequest {
        path: "small".to_owned(),
        offset: 0,
        limit: 0,
    };
    black_box(client.clone().read(request).await.expect("read"));
}

async fn list(client: &Client) {
    for offset in [0, 500] {
        let request = ListRequest {
            path: "thousand".to_owned(),
            offset,
        };
        black_box(client.clone().list(request).await.expect("listed"));
    }
}

/// Writes one of two contents in turn.
async fn write(client: &Client, rounds: u64) -> Duration {
    let contents = ["x".repeat(4096), "y".repeat(4096)];
    let begun = Instant::now();
    for round in 0..rounds {
        let [before, after] = if round % 2 == 0 {
            [&contents[0], &contents[1]]
        } else {
            [&contents[1], &contents[0]]
        };
        let request = WriteRequest {
            effect: effect(),
            path: "written".to_owned(),
            content: after.clone(),
            expected_sha256: sha(before),
        };
        client.clone().write(request).await.expect("written");
    }
    begun.elapsed()
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
    criterion.bench_function("patch in 100 KiB", |bencher| {
        bencher.to_async(&runtime).iter_custom(async |rounds| {
            let filler = "0123456789abcde\n".repeat(3200);
            let content = format!("{filler}needle{filler}");
            fs::write(home.path().join("hundred"), content).expect("file");
            patch(&client, rounds).await
        });
    });
}

criterion_group!(benches, files);
criterion_main!(benches);
