//! Write, patch and delete (CONTRACT.md, section 3).
//!
//! A change is one blocking job: find the target, lock it, compare the revision, stage the new content, look once more,
//! and let it take its place. When the job needs something that takes time (the lock, the revision of a large file,
//! memory), it ends, the call waits without keeping a thread, and the job starts anew with what it needed.

use std::{fs::File, os::fd::AsFd as _, sync::Arc};

use postern_kit::{
    Failure,
    root::{self, Found},
};
use postern_types::{ErrorCode, Sha256};
use rustix::{
    fs::{AtFlags, FileType, Stat},
    io::Errno,
};
use tokio::sync::OwnedSemaphorePermit;

use crate::{
    guard::{Admission, Pass, Receipt},
    locks::{Held, Key},
    patch::{self, Occurrence},
    project::Project,
    refusal,
    revision::{Facts, SNAPSHOT_LIMIT, Scan, Scanned, Stamp, read_range},
    spot::Spot,
    staged::{self, Staged},
};

/// How often a change is begun before it is given up, because others keep changing the target.
const ROUNDS: usize = 16;

/// A change that is wanted.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) receipt: Receipt,
    pub(crate) path: String,
    /// Revision that the file must have; none means that it must not exist.
    pub(crate) expected: Option<Sha256>,
    pub(crate) kind: Kind,
}

/// What is wanted.
#[derive(Debug)]
pub(crate) enum Kind {
    /// This content.
    Write { content: String },
    /// One text in another's place.
    Patch { old: String, new: String },
    /// No file.
    Delete,
}

/// A change that was made.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) path: String,
    pub(crate) resolved: Option<String>,
    /// Revision before; none for a new file.
    pub(crate) previous: Option<Sha256>,
    /// The new content's revision and size; none after a deletion.
    pub(crate) now: Option<(Sha256, u64)>,
    /// Where a patch went.
    pub(crate) occurrence: Option<Occurrence>,
}

/// What a call holds while it waits and works. Dropped in this order, the gate last.
#[derive(Debug)]
struct Ticket {
    admission: Option<Admission>,
    lock: Option<Held>,
    memory: Option<OwnedSemaphorePermit>,
    known: Option<(Stamp, Sha256)>,
    pass: Pass,
}

/// How a job ended.
#[derive(Debug)]
enum Next {
    Done(Done),
    /// Another call has the target.
    Lock(Key),
    /// The file is large and is to be held in memory.
    Memory,
    /// The file is large and its revision is not known.
    Revision(Arc<File>, Stamp),
    /// Somebody else changed the target meanwhile.
    Again,
}

/// The content of a file that is to be patched.
#[derive(Debug)]
pub(crate) enum Loaded {
    /// All of it, and the file's state.
    Whole(Vec<u8>, Stat),
    /// It needs a permit first.
    NeedsMemory,
    /// It changed meanwhile.
    Changed,
}

impl Project {
    /// Makes a change, once.
    pub(crate) async fn change(self: &Arc<Self>, order: Order) -> Result<Done, Failure> {
        if let Kind::Patch { old, new } = &order.kind {
            patch::validate(old, new)?;
        }
        let order = Arc::new(order);
        let mut ticket = Ticket {
            admission: None,
            lock: None,
            memory: None,
            known: None,
            pass: self.guard.pass().await,
        };
        for _ in 0..ROUNDS {
            let (project, wanted) = (Arc::clone(self), Arc::clone(&order));
            // The ticket goes with the job, which goes on when the caller goes away.
            let (next, returned) = self
                .jobs
                .run(move || {
                    let next = Attempt::begin(&project, &wanted, &mut ticket);
                    (next, ticket)
                })
                .await?;
            ticket = returned;
            match next? {
                Next::Done(done) => return Ok(done),
                Next::Again => {}
                Next::Memory => ticket.memory = Some(self.memory().await?),
                Next::Lock(key) => {
                    // Nobody waits for a lock with something in hand that the lock's holder may wait for.
                    (ticket.memory, ticket.lock) = (None, None);
                    ticket.lock = Some(self.locks.lock(&key).await);
                }
                Next::Revision(file, stamp) => {
                    let facts = self.revision(&file, stamp).await?;
                    ticket.known = facts.map(|facts| (stamp, facts.sha256));
                }
            }
        }
        Err(refusal::busy("The file keeps changing. Try again."))
    }

    /// Leave to hold a large file in memory.
    pub(crate) async fn memory(&self) -> Result<OwnedSemaphorePermit, Failure> {
        let permits = Arc::clone(&self.memory);
        permits
            .acquire_owned()
            .await
            .map_err(|_| refusal::internal())
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

    /// Loads a file that is to be patched.
    pub(crate) fn load(
        &self,
        file: &File,
        has_memory: bool,
        shown: &str,
    ) -> Result<Loaded, Failure> {
        let stat = rustix::fs::fstat(file).map_err(|errno| root::refusal(errno, shown))?;
        let size = Stamp::of(&stat).size;
        self.patchable(size, shown)?;
        if size > SNAPSHOT_LIMIT && !has_memory {
            return Ok(Loaded::NeedsMemory);
        }
        let length = usize::try_from(size)
            .unwrap_or(usize::MAX)
            .saturating_add(1);
        let content =
            read_range(file, 0, length).map_err(|error| refusal::system(&error, shown))?;
        if content.len() as u64 == size {
            Ok(Loaded::Whole(content, stat))
        } else {
            Ok(Loaded::Changed)
        }
    }

    /// Refuses sizes that a patch neither starts from nor leaves.
    pub(crate) fn patchable(&self, size: u64, shown: &str) -> Result<(), Failure> {
        let limit = self.bounds.patch_limit;
        if size <= limit {
            return Ok(());
        }
        let message = format!(
            "'{shown}' has or would have {size} bytes; a patched file has at most {limit}."
        );
        Err(refusal::too_large(message, limit, size))
    }
}

/// One job on a change.
struct Attempt<'a> {
    project: &'a Project,
    order: &'a Order,
    ticket: &'a mut Ticket,
    spot: Spot,
}

/// The existing file that a change starts from.
struct Current {
    file: Arc<File>,
    stat: Stat,
    sha256: Sha256,
    /// For a patch.
    content: Vec<u8>,
}

impl<'a> Attempt<'a> {
    fn begin(
        project: &'a Project,
        order: &'a Order,
        ticket: &'a mut Ticket,
    ) -> Result<Next, Failure> {
        let spot = match order.kind {
            Kind::Write { .. } | Kind::Patch { .. } => Spot::of_target(&project.root, &order.path)?,
            Kind::Delete => Spot::of_entry(&project.root, &order.path)?,
        };
        let key = spot.key()?;
        if ticket.lock.as_ref().is_none_or(|held| held.key != key) {
            ticket.lock = None;
            match project.locks.try_lock(&key) {
                Some(held) => ticket.lock = Some(held),
                None => return Ok(Next::Lock(key)),
            }
        }
        if ticket.admission.is_none() {
            ticket.admission = Some(project.guard.admit(&order.receipt, &ticket.pass)?);
        }
        let mut attempt = Self {
            project,
            order,
            ticket,
            spot,
        };
        match attempt.spot.existing.take() {
            Some(found) => attempt.change_existing(&found),
            None => attempt.create(),
        }
    }

    fn create(self) -> Result<Next, Failure> {
        let shown = &self.spot.place.shown;
        let Kind::Write { content } = &self.order.kind else {
            return Err(refusal::not_found(shown));
        };
        if self.order.expected.is_some() {
            return Err(refusal::stale(shown, None));
        }
        let parents = match self.spot.make_parents() {
            Err(Errno::NOENT) => return Ok(Next::Again),
            answer => answer.map_err(|errno| self.spot.refused(errno))?,
        };
        let staged = Staged::create(parents.last.as_fd(), self.order.receipt.id)
            .map_err(std::io::Error::from)
            .and_then(|mut staged| Ok((staged.write(&[content.as_bytes()])?, staged)));
        let created = match staged {
            Ok(_) if !self.spot.directory_unmoved(&self.project.root) => Err(Errno::NOENT),
            Ok((sha256, staged)) => staged.create_as(&self.spot.name).map(|()| sha256),
            Err(error) => Err(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
        };
        let sha256 = match created {
            Ok(sha256) => sha256,
            Err(errno) => {
                parents.remove();
                // The name was taken, or the directory deleted, since the look at it.
                return if matches!(errno, Errno::EXIST | Errno::NOENT) {
                    Ok(Next::Again)
                } else {
                    Err(self.spot.refused(errno))
                };
            }
        };
        let durable = parents.sync();
        self.done(durable, None, Some((sha256, content.len() as u64)), None)
    }

    fn change_existing(self, found: &Found) -> Result<Next, Failure> {
        let shown = &self.spot.place.shown;
        if found.file_type() == FileType::Symlink {
            return Err(refusal::is_link(shown));
        }
        let file = Arc::new(root::open_file(found)?);
        if self.order.expected.is_none() && matches!(self.order.kind, Kind::Write { .. }) {
            return Err(refusal::already_exists(shown));
        }
        let current = match self.current(file)? {
            Ok(current) => current,
            Err(next) => return Ok(next),
        };
        if self.order.expected != Some(current.sha256) {
            return Err(refusal::stale(shown, Some(current.sha256)));
        }
        match &self.order.kind {
            Kind::Write { content } => self.replace(&current, &[content.as_bytes()], None),
            Kind::Patch { old, new } => {
                let found = self.project.occurrence(&current.content, old, new, shown)?;
                let (before, rest) = current.content.split_at(found.offset);
                let parts = [before, new.as_bytes(), &rest[old.len()..]];
                self.replace(&current, &parts, Some(found))
            }
            Kind::Delete => self.delete(&current),
        }
    }

    /// The file as it is, or what is needed to know.
    fn current(&self, file: Arc<File>) -> Result<Result<Current, Next>, Failure> {
        let shown = &self.spot.place.shown;
        let (content, stat, sha256) = if matches!(self.order.kind, Kind::Patch { .. }) {
            match self
                .project
                .load(&file, self.ticket.memory.is_some(), shown)?
            {
                Loaded::NeedsMemory => return Ok(Err(Next::Memory)),
                Loaded::Changed => return Ok(Err(Next::Again)),
                Loaded::Whole(content, stat) => {
                    let sha256 = Sha256::of(&content);
                    (content, stat, sha256)
                }
            }
        } else {
            let stat = rustix::fs::fstat(&*file).map_err(|errno| self.spot.refused(errno))?;
            let stamp = Stamp::of(&stat);
            let known = self.ticket.known.filter(|(known, _)| *known == stamp);
            let remembered = || {
                self.project
                    .revisions
                    .remembered(&stamp)
                    .map(|facts| facts.sha256)
            };
            let sha256 = match known.map(|(_, sha256)| sha256).or_else(remembered) {
                Some(sha256) => sha256,
                None if stamp.size > SNAPSHOT_LIMIT => return Ok(Err(Next::Revision(file, stamp))),
                None => self.small_revision(&file, stamp)?,
            };
            (Vec::new(), stat, sha256)
        };
        Ok(Ok(Current {
            file,
            stat,
            sha256,
            content,
        }))
    }

    fn small_revision(&self, file: &File, stamp: Stamp) -> Result<Sha256, Failure> {
        let length = usize::try_from(stamp.size).unwrap_or(usize::MAX);
        let content = read_range(file, 0, length).map_err(|error| self.spot.failed(&error))?;
        Ok(Scan::of(&content).sha256)
    }

    fn replace(
        self,
        current: &Current,
        parts: &[&[u8]],
        occurrence: Option<Occurrence>,
    ) -> Result<Next, Failure> {
        let directory = self.spot.directory.as_fd();
        let mut staged = Staged::replacing(
            directory,
            self.order.receipt.id,
            &current.file,
            &current.stat,
        )
        .map_err(|errno| self.spot.refused(errno))?;
        let sha256 = staged
            .write(parts)
            .map_err(|error| self.spot.failed(&error))?;
        if !self
            .spot
            .unchanged(&self.project.root, &Stamp::of(&current.stat))
        {
            return Ok(Next::Again);
        }
        staged
            .replace(&self.spot.name)
            .map_err(|errno| self.spot.refused(errno))?;
        let durable = staged::sync_directory(directory);
        let size = parts.iter().map(|part| part.len() as u64).sum();
        self.done(
            durable,
            Some(current.sha256),
            Some((sha256, size)),
            occurrence,
        )
    }

    fn delete(self, current: &Current) -> Result<Next, Failure> {
        if !self
            .spot
            .unchanged(&self.project.root, &Stamp::of(&current.stat))
        {
            return Ok(Next::Again);
        }
        let directory = self.spot.directory.as_fd();
        rustix::fs::unlinkat(directory, &self.spot.name, AtFlags::empty())
            .map_err(|errno| self.spot.refused(errno))?;
        let durable = staged::sync_directory(directory);
        self.done(durable, Some(current.sha256), None, None)
    }

    /// The change has happened; whether it will last is what the file system said.
    fn done(
        self,
        durable: rustix::io::Result<()>,
        previous: Option<Sha256>,
        now: Option<(Sha256, u64)>,
        occurrence: Option<Occurrence>,
    ) -> Result<Next, Failure> {
        if let Some(admission) = &mut self.ticket.admission {
            admission.done();
        }
        let place = self.spot.place;
        if let Err(error) = durable {
            tracing::error!(%error, "a change could not be made durable");
            return Err(refusal::not_durable(&place.shown));
        }
        Ok(Next::Done(Done {
            resolved: place.resolved(),
            path: place.shown,
            previous,
            now,
            occurrence,
        }))
    }
}
