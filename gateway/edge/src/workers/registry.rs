//! The live workers, as the ledger told last, and how loaded each is thought to be.

use std::{
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
    ledger::v1::{ListWorkersRequest, LiveWorker, workers_client::WorkersClient},
};
use postern_types::ErrorCode;
use tokio::time::Instant;

use super::Connect;
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

/// The live workers.
pub(super) struct Registry {
    ledger: WorkersClient<Transport>,
    connect: Connect,
    known: Mutex<Vec<Known>>,
    /// When the ledger told; held while it is asked.
    told: tokio::sync::Mutex<Option<Instant>>,
    turn: AtomicUsize,
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
    pub(super) fn new(ledger: Transport, connect: Connect) -> Self {
        Self {
            ledger: WorkersClient::new(ledger),
            connect,
            known: Mutex::default(),
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
        if told.is_some_and(|told| told.elapsed() < FRESH) {
            return Ok(());
        }
        let mut ledger = self.ledger.clone();
        match hop_within(LIST_LIMIT, ledger.workers(ListWorkersRequest {})).await {
            Ok(list) => {
                self.take(list.workers);
                *told = Some(Instant::now());
                Ok(())
            }
            // Whom it told of may well be there while it is away itself.
            Err(failure) if told.is_some() => {
                tracing::debug!(%failure, "the ledger does not tell of its exec workers");
                Ok(())
            }
            Err(failure) => Err(failure),
        }
    }

    fn take(&self, workers: Vec<LiveWorker>) {
        let mut known = self.known();
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
                Some(_) | None => next.extend(self.meet(live)),
            }
        }
        *known = next;
    }

    fn meet(&self, live: LiveWorker) -> Option<Known> {
        let transport = live
            .address
            .parse()
            .ok()
            .and_then(|address| (self.connect)(&address));
        let Some(transport) = transport else {
            tracing::warn!(
                worker = live.worker_id,
                "an exec worker registered under an address that cannot be used"
            );
            return None;
        };
        let client = ExecClient::new(transport)
            .max_decoding_message_size(MESSAGE_LIMIT)
            .max_encoding_message_size(MESSAGE_LIMIT);
        Some(Known {
            live,
            client,
            placed: 0,
            doubted_until: None,
        })
    }

    fn known(&self) -> MutexGuard<'_, Vec<Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
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

/// Nobody is there to run commands.
pub(super) fn no_worker() -> Failure {
    Failure::new(
        ErrorCode::Unavailable,
        "No exec worker is there. Send the call again with the same id.",
    )
}
