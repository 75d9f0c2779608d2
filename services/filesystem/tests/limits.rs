//! A limit on the size of files, which stands for quotas too. A test binary of its own, since the limit is the process's.
#![expect(clippy::expect_used, reason = "what is expected is what is tested")]

use std::{
    fs::{self, Permissions},
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
};

use postern_filesystem::{Config, Service};
use postern_kit::{Clock, Failure, transport};
use postern_proto::filesystem::v1::{
    Effect, PatchRequest, WriteRequest, WriteResponse, filesystem_client::FilesystemClient,
};
use postern_types::{ErrorCode, ReceiptId, Sha256};
use pretty_assertions::assert_eq;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::signal::unix::{SignalKind, signal};

/// What a write beyond the limit raises, besides its error.
const SIGXFSZ: i32 = 25;
const LIMIT: u64 = 500_000;

type Client = FilesystemClient<transport::Transport>;

fn effect() -> Option<Effect> {
    Some(Effect {
        workspace_id: "workspace".to_owned(),
        receipt_id: ReceiptId::generate().to_string(),
        incarnation: 1,
    })
}

async fn write(
    client: &Client,
    path: &str,
    content: &str,
    before: Option<&str>,
) -> Result<WriteResponse, Failure> {
    let request = WriteRequest {
        effect: effect(),
        path: path.to_owned(),
        content: content.to_owned(),
        expected_sha256: before.map(|before| Sha256::of(before.as_bytes()).to_string()),
        place: None,
    };
    Ok(client.clone().write(request).await?.into_inner())
}

fn limit_files_to(bytes: Option<u64>) {
    let maximum = getrlimit(Resource::Fsize).maximum;
    let limit = Rlimit {
        current: bytes.or(maximum),
        maximum,
    };
    setrlimit(Resource::Fsize, limit).expect("limit");
}

/// B20: a limit on files is a full disk: the old file stays whole, and nothing of the new one is left.
#[tokio::test]
async fn a_limit_on_files_leaves_the_old_file_whole() {
    drop(signal(SignalKind::from_raw(SIGXFSZ)).expect("as the program does"));
    let home = tempfile::tempdir().expect("directory");
    let (path, old) = (home.path().join("f"), "x".repeat(400_000));
    fs::write(&path, format!("{old}!")).expect("file");
    fs::set_permissions(&path, Permissions::from_mode(0o640)).expect("mode");
    let old = format!("{old}!");
    let config = Config::new(home.path().to_owned());
    let service = Service::open(config, Clock::system()).expect("root");
    let client = FilesystemClient::new(transport::local(service.into_server()));
    let large = "y".repeat(1_000_000);

    limit_files_to(Some(LIMIT));
    let refused = write(&client, "f", &large, Some(&old)).await;
    assert_eq!(refused.expect_err("limit").code, ErrorCode::DiskFull);
    let refused = write(&client, "new/g", &large, None).await;
    assert_eq!(refused.expect_err("limit").code, ErrorCode::DiskFull);
    let patch = PatchRequest {
        effect: effect(),
        path: "f".to_owned(),
        old_text: "!".to_owned(),
        new_text: large.clone(),
        expected_sha256: Some(Sha256::of(old.as_bytes()).to_string()),
        place: None,
    };
    let refused = client.clone().patch(patch).await.expect_err("limit");
    assert_eq!(Failure::from(refused).code, ErrorCode::DiskFull);
    limit_files_to(None);

    assert_eq!(fs::read(&path).expect("content"), old.as_bytes());
    assert_eq!(fs::metadata(&path).expect("metadata").mode() & 0o777, 0o640);
    assert_eq!(fs::read_dir(home.path()).expect("directory").count(), 1);
    let written = write(&client, "f", &large, Some(&old)).await;
    assert_eq!(written.expect("no limit any more").bytes, 1_000_000);
}
