//! A project in a temporary directory, with a neighbour that nothing may touch.

use std::{
    fs,
    path::{Path, PathBuf},
};

use postern_filesystem::{Config, Service};
use postern_kit::{Clock, Failure, transport};
use postern_proto::filesystem::v1::{
    DeleteRequest, DeleteResponse, Effect, InspectRequest, InspectResponse, ListRequest,
    ListResponse, PatchRequest, PatchResponse, PlanPatch, PlanRequest, PlanResponse, ReadRequest,
    ReadResponse, WriteRequest, WriteResponse, filesystem_client::FilesystemClient,
    plan_request::Change,
};
use postern_types::{ErrorCode, ReceiptId, Sha256, Timestamp};
use tempfile::TempDir;

pub(crate) type Client = FilesystemClient<transport::Transport>;

pub(crate) struct Project {
    _home: Option<TempDir>,
    pub(crate) root: PathBuf,
    pub(crate) outside: PathBuf,
    pub(crate) client: Client,
}

/// A new receipt.
pub(crate) fn effect() -> Option<Effect> {
    Some(Effect {
        workspace_id: "workspace".to_owned(),
        receipt_id: ReceiptId::generate().to_string(),
        incarnation: 1,
    })
}

pub(crate) fn sha(content: impl AsRef<[u8]>) -> String {
    Sha256::of(content.as_ref()).to_string()
}

/// A patch to be planned.
pub(crate) fn planned_patch(old: &str, new: &str) -> Change {
    Change::Patch(PlanPatch {
        old_text: old.to_owned(),
        new_text: new.to_owned(),
    })
}

/// The code of a refusal.
pub(crate) fn code<T: std::fmt::Debug>(answer: Result<T, Failure>) -> ErrorCode {
    answer.expect_err("refused").code
}

impl Project {
    pub(crate) fn new() -> Self {
        let home = tempfile::tempdir().expect("directory");
        let base = home.path().canonicalize().expect("real path");
        let (root, outside) = (base.join("proj"), base.join("proj-evil"));
        fs::create_dir(&root).expect("directory");
        fs::create_dir(&outside).expect("directory");
        fs::write(outside.join("s.txt"), "MARK").expect("file");
        let client = client(Config::new(root.clone()));
        Self {
            _home: Some(home),
            root,
            outside,
            client,
        }
    }

    /// One whose service lives ten seconds later than its files, which so were left alone for long.
    pub(crate) fn later() -> Self {
        let project = Self::new();
        let clock =
            Clock::from_fn(|| Timestamp::from_millis(Timestamp::now().as_millis() + 10_000));
        let client = client_at(Config::new(project.root.clone()), clock);
        Self { client, ..project }
    }

    /// A file of the project.
    pub(crate) fn file(&self, path: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().expect("parent")).expect("directories");
        fs::write(&path, content).expect("file");
        path
    }

    pub(crate) fn link(&self, path: &str, target: impl AsRef<Path>) {
        std::os::unix::fs::symlink(target, self.root.join(path)).expect("link");
    }

    pub(crate) fn content(&self, path: &str) -> Vec<u8> {
        fs::read(self.root.join(path)).expect("content")
    }

    /// Names in the root, hidden ones too.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(&self.root)
            .expect("directory")
            .map(|entry| {
                entry
                    .expect("entry")
                    .file_name()
                    .to_string_lossy()
                    .into_owned()
            })
            .collect();
        names.sort();
        names
    }

    pub(crate) async fn list(&self, path: &str, offset: u64) -> Result<ListResponse, Failure> {
        let path = path.to_owned();
        let answer = self
            .client
            .clone()
            .list(ListRequest {
                path,
                offset,
                place: None,
            })
            .await?;
        Ok(answer.into_inner())
    }

    pub(crate) async fn read(&self, path: &str) -> Result<ReadResponse, Failure> {
        self.read_page(path, 0, 0).await
    }

    pub(crate) async fn read_page(
        &self,
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
        Ok(self.client.clone().read(request).await?.into_inner())
    }

    pub(crate) async fn write(
        &self,
        path: &str,
        content: &str,
        expected: Option<String>,
    ) -> Result<WriteResponse, Failure> {
        let request = WriteRequest {
            effect: effect(),
            path: path.to_owned(),
            content: content.to_owned(),
            expected_sha256: expected,
            place: None,
        };
        Ok(self.client.clone().write(request).await?.into_inner())
    }

    pub(crate) async fn patch(
        &self,
        path: &str,
        old: &str,
        new: &str,
        expected: Option<String>,
    ) -> Result<PatchResponse, Failure> {
        let request = PatchRequest {
            effect: effect(),
            path: path.to_owned(),
            old_text: old.to_owned(),
            new_text: new.to_owned(),
            expected_sha256: expected,
            place: None,
        };
        Ok(self.client.clone().patch(request).await?.into_inner())
    }

    /// Patches a file at its present revision.
    pub(crate) async fn patch_now(
        &self,
        path: &str,
        old: &str,
        new: &str,
    ) -> Result<PatchResponse, Failure> {
        let expected = sha(self.content(path));
        self.patch(path, old, new, Some(expected)).await
    }

    pub(crate) async fn plan(
        &self,
        path: &str,
        change: Change,
        expected: Option<String>,
    ) -> Result<PlanResponse, Failure> {
        let request = PlanRequest {
            path: path.to_owned(),
            expected_sha256: expected,
            change: Some(change),
            place: None,
        };
        Ok(self.client.clone().plan(request).await?.into_inner())
    }

    pub(crate) async fn delete(
        &self,
        path: &str,
        expected: Option<String>,
    ) -> Result<DeleteResponse, Failure> {
        let request = DeleteRequest {
            effect: effect(),
            path: path.to_owned(),
            expected_sha256: expected,
            place: None,
        };
        Ok(self.client.clone().delete(request).await?.into_inner())
    }

    pub(crate) async fn inspect(
        &self,
        path: &str,
        effect: Option<Effect>,
    ) -> Result<InspectResponse, Failure> {
        let request = InspectRequest {
            effect,
            path: path.to_owned(),
        };
        Ok(self.client.clone().inspect(request).await?.into_inner())
    }
}

/// A client on a service with this configuration.
pub(crate) fn client(config: Config) -> Client {
    client_at(config, Clock::system())
}

fn client_at(config: Config, clock: Clock) -> Client {
    let service = Service::open(config, clock).expect("root");
    FilesystemClient::new(transport::local(service.into_server()))
        .max_decoding_message_size(transport::MESSAGE_LIMIT)
        .max_encoding_message_size(transport::MESSAGE_LIMIT)
}

/// A project in a directory that exists.
pub(crate) fn at(root: &Path, config: Config) -> Project {
    Project {
        _home: None,
        root: root.to_owned(),
        outside: root.to_owned(),
        client: client(config),
    }
}

pub(crate) fn fifo(path: &Path) {
    rustix::fs::mknodat(
        rustix::fs::CWD,
        path,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .expect("fifo");
}

/// Makes a device like `/dev/null`, where that is permitted.
pub(crate) fn null_device(path: &Path) -> bool {
    rustix::fs::mknodat(
        rustix::fs::CWD,
        path,
        rustix::fs::FileType::CharacterDevice,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        rustix::fs::makedev(1, 3),
    )
    .is_ok()
}
