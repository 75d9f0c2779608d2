//! A path with links on the way, made link-free one link at a time.

use std::{
    collections::VecDeque,
    ffi::{OsStr, OsString},
    os::{fd::OwnedFd, unix::ffi::OsStrExt as _},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{FileType, OFlags, Stat},
    io::Errno,
};

use super::{
    Root,
    path::{Step, Wanted, link_steps},
};

/// How many links one path may lead through, as in the kernel.
const LINKS: usize = 40;

/// What is done with a link at the end of a path.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Links {
    /// It is followed.
    Follow,
    /// It is what was asked for.
    KeepLast,
}

/// Where a walk ended.
#[derive(Debug)]
pub(super) struct Walk {
    /// Link-free names from the root to the last thing that exists.
    pub(super) done: Vec<OsString>,
    /// The names behind, which do not exist.
    pub(super) missing: Vec<OsString>,
    /// Handle of what is there, when nothing is missing.
    pub(super) found: Option<(OwnedFd, Stat)>,
    /// Whether the name that is missing came from a link.
    pub(super) dangling: bool,
}

/// Why a walk did not end.
#[derive(Debug)]
pub(super) enum Stop {
    /// The tree changed under it.
    Changed,
    /// It may not or cannot go on.
    Refused(Errno),
}

impl From<Errno> for Stop {
    fn from(errno: Errno) -> Self {
        match errno {
            // Every step opens a path that had no links a moment ago.
            Errno::LOOP => Self::Changed,
            errno => Self::Refused(errno),
        }
    }
}

/// Steps still to be taken. The first `from_links` of them came from links.
struct Pending {
    steps: VecDeque<Step>,
    from_links: usize,
    directory: bool,
    links: usize,
}

/// Walks step by step. Each step is opened from the root handle without following anything.
pub(super) fn link_by_link(root: &Root, wanted: &Wanted, links: Links) -> Result<Walk, Stop> {
    let mut pending = Pending {
        steps: wanted.steps.iter().cloned().collect(),
        from_links: 0,
        directory: wanted.directory,
        links: 0,
    };
    let mut done: Vec<OsString> = Vec::new();
    let mut found = None;
    while let Some((step, from_link)) = pending.next() {
        found = None;
        let Step::Down(name) = step else {
            done.pop().ok_or(Stop::Refused(Errno::XDEV))?;
            continue;
        };
        let path: PathBuf = done.iter().chain([&name]).collect();
        let handle = match root.open_beneath(&path, OFlags::PATH | OFlags::NOFOLLOW) {
            Err(Errno::NOENT) => return pending.missing(done, name, from_link),
            answer => answer?,
        };
        let stat = rustix::fs::fstat(&handle)?;
        let file_type = FileType::from_raw_mode(stat.st_mode);
        if file_type == FileType::Symlink && !(links == Links::KeepLast && pending.at_end()) {
            let text = rustix::fs::readlinkat(&handle, "", Vec::new())?;
            pending.follow(
                root,
                &mut done,
                Path::new(OsStr::from_bytes(text.as_bytes())),
            )?;
            continue;
        }
        if file_type != FileType::Directory && !pending.at_end() {
            return Err(Stop::Refused(Errno::NOTDIR));
        }
        done.push(name);
        found = Some((handle, stat));
    }
    if found.is_none() {
        // The last step was `..`, or a link to the root.
        let path: PathBuf = done.iter().collect();
        let handle = root.open_beneath(&path, OFlags::PATH)?;
        let stat = rustix::fs::fstat(&handle)?;
        found = Some((handle, stat));
    }
    Ok(Walk {
        done,
        missing: Vec::new(),
        found,
        dangling: false,
    })
}

impl Pending {
    fn next(&mut self) -> Option<(Step, bool)> {
        let step = self.steps.pop_front()?;
        let from_link = self.from_links > 0;
        self.from_links = self.from_links.saturating_sub(1);
        Some((step, from_link))
    }

    /// Whether the step just taken may lead to something other than a directory.
    fn at_end(&self) -> bool {
        self.steps.is_empty() && !self.directory
    }

    /// Puts a link's text in its place. An absolute text starts anew at the root, if it leads there.
    fn follow(&mut self, root: &Root, done: &mut Vec<OsString>, text: &Path) -> Result<(), Stop> {
        self.links += 1;
        if self.links > LINKS {
            return Err(Stop::Refused(Errno::LOOP));
        }
        let text = if text.is_absolute() {
            done.clear();
            text.strip_prefix(&root.identity.real_path)
                .map_err(|_| Stop::Refused(Errno::XDEV))?
        } else {
            text
        };
        let (mut steps, directory) = link_steps(text);
        self.directory |= directory && self.steps.is_empty();
        self.from_links += steps.len();
        steps.append(&mut self.steps);
        self.steps = steps;
        Ok(())
    }

    /// The end of a walk at a name that does not exist. What is behind it must be names, and must not lead out.
    fn missing(self, done: Vec<OsString>, name: OsString, from_link: bool) -> Result<Walk, Stop> {
        let mut depth = done.len() + 1;
        let mut missing = vec![name];
        let mut ups = false;
        for step in self.steps {
            match step {
                Step::Up => {
                    ups = true;
                    depth = depth.checked_sub(1).ok_or(Stop::Refused(Errno::XDEV))?;
                }
                Step::Down(name) => {
                    depth += 1;
                    missing.push(name);
                }
            }
        }
        if ups {
            return Err(Stop::Refused(Errno::NOENT));
        }
        Ok(Walk {
            done,
            missing,
            found: None,
            dangling: from_link,
        })
    }
}
