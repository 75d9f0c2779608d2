//! A project whose images and documents this test program decodes, in processes of its own.

use std::{
    ffi::OsString,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{ExitCode, exit},
    time::Duration,
};

use postern_filesystem::{Config, Service};
use postern_kit::{Clock, Failure, transport};
use postern_proto::filesystem::v1::{
    DocumentRequest, DocumentResponse, ImageRequest, ImageResponse, ReadRequest, ReadResponse,
    filesystem_client::FilesystemClient,
};
use postern_types::ErrorCode;
use tempfile::TempDir;

/// What a shell does with the decoding test: its output goes where the service listens, and the test runner's nowhere.
const QUIETLY: &str = r#"exec 3>&1 >/dev/null; exec "$@""#;

/// Not a test: the process that decodes.
#[test]
#[ignore = "run by the other tests"]
fn decode_process() {
    let output = File::options()
        .write(true)
        .open("/proc/self/fd/3")
        .expect("the service's pipe");
    rustix::stdio::dup2_stdout(&output).expect("output");
    drop(output);
    let args = std::env::args_os().skip_while(|arg| arg != "--").skip(1);
    let code = postern_filesystem::decode_main(args.collect::<Vec<OsString>>());
    exit(i32::from(code != ExitCode::SUCCESS));
}

/// Program and arguments of a decoding process.
pub(crate) fn decoder() -> Vec<OsString> {
    let program = std::env::current_exe().expect("this program");
    let mut decoder: Vec<OsString> = ["/bin/sh", "-c", QUIETLY, "sh"].map(Into::into).into();
    decoder.push(program.into());
    let args = [
        "--ignored",
        "--exact",
        "--nocapture",
        "--test-threads=1",
        "rig::decode_process",
        "--",
    ];
    decoder.extend(args.map(Into::into));
    decoder
}

pub(crate) struct Rig {
    home: TempDir,
    pub(crate) root: PathBuf,
    client: FilesystemClient<transport::Transport>,
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut Config)) -> Self {
        let home = tempfile::tempdir().expect("directory");
        let root = home.path().canonicalize().expect("real path").join("proj");
        fs::create_dir(&root).expect("directory");
        let mut config = Config::new(root.clone());
        config.decoder = decoder();
        // Unoptimised decoders on a busy machine are slow; what limits them here is their processor time.
        config.decode_time = Duration::from_secs(60);
        config.decode_wait = Duration::from_secs(60);
        change(&mut config);
        let service = Service::open(config, Clock::system()).expect("root");
        let client = FilesystemClient::new(transport::local(service.into_server()))
            .max_decoding_message_size(transport::MESSAGE_LIMIT);
        Self { home, root, client }
    }

    /// A directory beside the project.
    pub(crate) fn outside(&self) -> PathBuf {
        let outside = self.home.path().join("out");
        fs::create_dir_all(&outside).expect("directory");
        outside
    }

    pub(crate) fn put(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.root.join(name), content).expect("file");
    }

    pub(crate) async fn image(&self, path: &str) -> Result<ImageResponse, Failure> {
        let path = path.to_owned();
        let answer = self
            .client
            .clone()
            .image(ImageRequest { path, place: None })
            .await?;
        Ok(answer.into_inner())
    }

    pub(crate) async fn document(
        &self,
        path: &str,
        page: u32,
    ) -> Result<DocumentResponse, Failure> {
        let path = path.to_owned();
        let request = DocumentRequest {
            path,
            page,
            place: None,
        };
        Ok(self.client.clone().document(request).await?.into_inner())
    }

    pub(crate) async fn read(&self, path: &str) -> Result<ReadResponse, Failure> {
        let request = ReadRequest {
            path: path.to_owned(),
            ..ReadRequest::default()
        };
        Ok(self.client.clone().read(request).await?.into_inner())
    }

    /// Both tools refuse the file with this code.
    pub(crate) async fn both_refuse(&self, path: &str, code: ErrorCode) -> [Failure; 2] {
        let failures = [
            self.image(path).await.expect_err(path),
            self.document(path, 1).await.expect_err(path),
        ];
        for failure in &failures {
            assert_eq!(failure.code, code, "{path}: {failure:?}");
        }
        failures
    }
}

/// A fixture that is checked in.
pub(crate) fn fixture(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    fs::read(folder.join(name)).expect("fixture")
}
