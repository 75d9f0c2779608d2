//! Which rights are granted on what.

use std::{
    collections::BTreeSet,
    fs::{self, DirEntry},
    mem,
    path::{Path, PathBuf},
};

use landlock::{ABI, Access as _, AccessFs, BitFlags};
use postern_kit::root::real_path;

use super::{Confinement, temporary};

/// Grants of one command for what lies beside something hidden, and entries looked at in one directory. What is left without
/// a grant cannot be reached, so the bound never opens anything.
const GRANTS: usize = 16_384;
/// How many of those what the command works on may take: the project, when it holds something hidden itself.
const WORK_GRANTS: usize = GRANTS / 2;
/// Where devices are.
const DEVICES_FOLDER: &str = "/dev";
/// Devices that any program may expect. Terminals of others are not among them: whoever can read one reads what its owner
/// types. Nor are disks, for a privileged user reads every file through them.
const DEVICES: [&str; 7] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
    "/dev/ptmx",
];

/// Rights on a path and what is below it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Grant {
    pub(super) path: PathBuf,
    pub(super) rights: BitFlags<AccessFs>,
}

/// The grants of a confinement.
#[derive(Debug, Default)]
pub(super) struct Grants {
    pub(super) all: Vec<Grant>,
    /// Paths beside what is hidden that are left without a grant, at least.
    pub(super) left_out: usize,
}

/// The grants of a confinement as the tree stands now.
pub(super) fn grants(confinement: &Confinement) -> Grants {
    let abi = abi(confinement);
    let read = AccessFs::from_read(abi);
    let work = read
        | AccessFs::from_write(abi)
            & !(AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev);
    let hidden = confinement.hidden.iter().map(|path| real_path(path));
    let mut walk = Walk {
        hidden: hidden.collect(),
        private: confinement.temporary.parent().map(Path::to_owned),
        file: AccessFs::from_file(abi),
        whole: Vec::new(),
        beside: Vec::new(),
    };
    // First what commands work on: however crowded the way to something hidden is, these are at hand.
    walk.grant(&confinement.temporary, true, work);
    walk.push(Path::new(DEVICES_FOLDER), true, AccessFs::ReadDir.into());
    for device in DEVICES {
        // A link, as `/dev/ptmx` is in containers, is granted at its target.
        walk.push(&real_path(Path::new(device)), false, device_rights(abi));
    }
    walk.grant(&confinement.project, true, work);
    for path in &confinement.write {
        // Whoever opens a device to commands means what devices are for.
        let device = path.starts_with(DEVICES_FOLDER);
        let rights = if device {
            work | device_rights(abi)
        } else {
            work
        };
        walk.grant(path, path.is_dir(), rights);
    }
    let mut grants = Grants::default();
    grants.share_out(mem::take(&mut walk.beside), WORK_GRANTS);
    // Devices are granted one by one.
    walk.hidden.push(PathBuf::from(DEVICES_FOLDER));
    walk.grant(Path::new("/"), true, read);
    let rest = GRANTS - grants.all.len();
    grants.share_out(walk.beside, rest);
    grants.all.extend(walk.whole);
    grants
}

/// What is done with a terminal or another device.
pub(super) fn device_rights(abi: ABI) -> BitFlags<AccessFs> {
    let wanted = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev;
    wanted & AccessFs::from_all(abi)
}

/// The interface version to use, at most the newest that is known here.
pub(super) fn abi(confinement: &Confinement) -> ABI {
    ABI::from(i32::try_from(confinement.abi).unwrap_or(i32::MAX)).min(ABI::V9)
}

impl Grants {
    /// Takes at most `limit` of what lies in directories, the same share of each, and what some do not need goes to the
    /// others: one crowded directory, which anybody may make in `/tmp`, takes nothing from those with few entries.
    fn share_out(&mut self, mut directories: Vec<Vec<Grant>>, mut limit: usize) {
        directories.sort_by_key(Vec::len);
        let count = directories.len();
        for (done, entries) in directories.into_iter().enumerate() {
            let taken = entries.len().min(limit / (count - done));
            self.left_out += entries.len() - taken;
            limit -= taken;
            self.all.extend(entries.into_iter().take(taken));
        }
    }
}

struct Walk {
    /// Real paths.
    hidden: Vec<PathBuf>,
    /// Where commands' temporary directories are; each is its own command's alone.
    private: Option<PathBuf>,
    /// Rights that can be granted on what is no directory.
    file: BitFlags<AccessFs>,
    /// What was asked for and holds nothing hidden.
    whole: Vec<Grant>,
    /// What lies beside something hidden, directory by directory.
    beside: Vec<Vec<Grant>>,
}

impl Walk {
    /// Grants everything at and below a path but what is hidden.
    fn grant(&mut self, path: &Path, directory: bool, rights: BitFlags<AccessFs>) {
        if self.hidden.iter().any(|hidden| hidden == path) {
            return;
        }
        let apart = self.hidden.iter().chain(&self.private);
        if !apart.clone().any(|apart| apart.starts_with(path)) {
            self.push(path, directory, rights);
            return;
        }
        // The entries that lead on are known by name: they are found however many others there are.
        let ways: BTreeSet<PathBuf> = apart
            .filter_map(|apart| apart.strip_prefix(path).ok()?.components().next())
            .map(|first| path.join(first))
            .collect();
        self.list(path, &ways, rights);
        for way in ways {
            // A link grants nothing: what it leads to is granted where it is.
            if let Ok(kind) = fs::symlink_metadata(&way)
                && !kind.is_symlink()
            {
                self.grant(&way, kind.is_dir(), rights);
            }
        }
    }

    /// Grants the entries of a directory but those that lead to something hidden. In one that cannot be listed there are none.
    fn list(&mut self, path: &Path, ways: &BTreeSet<PathBuf>, rights: BitFlags<AccessFs>) {
        let holds_private = self.private.as_deref() == Some(path);
        let is_beside = |entry: &DirEntry| {
            let is_private = holds_private && temporary::is_name(&entry.file_name());
            !is_private && !ways.contains(&entry.path())
        };
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        let beside = entries.filter(is_beside).filter_map(|entry| {
            let kind = entry.file_type().ok()?;
            (!kind.is_symlink()).then(|| self.one(&entry.path(), kind.is_dir(), rights))
        });
        // One more than can be granted, so that it is known that something is left out.
        let beside = beside.take(GRANTS + 1).collect();
        self.beside.push(beside);
    }

    fn push(&mut self, path: &Path, directory: bool, rights: BitFlags<AccessFs>) {
        let grant = self.one(path, directory, rights);
        self.whole.push(grant);
    }

    fn one(&self, path: &Path, directory: bool, rights: BitFlags<AccessFs>) -> Grant {
        Grant {
            path: path.to_owned(),
            rights: if directory {
                rights
            } else {
                rights & self.file
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    /// What is granted below `top`, where commands' temporary directories are in its `b`.
    fn paths(hidden: &[&Path], top: &Path) -> Vec<String> {
        let mut walk = Walk {
            hidden: hidden.iter().map(|path| (*path).to_owned()).collect(),
            private: Some(top.join("b")),
            file: AccessFs::from_file(ABI::V6),
            whole: Vec::new(),
            beside: Vec::new(),
        };
        walk.grant(top, true, AccessFs::from_read(ABI::V6));
        let mut paths: Vec<String> = walk
            .beside
            .iter()
            .flatten()
            .chain(&walk.whole)
            .map(|grant| {
                let inside = grant.path.strip_prefix(top).expect("below the top");
                inside.display().to_string()
            })
            .collect();
        paths.sort_unstable();
        paths
    }

    #[test]
    fn everything_beside_what_is_hidden_is_granted() {
        let top = tempfile::tempdir().expect("folder");
        let top = top.path().canonicalize().expect("real");
        for folder in ["a/deep/secret", "a/deep/other", "b"] {
            fs::create_dir_all(top.join(folder)).expect("folder");
        }
        fs::write(top.join("a/file"), "").expect("file");
        std::os::unix::fs::symlink("deep/secret", top.join("a/link")).expect("link");
        let commands = format!("b/postern-command-{}", uuid::Uuid::new_v4());
        fs::create_dir(top.join(commands)).expect("folder");
        fs::create_dir(top.join("b/beside")).expect("folder");
        let own = ["b/beside".to_owned()];
        let told = paths(&[], &top);
        assert_eq!(told, ["a", "b/beside"], "another command's is not");
        let secret = top.join("a/deep/secret");
        let expected = ["a/deep/other", "a/file"].map(str::to_owned);
        assert_eq!(paths(&[&secret], &top), [&expected[..], &own[..]].concat());
        let future = top.join("a/future");
        let expected = ["a/deep", "a/file"].map(str::to_owned);
        let told = paths(&[&future], &top);
        assert_eq!(
            told,
            [&expected[..], &own[..]].concat(),
            "hidden before it exists"
        );
        assert_eq!(paths(&[&top], &top), [""; 0]);
        // What is around is of no matter: whoever asks for this very place means it.
        assert_eq!(paths(&[&top], &top.join("a")), ["deep", "file"]);
    }

    /// Anybody may crowd the directory where the temporary ones are.
    #[test]
    fn a_crowded_directory_takes_nothing_from_others() {
        let top = tempfile::tempdir().expect("folder");
        let top = top.path().canonicalize().expect("real");
        for folder in ["crowd/secret", "crowd/beside", "project", "temporary"] {
            fs::create_dir_all(top.join(folder)).expect("folder");
        }
        for number in 0..GRANTS + 600 {
            let file = top.join("crowd").join(number.to_string());
            rustix::fs::mknodat(
                rustix::fs::CWD,
                file,
                rustix::fs::FileType::RegularFile,
                rustix::fs::Mode::RUSR,
                0,
            )
            .expect("file");
        }
        let made = grants(&Confinement {
            abi: 6,
            project: top.join("project"),
            temporary: top.join("temporary/postern-command-x"),
            write: vec![top.join("temporary")],
            hidden: vec![top.join("crowd/secret/deep")],
        });
        let rights = |path: &Path| {
            let own = made.all.iter().filter(|grant| grant.path == path);
            own.fold(BitFlags::empty(), |all, grant| all | grant.rights)
        };
        for path in [
            &top.join("project"),
            &top.join("temporary/postern-command-x"),
        ] {
            assert!(rights(path).contains(AccessFs::MakeReg), "{path:?}");
        }
        assert!(rights(Path::new("/dev/null")).contains(AccessFs::WriteFile));
        assert!(rights(Path::new("/usr")).contains(AccessFs::Execute));
        assert!(made.left_out > 0, "and it is told");
        assert!(made.all.len() <= GRANTS + 16, "{}", made.all.len());
        let inside = made
            .all
            .iter()
            .filter(|grant| grant.path.starts_with(top.join("crowd")));
        assert!(
            inside.count() > GRANTS / 2,
            "what others do not need is used"
        );
    }
}
