//! What a command may reach: rights of Landlock and `no_new_privs`, taken by the thread that starts the shell.
//!
//! Landlock only allows; it cannot forbid a part of what it allowed. So what is hidden is hidden by granting everything
//! *beside* it: from `/` down to each hidden path, every other entry of each directory on the way has a grant of its own.
//! Hence a hidden path is hidden before it exists, and a directory on the way to one can be passed but not listed
//! (docs/adr/0007-the-sandbox-is-landlock.md).
//!
//! Invariants:
//! - The rights are taken before the wrapper says that it is ready, or no command runs in it.
//! - No thread that lives while the shell does has the command's rights: nothing of the wrapper can be traced or
//!   signalled from within.
//! - What is told as in force is in force.

mod calls;
mod capability;
mod confine;
mod grants;
mod kernel;
mod stores;
mod temporary;

use std::{
    ffi::OsString,
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
};

use postern_kit::root::real_path;
use postern_types::Sha256;

use crate::Error;

pub(crate) use confine::{Unconfined, confine};
pub use kernel::{Kernel, Protection};
pub use stores::homes;
pub(crate) use temporary::{Temporary, sweep};

/// Least interface version with which `required` starts: the last protection that this module promises came with it.
const REQUIRED_ABI: u32 = 6;
/// Least interface version with which `project` is in force: before it, files outside can be emptied.
const PROJECT_ABI: u32 = 3;

/// How far commands are confined.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Level {
    /// Not at all.
    Off,
    /// To the project, as far as the kernel can.
    #[default]
    Project,
    /// To the project, and no command runs where the kernel cannot.
    Required,
}

impl Level {
    /// The word of the configuration and of `workspace_info`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Project => "project",
            Self::Required => "required",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

impl FromStr for Level {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [Self::Off, Self::Project, Self::Required]
            .into_iter()
            .find(|level| level.as_str() == text)
            .ok_or_else(|| "write off, project or required".to_owned())
    }
}

/// What the owner wishes of the sandbox.
#[derive(Clone, Debug)]
pub struct Sandbox {
    /// How far.
    pub level: Level,
    /// Home directories whose usual credential stores are hidden; [`homes`] finds them.
    pub homes: Vec<PathBuf>,
    /// Directories or files outside the project that commands may write, too.
    pub write: Vec<PathBuf>,
    /// Paths that commands cannot read, besides the usual credential stores and the spool.
    pub hide: Vec<PathBuf>,
    /// Usual credential stores that commands can read all the same.
    pub show: Vec<PathBuf>,
    /// Variables that commands do not get, whatever the level. A name that ends with `*` stands for all that begin so.
    pub hide_env: Vec<String>,
    /// Where the commands' private temporary directories are made.
    pub temporary: PathBuf,
    /// What the kernel offers.
    pub kernel: Kernel,
}

impl Sandbox {
    /// The defaults over this kernel: `project`, with no home known.
    #[must_use]
    pub fn new(kernel: Kernel) -> Self {
        Self {
            level: Level::default(),
            homes: Vec::new(),
            write: Vec::new(),
            hide: Vec::new(),
            show: Vec::new(),
            hide_env: Vec::new(),
            temporary: std::env::temp_dir(),
            kernel,
        }
    }

    /// Refuses what a worker over this project and spool would refuse: a level that the kernel does not hold, and paths that
    /// would have to be both reached and hidden.
    ///
    /// # Errors
    /// [`Error::Sandbox`], which says what is wrong and what to do.
    pub fn check(&self, project: &Path, spool: &Path) -> Result<(), Error> {
        Confinement::plan(self, project, spool).map(drop)
    }

    /// Refuses `required` where the kernel cannot do it.
    ///
    /// # Errors
    /// [`Error::Sandbox`], which says what is missing and what to do.
    pub fn demand(&self) -> Result<(), Error> {
        if self.level != Level::Required || self.kernel.abi >= REQUIRED_ABI {
            return Ok(());
        }
        let missing: Vec<&str> = self
            .kernel
            .missing()
            .into_iter()
            .filter(|protection| protection.since_abi <= REQUIRED_ABI)
            .map(|protection| protection.name)
            .collect();
        Err(Error::Sandbox(format!(
            "the sandbox is required, and this kernel cannot hold it: Landlock's interface is at version {}, {REQUIRED_ABI} is needed (Linux 6.12 with 'landlock' among its security modules); missing: {}. Use such a kernel, or --sandbox project for what this one offers",
            self.kernel.abi,
            missing.join(", ")
        )))
    }

    /// A digest of the wishes alone, by which an edge knows a worker that was started under others.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        let mut text = self.level.as_str().as_bytes().to_vec();
        for (mark, paths) in [(b'w', &self.write), (b'h', &self.hide), (b's', &self.show)] {
            for path in paths {
                text.extend([0, mark]);
                text.extend(path.as_os_str().as_encoded_bytes());
            }
        }
        for name in &self.hide_env {
            text.extend([0, b'e']);
            text.extend(name.as_bytes());
        }
        Sha256::of(&text).to_string()
    }

    /// What is in force: `off` also where the kernel does not hold `project`.
    #[must_use]
    pub fn in_force(&self) -> Level {
        if self.kernel.abi < PROJECT_ABI {
            return Level::Off;
        }
        self.level
    }
}

/// What one wrapper confines its command to. It travels as the wrapper's arguments.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Confinement {
    /// Interface version to use; never above the kernel's.
    pub(crate) abi: u32,
    pub(crate) project: PathBuf,
    pub(crate) temporary: PathBuf,
    pub(crate) write: Vec<PathBuf>,
    pub(crate) hidden: Vec<PathBuf>,
}

const ABI: &str = "--abi";
const PROJECT: &str = "--project";
const TEMPORARY: &str = "--temporary";
const WRITE: &str = "--write";
const HIDE: &str = "--hide";

impl Confinement {
    /// What a worker's commands are confined to; `None` when they are not. The temporary directory is each wrapper's own.
    pub(crate) fn plan(
        sandbox: &Sandbox,
        project: &Path,
        spool: &Path,
    ) -> Result<Option<Self>, Error> {
        sandbox.demand()?;
        if sandbox.level == Level::Off {
            return Ok(None);
        }
        if sandbox.kernel.abi == 0 {
            tracing::warn!(
                "this kernel has no sandbox to offer; commands reach whatever their user reaches"
            );
            return Ok(None);
        }
        let project = project.canonicalize()?;
        let mut hidden = stores::usual(&sandbox.homes);
        for shown in &sandbox.show {
            let before = hidden.len();
            hidden.retain(|path| real_path(path) != real_path(shown));
            if hidden.len() == before {
                return Err(Error::Sandbox(format!(
                    "'{}' is none of the credential stores that are hidden by default, so it cannot be shown; name one exactly",
                    shown.display()
                )));
            }
        }
        hidden.extend(sandbox.hide.iter().cloned());
        hidden.push(spool.to_owned());
        check(&project, &sandbox.write, &hidden)?;
        Ok(Some(Self {
            abi: sandbox.kernel.abi,
            project,
            temporary: PathBuf::new(),
            write: sandbox.write.iter().map(|path| real_path(path)).collect(),
            hidden,
        }))
    }

    /// Refuses to let paths be written, besides those of every command, that are hidden or are not there.
    pub(crate) fn check_writing(&self, write: &[PathBuf]) -> Result<(), Error> {
        let hidden: Vec<PathBuf> = self.hidden.iter().map(|path| real_path(path)).collect();
        check_writing(write, &hidden)
    }

    pub(crate) fn to_args(&self) -> Vec<OsString> {
        let mut args: Vec<OsString> = vec![ABI.into(), self.abi.to_string().into()];
        let one = [(PROJECT, &self.project), (TEMPORARY, &self.temporary)];
        let many = self.write.iter().map(|path| (WRITE, path));
        let more = self.hidden.iter().map(|path| (HIDE, path));
        for (name, path) in one.into_iter().chain(many).chain(more) {
            args.extend([name.into(), path.clone().into_os_string()]);
        }
        args
    }

    /// Reads the arguments; `Some(None)` when there are none, `None` when they are not as written.
    pub(crate) fn from_args(mut args: impl Iterator<Item = OsString>) -> Option<Option<Self>> {
        let Some(first) = args.next() else {
            return Some(None);
        };
        let abi = args.next().filter(|_| first == ABI)?;
        let mut read = Self {
            abi: abi.to_str()?.parse().ok()?,
            project: PathBuf::new(),
            temporary: PathBuf::new(),
            write: Vec::new(),
            hidden: Vec::new(),
        };
        while let Some(name) = args.next() {
            let path = PathBuf::from(args.next()?);
            match name.to_str()? {
                PROJECT => read.project = path,
                TEMPORARY => read.temporary = path,
                WRITE => read.write.push(path),
                HIDE => read.hidden.push(path),
                _ => return None,
            }
        }
        Some(Some(read))
    }
}

/// Refuses to let paths be written that are hidden or are not there.
fn check_writing(write: &[PathBuf], hidden: &[PathBuf]) -> Result<(), Error> {
    for path in write {
        let real = real_path(path);
        if hidden.iter().any(|hidden| real.starts_with(hidden)) {
            return Err(Error::Sandbox(format!(
                "'{}' lies in what is hidden from commands, so it cannot be written; choose another folder, or take a credential store out with --sandbox-show",
                path.display()
            )));
        }
        if !real.exists() {
            return Err(Error::Sandbox(format!(
                "'{}' is to be writable and does not exist; make it first",
                path.display()
            )));
        }
    }
    Ok(())
}

/// Refuses what cannot be held: a path that is to be both reached and hidden.
fn check(project: &Path, write: &[PathBuf], hidden: &[PathBuf]) -> Result<(), Error> {
    let hidden: Vec<PathBuf> = hidden.iter().map(|path| real_path(path)).collect();
    if hidden.iter().any(|path| path == project) {
        return Err(Error::Sandbox(
            "the project itself is hidden from commands; choose another project, or take it out with --sandbox-show".to_owned(),
        ));
    }
    check_writing(write, &hidden)?;
    if hidden.iter().any(|path| path.starts_with(project)) {
        tracing::warn!(
            "the project holds what is hidden; commands cannot make files in the folders around that"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    #[test]
    fn a_confinement_is_read_as_written() {
        use std::os::unix::ffi::OsStringExt as _;
        let confinement = Confinement {
            abi: 7,
            project: "/p".into(),
            temporary: "/t".into(),
            write: vec!["/w".into()],
            hidden: vec!["/h".into(), OsString::from_vec(vec![b'/', 0xff]).into()],
        };
        let args = confinement.to_args();
        assert_eq!(
            Confinement::from_args(args.clone().into_iter()),
            Some(Some(confinement))
        );
        assert_eq!(Confinement::from_args(std::iter::empty()), Some(None));
        assert_eq!(Confinement::from_args(args.into_iter().skip(1)), None);
    }

    #[test]
    fn required_is_refused_where_the_kernel_cannot() {
        for (abi, level, refused, in_force) in [
            (0, Level::Project, false, "off"),
            (2, Level::Project, false, "off"),
            (3, Level::Project, false, "project"),
            (5, Level::Required, true, "required"),
            (6, Level::Required, false, "required"),
            (6, Level::Off, false, "off"),
        ] {
            let sandbox = Sandbox {
                level,
                ..Sandbox::new(Kernel { abi })
            };
            let answer = sandbox.demand();
            assert_eq!(answer.is_err(), refused, "{abi} {level}");
            assert_eq!(sandbox.in_force().as_str(), in_force, "{abi} {level}");
            if let Err(error) = answer {
                let text = error.to_string();
                assert!(text.contains("version 5, 6 is needed"), "{text}");
                assert!(text.contains("signals"), "{text}");
            }
        }
    }

    #[test]
    fn wishes_tell_workers_apart() {
        let one = Sandbox::new(Kernel { abi: 6 });
        let other = Sandbox {
            hide: vec!["/a".into()],
            ..one.clone()
        };
        let third = Sandbox {
            write: vec!["/a".into()],
            ..one.clone()
        };
        assert_eq!(
            one.fingerprint(),
            Sandbox::new(Kernel { abi: 6 }).fingerprint()
        );
        assert_ne!(one.fingerprint(), other.fingerprint());
        assert_ne!(third.fingerprint(), other.fingerprint());
    }
}
