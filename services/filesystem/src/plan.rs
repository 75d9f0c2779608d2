//! What a change would do, and what a change that may have happened has left.

use std::{fs::File, os::fd::AsFd as _, sync::Arc};

use postern_kit::{
    Failure,
    root::{self, Place},
};
use postern_proto::filesystem::v1::{InspectResponse, PlanLook};
use postern_types::{ErrorCode, Sha256};
use sha2::Digest as _;

use crate::{
    before::{Change, Current, Hand, Kind, Need, demand_place},
    guard::Receipt,
    names,
    patch::Occurrence,
    project::Project,
    refusal,
    revision::{Facts, SNAPSHOT_LIMIT, Scan, Stamp, read_range},
    spot::Spot,
    staged,
};

/// How often a file that changes meanwhile is looked at.
const ROUNDS: usize = 8;

/// What a change would do.
#[derive(Debug)]
pub(crate) struct Planned {
    /// Revision before; none where there is no file yet.
    pub(crate) previous: Option<Sha256>,
    /// For a patch: the revision that it would leave, and where it goes.
    pub(crate) patch: Option<(Sha256, Occurrence)>,
    /// Permission bits and size before.
    pub(crate) facts: Option<(u32, u64)>,
    /// Directories that it would make, the outermost first.
    pub(crate) new_directories: Vec<String>,
    /// Whether the bytes before would be kept.
    pub(crate) keeps: bool,
    /// Where the path leads.
    pub(crate) place: Place,
}

/// What one look at a file gave.
#[derive(Debug)]
enum Look {
    /// The answer.
    Whole(InspectResponse),
    /// The answer but for the revision of a large file.
    Large(InspectResponse, Arc<File>, Stamp),
    /// The file changed meanwhile.
    Changed,
}

impl Project {
    /// What a change would do, or why it cannot be made.
    pub(crate) async fn plan(self: &Arc<Self>, change: Change) -> Result<Planned, Failure> {
        change.validate()?;
        postern_kit::fault_point!(crate::fault_points::PLAN_BEFORE);
        let change = Arc::new(change);
        let mut hand = Hand::default();
        for _ in 0..ROUNDS {
            let (project, wanted) = (Arc::clone(self), Arc::clone(&change));
            let (answer, returned) = self
                .jobs
                .run(move || (project.plan_once(&wanted, &hand), hand))
                .await?;
            hand = returned;
            match answer? {
                Ok(planned) => {
                    postern_kit::fault_point!(crate::fault_points::PLAN_AFTER);
                    return Ok(planned);
                }
                Err(need) => self.meet(need, &mut hand).await?,
            }
        }
        Err(refusal::busy("The file keeps changing. Try again."))
    }

    /// Where a path leads, and with `place` whether there.
    pub(crate) async fn place(
        self: &Arc<Self>,
        path: String,
        how: PlanLook,
        place: Option<String>,
    ) -> Result<Place, Failure> {
        let project = Arc::clone(self);
        let found = self.jobs.run(move || project.place_once(&path, how));
        let found = found.await??;
        names::allowed(&found.path)?;
        demand_place(&found, place.as_deref())?;
        Ok(found)
    }

    fn place_once(&self, path: &str, how: PlanLook) -> Result<Place, Failure> {
        let found = match how.entry {
            true => self.root.find_entry(path),
            false => self.root.find(path),
        };
        match found {
            Err(failure) if how.missing && failure.code == ErrorCode::NotFound => {
                self.root.locate(path).map(|target| target.place)
            }
            found => found.map(|found| found.place),
        }
    }

    /// Fences older incarnations, removes what an unfinished change left, makes durable what is there, and tells its
    /// revision.
    pub(crate) async fn inspect(
        self: &Arc<Self>,
        receipt: Receipt,
        path: String,
    ) -> Result<InspectResponse, Failure> {
        if !self.guard.fence(&receipt).await? {
            // A later sync may succeed because the system has given up on what it could not write.
            return Err(refusal::not_durable(&path));
        }
        postern_kit::fault_point!(crate::fault_points::INSPECT_BEFORE);
        for _ in 0..ROUNDS {
            let (project, path, receipt) = (Arc::clone(self), path.clone(), receipt.clone());
            let look = self
                .jobs
                .run(move || project.inspect_once(&path, &receipt))
                .await??;
            postern_kit::fault_point!(crate::fault_points::INSPECT_AFTER);
            match look {
                Look::Whole(response) => return Ok(response),
                Look::Changed => {}
                Look::Large(response, file, stamp) => {
                    if let Some(facts) = self.revision(&file, stamp).await? {
                        return Ok(with_facts(response, &facts));
                    }
                }
            }
        }
        Err(refusal::busy("The file keeps changing. Try again."))
    }

    fn plan_once(&self, change: &Change, hand: &Hand) -> Result<Result<Planned, Need>, Failure> {
        let spot = self.spot(change)?;
        let before = match self.examine(change, &spot, hand)? {
            Ok(before) => before,
            Err(need) => return Ok(Err(need)),
        };
        let facts = before.as_ref().map(|current| {
            let size = u64::try_from(current.stat.st_size).unwrap_or_default();
            (current.stat.st_mode & staged::KEPT_BITS, size)
        });
        let kept = |size| self.store.as_ref().is_some_and(|store| store.keeps(size));
        Ok(Ok(Planned {
            new_directories: spot.new_directories(),
            keeps: facts.is_none_or(|(_, size)| kept(size)),
            facts,
            previous: before.as_ref().map(|current| current.sha256),
            patch: before.and_then(|current| patched(&current, &change.kind)),
            place: spot.place,
        }))
    }

    fn inspect_once(&self, path: &str, receipt: &Receipt) -> Result<Look, Failure> {
        let spot = match Spot::of_target(&self.root, path) {
            Ok(spot) => spot,
            // A link that leads to nothing: there is no such file.
            Err(failure) if failure.code == ErrorCode::NotFound => {
                return Ok(Look::Whole(InspectResponse {
                    path: path.to_owned(),
                    ..InspectResponse::default()
                }));
            }
            Err(failure) => return Err(failure),
        };
        staged::remove_left_over(spot.directory.as_fd(), receipt.id)
            .map_err(|errno| spot.refused(errno))?;
        // The process may have died between the change and its sync; what is told of must not be undone by a power cut.
        let lasting = |synced: rustix::io::Result<()>| {
            synced.map_err(|error| {
                tracing::error!(%error, "what a change left could not be made durable");
                refusal::not_lasting(&spot.place.shown)
            })
        };
        let response = InspectResponse {
            sha256: None,
            size: None,
            path: spot.place.shown.clone(),
            resolved_path: spot.place.resolved(),
        };
        let Some(found) = &spot.existing else {
            lasting(spot.sync_way(&self.root, &self.disk))?;
            return Ok(Look::Whole(response));
        };
        let file = root::open_file(found)?;
        lasting(self.disk.sync_file(&file))?;
        lasting(spot.sync_way(&self.root, &self.disk))?;
        let stamp = Stamp::of_file(&file).map_err(|error| spot.failed(&error))?;
        if stamp.size > SNAPSHOT_LIMIT {
            return Ok(Look::Large(response, Arc::new(file), stamp));
        }
        let content = read_range(&file, 0, SNAPSHOT_LIMIT as usize + 1)
            .map_err(|error| spot.failed(&error))?;
        if content.len() as u64 != stamp.size {
            return Ok(Look::Changed);
        }
        Ok(Look::Whole(with_facts(response, &Scan::of(&content))))
    }
}

/// For a patch: the revision that it would leave, and where it goes.
fn patched(current: &Current, kind: &Kind) -> Option<(Sha256, Occurrence)> {
    let ((content, found), Kind::Patch { old, new }) = (current.patch.as_ref()?, kind) else {
        return None;
    };
    let mut hash = sha2::Sha256::new();
    hash.update(&content[..found.offset]);
    hash.update(new);
    hash.update(&content[found.offset + old.len()..]);
    Some((Sha256::from_bytes(hash.finalize().into()), *found))
}

fn with_facts(response: InspectResponse, facts: &Facts) -> InspectResponse {
    InspectResponse {
        sha256: Some(facts.sha256.to_string()),
        size: Some(facts.size),
        ..response
    }
}

#[cfg(test)]
mod tests;
