//! The change of places.
//!
//! What a file shall be stands beside it under a name kept for changes under way, whole and durable. Then the two change
//! places, so that what was there has that name; a new file takes a free name, a file that is to go changes to the kept
//! name. So each step can be told from what others did meanwhile, and taken back. What has been replaced is removed last.
//! After a crash each file is what it was or what it shall be, and names that are left over are swept.

use std::{
    collections::BTreeSet,
    fs::File,
    os::fd::AsFd as _,
    path::{Path, PathBuf},
};

use postern_kit::{Effect, Failure};
use postern_proto::filesystem::v1::{Hindrance, RestoreResponse};
use postern_types::{ErrorCode, ReceiptId};
use rustix::{
    fs::{AtFlags, Mode, OFlags},
    io::Errno,
};

use super::{
    Work, found, not_kept,
    places::{Move, Stop, change_back, change_place, changed_meanwhile, stale, torn},
};
use crate::{
    keeping, names,
    project::Project,
    refusal,
    revision::Stamp,
    spot::Spot,
    staged::{KEPT_BITS, Staged},
    store::{self, Store, Unnamed},
};

/// Flags of a directory that is changed and made durable.
pub(super) const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY);
/// Files made durable one by one; of more, the whole file system is. Beyond that their descriptors are not held either.
const SYNC_EACH: usize = 32;

/// Everything that is ready to change places. Dropped, it leaves nothing behind.
struct Ready<'a> {
    project: &'a Project,
    moves: Vec<Move>,
    /// Directories that were made on the way.
    made: BTreeSet<PathBuf>,
    /// Staged content whose descriptor is still held.
    held: Vec<File>,
    images: Vec<Unnamed<'a>>,
    /// Whether files changed places and back.
    changed_back: bool,
}

/// Takes files back whose targets are locked. What is left as it is is swept around all the same.
pub(super) fn apply(
    project: &Project,
    work: Vec<Work>,
    left: &[Hindrance],
) -> Result<Result<RestoreResponse, Vec<Hindrance>>, Failure> {
    let Some(store) = &project.store else {
        let files = work.iter().map(|one| not_kept(&one.file.path));
        return Ok(Err(files.collect()));
    };
    let response = found(&work);
    let directories: BTreeSet<PathBuf> = work
        .iter()
        .filter(|one| one.file.wanted.is_none())
        .flat_map(|one| one.file.directories.iter().map(PathBuf::from))
        .collect();
    let many = work.len() > SYNC_EACH;
    let mut ready = Ready {
        project,
        moves: Vec::new(),
        made: BTreeSet::new(),
        held: Vec::new(),
        images: Vec::new(),
        changed_back: false,
    };
    let mut synced = BTreeSet::new();
    for one in &work {
        synced.insert(parent_of(&one.file.path));
    }
    sweep(project, &synced);
    sweep(
        project,
        &left.iter().map(|one| parent_of(&one.path)).collect(),
    );
    let mut open = work.iter().filter(|one| !one.done);
    let begun = open.try_for_each(|one| ready.stage(store, one, many));
    postern_kit::fault_point!(crate::fault_points::RESTORE_STAGED);
    let begun = begun.and_then(|()| ready.settle(store, many));
    let changed = begun.and_then(|()| ready.change_places());
    if changed.is_err() && ready.changed_back {
        // That nothing was changed must be as durable as what is recorded of it.
        sync(project, &synced, many).map_err(|error| not_lasting(&error))?;
    }
    match changed {
        Ok(()) => {}
        Err(Stop::Hindered(hindrances)) => return Ok(Err(hindrances)),
        Err(Stop::Failed(failure)) => return Err(failure),
    }
    postern_kit::fault_point!(crate::fault_points::RESTORE_AFTER);
    ready.remove_replaced();
    let made = std::mem::take(&mut ready.made);
    synced.extend(made.iter().map(parent_of));
    let kept_directories = remove_directories(project, &directories, &mut synced);
    sync(project, &synced, many).map_err(|error| not_lasting(&error))?;
    postern_kit::fault_point!(crate::fault_points::RESTORE_DURABLE);
    Ok(Ok(RestoreResponse {
        kept_directories,
        ..response
    }))
}

fn not_lasting(error: &Errno) -> Failure {
    tracing::error!(%error, "what was taken back could not be made durable");
    Failure {
        effect: Effect::Unknown,
        ..Failure::new(
            ErrorCode::Uncertain,
            "Files were taken back, or were to be, and the file system failed to make durable what they are now. Look at them.",
        )
    }
}

impl<'a> Ready<'a> {
    /// Puts what a file shall be beside it, and what it is into the store.
    fn stage(&mut self, store: &'a Store, work: &Work, many: bool) -> Result<(), Stop> {
        let path = &work.file.path;
        let spot = Spot::of_target(&self.project.root, path).map_err(Stop::Failed)?;
        let refused = |errno| Stop::Failed(spot.refused(errno));
        let existing = match (&spot.existing, &work.seen) {
            (None, None) => None,
            (Some(there), Some(seen)) if Stamp::of(&there.stat) == seen.stamp => {
                Some(postern_kit::root::open_file(there).map_err(Stop::Failed)?)
            }
            _ => return Err(stale(path)),
        };
        let mut one = Move {
            path: path.clone(),
            directory: parent_of(path),
            name: spot.name.clone(),
            aside: names::temporary(ReceiptId::generate()),
            seen: work.seen,
            placed: None,
            named: false,
        };
        if let Some(wanted) = &work.file.wanted {
            let parents = spot.make_parents().map_err(refused)?;
            self.made.extend(spot.made(&parents));
            let (directory, aside) = (parents.last.as_fd(), ReceiptId::generate());
            let staged = match (&existing, &work.seen) {
                (Some(file), Some(_)) => {
                    let stat = rustix::fs::fstat(file).map_err(refused)?;
                    Staged::replacing(directory, aside, file, &stat)
                }
                _ => Staged::create(directory, aside),
            };
            let filled = staged.map_err(refused).and_then(|staged| {
                let told = store.tell(wanted, &mut staged.content());
                told.map_err(|error| told_wrong(&spot, path, error))?;
                if let Some(mode) = work.file.mode {
                    let mode = Mode::from_raw_mode(mode & KEPT_BITS);
                    rustix::fs::fchmod(staged.content(), mode).map_err(refused)?;
                }
                staged.park().map_err(refused)
            });
            let (file, name) = filled?;
            // Of many the descriptor is not held, which would tell that it is no left-over.
            self.project.left_overs.keep(&name);
            (one.aside, one.named) = (name, true);
            let placed = Stamp::of_file(&file).map_err(|error| Stop::Failed(spot.failed(&error)));
            one.placed = match placed {
                Ok(placed) => Some(placed),
                Err(stop) => {
                    one.remove_aside(self.project);
                    let gone = [one.aside.as_str()].into_iter();
                    self.project.left_overs.let_go(gone);
                    return Err(stop);
                }
            };
            if !many {
                self.held.push(file);
            }
        }
        self.moves.push(one);
        self.keep(store, existing.as_ref(), work, many)
    }

    /// What a file is goes to the store, so that this can be taken back too.
    fn keep(
        &mut self,
        store: &'a Store,
        existing: Option<&File>,
        work: &Work,
        many: bool,
    ) -> Result<(), Stop> {
        let (Some(file), Some(seen)) = (existing, &work.seen) else {
            return Ok(());
        };
        match store.stage(file, seen.stamp.size, seen.sha256) {
            Ok(store::Staged::New(mut image)) => {
                if many {
                    image.close();
                }
                self.images.push(image);
                Ok(())
            }
            Ok(store::Staged::TooLarge | store::Staged::There) => Ok(()),
            Err(store::Error::Changed) => Err(stale(&work.file.path)),
            Err(error) => Err(Stop::Failed(keeping::not_kept(&error, &work.file.path))),
        }
    }

    /// Makes durable what is staged.
    fn settle(&mut self, store: &Store, many: bool) -> Result<(), Stop> {
        let failed = |error: Errno| Stop::Failed(refusal::system(&error.into(), "."));
        if many {
            let directories = self.moves.iter().map(|one| one.directory.as_path());
            sync_file_systems(self.project, directories).map_err(failed)?;
        }
        for file in self.held.drain(..) {
            self.project.disk.sync_file(&file).map_err(failed)?;
        }
        let images = std::mem::take(&mut self.images);
        let kept = store.commit(images);
        kept.map_err(|error| Stop::Failed(keeping::not_kept(&error, ".")))
    }

    /// Every file, one after the other; when one cannot, those before it change back.
    fn change_places(&mut self) -> Result<(), Stop> {
        for at in 0..self.moves.len() {
            postern_kit::fault_point!(crate::fault_points::RESTORE_BEFORE_EACH);
            let Err(stop) = change_place(self.project, &mut self.moves[at]) else {
                continue;
            };
            self.changed_back = at > 0;
            return Err(self.change_all_back(at, stop));
        }
        Ok(())
    }

    /// Changes the first of them back, each whatever becomes of the others: what somebody has made of one since is his, and told.
    fn change_all_back(&mut self, count: usize, mut why: Stop) -> Stop {
        for one in self.moves[..count].iter_mut().rev() {
            match (change_back(self.project, one), &mut why) {
                (Ok(()), _) => {}
                (Err(Errno::BUSY | Errno::EXIST), Stop::Hindered(hindrances)) => {
                    hindrances.push(changed_meanwhile(&one.path));
                }
                (Err(Errno::BUSY | Errno::EXIST), Stop::Failed(_)) => {}
                (Err(error), _) => {
                    tracing::error!(%error, "files that were taken back could not be put back");
                    // What lies beside it is the only one of its kind by that name.
                    one.named = false;
                    why = Stop::Failed(torn(&one.path));
                }
            }
        }
        why
    }

    /// Removes what was replaced.
    fn remove_replaced(&mut self) {
        for one in &mut self.moves {
            one.remove_aside(self.project);
        }
    }
}

impl Drop for Ready<'_> {
    fn drop(&mut self) {
        self.remove_replaced();
        let left_overs = &self.project.left_overs;
        left_overs.let_go(self.moves.iter().map(|one| one.aside.as_str()));
        remove_directories(self.project, &self.made, &mut BTreeSet::new());
    }
}

/// Removes directories that are empty now, the innermost first, and tells those that are not.
fn remove_directories(
    project: &Project,
    directories: &BTreeSet<PathBuf>,
    synced: &mut BTreeSet<PathBuf>,
) -> Vec<String> {
    let mut kept = Vec::new();
    // In this order a directory comes before what is in it.
    for path in directories.iter().rev() {
        let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
            continue;
        };
        let removed = project
            .root
            .open_beneath(above, DIRECTORY)
            .and_then(|above| rustix::fs::unlinkat(above, name, AtFlags::REMOVEDIR));
        match removed {
            Ok(()) => {
                synced.remove(path);
                synced.insert(above.to_owned());
            }
            Err(Errno::NOENT) => {
                synced.remove(path);
            }
            Err(_) => kept.push(path.to_string_lossy().into_owned()),
        }
    }
    kept
}

/// Removes what dead processes left: an interrupted undo too, of which everything may be done but that.
fn sweep(project: &Project, directories: &BTreeSet<PathBuf>) {
    for path in directories {
        if let Ok(directory) = project.root.open_beneath(path, DIRECTORY) {
            project.left_overs.remove(directory.as_fd());
        }
    }
}

/// Makes durable the whole of each file system that one of the directories is on.
fn sync_file_systems<'a>(
    project: &Project,
    directories: impl Iterator<Item = &'a Path>,
) -> rustix::io::Result<()> {
    let mut synced = BTreeSet::new();
    for path in directories {
        let directory = match project.root.open_beneath(path, DIRECTORY) {
            Ok(directory) => directory,
            // It went with what was in it, by this or by somebody else.
            Err(Errno::NOENT | Errno::NOTDIR) => continue,
            Err(errno) => return Err(errno),
        };
        if synced.insert(rustix::fs::fstat(&directory)?.st_dev) {
            rustix::fs::syncfs(directory)?;
        }
    }
    Ok(())
}

/// Makes durable what changed in directories.
fn sync(project: &Project, directories: &BTreeSet<PathBuf>, many: bool) -> rustix::io::Result<()> {
    if many {
        return sync_file_systems(project, directories.iter().map(PathBuf::as_path));
    }
    for path in directories {
        match project.root.open_beneath(path, DIRECTORY) {
            Ok(directory) => project.disk.sync_directory(directory)?,
            // It went with what was in it, by this or by somebody else.
            Err(Errno::NOENT | Errno::NOTDIR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

fn parent_of(path: impl AsRef<Path>) -> PathBuf {
    path.as_ref()
        .parent()
        .map(Path::to_owned)
        .unwrap_or_default()
}

fn told_wrong(spot: &Spot, path: &str, error: store::Error) -> Stop {
    match error {
        store::Error::Gone | store::Error::Damaged | store::Error::Changed => {
            Stop::Hindered(vec![not_kept(path)])
        }
        store::Error::Io(error) => Stop::Failed(spot.failed(&error)),
    }
}

#[cfg(test)]
mod tests;
