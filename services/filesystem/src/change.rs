//! Write, patch and delete (CONTRACT.md, section 3).
//!
//! A change is one blocking job: find the target, lock it, compare the revision, stage the new content, look once more,
//! and let it take its place. When the job needs something that takes time (the lock, the revision of a large file,
//! memory), it ends, the call waits without keeping a thread, and the job starts anew with what it needed.

use std::{os::fd::AsFd as _, sync::Arc};

use postern_kit::Failure;
use postern_types::Sha256;
use rustix::{fs::AtFlags, io::Errno};

use crate::{
    before::{Change, Current, Hand, Kind, Need},
    guard::{Admission, Pass, Receipt},
    keeping::Kept,
    locks::{Held, Key},
    patch::Occurrence,
    project::Project,
    refusal,
    revision::Stamp,
    spot::Spot,
    staged::Staged,
};

/// How often a change is begun before it is given up, because others keep changing the target.
const ROUNDS: usize = 16;

/// A change that is to be made.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) receipt: Receipt,
    pub(crate) change: Change,
    /// For a write: the file's whole new content.
    pub(crate) content: String,
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
    hand: Hand,
    pass: Pass,
}

/// How a job ended.
#[derive(Debug)]
enum Next {
    Done(Done),
    /// Another call has the target.
    Lock(Key),
    Need(Need),
}

/// Somebody else changed the target meanwhile.
const AGAIN: Next = Next::Need(Need::Look);

impl Project {
    /// Makes a change, once.
    pub(crate) async fn change(self: &Arc<Self>, order: Order) -> Result<Done, Failure> {
        order.change.validate()?;
        let order = Arc::new(order);
        let mut ticket = Ticket {
            admission: None,
            lock: None,
            hand: Hand::default(),
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
                Next::Need(need) => self.meet(need, &mut ticket.hand).await?,
                Next::Lock(key) => {
                    // Nobody waits for a lock with something in hand that the lock's holder may wait for.
                    (ticket.hand.memory, ticket.lock) = (None, None);
                    ticket.lock = Some(self.locks.lock(&key).await);
                }
            }
        }
        Err(refusal::busy("The file keeps changing. Try again."))
    }
}

/// One job on a change.
struct Attempt<'a> {
    project: &'a Project,
    order: &'a Order,
    ticket: &'a mut Ticket,
    spot: Spot,
}

impl<'a> Attempt<'a> {
    fn begin(
        project: &'a Project,
        order: &'a Order,
        ticket: &'a mut Ticket,
    ) -> Result<Next, Failure> {
        let spot = project.spot(&order.change)?;
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
        let before = match project.examine(&order.change, &spot, &ticket.hand)? {
            Ok(before) => before,
            Err(need) => return Ok(Next::Need(need)),
        };
        postern_kit::fault_point!(crate::fault_points::ADMITTED);
        project.left_overs.remove(spot.directory.as_fd());
        let attempt = Self {
            project,
            order,
            ticket,
            spot,
        };
        match (before, &order.change.kind) {
            (None, _) => attempt.create(),
            (Some(current), Kind::Write) => {
                attempt.replace(&current, &[order.content.as_bytes()], None)
            }
            (Some(current), Kind::Patch { old, new }) => {
                let (content, found) = current.patch.as_ref().ok_or_else(refusal::internal)?;
                let (before, rest) = content.split_at(found.offset);
                let parts = [before, new.as_bytes(), &rest[old.len()..]];
                attempt.replace(&current, &parts, Some(*found))
            }
            (Some(current), Kind::Delete) => attempt.delete(&current),
        }
    }

    fn create(self) -> Result<Next, Failure> {
        let content = self.order.content.as_bytes();
        let parents = match self.spot.make_parents() {
            Err(Errno::NOENT) => return Ok(AGAIN),
            answer => answer.map_err(|errno| self.spot.refused(errno))?,
        };
        postern_kit::fault_point!(crate::fault_points::PARENTS);
        let staged = Staged::create(parents.last.as_fd(), self.order.receipt.id)
            .map_err(std::io::Error::from)
            .and_then(|mut staged| Ok((staged.write(&[content])?, staged)));
        let created = match staged {
            Ok(_) if !self.spot.directory_unmoved(&self.project.root) => Err(Errno::NOENT),
            Ok((sha256, staged)) => {
                postern_kit::fault_point!(crate::fault_points::LINK_BEFORE);
                let created = staged.create_as(&self.spot.name);
                postern_kit::fault_point!(crate::fault_points::LINK_AFTER);
                created.map(|()| sha256)
            }
            Err(error) => Err(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
        };
        let sha256 = match created {
            Ok(sha256) => sha256,
            Err(errno) => {
                parents.remove();
                // The name was taken, or the directory deleted, since the look at it.
                return match errno {
                    Errno::EXIST | Errno::NOENT => Ok(AGAIN),
                    Errno::OPNOTSUPP => Err(refusal::renames_plainly(&self.spot.place.shown)),
                    errno => Err(self.spot.refused(errno)),
                };
            }
        };
        let durable = parents.sync(&self.project.disk);
        self.done(durable, None, Some((sha256, content.len() as u64)), None)
    }

    fn replace(
        self,
        current: &Current,
        parts: &[&[u8]],
        occurrence: Option<Occurrence>,
    ) -> Result<Next, Failure> {
        let directory = self.spot.directory.as_fd();
        let keeping = self.project.keep(current);
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
        if keeping.wait(&self.spot.place.shown)? == Kept::Changed
            || !self
                .spot
                .unchanged(&self.project.root, &Stamp::of(&current.stat))
        {
            return Ok(AGAIN);
        }
        staged
            .replace(&self.spot.name)
            .map_err(|errno| self.spot.refused(errno))?;
        let durable = self.project.disk.sync_directory(directory);
        let size = parts.iter().map(|part| part.len() as u64).sum();
        self.done(
            durable,
            Some(current.sha256),
            Some((sha256, size)),
            occurrence,
        )
    }

    fn delete(self, current: &Current) -> Result<Next, Failure> {
        let kept = self.project.keep(current).wait(&self.spot.place.shown)?;
        if kept == Kept::Changed
            || !self
                .spot
                .unchanged(&self.project.root, &Stamp::of(&current.stat))
        {
            return Ok(AGAIN);
        }
        let directory = self.spot.directory.as_fd();
        postern_kit::fault_point!(crate::fault_points::DELETE_BEFORE);
        rustix::fs::unlinkat(directory, &self.spot.name, AtFlags::empty())
            .map_err(|errno| self.spot.refused(errno))?;
        postern_kit::fault_point!(crate::fault_points::DELETE_AFTER);
        let durable = self.project.disk.sync_directory(directory);
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
            admission.done(durable.is_ok());
        }
        postern_kit::fault_point!(crate::fault_points::DURABLE);
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
