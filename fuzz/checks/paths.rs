//! What must hold of any path and any links in a project: nothing outside is opened or changed, nothing but files and
//! directories is opened, and no failure tells where the project lies.
//!
//! Included by the fuzz target and by the test that replays its corpus.

use std::{
    cell::OnceCell,
    ffi::OsStr,
    fs, io,
    mem::MaybeUninit,
    os::{
        fd::{AsFd, AsRawFd as _, OwnedFd},
        unix::{ffi::OsStrExt as _, fs::symlink, net::UnixListener},
    },
    path::{Component, Path, PathBuf},
};

use postern_filesystem::{Config, Service};
use postern_kit::{
    Clock, Failure,
    root::{self, Root},
};
use postern_proto::filesystem::v1::{
    DeleteRequest, Effect, ListRequest, PatchRequest, PlanRequest, PlanWrite, ReadRequest,
    WriteRequest, filesystem_server::Filesystem as _, plan_request::Change,
};
use postern_types::{ErrorCode, ReceiptId};
use rustix::{
    fs::{CWD, FileType, Mode, OFlags, inotify},
    io::Errno,
};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use tonic::Request;

/// Stands for the project's own path, which nobody can guess.
const ROOT_PATH: u8 = 1;
/// Stands for the path of what lies beside it.
const OUTSIDE_PATH: u8 = 2;
/// Ends a part: no UTF-8 text has this byte.
const END_OF_PART: u8 = 0xFF;
/// Links with texts of their own.
const LINKS: usize = 3;

thread_local! {
    static TREE: OnceCell<Tree> = const { OnceCell::new() };
}

/// Takes the first byte as the change that is tried, what follows as a path, and further parts as texts of links.
pub(crate) fn check(data: &[u8]) {
    TREE.with(|tree| tree.get_or_init(Tree::new).check(data));
}

/// A project, with something beside it that nothing may touch.
struct Tree {
    _home: TempDir,
    project: PathBuf,
    outside: PathBuf,
    root: Root,
    service: Service,
    runtime: Runtime,
    /// Tells when something outside, or something that is no file, is opened or changed.
    watch: OwnedFd,
}

impl Tree {
    fn new() -> Self {
        let home = tempfile::tempdir().expect("directory");
        let base = home.path().canonicalize().expect("real path");
        let (project, outside) = (base.join("proj"), base.join("proj-evil"));
        fs::create_dir(&project).expect("directory");
        fs::create_dir_all(outside.join("d")).expect("directory");
        fs::write(outside.join("s.txt"), "outside").expect("file");
        let service = Service::open(Config::new(project.clone()), Clock::system());
        let tree = Self {
            root: Root::open(&project).expect("root"),
            service: service.expect("service"),
            runtime: Builder::new_current_thread().build().expect("runtime"),
            watch: inotify::init(inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC)
                .expect("watch"),
            _home: home,
            project,
            outside,
        };
        tree.fill();
        tree.watch(&tree.outside);
        tree.watch(&tree.outside.join("d"));
        tree
    }

    fn fill(&self) {
        let at = |path: &str| self.project.join(path);
        fs::create_dir_all(at("a/b")).expect("directories");
        for (path, content) in [
            ("f", "text"),
            ("a/g", "more"),
            ("a/b/é", "é"),
            ("a/-rf", ""),
        ] {
            fs::write(at(path), content).expect("file");
        }
        fs::write(at("").join(OsStr::from_bytes(b"\xFE\xED")), "odd").expect("file");
        fs::write(at("a\nb"), "line").expect("file");
        for (path, text) in [
            ("to-a", "a"),
            ("to-f", "f"),
            ("a/up", ".."),
            ("self", "self"),
            ("a/round", "../to-a/round"),
            ("nowhere", "none/such"),
            ("out", "../proj-evil/s.txt"),
            ("out-d", "../proj-evil"),
            ("zero", "/dev/zero"),
            ("proc", "/proc/self/root"),
        ] {
            symlink(text, at(path)).expect("link");
        }
        symlink(&self.project, at("to-root")).expect("link");
        symlink(self.outside.join("s.txt"), at("a/absolute")).expect("link");
        rustix::fs::mknodat(CWD, at("pipe"), FileType::Fifo, Mode::RWXU, 0).expect("pipe");
        UnixListener::bind(at("socket")).expect("socket");
        self.watch(&at("pipe"));
        self.watch(&at("socket"));
    }

    fn watch(&self, path: &Path) {
        let flags = inotify::WatchFlags::OPEN
            | inotify::WatchFlags::ACCESS
            | inotify::WatchFlags::MODIFY
            | inotify::WatchFlags::ATTRIB
            | inotify::WatchFlags::CREATE
            | inotify::WatchFlags::DELETE
            | inotify::WatchFlags::MOVE;
        inotify::add_watch(&self.watch, path, flags).expect("watched");
    }

    fn check(&self, data: &[u8]) {
        let mut parts = data.split(|byte| *byte == END_OF_PART);
        let Some((change, path)) = parts.next().and_then(<[u8]>::split_first) else {
            return;
        };
        for (number, text) in parts.take(LINKS).enumerate() {
            // Not every text can be one.
            let _linked = symlink(
                OsStr::from_bytes(&self.spelled(text)),
                self.project.join(format!("v{number}")),
            );
        }
        let path = String::from_utf8_lossy(&self.spelled(path)).into_owned();
        // Fuzzers find out where the project lies, and what was written may be repeated.
        let is_absolute = path.contains(&*self.base());
        self.resolve(&path, is_absolute);
        self.read(&path, is_absolute);
        let changed = self.change(*change, &path, is_absolute);
        self.untouched(&path);
        if changed {
            self.renew();
        }
        for number in 0..LINKS {
            let _absent = fs::remove_file(self.project.join(format!("v{number}")));
        }
    }

    /// Bytes with the two paths in their places.
    fn spelled(&self, text: &[u8]) -> Vec<u8> {
        let mut spelled = Vec::with_capacity(text.len());
        for byte in text {
            match *byte {
                ROOT_PATH => spelled.extend_from_slice(self.project.as_os_str().as_bytes()),
                OUTSIDE_PATH => spelled.extend_from_slice(self.outside.as_os_str().as_bytes()),
                byte => spelled.push(byte),
            }
        }
        spelled
    }

    /// Every handle that a path leads to is one of something inside.
    fn resolve(&self, path: &str, is_absolute: bool) {
        for found in [self.root.find(path), self.root.find_entry(path)] {
            let Some(found) = self.told(found, is_absolute) else {
                continue;
            };
            let real = self.inside(&found.handle);
            assert_eq!(real, self.project.join(&found.place.path));
            if let Some(file) = self.told(root::open_file(&found), is_absolute) {
                assert_eq!(self.inside(&file), real);
                assert!(file.metadata().expect("metadata").is_file());
            }
        }
        if let Some((directory, _)) = self.told(self.root.open_dir(path), is_absolute) {
            assert!(self.inside(&directory).is_dir());
        }
        if let Some(target) = self.told(self.root.locate(path), is_absolute) {
            let parent = self.root.open_beneath(&target.parent, OFlags::PATH);
            self.inside(parent.expect("parent"));
            for name in target.missing.iter().chain([&target.name]) {
                let mut components = Path::new(name).components();
                assert!(matches!(components.next(), Some(Component::Normal(only)) if only == name));
            }
        }
    }

    fn read(&self, path: &str, is_absolute: bool) {
        let list = ListRequest {
            path: path.to_owned(),
            offset: 0,
            place: None,
        };
        self.asked(self.service.list(Request::new(list)), is_absolute);
        self.asked(self.service.read(Request::new(reading(path))), is_absolute);
        let plan = PlanRequest {
            path: path.to_owned(),
            expected_sha256: None,
            change: Some(Change::Write(PlanWrite {})),
            place: None,
        };
        self.asked(self.service.plan(Request::new(plan)), is_absolute);
    }

    /// Tries a change; tells whether it was made.
    fn change(&self, change: u8, path: &str, is_absolute: bool) -> bool {
        let effect = Some(Effect {
            workspace_id: "workspace".to_owned(),
            receipt_id: ReceiptId::generate().to_string(),
            incarnation: 1,
        });
        let path = path.to_owned();
        let page = self.asked(self.service.read(Request::new(reading(&path))), is_absolute);
        let expected_sha256 = page.as_ref().map(|page| page.sha256.clone());
        match change % 4 {
            1 => {
                let request = WriteRequest {
                    effect,
                    path,
                    content: "written".to_owned(),
                    expected_sha256,
                    place: None,
                };
                let written = self.service.write(Request::new(request));
                self.asked(written, is_absolute).is_some()
            }
            2 => {
                let old_text = page.map_or_else(|| "x".to_owned(), |page| page.content);
                let request = PatchRequest {
                    effect,
                    path,
                    new_text: format!("{old_text}, patched"),
                    old_text,
                    expected_sha256,
                    place: None,
                };
                let patched = self.service.patch(Request::new(request));
                self.asked(patched, is_absolute).is_some()
            }
            3 => {
                let request = DeleteRequest {
                    effect,
                    path,
                    expected_sha256,
                    place: None,
                };
                let deleted = self.service.delete(Request::new(request));
                self.asked(deleted, is_absolute).is_some()
            }
            _ => false,
        }
    }

    fn asked<T>(
        &self,
        answer: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
        is_absolute: bool,
    ) -> Option<T> {
        let answer = self.runtime.block_on(answer);
        self.told(
            answer
                .map(tonic::Response::into_inner)
                .map_err(Failure::from),
            is_absolute,
        )
    }

    /// A failure that says what was wrong with the call, and nothing of the machine.
    fn told<T>(&self, answer: Result<T, Failure>, is_absolute: bool) -> Option<T> {
        let failure = match answer {
            Ok(answer) => return Some(answer),
            Err(failure) => failure,
        };
        assert_ne!(failure.code, ErrorCode::Internal, "{failure:?}");
        let leaks = failure.to_json().to_string().contains(&*self.base());
        assert!(is_absolute || !leaks, "{failure:?}");
        None
    }

    /// The directory that holds the project and what lies beside it.
    fn base(&self) -> std::borrow::Cow<'_, str> {
        self.project.parent().expect("parent").to_string_lossy()
    }

    /// The real path of a handle, which must lie in the project.
    fn inside(&self, handle: impl AsFd) -> PathBuf {
        let link = format!("/proc/self/fd/{}", handle.as_fd().as_raw_fd());
        let real = fs::read_link(link).expect("path of the handle");
        assert!(real.starts_with(&self.project), "a handle leads out");
        real
    }

    /// Nothing outside, no pipe and no socket was opened or changed.
    fn untouched(&self, path: &str) {
        let mut buffer = [MaybeUninit::uninit(); 1024];
        match inotify::Reader::new(&self.watch, &mut buffer).next() {
            Err(Errno::WOULDBLOCK) => {}
            Err(errno) => panic!("{}", io::Error::from(errno)),
            Ok(event) => panic!("{path:?}: {event:?}"),
        }
    }

    /// The project as it was.
    fn renew(&self) {
        for entry in fs::read_dir(&self.project).expect("project") {
            let entry = entry.expect("entry");
            if entry.file_type().expect("type").is_dir() {
                fs::remove_dir_all(entry.path()).expect("removed");
            } else {
                fs::remove_file(entry.path()).expect("removed");
            }
        }
        self.fill();
        // What was seen of the removal is no news.
        let mut buffer = [MaybeUninit::uninit(); 1024];
        let mut events = inotify::Reader::new(&self.watch, &mut buffer);
        while events.next().is_ok() {}
    }
}

fn reading(path: &str) -> ReadRequest {
    ReadRequest {
        path: path.to_owned(),
        offset: 0,
        limit: 0,
        place: None,
    }
}
