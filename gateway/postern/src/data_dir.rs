//! The data directory: private, versioned, and used by one process at a time.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    time::Duration,
};

use postern_kit::root::real_path;
use rustix::fs::{FlockOperation, flock};

use crate::{config, error::Error};

/// Layout of the directory that this program writes. A higher one belongs to a newer program.
const VERSION: u32 = 1;

/// Name of the file that tells the layout.
const VERSION_FILE: &str = "version";
/// Name of the folder of the owner's rules.
pub(crate) const POLICIES: &str = "policies";
/// How often the lock is tried, and the time in between.
const LOOKS: u32 = 5;
const LOOK: Duration = Duration::from_millis(20);
/// Mode bits by which group and others write.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// An open data directory. Its lock ends with this value.
#[derive(Debug)]
pub(crate) struct DataDir {
    path: PathBuf,
    /// Whether this process made its layout.
    is_new: bool,
    _lock: File,
}

impl DataDir {
    /// Opens a directory, making it when it is missing (mode 0700).
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        examine(path)?;
        let shown = path.display();
        let unusable = |problem: io::Error| {
            Error::Failed(format!(
                "the data directory '{shown}' cannot be used ({problem}); make it writable or choose another with --data-dir"
            ))
        };
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(unusable)?;
        let path = fs::canonicalize(path).map_err(unusable)?;
        let mut lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path.join("lock"))
            .map_err(unusable)?;
        if !hold(&lock) {
            let mut holder = String::new();
            let _ = lock.read_to_string(&mut holder);
            let holder = holder.trim();
            let holder = if holder.is_empty() {
                String::new()
            } else {
                format!(" (process {holder})")
            };
            return Err(Error::Failed(format!(
                "the data directory '{}' is in use by another postern{holder}; stop that one or choose another with --data-dir",
                path.display()
            )));
        }
        let is_new = !has_known_version(&path)?;
        let directory = Self {
            path,
            is_new,
            _lock: lock,
        };
        if is_new {
            directory.write_private(VERSION_FILE, &format!("{VERSION}\n"))?;
        }
        directory.name_holder().map_err(unusable)?;
        Ok(directory)
    }

    fn name_holder(&self) -> io::Result<()> {
        let lock = &self._lock;
        lock.set_len(0)?;
        (&mut &*lock).write_all(format!("{}\n", std::process::id()).as_bytes())
    }

    /// The directory's real path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// A file or folder in it.
    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Writes a file that only the owner can read: whole or not at all, and durable.
    pub(crate) fn write_private(&self, name: &str, content: &str) -> Result<(), Error> {
        write_private(&self.path, name, content)
    }

    /// Puts the commented configuration into a new directory, for its owner to find. It says nothing yet, so that one that is
    /// missing, or cut short by a crash, says the same.
    pub(crate) fn offer_config(&self) -> Result<(), Error> {
        if !self.is_new {
            return Ok(());
        }
        let path = self.join(config::FILE);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let written = match options.open(&path) {
            Err(problem) if problem.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            opened => opened.and_then(|mut file| file.write_all(config::COMMENTED.as_bytes())),
        };
        written
            .map_err(|problem| Error::failed(format!("cannot make '{}'", path.display()), problem))
    }

    /// The folder of the owner's rules. When it is missing it is made, with the rules that an owner starts with: whole or not
    /// at all. A missing folder never means that there are no rules; where there were some before, the owner is told.
    pub(crate) fn policies(&self) -> Result<PathBuf, Error> {
        let folder = self.path.join(POLICIES);
        let make = || -> io::Result<()> {
            let temporary = self.path.join(format!(".{POLICIES}.new"));
            if temporary.exists() {
                fs::remove_dir_all(&temporary)?;
            }
            fs::DirBuilder::new().mode(0o700).create(&temporary)?;
            let mut file = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(temporary.join("defaults.cedar"))?;
            file.write_all(postern_policy::DEFAULT_RULES.as_bytes())?;
            file.sync_all()?;
            File::open(&temporary)?.sync_all()?;
            postern_kit::fault_point!(&crate::fault_points::staged(POLICIES));
            fs::rename(&temporary, &folder)?;
            postern_kit::fault_point!(&crate::fault_points::named(POLICIES));
            File::open(&self.path)?.sync_all()
        };
        if fs::symlink_metadata(&folder).is_err() {
            if !self.is_new {
                tracing::warn!(
                    "the data directory has no folder '{POLICIES}'; it is made again with the default rules (empty the folder to have none)"
                );
            }
            make().map_err(|problem| {
                Error::failed(format!("cannot make '{}'", folder.display()), problem)
            })?;
        }
        Ok(folder)
    }

    /// Reads a private file, without the line end. `None` when there is none.
    pub(crate) fn read_private(&self, name: &str) -> Result<Option<String>, Error> {
        read_optional(&self.path.join(name))
    }
}

/// Refuses what [`DataDir::open`] would refuse, but for one that is in use, and changes nothing.
pub(crate) fn examine(path: &Path) -> Result<(), Error> {
    let failed = |problem| Error::failed(format!("cannot look at '{}'", path.display()), problem);
    let absolute = std::path::absolute(path).map_err(failed)?;
    // Where there is something on the way, it must be a directory; a link that leads nowhere is something.
    let there = absolute
        .ancestors()
        .find(|place| fs::symlink_metadata(place).is_ok())
        .unwrap_or(&absolute);
    if !there.is_dir() {
        return Err(Error::Failed(format!(
            "the data directory '{}' cannot be: '{}' is not a directory; choose another with --data-dir",
            path.display(),
            there.display()
        )));
    }
    if there != absolute {
        return Ok(());
    }
    let facts = fs::metadata(path).map_err(failed)?;
    demand_private(path, &facts, "the data directory", "--data-dir")?;
    has_known_version(path).map(drop)
}

/// Whether a directory names its layout; one that this program does not know is refused.
fn has_known_version(directory: &Path) -> Result<bool, Error> {
    let file = directory.join(VERSION_FILE);
    match fs::read_to_string(&file) {
        Ok(text) => match text.trim().parse::<u32>() {
            Ok(version) if version <= VERSION => Ok(true),
            Ok(version) => Err(Error::Failed(format!(
                "the data directory '{}' was written by a newer postern (layout {version}, this one knows {VERSION}); use that one, or another --data-dir",
                directory.display()
            ))),
            Err(_) => Err(Error::Failed(format!(
                "'{}' does not hold a version; restore it from a backup or choose another --data-dir",
                file.display()
            ))),
        },
        Err(problem) if problem.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(problem) => Err(Error::failed(
            format!("cannot read '{}'", file.display()),
            problem,
        )),
    }
}

/// Refuses a directory in which another user could replace tokens, keys and receipts.
pub(crate) fn demand_private(
    path: &Path,
    facts: &fs::Metadata,
    what: &str,
    option: &str,
) -> Result<(), Error> {
    let shown = path.display();
    let user = rustix::process::geteuid().as_raw();
    if facts.uid() != user {
        return Err(Error::Failed(format!(
            "{what} '{shown}' belongs to user {}, not to {user}, which runs this; choose another with {option}",
            facts.uid()
        )));
    }
    if facts.mode() & WRITABLE_BY_OTHERS != 0 {
        return Err(Error::Failed(format!(
            "{what} '{shown}' can be written by other users; run chmod go-w on it, or choose another with {option}"
        )));
    }
    Ok(())
}

/// Takes the lock of a data directory, if no process holds it. One that only looks whether it is held ([`is_held`]) does so for
/// a moment itself, and is waited for.
fn hold(lock: &File) -> bool {
    (0..LOOKS).any(|look| {
        if look > 0 {
            std::thread::sleep(LOOK);
        }
        flock(lock, FlockOperation::NonBlockingLockExclusive).is_ok()
    })
}

/// Whether a process holds the data directory now.
///
/// # Errors
/// When that cannot be told, such as of another user's.
pub(crate) fn is_held(path: &Path) -> Result<bool, Error> {
    match File::open(path.join("lock")) {
        Ok(lock) => Ok(flock(&lock, FlockOperation::NonBlockingLockShared).is_err()),
        Err(problem) if problem.kind() == io::ErrorKind::PermissionDenied => {
            Err(Error::Failed(format!(
                "permission denied: '{}' is not open to the user who runs this; run it as the one whose edge it is",
                path.display()
            )))
        }
        Err(problem) if problem.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(problem) => Err(Error::failed(
            format!("cannot look at '{}'", path.display()),
            problem,
        )),
    }
}

/// Writes a file of a directory that only its owner can read: whole or not at all, and durable.
pub(crate) fn write_private(directory: &Path, name: &str, content: &str) -> Result<(), Error> {
    let target = directory.join(name);
    let write = || -> io::Result<()> {
        let temporary = directory.join(format!(".{name}.new"));
        // What a killed process left there keeps its mode, and a link leads elsewhere.
        match fs::remove_file(&temporary) {
            Err(problem) if problem.kind() != io::ErrorKind::NotFound => return Err(problem),
            Ok(()) | Err(_) => {}
        }
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&temporary)?;
        file.write_all(content.as_bytes())?;
        file.sync_all()?;
        postern_kit::fault_point!(&crate::fault_points::staged(name));
        fs::rename(&temporary, &target)?;
        postern_kit::fault_point!(&crate::fault_points::named(name));
        File::open(directory)?.sync_all()
    };
    write()
        .map_err(|problem| Error::failed(format!("cannot write '{}'", target.display()), problem))
}

/// Makes the name of a file durable.
pub(crate) fn sync_directory_of(file: &Path) -> io::Result<()> {
    let directory = file.parent().filter(|it| !it.as_os_str().is_empty());
    File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
}

/// Reads a small text file, without the line end. `None` when there is none.
pub(crate) fn read_optional(path: &Path) -> Result<Option<String>, Error> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text.trim_end().to_owned())),
        Err(problem) if problem.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(problem) => Err(Error::failed(
            format!("cannot read '{}'", path.display()),
            problem,
        )),
    }
}

/// Refuses a data directory inside the project.
pub(crate) fn demand_outside(data_dir: &Path, project: &Path) -> Result<(), Error> {
    demand_beyond(
        project,
        data_dir,
        "the data directory",
        "read its tokens",
        "--data-dir",
    )
}

/// Refuses a path inside the project, where the agent could do what it must not with it.
pub(crate) fn demand_beyond(
    project: &Path,
    path: &Path,
    what: &str,
    harm: &str,
    option: &str,
) -> Result<(), Error> {
    if !real_path(path).starts_with(project) {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "{what} '{}' lies inside the project, where the agent could {harm}; choose another with {option}",
        path.display()
    )))
}

/// Where the data of a project lies when nothing else is said: below `XDG_STATE_HOME`, named after the project.
pub(crate) fn default_for(project: &Path) -> Result<PathBuf, Error> {
    let state = std::env::var_os("XDG_STATE_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .or_else(|| std::env::home_dir().map(|home| home.join(".local/state")))
        .ok_or_else(|| {
            Error::Usage(
                "there is no home directory for the data; give one with --data-dir".to_owned(),
            )
        })?;
    let digest = postern_types::Sha256::of(project.as_os_str().as_encoded_bytes()).to_string();
    let name: String = project
        .file_name()
        .map(|name| {
            name.to_string_lossy()
                .chars()
                .filter(|c| c.is_ascii_alphanumeric() || *c == '-')
                .take(40)
                .collect()
        })
        .unwrap_or_default();
    Ok(state
        .join("postern")
        .join(format!("{name}-{}", &digest[..12])))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A start that was killed left it, or somebody who wants to read what comes.
    #[test]
    fn what_lies_under_the_temporary_name_is_not_written_to() {
        use std::os::unix::fs::{PermissionsExt as _, symlink};

        let home = tempfile::tempdir().expect("folder");
        let (left, elsewhere) = (
            home.path().join(".secret.new"),
            home.path().join("elsewhere"),
        );
        fs::write(&elsewhere, "as it was").expect("written");
        for by_link in [false, true] {
            if by_link {
                symlink(&elsewhere, &left).expect("linked");
            } else {
                fs::write(&left, "").expect("written");
                fs::set_permissions(&left, fs::Permissions::from_mode(0o666)).expect("mode");
            }
            write_private(home.path(), "secret", "x").expect("written");
            let secret = home.path().join("secret");
            let facts = fs::symlink_metadata(&secret).expect("there");
            assert!(facts.is_file() && facts.mode() & 0o077 == 0, "{by_link}");
            assert_eq!(fs::read_to_string(&secret).expect("text"), "x");
        }
        assert_eq!(fs::read_to_string(&elsewhere).expect("text"), "as it was");
    }

    #[test]
    fn a_second_process_is_told_who_holds_the_directory() {
        let home = tempfile::tempdir().expect("tempdir");
        let path = home.path().join("data");
        let held = DataDir::open(&path).expect("first");
        let problem = DataDir::open(&path).expect_err("second").to_string();
        assert!(
            problem.contains(&std::process::id().to_string()),
            "{problem}"
        );
        drop(held);
        DataDir::open(&path).expect("free again");
    }

    #[test]
    fn who_only_looks_at_a_directory_keeps_nobody_out() {
        let home = tempfile::tempdir().expect("tempdir");
        let lock = home.path().join("lock");
        fs::write(&lock, "").expect("lock");
        let looking = File::open(&lock).expect("open");
        flock(&looking, FlockOperation::NonBlockingLockShared).expect("a look");
        let end = std::thread::spawn(move || {
            std::thread::sleep(LOOK);
            drop(looking);
        });
        DataDir::open(home.path()).expect("free in a moment");
        end.join().expect("ended");
    }

    #[test]
    fn a_held_directory_is_known_from_outside() {
        let home = tempfile::tempdir().expect("tempdir");
        let held_now = || is_held(home.path()).expect("told");
        assert!(!held_now(), "nothing is there");
        let held = DataDir::open(home.path()).expect("open");
        assert!(held_now());
        drop(held);
        assert!(!held_now());
    }

    /// Another user's is not taken for one on which nothing runs.
    #[test]
    fn a_directory_that_is_closed_to_who_looks_is_said_to_be() {
        use std::os::unix::fs::PermissionsExt as _;

        use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
        let home = tempfile::tempdir().expect("tempdir");
        let _held = DataDir::open(home.path()).expect("open");
        let set = |mode| fs::set_permissions(home.path(), fs::Permissions::from_mode(mode));
        set(0o000).expect("mode");
        let path = home.path().to_owned();
        // A thread of its own, without what lets root in everywhere.
        let looked = std::thread::spawn(move || {
            let mut sets = capabilities(None).expect("capabilities");
            sets.effective -= CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH;
            set_capabilities(None, sets).expect("fewer");
            is_held(&path)
        });
        let looked = looked.join().expect("ended");
        set(0o700).expect("mode");
        let problem = looked.expect_err("closed").to_string();
        assert!(problem.starts_with("permission denied"), "{problem}");
    }

    #[test]
    fn missing_rules_are_made_again_and_an_empty_folder_stays_empty() {
        let home = tempfile::tempdir().expect("tempdir");
        let made = || {
            let data = DataDir::open(home.path()).expect("open");
            let folder = data.policies().expect("a folder");
            fs::read_dir(folder).expect("readable").count()
        };
        assert_eq!(made(), 1);
        fs::remove_dir_all(home.path().join(POLICIES)).expect("removed");
        assert_eq!(made(), 1, "no folder is not no rules");
        fs::remove_file(home.path().join(POLICIES).join("defaults.cedar")).expect("removed");
        assert_eq!(made(), 0, "what the owner emptied stays empty");
    }

    #[test]
    fn a_newer_layout_is_refused_and_left_alone() {
        let home = tempfile::tempdir().expect("tempdir");
        fs::write(home.path().join("version"), "2\n").expect("write");
        let problem = DataDir::open(home.path()).expect_err("newer").to_string();
        assert!(problem.contains("newer postern"), "{problem}");
        assert_eq!(
            fs::read_to_string(home.path().join("version")).expect("read"),
            "2\n"
        );
    }

    #[test]
    fn a_directory_that_others_can_write_is_refused_and_left_alone() {
        use std::os::unix::fs::PermissionsExt as _;
        for mode in [0o777, 0o775, 0o1777] {
            let home = tempfile::tempdir().expect("tempdir");
            let set = |mode| fs::set_permissions(home.path(), fs::Permissions::from_mode(mode));
            set(mode).expect("mode");
            let problem = DataDir::open(home.path()).expect_err("open").to_string();
            assert!(problem.contains("chmod go-w"), "{problem}");
            assert_eq!(fs::read_dir(home.path()).expect("folder").count(), 0);
            set(0o755).expect("mode");
            DataDir::open(home.path()).expect("private enough");
        }
    }

    #[test]
    fn what_is_no_directory_is_refused_by_both_looks() {
        let home = tempfile::tempdir().expect("tempdir");
        fs::write(home.path().join("file"), "").expect("file");
        std::os::unix::fs::symlink("nowhere", home.path().join("link")).expect("link");
        for name in ["file", "file/below", "link", "link/below"] {
            let path = home.path().join(name);
            let looked = examine(&path).expect_err(name).to_string();
            assert!(looked.contains("is not a directory"), "{looked}");
            assert_eq!(DataDir::open(&path).expect_err(name).to_string(), looked);
        }
        examine(&home.path().join("new/deep")).expect("can be made");
        assert_eq!(fs::read_dir(home.path()).expect("folder").count(), 2);
    }

    #[test]
    fn data_inside_the_project_is_refused() {
        let project = tempfile::tempdir().expect("tempdir");
        let root = fs::canonicalize(project.path()).expect("real");
        assert!(demand_outside(&root.join("a/b"), &root).is_err());
        assert!(demand_outside(&root, &root).is_err());
        let around = root
            .with_file_name("none")
            .join("..")
            .join(root.file_name().expect("name"));
        assert!(demand_outside(&around.join("data"), &root).is_err());
        assert!(demand_outside(&root.with_file_name("other"), &root).is_ok());
    }
}
