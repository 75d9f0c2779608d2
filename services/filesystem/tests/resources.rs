//! What giant files and many calls cost the process. A test binary of its own, so that nothing else is counted.
#![expect(clippy::expect_used, reason = "what is expected is what is tested")]

use std::{
    fs::{self, File},
    os::unix::fs::FileExt as _,
    time::{Duration, Instant},
};

use postern_filesystem::{Config, Service};
use postern_kit::{Clock, Failure, transport};
use postern_proto::filesystem::v1::{
    Effect, LineEnding, ListRequest, PatchRequest, ReadRequest, ReadResponse,
    filesystem_client::FilesystemClient,
};
use postern_types::{ErrorCode, ReceiptId, Sha256};
use pretty_assertions::assert_eq;

const GIANT: u64 = 10_000_000_000;
const MARK: u64 = 9_900_000_000;
/// What reading may add to the process, in KiB.
const MEMORY: u64 = 64 * 1024;

type Client = FilesystemClient<transport::Transport>;

#[tokio::test]
async fn giant_files_and_many_calls_cost_little() {
    let home = tempfile::tempdir().expect("directory");
    let root = home.path();
    let giant = File::create(root.join("giant")).expect("file");
    giant.set_len(GIANT).expect("sparse");
    giant.write_all_at(b"MARK", MARK).expect("written");
    fs::write(root.join("f"), "x".repeat(300_000)).expect("file");
    fs::create_dir(root.join("many")).expect("directory");
    for number in 0..20_000 {
        fs::hard_link(root.join("f"), root.join(format!("many/{number:05}"))).expect("link");
    }
    let mut config = Config::new(root.to_owned());
    config.revision_wait = Duration::from_millis(50);
    let service = Service::open(config, Clock::system()).expect("root");
    let client = FilesystemClient::new(transport::local(service.into_server()));
    read(&client, "f", 0, 100).await.expect("read");
    let (memory, files) = (resident_kib(), open_files());

    a_page_of_a_giant_file_comes_at_once(&client).await;
    a_giant_file_is_not_patched(&client).await;
    a_large_directory_is_paged(&client).await;
    for page in 0..2000_u64 {
        read(&client, "f", page * 100, 100).await.expect("read");
    }

    let added = resident_kib().saturating_sub(memory);
    assert!(added < MEMORY, "{added} KiB more");
    // The job that hashes the giant file holds it open.
    assert!(open_files() <= files + 1);
    assert_eq!(giant.metadata().expect("metadata").len(), GIANT);
}

async fn a_page_of_a_giant_file_comes_at_once(client: &Client) {
    let begun = Instant::now();
    let page = read(client, "giant", MARK, 65_536).await.expect("page");
    assert!(begun.elapsed() < Duration::from_secs(2));
    assert!(page.content.starts_with("MARK\0"));
    assert_eq!(page.bytes, 65_536);
    // Its revision is not known yet, and is not made up.
    let facts = (page.sha256.as_str(), page.line_ending());
    assert_eq!(facts, ("", LineEnding::Unspecified));
}

async fn a_giant_file_is_not_patched(client: &Client) {
    let request = PatchRequest {
        effect: Some(Effect {
            workspace_id: "workspace".to_owned(),
            receipt_id: ReceiptId::generate().to_string(),
            incarnation: 1,
        }),
        path: "giant".to_owned(),
        old_text: "MARK".to_owned(),
        new_text: "x".to_owned(),
        expected_sha256: Some(Sha256::of(b"").to_string()),
    };
    let refused = client.clone().patch(request).await.expect_err("too large");
    let refused = Failure::from(refused);
    assert_eq!(refused.code, ErrorCode::TooLarge);
    assert_eq!(refused.details["limit"], 64 * 1024 * 1024);
}

async fn a_large_directory_is_paged(client: &Client) {
    let mut listed = 0;
    let mut next = Some(0);
    while let Some(offset) = next {
        let request = ListRequest {
            path: "many".to_owned(),
            offset,
        };
        let page = client
            .clone()
            .list(request)
            .await
            .expect("listed")
            .into_inner();
        listed += page.entries.len();
        next = page.next_offset;
    }
    assert_eq!(listed, 20_000);
}

async fn read(
    client: &Client,
    path: &str,
    offset: u64,
    limit: u32,
) -> Result<ReadResponse, Failure> {
    let request = ReadRequest {
        path: path.to_owned(),
        offset,
        limit,
    };
    Ok(client.clone().read(request).await?.into_inner())
}

fn resident_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("status");
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let digits: String = line
        .expect("line")
        .chars()
        .filter(char::is_ascii_digit)
        .collect();
    digits.parse().expect("number")
}

fn open_files() -> usize {
    fs::read_dir("/proc/self/fd").expect("list").count()
}
