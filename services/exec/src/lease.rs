//! The worker's lease with a ledger: how it is registered, goes on, and what its end means.
//!
//! While the lease runs the worker takes commands. A ledger that is away ends nothing: only its word, or the mark of another worker
//! that heard it, tells that the lease has lapsed. Then the worker's commands are lost for everybody, so they are declared lost and
//! ended here, too, and the worker begins again under another id. (docs/adr/0014-a-lapsed-lease-is-the-end-of-a-worker.md)

use std::{sync::Arc, time::Duration};

use postern_kit::transport::{Transport, within};
use postern_proto::ledger::v1::{
    LeaveWorkerRequest, Load, RegisterWorkerRequest, RenewWorkerRequest, Standing,
    workers_client::WorkersClient,
};
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep_until},
};
use tonic::{Code, Status};

use crate::{Error, Service};

/// Renewals in the time of a lease, at least.
const RENEWALS: u32 = 3;
/// Time between two renewals, at most: the load that workers are chosen by is no older.
const RENEW_EVERY: Duration = Duration::from_secs(1);
/// Time that the ledger has to answer, at most. A renewal has its part of the lease: a connection that swallows it, as one to
/// a ledger that was halted, is left in time for another.
const ANSWER_LIMIT: Duration = Duration::from_secs(3);

/// Where and how a worker registers.
#[derive(Clone, Debug)]
pub struct Registration {
    /// The ledger.
    pub ledger: Transport,
    /// Where callers reach this worker.
    pub address: String,
    /// Length of the lease.
    pub lease: Duration,
}

/// Until when the worker's lease runs, as far as it knows itself.
#[derive(Debug)]
pub(crate) struct Lease {
    /// `None` without leases: then nobody else judges whether it lives.
    runs_until: Option<watch::Sender<Option<Instant>>>,
    /// Signalled when there is something to tell at once.
    told: Notify,
}

impl Lease {
    pub(crate) fn new(leased: bool) -> Self {
        Self {
            runs_until: leased.then(watch::Sender::default),
            told: Notify::new(),
        }
    }

    /// Whether nobody else can have ended it.
    pub(crate) fn runs(&self) -> bool {
        self.runs_until
            .as_ref()
            .is_none_or(|until| until.borrow().is_some_and(|until| Instant::now() < until))
    }

    /// Ready when [`Self::runs`] may tell otherwise than now: it was renewed, given up, or is over.
    pub(crate) fn changed(&self) -> impl Future<Output = ()> + use<> {
        let mut renewed = self.runs_until.as_ref().map(watch::Sender::subscribe);
        let until = renewed
            .as_mut()
            .and_then(|until| *until.borrow_and_update());
        async move {
            let Some(mut renewed) = renewed else {
                return std::future::pending().await;
            };
            let over = async {
                match until.filter(|until| Instant::now() < *until) {
                    Some(until) => sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = renewed.changed() => {}
                () = over => {}
            }
        }
    }

    fn set(&self, until: Option<Instant>) {
        if let Some(runs_until) = &self.runs_until {
            runs_until.send_replace(until);
        }
    }
}

/// A worker and its ledger.
struct Registrar {
    service: Service,
    client: WorkersClient<Transport>,
    registration: Registration,
    /// Whether the ledger has this incarnation.
    is_known: bool,
    /// Whether the ledger was there last time.
    answered: bool,
    /// Whether it would not take the worker.
    refused: bool,
}

impl Service {
    /// Registers the worker with a ledger and keeps its lease running, until [`Service::leave`] or the end of the tasks. Its
    /// configuration must say that it is `leased`.
    pub fn register(&self, registration: Registration) {
        let registrar = Registrar {
            service: self.clone(),
            client: WorkersClient::new(registration.ledger.clone()),
            registration,
            is_known: false,
            answered: true,
            refused: false,
        };
        let stopping = self.worker.tasks.stopping();
        let left = self.worker.left.clone();
        self.worker.tasks.spawn("worker lease", async move {
            tokio::select! {
                () = stopping.cancelled() => {}
                () = left.cancelled() => {}
                () = registrar.keep() => {}
            }
        });
    }

    /// Ends the lease: the worker has no command any more. One that cannot tell its ledger leaves all the same, and its lease
    /// lapses.
    pub async fn leave(&self, ledger: Transport) {
        self.worker.left.cancel();
        let request = LeaveWorkerRequest {
            worker_id: self.worker.spool.worker().to_string(),
        };
        let mut client = WorkersClient::new(ledger);
        match client.leave(within(ANSWER_LIMIT, request)).await {
            Ok(_) => tracing::info!("the worker has left the ledger"),
            Err(status) => {
                tracing::warn!(code = ?status.code(), "the ledger could not be told of this worker's end");
            }
        }
    }

    /// Has the ledger told at once what has changed.
    pub(crate) fn tell_ledger(&self) {
        self.worker.lease.told.notify_one();
    }

    /// The worker is dead for everybody else: its commands are lost, are ended, and it begins again.
    async fn fence(&self) -> Result<(), Error> {
        self.worker.desk().fenced = true;
        self.worker.lease.set(None);
        let commands = self.worker.all();
        let running = commands.iter().filter(|command| command.runs()).count();
        tracing::warn!(
            running,
            "the worker's lease has lapsed; its commands are lost and ended"
        );
        for command in commands {
            if command.runs() {
                let worker = Arc::clone(&self.worker);
                let lost = worker.lose(command.id).await;
                if let Err(error) = lost {
                    // Whoever looks next declares it lost.
                    tracing::warn!(%error, "a command could not be declared lost");
                }
            }
        }
        self.end_all().await;
        self.worker.pool.renew();
        let spool = Arc::clone(&self.worker.spool);
        self.worker
            .blocking(move || Ok(spool.begin_again()?))
            .await?;
        self.worker.desk().fenced = false;
        Ok(())
    }
}

impl Registrar {
    async fn keep(mut self) {
        let every = (self.registration.lease / RENEWALS).min(RENEW_EVERY);
        let worker = Arc::clone(&self.service.worker);
        loop {
            let next = Instant::now() + every;
            if let Err(error) = self.renew().await {
                tracing::error!(%error, "the worker's lease could not be looked after");
            }
            tokio::select! {
                // At once after one that took so long.
                () = sleep_until(next) => {}
                () = worker.lease.told.notified() => {}
            }
        }
    }

    /// One sign of life, and what follows from the answer.
    async fn renew(&mut self) -> Result<(), Error> {
        let sent = Instant::now();
        let others = self.others().await?;
        let over = match self.sign(others).await {
            Ok(standing) => {
                self.note_answer(None);
                match standing {
                    Standing::Live => {
                        // By the ledger's clock it runs longer: it heard later.
                        self.service
                            .worker
                            .lease
                            .set(Some(sent + self.registration.lease));
                        if !self.is_known {
                            self.is_known = true;
                            tracing::info!("the worker is registered with the ledger");
                        }
                        false
                    }
                    Standing::Lapsed | Standing::Left => true,
                    Standing::Unknown | Standing::Unspecified => {
                        self.is_known = false;
                        self.service.tell_ledger();
                        false
                    }
                }
            }
            Err(status) => {
                self.note_answer(Some(&status));
                false
            }
        };
        if over || self.is_marked().await? {
            self.is_known = false;
            self.service.fence().await?;
            self.service.tell_ledger();
        }
        Ok(())
    }

    /// Registers, or renews and heeds what is told of others.
    async fn sign(&mut self, others: Vec<String>) -> Result<Standing, Status> {
        let worker_id = self.service.worker.spool.worker().to_string();
        let load = Some(self.load());
        if !self.is_known {
            let lease = self.registration.lease.as_millis();
            let request = RegisterWorkerRequest {
                worker_id,
                address: self.registration.address.clone(),
                load,
                lease_ms: u64::try_from(lease).unwrap_or(u64::MAX),
                ground: Some(self.service.ground()),
            };
            let request = within(ANSWER_LIMIT, request);
            let answer = self.client.register(request).await?.into_inner();
            return Ok(answer.standing());
        }
        let request = RenewWorkerRequest {
            worker_id,
            load,
            others: others.clone(),
        };
        let limit = (self.registration.lease / RENEWALS).min(ANSWER_LIMIT);
        let answer = self
            .client
            .renew(within(limit, request))
            .await?
            .into_inner();
        let told: Vec<_> = others.into_iter().zip(answer.others()).collect();
        if let Err(error) = self.heed(told).await {
            tracing::warn!(%error, "the end of another worker could not be noted");
        }
        Ok(answer.standing())
    }

    fn load(&self) -> Load {
        let load = self.service.load();
        Load {
            running: load.running,
            capacity: load.capacity,
            draining: self.service.worker.desk().closed,
        }
    }

    async fn others(&self) -> Result<Vec<String>, Error> {
        let spool = Arc::clone(&self.service.worker.spool);
        self.service
            .worker
            .blocking(move || Ok(spool.others()?))
            .await
    }

    async fn is_marked(&self) -> Result<bool, Error> {
        let spool = Arc::clone(&self.service.worker.spool);
        self.service
            .worker
            .blocking(move || Ok(spool.is_over()))
            .await
    }

    /// Notes in the spool who is dead, for everybody who shares it and for the dead one itself.
    async fn heed(&self, told: Vec<(String, Standing)>) -> Result<(), Error> {
        let spool = Arc::clone(&self.service.worker.spool);
        let noting = move || {
            for (worker, standing) in told {
                match standing {
                    Standing::Lapsed => spool.mark_dead(&worker, true)?,
                    Standing::Left | Standing::Unknown => spool.mark_dead(&worker, false)?,
                    Standing::Live | Standing::Unspecified => {}
                }
            }
            Ok(())
        };
        self.service.worker.blocking(noting).await
    }

    /// Says once that the ledger is away, and once that it is back; and once that it refuses this worker, with what to do.
    fn note_answer(&mut self, failed: Option<&Status>) {
        let refusal = failed.filter(|status| status.code() == Code::InvalidArgument);
        if let Some(status) = refusal
            && !std::mem::replace(&mut self.refused, true)
        {
            let reason = status.message();
            tracing::error!(reason, "the ledger does not take this worker");
        }
        self.refused = refusal.is_some();
        let failed = failed.filter(|_| refusal.is_none());
        match failed {
            Some(status) if self.answered => {
                tracing::warn!(code = ?status.code(), "the ledger does not answer; the worker's lease cannot be renewed");
            }
            None if !self.answered => tracing::info!("the ledger answers again"),
            Some(_) | None => {}
        }
        self.answered = failed.is_none();
    }
}
