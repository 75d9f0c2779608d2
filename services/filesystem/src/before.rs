//! What a change finds, and whether it can be made: the same for its plan and for the change itself.

use std::{fs::File, sync::Arc};

use postern_kit::{
    Failure,
    root::{self, Found, Place},
};
use postern_types::{ErrorCode, Sha256};
use rustix::fs::{FileType, Stat};
use tokio::sync::OwnedSemaphorePermit;

use crate::{
    names,
    patch::{self, Occurrence},
    project::Project,
    refusal,
    revision::{Facts, SNAPSHOT_LIMIT, Scan, Scanned, Stamp, read_range},
    spot::Spot,
};

/// A change that is wanted.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) path: String,
    /// Revision that the file must have; none means that it must not exist.
    pub(crate) expected: Option<Sha256>,
    /// Where the path must lead, if that matters.
    pub(crate) place: Option<String>,
    pub(crate) kind: Kind,
}

/// What is wanted.
#[derive(Debug)]
pub(crate) enum Kind {
    /// Other content. Which does not matter to what must be there before.
    Write,
    /// One text in another's place.
    Patch { old: String, new: String },
    /// No file.
    Delete,
}

/// What a call has waited for.
#[derive(Debug, Default)]
pub(crate) struct Hand {
    pub(crate) memory: Option<OwnedSemaphorePermit>,
    known: Option<(Stamp, Sha256)>,
}

/// What a job lacks to go on.
#[derive(Debug)]
pub(crate) enum Need {
    /// The file is large and is to be held in memory.
    Memory,
    /// The file is large and its revision is not known.
    Revision(Arc<File>, Stamp),
    /// Another look: somebody changed the target meanwhile.
    Look,
}

/// A file that is about to change.
#[derive(Debug)]
pub(crate) struct Current {
    pub(crate) file: Arc<File>,
    pub(crate) stat: Stat,
    pub(crate) sha256: Sha256,
    /// For a patch: the content, and where it goes.
    pub(crate) patch: Option<(Vec<u8>, Occurrence)>,
}

impl Change {
    /// Refuses what cannot be done to any file.
    pub(crate) fn validate(&self) -> Result<(), Failure> {
        match &self.kind {
            Kind::Patch { old, new } => patch::validate(old, new),
            Kind::Write | Kind::Delete => Ok(()),
        }
    }
}

impl Project {
    /// Where a change would happen. What was permitted for one place is not made at another.
    pub(crate) fn spot(&self, change: &Change) -> Result<Spot, Failure> {
        let spot = match change.kind {
            Kind::Write | Kind::Patch { .. } => Spot::of_target(&self.root, &change.path),
            Kind::Delete => Spot::of_entry(&self.root, &change.path),
        }?;
        demand_place(&spot.place, change.place.as_deref())?;
        Ok(spot)
    }

    /// What is at a path that is read; links that stay inside are followed. Nothing of what is elsewhere than `place` is told.
    pub(crate) fn find(&self, path: &str, place: Option<&str>) -> Result<Found, Failure> {
        let found = self.root.find(path)?;
        names::allowed(&found.place.path)?;
        demand_place(&found.place, place)?;
        Ok(found)
    }

    /// What is there (none is no file), or why the change cannot be made, or what is needed to know.
    pub(crate) fn examine(
        &self,
        change: &Change,
        spot: &Spot,
        hand: &Hand,
    ) -> Result<Result<Option<Current>, Need>, Failure> {
        let shown = &spot.place.shown;
        let Some(found) = &spot.existing else {
            return match (&change.kind, change.expected) {
                (Kind::Write, None) => Ok(Ok(None)),
                (Kind::Write, Some(_)) => Err(refusal::stale(shown, None)),
                (Kind::Patch { .. } | Kind::Delete, _) => Err(refusal::not_found(shown)),
            };
        };
        let file = Arc::new(open(found)?);
        let current = match &change.kind {
            Kind::Write if change.expected.is_none() => return Err(refusal::already_exists(shown)),
            Kind::Write | Kind::Delete => self.current(file, spot, hand)?,
            Kind::Patch { .. } => self.current_whole(file, spot, hand)?,
        };
        let (mut current, content) = match current {
            Ok(current) => current,
            Err(need) => return Ok(Err(need)),
        };
        if change.expected != Some(current.sha256) {
            return Err(refusal::stale(shown, Some(current.sha256)));
        }
        if let Kind::Patch { old, new } = &change.kind {
            let found = patch::find(&content, old, shown)?;
            let size = content.len() - old.len() + new.len();
            self.patchable(size as u64, shown)?;
            current.patch = Some((content, found));
        }
        Ok(Ok(Some(current)))
    }

    /// Waits for what a job lacked.
    pub(crate) async fn meet(&self, need: Need, hand: &mut Hand) -> Result<(), Failure> {
        match need {
            Need::Look => {}
            Need::Memory => {
                let permits = Arc::clone(&self.memory);
                let permit = permits.acquire_owned().await;
                hand.memory = Some(permit.map_err(|_| refusal::internal())?);
            }
            Need::Revision(file, stamp) => {
                let facts = self.revision(&file, stamp).await?;
                hand.known = facts.map(|facts| (stamp, facts.sha256));
            }
        }
        Ok(())
    }

    /// The facts of a large file, or none when it changed meanwhile.
    pub(crate) async fn revision(
        &self,
        file: &Arc<File>,
        stamp: Stamp,
    ) -> Result<Option<Facts>, Failure> {
        let wait = self.bounds.effect_wait;
        match self.revisions.scan_within(file, stamp, wait).await {
            Some(Scanned::Facts(facts)) => Ok(Some(facts)),
            Some(Scanned::Changed) => Ok(None),
            None => Err(Failure::new(
                ErrorCode::Unavailable,
                "The file is so large that its revision is still being computed. Nothing was done; try again.",
            )),
        }
    }

    /// The file by its revision.
    pub(crate) fn current(
        &self,
        file: Arc<File>,
        spot: &Spot,
        hand: &Hand,
    ) -> Result<Result<(Current, Vec<u8>), Need>, Failure> {
        let stat = rustix::fs::fstat(&*file).map_err(|errno| spot.refused(errno))?;
        let stamp = Stamp::of(&stat);
        let known = hand.known.filter(|(known, _)| *known == stamp);
        let remembered = || self.revisions.remembered(&stamp).map(|facts| facts.sha256);
        let sha256 = match known.map(|(_, sha256)| sha256).or_else(remembered) {
            Some(sha256) => sha256,
            None if stamp.size > SNAPSHOT_LIMIT => return Ok(Err(Need::Revision(file, stamp))),
            None => {
                let length = usize::try_from(stamp.size).unwrap_or(usize::MAX);
                let content = read_range(&file, 0, length).map_err(|error| spot.failed(&error))?;
                Scan::of(&content).sha256
            }
        };
        Ok(Ok((Current::new(file, stat, sha256), Vec::new())))
    }

    /// The file with its content, for a patch.
    fn current_whole(
        &self,
        file: Arc<File>,
        spot: &Spot,
        hand: &Hand,
    ) -> Result<Result<(Current, Vec<u8>), Need>, Failure> {
        let stat = rustix::fs::fstat(&*file).map_err(|errno| spot.refused(errno))?;
        let size = Stamp::of(&stat).size;
        self.patchable(size, &spot.place.shown)?;
        if size > SNAPSHOT_LIMIT && hand.memory.is_none() {
            return Ok(Err(Need::Memory));
        }
        let length = usize::try_from(size)
            .unwrap_or(usize::MAX)
            .saturating_add(1);
        let content = read_range(&file, 0, length).map_err(|error| spot.failed(&error))?;
        if content.len() as u64 != size {
            return Ok(Err(Need::Look));
        }
        let sha256 = Sha256::of(&content);
        Ok(Ok((Current::new(file, stat, sha256), content)))
    }

    /// Refuses sizes that a patch neither starts from nor leaves.
    fn patchable(&self, size: u64, shown: &str) -> Result<(), Failure> {
        let limit = self.bounds.patch_limit;
        if size <= limit {
            return Ok(());
        }
        let shown = root::brief(shown);
        let message = format!(
            "'{shown}' has or would have {size} bytes; a patched file has at most {limit}."
        );
        Err(refusal::too_large(message, limit, size))
    }
}

impl Current {
    const fn new(file: Arc<File>, stat: Stat, sha256: Sha256) -> Self {
        Self {
            file,
            stat,
            sha256,
            patch: None,
        }
    }
}

/// Refuses a path that does not lead where it must.
pub(crate) fn demand_place(found: &Place, wanted: Option<&str>) -> Result<(), Failure> {
    match wanted {
        Some(wanted) if wanted != found.real() => Err(refusal::elsewhere()),
        _ => Ok(()),
    }
}

fn open(found: &Found) -> Result<File, Failure> {
    if found.file_type() == FileType::Symlink {
        return Err(refusal::is_link(&found.place.shown));
    }
    root::open_file(found)
}
