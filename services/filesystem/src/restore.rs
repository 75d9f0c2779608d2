//! Taking files back to earlier states: all of them or none.
//!
//! Every file is looked at, then what it shall be is staged beside it and what it is goes to the store, then everything is
//! made durable, and only then the files change places ([`apply`]). Until the last of them has, all can change back.

mod apply;
mod places;

use std::{collections::HashSet, sync::Arc};

use postern_kit::Failure;
use postern_proto::filesystem::v1::{Hindrance, HindranceKind, RestoreFound, RestoreResponse};
use postern_types::{ErrorCode, Sha256};

use crate::{
    before::{Hand, Need},
    guard::Receipt,
    locks::{Held, Key},
    project::Project,
    refusal,
    revision::Stamp,
    spot::Spot,
    staged::KEPT_BITS,
};

/// Files of one request at most.
const FILES: usize = 20_000;
/// Directories that are to go with one file at most.
const DIRECTORIES: usize = 2048;
/// How often what somebody else changes meanwhile is looked at anew.
const ROUNDS: usize = 8;

/// One file that is to be taken back.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) path: String,
    /// Revision that it must be at; none means no file.
    pub(crate) expected: Option<Sha256>,
    /// Revision that it shall be at; none means no file.
    pub(crate) wanted: Option<Sha256>,
    /// Permission bits that it shall have, where they are not those that it has.
    pub(crate) mode: Option<u32>,
    /// Directories that go with it if they are empty then, the outermost first.
    pub(crate) directories: Vec<String>,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Step {
    Check,
    Apply,
    Resume,
    /// Back from what was begun; what is at neither revision is somebody's own and left to him.
    Revert,
}

impl Step {
    /// Whether something of it may have happened already.
    const fn is_gone_on_with(self) -> bool {
        matches!(self, Self::Resume | Self::Revert)
    }

    /// Whether the other files are changed although these cannot be.
    fn goes_past(self, hindrances: &[Hindrance]) -> bool {
        let is_kept = |one: &Hindrance| one.kind() != HindranceKind::NotKept;
        hindrances.is_empty() || self == Self::Revert && hindrances.iter().all(is_kept)
    }
}

/// A file as it was found.
#[derive(Clone, Copy, Debug)]
struct Seen {
    stamp: Stamp,
    sha256: Sha256,
    mode: u32,
}

/// What is to be done, and what is in the way.
#[derive(Debug, Default)]
struct Looked {
    work: Vec<Work>,
    hindrances: Vec<Hindrance>,
}

/// What is to be done about one file.
#[derive(Debug)]
struct Work {
    file: Wanted,
    seen: Option<Seen>,
    /// It is as wanted already.
    done: bool,
}

impl Project {
    /// Takes files back, or tells what is in the way.
    pub(crate) async fn restore(
        self: &Arc<Self>,
        receipt: Option<Receipt>,
        step: Step,
        files: Vec<Wanted>,
    ) -> Result<RestoreResponse, Failure> {
        validate(&files)?;
        if step == Step::Check {
            let looked = self.look_at_all(files, step).await?;
            return Ok(if looked.hindrances.is_empty() {
                found(&looked.work)
            } else {
                hindered(looked.hindrances)
            });
        }
        let receipt = receipt.ok_or_else(refusal::internal)?;
        let pass = self.guard.pass().await;
        let admission = match step {
            Step::Resume | Step::Revert => self.guard.resume(&receipt, &pass)?,
            Step::Check | Step::Apply => self.guard.admit(&receipt, &pass)?,
        };
        let files = Arc::new(files);
        let locks = self.lock_all(&files).await?;
        let looked = self.look_at_all(files.to_vec(), step).await?;
        if !step.goes_past(&looked.hindrances) {
            return Ok(hindered(looked.hindrances));
        }
        let project = Arc::clone(self);
        // What is held goes with the job, which goes on when the caller goes away.
        let done = self.jobs.run(move || {
            let mut held = (admission, locks, pass);
            let left = looked.hindrances;
            let answer = apply::apply(&project, looked.work, &left);
            match &answer {
                Ok(Ok(_)) => held.0.done(true),
                Ok(Err(_)) => {}
                Err(failure) if failure.effect == postern_kit::Effect::Unknown => {
                    held.0.done(false);
                }
                Err(_) => {}
            }
            (answer, left)
        });
        let (answer, left) = done.await?;
        match answer? {
            Ok(response) => Ok(RestoreResponse {
                hindrances: left,
                ..response
            }),
            // Whatever it is now, somebody has made it so since it was looked at, and that is left to him.
            Err(hindrances) if step == Step::Revert && step.goes_past(&hindrances) => {
                Err(refusal::busy("The files keep changing. Try again."))
            }
            Err(hindrances) => Ok(hindered(hindrances)),
        }
    }

    /// Locks every target. Whoever changes a single one never waits for another while it holds it, and everybody who wants
    /// several takes them in one order.
    async fn lock_all(self: &Arc<Self>, files: &Arc<Vec<Wanted>>) -> Result<Vec<Held>, Failure> {
        let mut keys = self.keys(files).await?;
        for _ in 0..ROUNDS {
            let mut locks = Vec::with_capacity(keys.len());
            for key in &keys {
                locks.push(self.locks.lock(key).await);
            }
            let now = self.keys(files).await?;
            if now == keys {
                return Ok(locks);
            }
            drop(locks);
            keys = now;
        }
        Err(refusal::busy("The files keep changing. Try again."))
    }

    async fn keys(self: &Arc<Self>, files: &Arc<Vec<Wanted>>) -> Result<Vec<Key>, Failure> {
        let (project, files) = (Arc::clone(self), Arc::clone(files));
        self.jobs
            .run(move || {
                let mut keys: Vec<Key> = files
                    .iter()
                    // A path that cannot be used is told of when it is looked at.
                    .filter_map(|file| Spot::of_target(&project.root, &file.path).ok())
                    .filter_map(|spot| spot.key().ok())
                    .collect();
                keys.sort_unstable();
                keys.dedup();
                keys
            })
            .await
    }

    /// Looks at every file, and tells all that is in the way.
    async fn look_at_all(
        self: &Arc<Self>,
        files: Vec<Wanted>,
        step: Step,
    ) -> Result<Looked, Failure> {
        let mut looked = Looked::default();
        for file in files {
            match self.look_at(file, step).await? {
                Ok(one) => looked.work.push(one),
                Err(hindrance) => looked.hindrances.push(hindrance),
            }
        }
        Ok(looked)
    }

    async fn look_at(
        self: &Arc<Self>,
        file: Wanted,
        step: Step,
    ) -> Result<Result<Work, Hindrance>, Failure> {
        let (file, mut hand) = (Arc::new(file), Hand::default());
        for _ in 0..ROUNDS {
            let (project, wanted) = (Arc::clone(self), Arc::clone(&file));
            let (answer, returned) = self
                .jobs
                .run(move || (project.look_once(&wanted, &hand, step), hand))
                .await?;
            hand = returned;
            match answer {
                Ok(Ok(looked)) => return Ok(looked),
                Ok(Err(need)) => self.meet(need, &mut hand).await?,
                // What passes, or is the system's fault, is nothing that stands in the way for good.
                Err(failure)
                    if matches!(
                        failure.code,
                        ErrorCode::Busy | ErrorCode::Unavailable | ErrorCode::Internal
                    ) =>
                {
                    return Err(failure);
                }
                Err(failure) => return Ok(Err(refused(&file.path, &failure))),
            }
        }
        Err(refusal::busy("The file keeps changing. Try again."))
    }

    fn look_once(
        &self,
        file: &Wanted,
        hand: &Hand,
        step: Step,
    ) -> Result<Result<Result<Work, Hindrance>, Need>, Failure> {
        let spot = Spot::of_target(&self.root, &file.path)?;
        if spot.place.real() != file.path {
            let message = "A link stands on the way to it now. Look at what became of it.";
            return Ok(Ok(Err(hindrance(
                &file.path,
                HindranceKind::Refused,
                message,
            ))));
        }
        let seen = match &spot.existing {
            None => None,
            Some(found) => {
                let opened = Arc::new(postern_kit::root::open_file(found)?);
                match self.current(opened, &spot, hand)? {
                    Err(need) => return Ok(Err(need)),
                    Ok((current, _)) => Some(Seen {
                        stamp: Stamp::of(&current.stat),
                        sha256: current.sha256,
                        mode: current.stat.st_mode & KEPT_BITS,
                    }),
                }
            }
        };
        Ok(Ok(self.compare(file, seen, step)))
    }

    fn compare(&self, file: &Wanted, seen: Option<Seen>, step: Step) -> Result<Work, Hindrance> {
        let present = seen.map(|seen| seen.sha256);
        // Where only the mode is to change, the content does not tell.
        let has_its_mode = || seen.map(|seen| seen.mode) == file.mode.map(|mode| mode & KEPT_BITS);
        let done = step.is_gone_on_with()
            && present == file.wanted
            && (file.expected != file.wanted || has_its_mode());
        if !done && present != file.expected {
            let message = "It was changed since.";
            return Err(Hindrance {
                current_sha256: present.map(|sha256| sha256.to_string()),
                ..hindrance(&file.path, HindranceKind::Stale, message)
            });
        }
        if let Some(wanted) = file.wanted.filter(|_| !done)
            && !self.store.as_ref().is_some_and(|store| store.has(&wanted))
        {
            return Err(not_kept(&file.path));
        }
        Ok(Work {
            file: file.clone(),
            seen,
            done,
        })
    }
}

/// Refuses what is no set of files to be taken back.
fn validate(files: &[Wanted]) -> Result<(), Failure> {
    let refused = |rule, message: &str| Err(refusal::invalid("/files", rule, message));
    if files.is_empty() || files.len() > FILES {
        return refused("maxItems", "A restoration is of 1 to 20000 files.");
    }
    let mut paths = HashSet::with_capacity(files.len());
    for file in files {
        if !paths.insert(file.path.as_str()) {
            return refused("uniqueItems", "Each file is taken back once.");
        }
        let gets_a_mode = file.wanted.is_some() && file.mode.is_some();
        if file.expected == file.wanted && !gets_a_mode {
            return refused("not", "A file is taken back to another state.");
        }
        if file.directories.len() > DIRECTORIES {
            return refused("maxItems", "Too many directories go with one file.");
        }
    }
    Ok(())
}

fn hindrance(path: &str, kind: HindranceKind, message: &str) -> Hindrance {
    Hindrance {
        path: path.to_owned(),
        kind: kind.into(),
        current_sha256: None,
        message: message.to_owned(),
    }
}

fn not_kept(path: &str) -> Hindrance {
    let message = "The bytes that it shall have are not kept: they were too large, were kept too long ago, or nothing is kept.";
    hindrance(path, HindranceKind::NotKept, message)
}

fn refused(path: &str, failure: &Failure) -> Hindrance {
    let kind = if failure.code == ErrorCode::StaleRevision {
        HindranceKind::Stale
    } else {
        HindranceKind::Refused
    };
    hindrance(path, kind, &failure.message)
}

fn hindered(hindrances: Vec<Hindrance>) -> RestoreResponse {
    RestoreResponse {
        hindrances,
        ..RestoreResponse::default()
    }
}

fn found(work: &[Work]) -> RestoreResponse {
    RestoreResponse {
        found: work
            .iter()
            .map(|one| RestoreFound {
                mode: one.seen.map(|seen| seen.mode),
            })
            .collect(),
        ..RestoreResponse::default()
    }
}
