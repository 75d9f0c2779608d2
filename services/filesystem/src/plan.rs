//! What a patch would do, and what a change that may have happened has left.

use std::{fs::File, os::fd::AsFd as _, sync::Arc};

use postern_kit::{Failure, root};
use postern_proto::filesystem::v1::{InspectResponse, PlanPatchResponse};
use postern_types::{ErrorCode, Sha256};
use sha2::Digest as _;

use crate::{
    change::Loaded,
    guard::Receipt,
    names,
    patch::{self, Occurrence},
    project::Project,
    refusal,
    revision::{Facts, SNAPSHOT_LIMIT, Scan, Stamp, read_range},
    spot::Spot,
    staged,
};

/// How often a file that changes meanwhile is looked at.
const ROUNDS: usize = 8;

/// A patch that is to be planned.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) path: String,
    pub(crate) old: String,
    pub(crate) new: String,
    pub(crate) expected: Option<Sha256>,
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
    /// What a patch would do.
    pub(crate) async fn plan(self: &Arc<Self>, plan: Plan) -> Result<PlanPatchResponse, Failure> {
        patch::validate(&plan.old, &plan.new)?;
        let plan = Arc::new(plan);
        let mut memory = None;
        for _ in 0..ROUNDS {
            let (project, wanted) = (Arc::clone(self), Arc::clone(&plan));
            let permit = memory.take();
            let (answer, permit) = self
                .jobs
                .run(move || (project.plan_once(&wanted, permit.is_some()), permit))
                .await?;
            match answer? {
                Ok(planned) => return Ok(planned),
                Err(Loaded::NeedsMemory) => memory = Some(self.memory().await?),
                Err(Loaded::Changed | Loaded::Whole(..)) => memory = permit,
            }
        }
        Err(refusal::busy("The file keeps changing. Try again."))
    }

    /// Fences older incarnations, removes what an unfinished change left, and tells the present revision.
    pub(crate) async fn inspect(
        self: &Arc<Self>,
        receipt: Receipt,
        path: String,
    ) -> Result<InspectResponse, Failure> {
        self.guard.fence(&receipt).await?;
        for _ in 0..ROUNDS {
            let (project, path, receipt) = (Arc::clone(self), path.clone(), receipt.clone());
            let look = self
                .jobs
                .run(move || project.inspect_once(&path, &receipt))
                .await??;
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

    /// Finds where a patch goes and refuses a result that would be too large.
    pub(crate) fn occurrence(
        &self,
        content: &[u8],
        old: &str,
        new: &str,
        shown: &str,
    ) -> Result<Occurrence, Failure> {
        let found = patch::find(content, old, shown)?;
        let size = content.len() - old.len() + new.len();
        self.patchable(size as u64, shown)?;
        Ok(found)
    }

    fn plan_once(
        &self,
        plan: &Plan,
        has_memory: bool,
    ) -> Result<Result<PlanPatchResponse, Loaded>, Failure> {
        let found = self.root.find(&plan.path)?;
        names::allowed(&found.place.path)?;
        let file = root::open_file(&found)?;
        let shown = &found.place.shown;
        let content = match self.load(&file, has_memory, shown)? {
            Loaded::Whole(content, _) => content,
            other @ (Loaded::NeedsMemory | Loaded::Changed) => return Ok(Err(other)),
        };
        let previous = Sha256::of(&content);
        if plan.expected != Some(previous) {
            return Err(refusal::stale(shown, Some(previous)));
        }
        let found = self.occurrence(&content, &plan.old, &plan.new, shown)?;
        let mut hash = sha2::Sha256::new();
        hash.update(&content[..found.offset]);
        hash.update(&plan.new);
        hash.update(&content[found.offset + plan.old.len()..]);
        Ok(Ok(PlanPatchResponse {
            previous_sha256: previous.to_string(),
            sha256: Sha256::from_bytes(hash.finalize().into()).to_string(),
            offset: u64::try_from(found.offset).unwrap_or(u64::MAX),
            line: found.line,
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
        let response = InspectResponse {
            sha256: None,
            size: None,
            path: spot.place.shown.clone(),
            resolved_path: spot.place.resolved(),
        };
        let Some(found) = &spot.existing else {
            return Ok(Look::Whole(response));
        };
        let file = root::open_file(found)?;
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

fn with_facts(response: InspectResponse, facts: &Facts) -> InspectResponse {
    InspectResponse {
        sha256: Some(facts.sha256.to_string()),
        size: Some(facts.size),
        ..response
    }
}
