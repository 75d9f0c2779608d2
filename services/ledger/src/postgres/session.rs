//! The connection that writes. It holds the lock that keeps every other ledger out: when it is gone, so is the lock, and who
//! has the lock afterwards knows that nothing of the connection before is on its way any more.

use std::sync::Arc;

use postern_database::{Error as DatabaseError, Pool, Server, postgres};
use sqlx::{ConnectOptions as _, PgConnection, Row as _, postgres::PgConnectOptions};
use tokio::time::{Duration, Instant};

use super::{
    seen::Seen,
    statements::{COUNT, IS_READ_ONLY, LEADS, SELECT_EPOCH, TAKE_OVER, TRY_LOCK},
};
use crate::{Error, fold::unsigned, lease::IDLE_SESSION, store::SCHEMA};

/// How long a connection may take to be there with the lock.
const CONNECT: Duration = Duration::from_millis(2500);

/// What the writing connection is, beside what every connection is.
///
/// Plans must not depend on what the server has counted in tables that were empty yesterday: all that is asked is a few looks
/// into an index.
pub(super) fn options(server: &Server) -> PgConnectOptions {
    let idle = format!("{}s", IDLE_SESSION.as_secs());
    postgres::options(server, &SCHEMA).options([
        ("idle_session_timeout", idle.as_str()),
        ("enable_seqscan", "off"),
        ("enable_hashjoin", "off"),
        ("enable_mergejoin", "off"),
    ])
}

/// A connection in the making has as long as this.
pub(super) fn connect_by(deadline: Instant) -> Instant {
    deadline.min(Instant::now() + CONNECT)
}

/// Connects.
pub(super) async fn connect(options: &PgConnectOptions) -> Result<PgConnection, Error> {
    options.connect().await.map_err(asked_nothing)
}

/// Refuses a replica: it gives locks that mean nothing, and may be behind. And a server that was told to take no writes.
pub(super) async fn demand_primary(connection: &mut PgConnection) -> Result<(), Error> {
    let row = sqlx::query(IS_READ_ONLY)
        .fetch_one(connection)
        .await
        .map_err(asked_nothing)?;
    if row.try_get(0).map_err(asked_nothing)? {
        return Err(Error::Replica);
    }
    Ok(())
}

/// Takes the lock, unless another connection has it.
pub(super) async fn try_lock(connection: &mut PgConnection) -> Result<bool, Error> {
    // The number of a schema is four letters.
    let schema = i32::try_from(SCHEMA.application_id).unwrap_or(i32::MAX);
    let row = sqlx::query(TRY_LOCK)
        .bind(schema)
        .fetch_one(connection)
        .await
        .map_err(asked_nothing)?;
    row.try_get(0).map_err(asked_nothing)
}

/// The epoch that is on record.
pub(super) async fn epoch(connection: &mut PgConnection) -> Result<i64, Error> {
    let row = sqlx::query(SELECT_EPOCH)
        .fetch_one(connection)
        .await
        .map_err(asked_nothing)?;
    row.try_get(0).map_err(asked_nothing)
}

/// Whether the ledger of that epoch still leads, and nothing is missed.
pub(super) async fn leads(connection: &mut PgConnection, epoch: i64) -> Result<bool, Error> {
    let row = sqlx::query(LEADS)
        .bind(epoch)
        .fetch_one(connection)
        .await
        .map_err(asked_nothing)?;
    row.try_get(0).map_err(asked_nothing)
}

/// A ledger's place as the one that writes.
#[derive(Debug)]
pub(crate) struct Lead {
    pub(super) options: PgConnectOptions,
    pub(super) connection: PgConnection,
    pub(super) epoch: i64,
    pub(super) seen: Arc<Seen>,
    asked: Instant,
    /// About how many events there are.
    pub(crate) events: u64,
}

impl Lead {
    /// The place of a copy, which nobody else has either.
    pub(super) fn of_copy(options: PgConnectOptions, connection: PgConnection, epoch: i64) -> Self {
        Self {
            options,
            connection,
            epoch,
            seen: Arc::default(),
            asked: Instant::now(),
            events: 0,
        }
    }

    /// When the database was asked for it.
    pub(crate) const fn asked(&self) -> Instant {
        self.asked
    }
}

/// A ledger that would lead.
#[derive(Debug)]
pub(crate) struct Candidate {
    options: PgConnectOptions,
    pool: Pool,
    connection: Option<PgConnection>,
    /// What this process has seen on record, in whatever part.
    seen: Arc<Seen>,
}

impl Candidate {
    pub(crate) fn new(server: &Server, pool: Pool) -> Self {
        Self {
            options: options(server),
            pool,
            connection: None,
            seen: Arc::default(),
        }
    }

    /// Takes the lead, once nobody else has it: the lock, then the tables, then an epoch of its own.
    ///
    /// On a server that it is not connected with yet it looks for all that it has seen, whoever leads there: that one may
    /// know less, and goes on in good faith until it is told.
    ///
    /// # Errors
    /// [`Error::Standby`] while another ledger leads, [`Error::WentBack`] when the database lacks what was acknowledged, and whatever keeps the database from being used.
    pub(crate) async fn try_lead(&mut self) -> Result<Lead, Error> {
        let (mut connection, is_new) = match self.connection.take() {
            Some(connection) => (connection, false),
            None => {
                let connecting = connect(&self.options);
                let connected = postgres::limited(connect_by(postgres::deadline()), connecting);
                (connected.await?, true)
            }
        };
        let asked = Instant::now();
        let locking = async {
            demand_primary(&mut connection).await?;
            let locked = try_lock(&mut connection).await?;
            if !locked && is_new {
                self.seen.check_beside(&mut connection).await?;
            }
            if !locked {
                self.seen.observe(&mut connection).await?;
            }
            Ok::<_, Error>(locked)
        };
        if !postgres::limited(asked + CONNECT, locking).await? {
            self.connection = Some(connection);
            return Err(Error::Standby);
        }
        self.pool.prepare().await?;
        let checked = self.seen.check(&mut connection);
        postgres::limited(postgres::deadline(), checked).await?;
        let taken = take_over(&mut connection);
        let (epoch, events) = postgres::limited(postgres::deadline(), taken).await?;
        Ok(Lead {
            options: self.options.clone(),
            connection,
            epoch,
            seen: Arc::clone(&self.seen),
            asked,
            events,
        })
    }
}

async fn take_over(connection: &mut PgConnection) -> Result<(i64, u64), Error> {
    let row = sqlx::query(TAKE_OVER)
        .fetch_optional(&mut *connection)
        .await?;
    let epoch = row.ok_or(Error::UnfinishedCopy)?.try_get(0)?;
    let count: i64 = sqlx::query(COUNT).fetch_one(connection).await?.try_get(0)?;
    Ok((epoch, unsigned(count)))
}

/// An error from before anything was asked that changes something.
fn asked_nothing(error: sqlx::Error) -> Error {
    Error::Away(std::sync::Arc::new(DatabaseError::Store(error)))
}
