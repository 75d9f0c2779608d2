//! The live workers, as the ledger told last, and how loaded each is thought to be.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use postern_kit::{
    Failure,
    transport::{MESSAGE_LIMIT, Transport},
};
use postern_proto::{
    exec::v1::exec_client::ExecClient,
    ledger::v1::{self as proto, ListWorkersRequest, LiveWorker, workers_client::WorkersClient},
};
use postern_types::ErrorCode;
use tokio::time::Instant;

use super::{Connect, Ground};
use crate::clients::hop_within;

/// Age of what the ledger told after which it is asked again.
const FRESH: Duration = Duration::from_millis(250);
/// Time that the ledger has to tell. What it told before serves then.
const LIST_LIMIT: Duration = Duration::from_secs(3);
/// Time for which a worker that did not answer comes last.
const DOUBT: Duration = Duration::from_secs(5);

/// A worker that can be asked.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) id: String,
    /// It did not answer lately.
    pub(super) is_doubted: bool,
    pub(super) client: ExecClient<Transport>,
}

/// What became of asking the ledger.
#[derive(Debug, Default)]
struct Told {
    /// When it had answered last, or not.
    asked: Option<Instant>,
    /// Why it has not told anything yet.
    failed: Option<Failure>,
    /// Whether it has ever told.
    ever: bool,
}

/// The live workers.
pub(super) struct Registry {
    ledger: WorkersClient<Transport>,
    connect: Connect,
    own: Ground,
    known: Mutex<Vec<Known>>,
    /// Workers that cannot be used, and why.
    unusable: Mutex<HashMap<String, Unusable>>,
    /// Held while the ledger is asked: who waits for it goes by what it says then.
    told: tokio::sync::Mutex<Told>,
    turn: AtomicUsize,
}

/// Why a worker is not used.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
enum Unusable {
    #[error("its address cannot be used")]
    Address,
    #[error("it was started over another project than this edge (--project)")]
    OtherProject,
}

#[derive(Clone, Debug)]
struct Known {
    live: LiveWorker,
    client: ExecClient<Transport>,
    /// Commands placed since the worker told its load.
    placed: u32,
    /// Set when it did not answer.
    doubted_until: Option<Instant>,
}

impl fmt::Debug for Registry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(&*self.known()).finish()
    }
}

impl Registry {
    pub(super) fn new(ledger: Transport, connect: Connect, own: Ground) -> Self {
        Self {
            ledger: WorkersClient::new(ledger),
            connect,
            own,
            known: Mutex::default(),
            unusable: Mutex::default(),
            told: tokio::sync::Mutex::default(),
            turn: AtomicUsize::new(0),
        }
    }

    /// The workers that take commands, the least loaded first; those that did not answer lately come last.
    pub(super) async fn by_load(&self) -> Result<Vec<Candidate>, Failure> {
        self.refresh().await?;
        let (mut known, now) = (self.known().clone(), Instant::now());
        known.retain(|known| !known.load().draining);
        // Equals take turns.
        let (count, turn) = (known.len(), self.turn.fetch_add(1, Ordering::Relaxed));
        known.rotate_left(turn.checked_rem(count).unwrap_or(0));
        known.sort_by(|one, other| {
            let doubted = one.is_doubted(now).cmp(&other.is_doubted(now));
            doubted.then(one.weight(other).cmp(&other.weight(one)))
        });
        Ok(known
            .into_iter()
            .map(|known| known.into_candidate(now))
            .collect())
    }

    /// Every worker that can be asked, draining ones too; those that did not answer lately come last.
    pub(super) async fn all(&self) -> Result<Vec<Candidate>, Failure> {
        self.refresh().await?;
        let (mut known, now) = (self.known().clone(), Instant::now());
        known.sort_by_key(|known| known.is_doubted(now));
        Ok(known
            .into_iter()
            .map(|known| known.into_candidate(now))
            .collect())
    }

    /// Counts a command to a worker.
    pub(super) fn place(&self, worker: &str) {
        self.change(worker, |known| {
            known.placed = known.placed.saturating_add(1);
        });
    }

    /// Takes that back.
    pub(super) fn take_back(&self, worker: &str) {
        self.change(worker, |known| {
            known.placed = known.placed.saturating_sub(1);
        });
    }

    /// A worker did not answer.
    pub(super) fn doubt(&self, worker: &str) {
        self.change(worker, |known| {
            known.doubted_until = Some(Instant::now() + DOUBT);
        });
    }

    fn change(&self, worker: &str, change: impl FnOnce(&mut Known)) {
        let mut known = self.known();
        if let Some(known) = known
            .iter_mut()
            .find(|known| known.live.worker_id == worker)
        {
            change(known);
        }
    }

    /// Asks the ledger, unless it told just now. One asks, the others wait.
    async fn refresh(&self) -> Result<(), Failure> {
        let mut told = self.told.lock().await;
        if told.asked.is_none_or(|asked| asked.elapsed() >= FRESH) {
            let mut ledger = self.ledger.clone();
            let list = hop_within(LIST_LIMIT, ledger.workers(ListWorkersRequest {})).await;
            told.asked = Some(Instant::now());
            match list {
                Ok(list) => {
                    self.take(list.workers);
                    (told.ever, told.failed) = (true, None);
                }
                Err(failure) => {
                    tracing::debug!(%failure, "the ledger does not tell of its exec workers");
                    told.failed = Some(failure);
                }
            }
        }
        match &told.failed {
            // Whom it told of may well be there while it is away itself.
            Some(failure) if !told.ever => Err(failure.clone()),
            Some(_) | None => Ok(()),
        }
    }

    fn take(&self, workers: Vec<LiveWorker>) {
        let (mut known, mut unusable) = (self.known(), HashMap::new());
        let mut next = Vec::with_capacity(workers.len());
        for live in workers {
            let position = known
                .iter()
                .position(|known| known.live.worker_id == live.worker_id);
            let before = position.map(|position| known.swap_remove(position));
            match before {
                Some(mut before) if before.live.address == live.address => {
                    if before.live.renewals != live.renewals {
                        before.placed = 0;
                    }
                    before.live = live;
                    next.push(before);
                }
                Some(_) | None => {
                    let id = live.worker_id.clone();
                    match self.meet(live) {
                        Ok(met) => next.push(met),
                        Err(why) => drop(unusable.insert(id, why)),
                    }
                }
            }
        }
        *known = next;
        drop(known);
        self.note_unusable(unusable);
    }

    /// Says once of each worker that it cannot be used.
    fn note_unusable(&self, now: HashMap<String, Unusable>) {
        let mut before = self.unusable();
        for (worker, why) in &now {
            if before.get(worker) != Some(why) {
                tracing::error!(worker, %why, "an exec worker of the ledger is not used");
            }
        }
        *before = now;
    }

    fn meet(&self, live: LiveWorker) -> Result<Known, Unusable> {
        if live
            .ground
            .as_ref()
            .is_some_and(|its| self.own.is_beside(its))
        {
            return Err(Unusable::OtherProject);
        }
        let address = live.address.parse().ok();
        let transport = address.and_then(|address| (self.connect)(&address));
        let transport = transport.ok_or(Unusable::Address)?;
        let client = ExecClient::new(transport)
            .max_decoding_message_size(MESSAGE_LIMIT)
            .max_encoding_message_size(MESSAGE_LIMIT);
        Ok(Known {
            live,
            client,
            placed: 0,
            doubted_until: None,
        })
    }

    /// Nobody is there to run commands.
    pub(super) fn no_worker(&self) -> Failure {
        let others = self.unusable();
        let message = if others.values().any(|why| *why == Unusable::OtherProject) {
            "The exec workers that are there work in another project than this workspace's. The owner has to start some over this one; \
             then send the call again with the same id."
        } else {
            "No exec worker is there. Send the call again with the same id."
        };
        Failure::new(ErrorCode::Unavailable, message)
    }

    fn known(&self) -> MutexGuard<'_, Vec<Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unusable(&self) -> MutexGuard<'_, HashMap<String, Unusable>> {
        self.unusable.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ground {
    /// Whether a worker certainly works in another directory. On other devices it may be the same one, mounted twice.
    fn is_beside(&self, its: &proto::Ground) -> bool {
        let same_device = (&self.boot_id, self.root_device) == (&its.boot_id, its.root_device);
        same_device && self.root_inode != its.root_inode
    }
}

impl Known {
    fn load(&self) -> postern_proto::ledger::v1::Load {
        self.live.load.unwrap_or_default()
    }

    fn is_doubted(&self, now: Instant) -> bool {
        self.doubted_until.is_some_and(|until| now < until)
    }

    /// Its share of what it can run, times what the other can: comparable without fractions.
    fn weight(&self, other: &Self) -> u64 {
        let running = u64::from(self.load().running) + u64::from(self.placed);
        running * u64::from(other.load().capacity.max(1))
    }

    fn into_candidate(self, now: Instant) -> Candidate {
        Candidate {
            is_doubted: self.is_doubted(now),
            id: self.live.worker_id,
            client: self.client,
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::join_all;
    use postern_kit::transport::local;
    use postern_proto::ledger::v1::{
        LeaveWorkerRequest, LeaveWorkerResponse, ListWorkersResponse, RegisterWorkerRequest,
        RegisterWorkerResponse, RenewWorkerRequest, RenewWorkerResponse,
        workers_server::{Workers, WorkersServer},
    };
    use pretty_assertions::assert_eq;
    use std::sync::Arc;
    use tonic::{Request, Response, Status};

    use super::*;

    /// A ledger that hangs, or tells of these workers.
    struct Ledger(Option<Vec<LiveWorker>>);

    #[tonic::async_trait]
    impl Workers for Ledger {
        async fn register(
            &self,
            _: Request<RegisterWorkerRequest>,
        ) -> Result<Response<RegisterWorkerResponse>, Status> {
            Err(Status::unimplemented("not asked"))
        }

        async fn renew(
            &self,
            _: Request<RenewWorkerRequest>,
        ) -> Result<Response<RenewWorkerResponse>, Status> {
            Err(Status::unimplemented("not asked"))
        }

        async fn leave(
            &self,
            _: Request<LeaveWorkerRequest>,
        ) -> Result<Response<LeaveWorkerResponse>, Status> {
            Err(Status::unimplemented("not asked"))
        }

        async fn workers(
            &self,
            _: Request<ListWorkersRequest>,
        ) -> Result<Response<ListWorkersResponse>, Status> {
            match &self.0 {
                Some(workers) => Ok(Response::new(ListWorkersResponse {
                    workers: workers.clone(),
                })),
                None => std::future::pending().await,
            }
        }
    }

    fn registry(ledger: Ledger) -> Registry {
        let own = Ground {
            boot_id: "boot".to_owned(),
            root_device: 1,
            root_inode: 2,
        };
        let nowhere = || local(WorkersServer::new(Ledger(None)));
        Registry::new(
            local(WorkersServer::new(ledger)),
            Arc::new(move |_| Some(nowhere())),
            own,
        )
    }

    /// The edge's calls wait for a ledger that hangs together, and not one after the other.
    #[tokio::test(start_paused = true)]
    async fn a_ledger_that_hangs_is_waited_for_once() {
        let registry = registry(Ledger(None));
        let start = Instant::now();
        let asked = join_all((0..8).map(|_| registry.all())).await;
        assert!(asked.iter().all(Result::is_err));
        assert_eq!(start.elapsed(), LIST_LIMIT);
    }

    #[tokio::test]
    async fn workers_of_another_project_are_not_used() {
        let live = |id: &str, address: &str, ground: Option<(&str, u64, u64)>| LiveWorker {
            worker_id: id.to_owned(),
            address: address.to_owned(),
            ground: ground.map(|(boot, root_device, root_inode)| proto::Ground {
                spool_id: "spool".to_owned(),
                boot_id: boot.to_owned(),
                root_device,
                root_inode,
            }),
            ..LiveWorker::default()
        };
        let registry = registry(Ledger(Some(vec![
            live("own", "unix:/a", Some(("boot", 1, 2))),
            live("mounted twice", "unix:/b", Some(("boot", 3, 4))),
            live("far", "unix:/c", Some(("elsewhere", 1, 3))),
            live("old", "unix:/d", None),
            live("other", "unix:/e", Some(("boot", 1, 3))),
            live("nowhere", "", Some(("boot", 1, 2))),
        ])));
        let told = registry.all().await.expect("told");
        let told: Vec<_> = told.into_iter().map(|it| it.id).collect();
        assert_eq!(told, ["own", "mounted twice", "far", "old"]);
        let message = registry.no_worker().message;
        assert!(message.contains("another project"), "{message}");
    }
}
