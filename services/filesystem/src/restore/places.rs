//! One file and what it shall be change places, and change back.

use std::{
    ffi::{OsStr, OsString},
    os::fd::OwnedFd,
    path::PathBuf,
};

use postern_kit::{Effect, Failure};
use postern_proto::filesystem::v1::{Hindrance, HindranceKind};
use postern_types::{ErrorCode, ReceiptId};
use rustix::{
    fs::{AtFlags, RenameFlags},
    io::Errno,
};

use super::{Seen, apply::DIRECTORY, hindrance};
use crate::{disk, names, project::Project, refusal, revision::Stamp};

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
    let refused = |errno: Errno| {
        Stop::Failed(match errno {
            Errno::OPNOTSUPP => refusal::renames_plainly(&one.path),
            errno => postern_kit::root::refusal(errno, &one.path),
        })
    };
    let directory = project
        .root
        .open_beneath(&one.directory, DIRECTORY)
        .map_err(refused)?;
    let (name, aside) = (one.name.as_os_str(), OsStr::new(&one.aside));
    let Some(seen) = one.seen else {
        return match give_name(project, &directory, aside, name) {
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
        Some(_) => exchange(project, &directory, aside, name, &seen.stamp),
        None => give_name(project, &directory, name, aside),
    }
    .map_err(|errno| match errno {
        Errno::BUSY => stale(&one.path),
        errno => refused(errno),
    })?;
    if is_still(&directory, aside, &seen.stamp) {
        one.named = true;
        return Ok(());
    }
    // Somebody was faster: what he left goes back to where he put it, and is in no case removed.
    one.named = false;
    if let Some(placed) = &one.placed
        && exchange(project, &directory, aside, name, placed).is_ok()
    {
        one.named = true;
        return Err(stale(&one.path));
    }
    match give_name(project, &directory, aside, name) {
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
    match (one.seen, &one.placed) {
        (None, _) => {
            give_name(project, &directory, name, aside)?;
            one.named = true;
        }
        (Some(_), Some(placed)) => exchange(project, &directory, aside, name, placed)?,
        (Some(_), None) => {
            give_name(project, &directory, aside, name)?;
            one.named = false;
        }
    }
    Ok(())
}

/// Gives a file of one name another that is free; `EEXIST` when it is not.
fn give_name(
    project: &Project,
    directory: &OwnedFd,
    from: &OsStr,
    to: &OsStr,
) -> rustix::io::Result<()> {
    match project
        .disk
        .rename(directory, from, to, RenameFlags::NOREPLACE)
    {
        Err(errno) if disk::is_plain(errno) => {
            disk::link(directory, from, to)?;
            rustix::fs::unlinkat(directory, from, AtFlags::empty()).inspect_err(|_| {
                // It is where it was, and nowhere else.
                let _ = rustix::fs::unlinkat(directory, to, AtFlags::empty());
            })
        }
        answer => answer,
    }
}

/// Lets what has one name and what has another change names.
///
/// Where the file system cannot, what is there gets a third name for an instant, and then the other replaces it: each name has one
/// of the two contents at any instant, and a name that is left over after a crash is swept. What somebody puts there in that very
/// instant is replaced, as by any write; up to then it is seen.
fn exchange(
    project: &Project,
    directory: &OwnedFd,
    aside: &OsStr,
    name: &OsStr,
    expected: &Stamp,
) -> rustix::io::Result<()> {
    match project
        .disk
        .rename(directory, aside, name, RenameFlags::EXCHANGE)
    {
        Err(errno) if disk::is_plain(errno) => {}
        answer => return answer,
    }
    let third = names::temporary(ReceiptId::generate());
    let third = OsStr::new(&third);
    disk::link(directory, name, third)?;
    let changed = if is_still(directory, third, expected) && is_still(directory, name, expected) {
        rustix::fs::renameat(directory, aside, directory, name)
    } else {
        Err(Errno::BUSY)
    };
    match changed {
        Ok(()) => rustix::fs::renameat(directory, third, directory, aside).inspect_err(|_| {
            // What was there goes back; the other is kept in the store.
            let _ = rustix::fs::renameat(directory, third, directory, name);
        }),
        Err(errno) => {
            rustix::fs::unlinkat(directory, third, AtFlags::empty())?;
            Err(errno)
        }
    }
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
