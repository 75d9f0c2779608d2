//! What giant files and many calls cost the process. A test binary of its own, so that nothing else is counted.
#![expect(clippy::expect_used, reason = "what is expected is what is tested")]

use std::{
    collections::HashSet,
    fs::{self, File},
    os::unix::fs::FileExt as _,
    path::Path,
    time::{Duration, Instant},
};

use postern_filesystem::{Config, Service};
use postern_kit::{Clock, Failure, transport};
use postern_proto::filesystem::v1::{
    Effect, LineEnding, ListRequest, PatchRequest, ReadRequest, ReadResponse,
    filesystem_client::FilesystemClient,
};
use postern_types::{ErrorCode, ReceiptId, Sha256, Timestamp};
use pretty_assertions::assert_eq;

/// Entries of the large directory.
const ENTRIES: usize = 100_000;
const GIANT: u64 = 10_000_000_000;
/// A file of one line that is larger than what is patched.
const ONE_LINE: u64 = 1_000_000_000;
const MARK: u64 = 9_900_000_000;
/// What reading may add to the process, in KiB.
const MEMORY: u64 = 64 * 1024;

type Client = FilesystemClient<transport::Transport>;

/// B72: whatever a project holds, a call costs what it asks for.
#[tokio::test]
async fn giant_files_and_many_calls_cost_little() {
    // In memory where that can be: elsewhere so many files take a minute.
    let home = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    let home = home.expect("directory");
    let root = home.path();
    let giant = File::create(root.join("giant")).expect("file");
    giant.set_len(GIANT).expect("sparse");
    giant.write_all_at(b"MARK", MARK).expect("written");
    fs::write(root.join("f"), "x".repeat(300_000)).expect("file");
    fs::create_dir(root.join("many")).expect("directory");
    for number in 0..ENTRIES {
        File::create(root.join(format!("many/{number:05}"))).expect("file");
    }
    let line = File::create(root.join("line")).expect("file");
    line.set_len(ONE_LINE).expect("sparse");
    let mut config = Config::new(root.to_owned());
    config.revision_wait = Duration::from_millis(50);
    let service = Service::open(config, Clock::system()).expect("root");
    let client = FilesystemClient::new(transport::local(service.into_server()));
    read(&client, "f", 0, 100).await.expect("read");
    let (memory, files) = (resident_kib(), open_files());

    for path in ["giant", "line"] {
        a_giant_file_is_not_patched(&client, path).await;
    }
    a_large_directory_is_paged(&client).await;
    for page in 0..5000_u64 {
        read(&client, "f", page * 50, 50).await.expect("read");
    }
    a_file_that_changes_shows_it(&client, &root.join("changing")).await;
    a_file_is_hashed_once_for_all_its_pages(root).await;
    // The last, since the job that hashes the file goes on behind it.
    a_page_of_a_giant_file_comes_at_once(&client).await;

    let added = resident_kib().saturating_sub(memory);
    assert!(added < MEMORY, "{added} KiB more");
    // The job that hashes the giant file holds it open.
    assert!(open_files() <= files + 1);
    assert_eq!(giant.metadata().expect("metadata").len(), GIANT);
    assert_eq!(line.metadata().expect("metadata").len(), ONE_LINE);
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

async fn a_giant_file_is_not_patched(client: &Client, path: &str) {
    let request = PatchRequest {
        effect: Some(Effect {
            workspace_id: "workspace".to_owned(),
            receipt_id: ReceiptId::generate().to_string(),
            incarnation: 1,
        }),
        path: path.to_owned(),
        old_text: "MARK".to_owned(),
        new_text: "x".to_owned(),
        expected_sha256: Some(Sha256::of(b"").to_string()),
        place: None,
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
            place: None,
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
    assert_eq!(listed, ENTRIES);
}

/// All pages of a file together read it twice: once for its revision, once for themselves.
async fn a_file_is_hashed_once_for_all_its_pages(root: &Path) {
    const SIZE: u64 = 16 * 1024 * 1024;
    let file = File::create(root.join("paged")).expect("file");
    file.set_len(SIZE).expect("sparse");
    // Ten seconds later than its files, which so were left alone for long.
    let clock = Clock::from_fn(|| Timestamp::from_millis(Timestamp::now().as_millis() + 10_000));
    let service = Service::open(Config::new(root.to_owned()), clock).expect("root");
    let client = FilesystemClient::new(transport::local(service.into_server()));
    let before = bytes_read();
    let mut next = Some(0);
    let mut revisions = HashSet::new();
    while let Some(offset) = next {
        let page = read(&client, "paged", offset, 0).await.expect("page");
        revisions.insert(page.sha256);
        next = page.next_offset;
    }
    let times = (bytes_read() - before) as f64 / SIZE as f64;
    assert!(times < 2.5, "the file was read {times} times");
    assert_eq!(revisions.len(), 1);
}

/// A file that grows, shrinks and is overwritten while it is paged.
async fn a_file_that_changes_shows_it(client: &Client, path: &Path) {
    let mut revisions = HashSet::new();
    for content in ["aaaa", "aaaabbbb", "aa", "bb", "bbb"] {
        fs::write(path, content).expect("file");
        let page = read(client, "changing", 1, 2).await.expect("page");
        assert_eq!(page.content, content[1..content.len().min(3)]);
        assert_eq!(page.sha256, Sha256::of(content.as_bytes()).to_string());
        revisions.insert(page.sha256);
    }
    assert_eq!(revisions.len(), 5);
    fs::write(path, "b").expect("file");
    let beyond = read(client, "changing", 2, 2).await.expect_err("shrunk");
    assert_eq!(beyond.code, ErrorCode::InvalidArguments);
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
        place: None,
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

fn bytes_read() -> u64 {
    let counts = fs::read_to_string("/proc/self/io").expect("counts");
    let line = counts.lines().find_map(|line| line.strip_prefix("rchar: "));
    line.expect("line").parse().expect("number")
}

fn open_files() -> usize {
    fs::read_dir("/proc/self/fd").expect("list").count()
}
