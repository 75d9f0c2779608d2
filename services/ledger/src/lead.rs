//! Which of the ledgers on one PostgreSQL database writes. The first that gets the lock leads; every other stands by, refuses
//! what it is asked, and takes over when the lock is free. A ledger that finds that another has led since begins anew, with
//! nothing of what it remembered but the reading calls that were not on record yet.

use std::sync::Arc;

use postern_database::{Database, Outage, Pool, Server};
use postern_kit::{Clock, task::Tasks};
use tokio::{sync::watch, time::Duration};
use tokio_util::sync::CancellationToken;

use crate::{
    Error,
    lease::Lease,
    pending::Pending,
    postgres::{Candidate, Lead, Reader as PostgresReader, Writer},
    reader::Reader,
    service::{Shared, Terms},
    store::SCHEMA,
    workers::Workers,
};

/// Time between two attempts to take the lead. With the time that a server takes to notice that a ledger is gone (8 s) it
/// makes how long a takeover takes at most.
const POLL: Duration = Duration::from_millis(500);

/// What serves.
#[derive(Clone, Debug)]
pub(crate) struct Serving {
    /// Receipts.
    pub(crate) ledger: Arc<Shared<Reader>>,
    /// Leases of exec workers.
    pub(crate) workers: Arc<Workers<Reader>>,
}

/// What serves now, or why nothing does.
pub(crate) type Term = Result<Serving, Error>;

/// Gets ready to lead on a database that may be away.
pub(crate) async fn start(
    server: &Server,
    clock: Clock,
    tasks: &Tasks,
) -> Result<(watch::Receiver<Term>, watch::Receiver<bool>), Error> {
    let pool = Pool::open(&Database::Postgres(server.clone()), &SCHEMA).await?;
    let lease = Arc::new(Lease::lapsed());
    let (term, terms) = watch::channel(Err(Error::Standby));
    let readiness = lease.readiness();
    let leading = Leading {
        candidate: Candidate::new(server, pool.clone()),
        pool,
        lease,
        pending: Arc::new(Pending::default()),
        clock,
        tasks: tasks.clone(),
        term,
    };
    tasks.spawn("ledger-lead", leading.run());
    Ok((terms, readiness))
}

struct Leading {
    candidate: Candidate,
    pool: Pool,
    lease: Arc<Lease>,
    pending: Arc<Pending>,
    clock: Clock,
    tasks: Tasks,
    term: watch::Sender<Term>,
}

impl Leading {
    /// Leads whenever it can, until the end.
    async fn run(mut self) {
        let stopping = self.tasks.stopping();
        while let Some(lead) = self.stand_by(&stopping).await {
            let terms = Terms {
                count: lead.events,
                pending: Arc::clone(&self.pending),
                lease: Arc::clone(&self.lease),
                clock: self.clock.clone(),
            };
            let asked = lead.asked();
            let writer = Writer::new(lead, Arc::clone(&self.lease));
            let reader = Reader::Postgres(PostgresReader::new(self.pool.clone()));
            let (ledger, ended) = Shared::begin(writer, reader, terms, &self.tasks);
            let over = stopping.child_token();
            let workers = Workers::start(&ledger, self.clock.clone(), &self.tasks, over.clone());
            tracing::info!("this ledger leads");
            self.serve(Ok(Serving { ledger, workers }));
            self.lease.renew(asked);
            if let Err(error) = ended.await {
                tracing::error!(%error, "the ledger's writer failed");
            }
            over.cancel();
            self.lease.end();
            self.serve(Err(Error::Superseded));
        }
        self.serve(Err(Error::Closed));
        self.pool.close().await;
    }

    fn serve(&self, term: Term) {
        // The one before is told to nobody any more.
        drop(self.term.send_replace(term));
    }

    /// Waits for the lead; nothing at the end.
    async fn stand_by(&mut self, stopping: &CancellationToken) -> Option<Lead> {
        let Self {
            candidate, term, ..
        } = self;
        let waiting = async {
            let mut outage = Outage::default();
            loop {
                match candidate.try_lead().await {
                    Ok(lead) => return lead,
                    Err(error) => {
                        if outage.is_news(&error) {
                            tracing::warn!(%error, "this ledger does not lead");
                        }
                        drop(term.send_replace(Err(error)));
                    }
                }
                tokio::time::sleep(POLL).await;
            }
        };
        stopping.run_until_cancelled(waiting).await
    }
}
