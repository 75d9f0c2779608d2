//! The project's file system. Nothing is written in the project.

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use postern_kit::root::Root;
use rustix::fs::{Access, StatVfsMountFlags, access, statfs, statvfs};

use super::Finding;
use crate::project::Project;

/// What is done in a project's root.
const WORK: Access = Access::WRITE_OK
    .union(Access::EXEC_OK)
    .union(Access::READ_OK);
/// Entries of the root that are looked up in other letters.
const ENTRIES: usize = 256;
/// Kinds that are on another machine or in another program, by their number in `statfs(2)`.
const REMOTE: [(u64, &str); 7] = [
    (0x6969, "NFS"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB"),
    (0x517b, "SMB"),
    (0x0102_1997, "9P"),
    (0x00c3_6400, "Ceph"),
    (0x6573_5546, "FUSE"),
];

/// The project's real root, when there is one, and what its file system is.
pub(super) fn check(path: &Path) -> (Option<PathBuf>, Vec<Finding>) {
    let project = match Project::open(path) {
        Ok(project) => project,
        Err(problem) => {
            let advice = "Name an existing directory that you can read with --project";
            return (
                None,
                vec![Finding::fail("project", problem.to_string(), advice)],
            );
        }
    };
    let root = project.path;
    let kind = statfs(&root).map(|facts| facts.f_type.cast_unsigned());
    let findings = vec![
        beneath(&root),
        writable(is_read_only(&root), access(&root, WORK)),
        kind_of(kind.unwrap_or(0)),
        letters(is_case_insensitive(&root)),
    ];
    (Some(root), findings)
}

/// Whether the kernel opens paths beneath a handle (`openat2`, Linux 5.6).
fn beneath(root: &Path) -> Finding {
    let opened = Root::open(root).map_err(|problem| problem.to_string());
    match opened.and_then(|root| root.open_dir(".").map_err(|problem| problem.message)) {
        Ok(_) => Finding::ok("openat2", "paths are opened beneath the project's handle"),
        Err(problem) => Finding::fail(
            "openat2",
            format!("the project cannot be opened by handle ({problem})"),
            "Use Linux 5.6 or newer, and look whether a container's seccomp profile forbids openat2",
        ),
    }
}

/// Whether its file system is mounted read-only.
fn is_read_only(root: &Path) -> bool {
    statvfs(root).is_ok_and(|facts| facts.f_flag.contains(StatVfsMountFlags::RDONLY))
}

fn writable(read_only: bool, accessed: rustix::io::Result<()>) -> Finding {
    const CHECK: &str = "project";
    if read_only {
        return Finding::fail(
            CHECK,
            "its file system is read-only",
            "Mount it writable, or serve it with --mode read-only",
        );
    }
    match accessed {
        Ok(()) => Finding::ok(CHECK, "can be read and written"),
        Err(problem) => Finding::fail(
            CHECK,
            format!("it cannot be read and written ({problem})"),
            "Change its owner or its mode, or run as its owner",
        ),
    }
}

fn kind_of(number: u64) -> Finding {
    const CHECK: &str = "file-system";
    match REMOTE.iter().find(|(kind, _)| *kind == number) {
        Some((_, name)) => Finding::warn(
            CHECK,
            *name,
            "Renames and syncs are as good as the other side makes them; a local copy is safer and faster",
        ),
        None => Finding::ok(CHECK, format!("local, kind {number:#x}")),
    }
}

fn letters(insensitive: Option<bool>) -> Finding {
    const CHECK: &str = "letter-case";
    match insensitive {
        Some(true) => Finding::warn(
            CHECK,
            "names that differ in case alone are the same file",
            "Rules of yours that name paths must hold in every spelling; a file system that tells case apart is safer",
        ),
        Some(false) => Finding::ok(CHECK, "names that differ in case are different files"),
        None => Finding::ok(CHECK, "not known: no name in the project has letters"),
    }
}

/// By looking an existing entry up in other letters; `None` when there is none to look up.
fn is_case_insensitive(root: &Path) -> Option<bool> {
    for entry in fs::read_dir(root).ok()?.take(ENTRIES).flatten() {
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        let other: String = name.chars().map(swap).collect();
        if other == name {
            continue;
        }
        let Ok(one) = fs::symlink_metadata(entry.path()) else {
            continue;
        };
        let same = fs::symlink_metadata(root.join(other))
            .is_ok_and(|two| (one.dev(), one.ino()) == (two.dev(), two.ino()));
        return Some(same);
    }
    None
}

fn swap(letter: char) -> char {
    if letter.is_ascii_uppercase() {
        letter.to_ascii_lowercase()
    } else {
        letter.to_ascii_uppercase()
    }
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::{super::State, *};

    #[test]
    fn a_project_that_is_none_fails() {
        let (root, findings) = check(Path::new("/nowhere/at/all"));
        assert_eq!((root, findings.len()), (None, 1));
        assert_eq!(findings[0].state, State::Fail);
        assert!(findings[0].detail.contains("/nowhere/at/all"));
        assert_eq!(beneath(Path::new("/nowhere")).state, State::Fail);
    }

    #[test]
    fn a_read_only_project_fails() {
        let mounted = writable(true, Ok(()));
        assert_eq!(mounted.state, State::Fail);
        assert!(mounted.detail.contains("read-only"), "{}", mounted.detail);
        let folder = tempfile::tempdir().expect("folder");
        assert!(!is_read_only(folder.path()));
        assert_eq!(
            writable(false, access(folder.path(), WORK)).state,
            State::Ok
        );
        let another = access(folder.path().join("missing"), WORK);
        assert_eq!(writable(false, another).state, State::Fail);
    }

    #[test]
    fn remote_file_systems_are_told() {
        for (number, name) in REMOTE {
            let finding = kind_of(number);
            assert_eq!(
                (finding.state, finding.detail.as_str()),
                (State::Warn, name)
            );
        }
        assert_eq!(kind_of(0xef53).state, State::Ok);
    }

    #[test]
    fn letters_that_do_not_count_are_told() {
        assert_eq!(letters(Some(true)).state, State::Warn);
        let folder = tempfile::tempdir().expect("folder");
        assert_eq!(is_case_insensitive(folder.path()), None);
        fs::write(folder.path().join("123"), "").expect("file");
        assert_eq!(is_case_insensitive(folder.path()), None);
        fs::write(folder.path().join("Name"), "").expect("file");
        assert_eq!(is_case_insensitive(folder.path()), Some(false));
        // As a file system would have it that does not tell case apart.
        fs::hard_link(folder.path().join("Name"), folder.path().join("nAME")).expect("link");
        assert_eq!(is_case_insensitive(folder.path()), Some(true));
    }
}
