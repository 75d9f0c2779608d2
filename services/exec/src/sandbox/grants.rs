//! Which rights are granted on what.

use std::{
    fs::{self, DirEntry},
    path::{Path, PathBuf},
};

use landlock::{ABI, Access as _, AccessFs, BitFlags};
use postern_kit::root::real_path;

use super::{Confinement, temporary};

/// Grants of one command. A directory on the way to what is hidden with more entries than this leaves the rest of them
/// without any: what is not granted cannot be reached, so the bound never opens anything.
const GRANTS: usize = 16_384;
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
/// Shared memory and semaphores by name, without which much of what runs in parallel does not.
const SHARED_MEMORY: &str = "/dev/shm";

/// Rights on a path and what is below it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Grant {
    pub(super) path: PathBuf,
    pub(super) rights: BitFlags<AccessFs>,
}

/// The grants of a confinement as the tree stands now.
pub(super) fn grants(confinement: &Confinement) -> Vec<Grant> {
    let abi = abi(confinement);
    let read = AccessFs::from_read(abi);
    let work = read
        | AccessFs::from_write(abi)
            & !(AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev);
    let hidden = confinement.hidden.iter().map(|path| real_path(path));
    let mut walk = Walk {
        // Devices are granted one by one.
        hidden: hidden.chain([PathBuf::from(DEVICES_FOLDER)]).collect(),
        private: confinement.temporary.parent().map(Path::to_owned),
        file: AccessFs::from_file(abi),
        grants: Vec::new(),
    };
    walk.grant(Path::new("/"), true, read);
    walk.hidden.pop();
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
    walk.grant(&confinement.temporary, true, work);
    walk.grant(Path::new(SHARED_MEMORY), true, work);
    walk.push(Path::new(DEVICES_FOLDER), true, AccessFs::ReadDir.into());
    for device in DEVICES {
        // A link, as `/dev/ptmx` is in containers, is granted at its target.
        walk.push(&real_path(Path::new(device)), false, device_rights(abi));
    }
    walk.grants
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

struct Walk {
    /// Real paths.
    hidden: Vec<PathBuf>,
    /// Where commands' temporary directories are; each is its own command's alone.
    private: Option<PathBuf>,
    /// Rights that can be granted on what is no directory.
    file: BitFlags<AccessFs>,
    grants: Vec<Grant>,
}

impl Walk {
    /// Grants everything at and below a path but what is hidden.
    fn grant(&mut self, path: &Path, directory: bool, rights: BitFlags<AccessFs>) {
        if self.hidden.iter().any(|hidden| hidden == path) {
            return;
        }
        let mut apart = self.hidden.iter().chain(&self.private);
        if !apart.any(|apart| apart.starts_with(path)) {
            self.push(path, directory, rights);
            return;
        }
        // A directory that cannot be listed is not entered: nothing in it is granted.
        let entries: Vec<DirEntry> = fs::read_dir(path)
            .map(|entries| entries.take(GRANTS).flatten().collect())
            .unwrap_or_default();
        for entry in entries {
            // A link grants nothing: what it leads to is granted where it is.
            let private =
                self.private.as_deref() == Some(path) && temporary::is_name(&entry.file_name());
            if let Ok(kind) = entry.file_type()
                && !kind.is_symlink()
                && !private
            {
                self.grant(&entry.path(), kind.is_dir(), rights);
            }
        }
    }

    fn push(&mut self, path: &Path, directory: bool, rights: BitFlags<AccessFs>) {
        if self.grants.len() < GRANTS {
            self.grants.push(Grant {
                path: path.to_owned(),
                rights: if directory {
                    rights
                } else {
                    rights & self.file
                },
            });
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
            grants: Vec::new(),
        };
        walk.grant(top, true, AccessFs::from_read(ABI::V6));
        let mut paths: Vec<String> = walk
            .grants
            .iter()
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
}
