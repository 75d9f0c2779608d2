//! One file and what it shall be change places, and change back.

use std::{
    ffi::{OsStr, OsString},
    os::fd::OwnedFd,
    path::PathBuf,
};

use postern_kit::{Effect, Failure};
use postern_proto::filesystem::v1::{Hindrance, HindranceKind};
use postern_types::ErrorCode;
use rustix::{
    fs::{AtFlags, RenameFlags},
    io::Errno,
};

use super::{Seen, apply::DIRECTORY, hindrance};
use crate::{project::Project, revision::Stamp};

/// What stops it before anything has changed: something in the way, or a failure.
pub(super) enum Stop {
    Hindered(Vec<Hindrance>),
    Failed(Failure),
}

/// One file with what it shall be beside it.
pub(super) struct Move {
    pub(super) path: String,
    pub(super) directory: PathBuf,
    pub(super) name: OsString,
    /// Its name beside the target.
    pub(super) aside: String,
    /// What was there.
    pub(super) seen: Option<Seen>,
    /// What it shall be, beside it; none when there shall be no file.
    pub(super) placed: Option<Stamp>,
    /// Whether the staged or replaced content has that name now.
    pub(super) named: bool,
}

impl Move {
    /// Removes what lies beside it.
    pub(super) fn remove_aside(&mut self, project: &Project) {
        if !std::mem::take(&mut self.named) {
            return;
        }
        let removed = project
            .root
            .open_beneath(&self.directory, DIRECTORY)
            .and_then(|directory| rustix::fs::unlinkat(directory, &self.aside, AtFlags::empty()));
        if let Err(error) = removed {
            tracing::warn!(%error, "what is beside a file that was taken back could not be removed");
        }
    }
}

pub(super) fn change_place(project: &Project, one: &mut Move) -> Result<(), Stop> {
    let refused = |errno: Errno| Stop::Failed(postern_kit::root::refusal(errno, &one.path));
    let directory = project
        .root
        .open_beneath(&one.directory, DIRECTORY)
        .map_err(refused)?;
    let (name, aside) = (one.name.as_os_str(), OsStr::new(&one.aside));
    let Some(seen) = one.seen else {
        return match rename(&directory, aside, name, RenameFlags::NOREPLACE) {
            Ok(()) => {
                one.named = false;
                Ok(())
            }
            Err(Errno::EXIST) => Err(stale(&one.path)),
            Err(errno) => Err(refused(errno)),
        };
    };
    if !is_still(&directory, name, &seen.stamp) {
        return Err(stale(&one.path));
    }
    match one.placed {
        Some(_) => rename(&directory, aside, name, RenameFlags::EXCHANGE),
        None => rename(&directory, name, aside, RenameFlags::NOREPLACE),
    }
    .map_err(refused)?;
    if is_still(&directory, aside, &seen.stamp) {
        one.named = true;
        return Ok(());
    }
    // Somebody was faster: what he left goes back to where he put it, and is in no case removed.
    one.named = false;
    if one.placed.is_some() && rename(&directory, aside, name, RenameFlags::EXCHANGE).is_ok() {
        one.named = true;
        return Err(stale(&one.path));
    }
    match rename(&directory, aside, name, RenameFlags::NOREPLACE) {
        Ok(()) => Err(stale(&one.path)),
        Err(_) => Err(Stop::Failed(torn(&one.path))),
    }
}

/// Changes places again, as long as what was put there is there: what somebody has made of it since is his.
pub(super) fn change_back(project: &Project, one: &mut Move) -> rustix::io::Result<()> {
    let directory = project.root.open_beneath(&one.directory, DIRECTORY)?;
    let (name, aside) = (one.name.as_os_str(), OsStr::new(&one.aside));
    if let Some(placed) = &one.placed
        && !is_still(&directory, name, placed)
    {
        return Err(Errno::BUSY);
    }
    match (one.seen, one.placed.is_some()) {
        (None, _) => {
            rename(&directory, name, aside, RenameFlags::NOREPLACE)?;
            one.named = true;
        }
        (Some(_), true) => rename(&directory, aside, name, RenameFlags::EXCHANGE)?,
        (Some(_), false) => {
            rename(&directory, aside, name, RenameFlags::NOREPLACE)?;
            one.named = false;
        }
    }
    Ok(())
}

fn rename(
    directory: &OwnedFd,
    from: &OsStr,
    to: &OsStr,
    flags: RenameFlags,
) -> rustix::io::Result<()> {
    rustix::fs::renameat_with(directory, from, directory, to, flags)
}

/// Whether what has this name is what was seen. A rename changes nothing but the time of the inode's own change.
fn is_still(directory: &OwnedFd, name: &OsStr, seen: &Stamp) -> bool {
    rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|stat| Stamp::of(&stat).is_of_same_content(seen))
}

pub(super) fn changed_meanwhile(path: &str) -> Hindrance {
    hindrance(path, HindranceKind::Stale, "It was changed meanwhile.")
}

pub(super) fn stale(path: &str) -> Stop {
    Stop::Hindered(vec![changed_meanwhile(path)])
}

/// Some files are as they shall be and others as they were.
pub(super) fn torn(path: &str) -> Failure {
    let path = postern_kit::root::brief(path);
    Failure {
        effect: Effect::Unknown,
        ..Failure::new(
            ErrorCode::Uncertain,
            format!(
                "Files were taken back in part, and '{path}' could not be put back. Look at the files of this undo."
            ),
        )
    }
}

#[cfg(test)]
pub(super) mod tests;
