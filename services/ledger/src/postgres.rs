//! The store on PostgreSQL, whose SQL lies in one file beside this one.
//!
//! One writing connection, which only the writer task uses and which holds the lock (`session`), and a pool of reading ones.
//! A batch is one statement and so one transaction in one trip. It checks that no other ledger has taken over, that nothing is
//! missed (`seen`), and that its events follow the newest of their chains, so that no chain is ever forked or has a gap, whatever
//! anybody remembers.
//!
//! When the connection breaks during a commit, the ledger takes the lock again, which it can only once nothing of that
//! connection is on its way, and looks whether the batch is there. So its callers are told the truth, or that it is not known.
//! And it looks whether all is there that it has acknowledged (`seen`): the server may be another one.

mod append;
mod audit;
mod copy;
mod pages;
mod reader;
mod seen;
mod session;
mod statements;
mod workers;

use std::sync::Arc;

use bytes::Bytes;
use postern_database::{Outage, postgres};
use postern_types::{Id, ReceiptId};
use sqlx::{
    Connection as _, PgConnection, Row as _,
    postgres::{PgConnectOptions, PgRow},
};
use tokio::time::{Duration, Instant};

use self::{
    append::{Batch, Last},
    seen::{Ends, Seen},
    session::{connect, connect_by, demand_primary, epoch, leads, try_lock},
    statements::{INSERT_INCARNATION, SELECT_BY_IDS, SELECT_BY_KEYS, SELECT_HASH_IN, SELECT_HEADS},
};
pub(crate) use self::{
    copy::{source, target},
    reader::Reader,
    seen::accept_loss,
    session::{Candidate, Lead},
};
use crate::{
    Error,
    fold::{Fold, digest, unsigned},
    lease::Lease,
    page::bytes_of,
    receipt::{Blobs, Key, Receipt},
    store::{Head, Loaded, Opened, Row, Wanted, Write},
    workers::WorkerRow,
};

/// What spans call it.
const SYSTEM: &str = "postgresql";
/// Time that a batch has, with finding out what became of it: within the hop's deadline of 10 s.
const LIMIT: Duration = Duration::from_secs(8);
/// Time that its statement has, so that some is left to find out.
const STATEMENT: Duration = Duration::from_secs(5);
/// After how much time without work the database is asked whether everything stands.
const BEAT: Duration = Duration::from_secs(2);
/// Time between two attempts to reach a database that is away.
const PAUSE: Duration = Duration::from_millis(200);
/// How long a connection may take to say goodbye.
const GOODBYE: Duration = Duration::from_secs(2);

/// The one that writes.
#[derive(Debug)]
pub(crate) struct Writer {
    options: PgConnectOptions,
    connection: Option<PgConnection>,
    epoch: i64,
    seen: Arc<Seen>,
    lease: Arc<Lease>,
    beat: Instant,
    lost: bool,
    outage: Outage,
}

impl Writer {
    pub(crate) fn new(lead: Lead, lease: Arc<Lease>) -> Self {
        Self {
            options: lead.options,
            connection: Some(lead.connection),
            epoch: lead.epoch,
            seen: lead.seen,
            lease,
            beat: Instant::now() + BEAT,
            lost: false,
            outage: Outage::default(),
        }
    }

    /// The connection, made anew when it is gone. Fails without having asked for any change.
    async fn connection(&mut self, deadline: Instant) -> Result<&mut PgConnection, Error> {
        if self.lost {
            return Err(Error::Superseded);
        }
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.reconnect(deadline).await?,
        };
        Ok(self.connection.insert(connection))
    }

    /// Connects and takes the lock again. If another ledger has led meanwhile, this one is lost.
    async fn reconnect(&mut self, deadline: Instant) -> Result<PgConnection, Error> {
        let asked = Instant::now();
        let again = async {
            let mut connection = connect(&self.options).await?;
            demand_primary(&mut connection).await?;
            let locked = try_lock(&mut connection).await?;
            let epoch = epoch(&mut connection).await?;
            Ok::<_, Error>((connection, locked, epoch))
        };
        let (mut connection, locked, epoch) =
            postgres::limited(connect_by(deadline), again).await?;
        if epoch != self.epoch {
            return Err(self.lose());
        }
        if !locked {
            // What is left of the connection before, most likely.
            return Err(Error::Standby);
        }
        // It may be another server than the one before.
        let checked = self.seen.check(&mut connection);
        let checked = postgres::limited(connect_by(deadline), checked).await;
        if let Err(error) = checked {
            if matches!(error, Error::WentBack(_)) {
                self.lost = true;
                self.lease.end();
            }
            return Err(error);
        }
        tracing::info!("the ledger's database is there again");
        self.outage.end();
        self.answered(asked);
        Ok(connection)
    }

    fn answered(&mut self, asked: Instant) {
        self.lease.renew(asked);
        self.beat = Instant::now() + BEAT;
    }

    /// The connection is of no use any more.
    fn broken(&mut self, error: &Error) {
        self.connection = None;
        self.lease.end();
        self.beat = Instant::now() + PAUSE;
        if self.outage.is_news(error) {
            tracing::warn!(%error, "the ledger's database is away");
        }
    }

    fn lose(&mut self) -> Error {
        tracing::warn!("another ledger has taken this database over");
        self.lost = true;
        self.connection = None;
        self.lease.end();
        Error::Superseded
    }

    /// The database is not as it was left: somebody has written since, or it went back, which is put down before the lock is
    /// given up. If it cannot be now, that is done when this ledger next reaches the database, whether or not it gets the
    /// lock then: what it has seen it takes along.
    async fn replaced(&mut self, deadline: Instant) -> Error {
        let checked = match &mut self.connection {
            Some(connection) => {
                postgres::limited(connect_by(deadline), self.seen.check(connection)).await
            }
            None => Ok(()),
        };
        let superseded = self.lose();
        match checked {
            Err(error @ Error::WentBack(_)) => error,
            Ok(()) | Err(_) => superseded,
        }
    }

    /// Takes an answer in. After a failure the connection is made anew, unless the database has only said no.
    fn told<T>(&mut self, asked: Instant, answer: Result<T, Error>) -> Result<T, Error> {
        match &answer {
            Ok(_) => self.answered(asked),
            Err(error) if is_refusal(error) => {}
            Err(error) => self.broken(error),
        }
        answer
    }

    /// Finds out whether a batch was committed whose answer did not come.
    async fn find_out(&mut self, last: Last, deadline: Instant) -> Result<(), Error> {
        loop {
            match self.is_there(last, deadline).await {
                Ok(true) => return Ok(()),
                Ok(false) => return Err(Error::NotCommitted),
                Err(Error::Superseded | Error::WentBack(_)) => return Err(Error::Unconfirmed),
                Err(error) => {
                    self.broken(&error);
                    if Instant::now() + PAUSE >= deadline {
                        return Err(Error::Unconfirmed);
                    }
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    async fn is_there(&mut self, last: Last, deadline: Instant) -> Result<bool, Error> {
        let connection = self.connection(deadline).await?;
        let find = sqlx::query(SELECT_HASH_IN)
            .bind(last.workspace)
            .bind(last.sequence)
            .fetch_optional(connection);
        let row = postgres::limited(deadline, async { Ok::<_, Error>(find.await?) }).await?;
        let hash = row.map(|row| digest(row.try_get(0)?)).transpose()?;
        Ok(hash.is_some() && hash == last.hash)
    }
}

impl Write for Writer {
    fn system(&self) -> &'static str {
        SYSTEM
    }

    async fn load(&mut self, wanted: &Wanted) -> Result<Loaded, Error> {
        let deadline = Instant::now() + STATEMENT;
        let connection = self.connection(deadline).await?;
        let asked = Instant::now();
        let loaded = postgres::limited(deadline, load(connection, wanted)).await;
        let loaded = self.told(asked, loaded)?;
        for (workspace, head) in &loaded.workspaces {
            if !self.seen.is_ahead(workspace, head) {
                return Err(self.replaced(deadline).await);
            }
        }
        Ok(loaded)
    }

    async fn append(&mut self, rows: Vec<Row>) -> Result<(), Error> {
        let deadline = Instant::now() + LIMIT;
        let ends = Ends::of(&rows);
        let (batch, epoch) = (Batch::of(rows), self.epoch);
        let last = batch.last();
        let connection = self.connection(deadline).await?;
        let asked = Instant::now();
        let appended = postgres::limited(asked + STATEMENT, batch.append(connection, epoch)).await;
        match self.told(asked, appended) {
            Ok(appended) if appended.leads && appended.follows => {}
            // What is remembered here is not so any more.
            Ok(_) => return Err(self.replaced(deadline).await),
            Err(error) if is_refusal(&error) => return Err(error),
            Err(_) => self.find_out(last, deadline).await?,
        }
        self.seen.appended(ends);
        Ok(())
    }

    async fn open(&mut self, workspace: &Id, at_ms: i64) -> Result<Opened, Error> {
        let deadline = Instant::now() + LIMIT;
        let epoch = self.epoch;
        let connection = self.connection(deadline).await?;
        let asked = Instant::now();
        let taken = open_incarnation(connection, epoch, workspace, at_ms);
        let taken = postgres::limited(asked + STATEMENT, taken).await;
        match self.told(asked, taken) {
            Ok(Some(opened)) => {
                self.seen.opened(workspace, opened.incarnation);
                Ok(opened)
            }
            Ok(None) => Err(self.replaced(deadline).await),
            Err(error) if is_refusal(&error) => Err(error),
            // An incarnation that nobody got is skipped.
            Err(_) => Err(Error::Unconfirmed),
        }
    }

    async fn put_workers(&mut self, rows: &[WorkerRow]) -> Result<(), Error> {
        let deadline = Instant::now() + STATEMENT;
        let epoch = self.epoch;
        let connection = self.connection(deadline).await?;
        let asked = Instant::now();
        let put = postgres::limited(deadline, workers::put(connection, epoch, rows)).await;
        match self.told(asked, put) {
            Ok(true) => Ok(()),
            Ok(false) => Err(self.replaced(deadline).await),
            // Who asks for it asks again, and the same row twice is the same row.
            Err(error) => Err(error),
        }
    }

    async fn workers(&mut self) -> Result<Vec<WorkerRow>, Error> {
        let deadline = Instant::now() + STATEMENT;
        let connection = self.connection(deadline).await?;
        let asked = Instant::now();
        let all = postgres::limited(deadline, workers::all(connection)).await;
        self.told(asked, all)
    }

    async fn tidy(&mut self) -> Result<(), Error> {
        // The server looks after its own files.
        Ok(())
    }

    async fn due(&mut self) {
        tokio::time::sleep_until(self.beat).await;
    }

    async fn attend(&mut self) {
        let ours = self.epoch;
        let deadline = connect_by(Instant::now() + STATEMENT);
        let asked = Instant::now();
        let found = match self.connection(deadline).await {
            Ok(connection) => postgres::limited(deadline, leads(connection, ours)).await,
            Err(error) => Err(error),
        };
        match self.told(asked, found) {
            Ok(true) => {}
            Ok(false) => {
                self.replaced(Instant::now() + STATEMENT).await;
            }
            // Told already.
            Err(_) => {}
        }
    }

    fn is_lost(&self) -> bool {
        self.lost
    }

    async fn close(mut self) {
        self.lease.end();
        if let Some(connection) = self.connection.take() {
            // The next ledger waits for the lock, which is given back even if this takes too long.
            let _ = tokio::time::timeout(GOODBYE, connection.close()).await;
        }
    }
}

/// Whether the database has understood, done nothing and said why: what it was sent cannot be so, or its disk is full.
fn is_refusal(error: &Error) -> bool {
    /// SQLSTATE classes of data that is not valid, and of constraints.
    const CLASSES: [&str; 2] = ["22", "23"];
    let Error::Database(source) = error else {
        return matches!(error, Error::DiskFull);
    };
    source
        .as_database_error()
        .and_then(sqlx::error::DatabaseError::code)
        .is_some_and(|code| CLASSES.iter().any(|class| code.starts_with(class)))
}

async fn load(connection: &mut PgConnection, wanted: &Wanted) -> Result<Loaded, Error> {
    let mut loaded = Loaded::default();
    if !wanted.workspaces.is_empty() {
        loaded.workspaces = heads(&mut *connection, &wanted.workspaces).await?;
    }
    if !wanted.keys.is_empty() {
        loaded.receipts = by_keys(&mut *connection, &wanted.keys).await?;
    }
    if !wanted.receipts.is_empty() {
        let receipts = by_ids(&mut *connection, &wanted.receipts, SELECT_BY_IDS).await?;
        loaded.receipts.extend(receipts);
    }
    Ok(loaded)
}

async fn open_incarnation(
    connection: &mut PgConnection,
    epoch: i64,
    workspace: &Id,
    at_ms: i64,
) -> Result<Option<Opened>, Error> {
    let row = sqlx::query(INSERT_INCARNATION)
        .bind(epoch)
        .bind(workspace.as_str())
        .bind(at_ms)
        .fetch_optional(connection)
        .await?;
    row.map(|row| {
        Ok(Opened {
            incarnation: unsigned(row.try_get(0)?),
            orphans: unsigned(row.try_get(1)?),
        })
    })
    .transpose()
}

async fn heads(connection: &mut PgConnection, workspaces: &[Id]) -> Result<Vec<(Id, Head)>, Error> {
    let ids: Vec<_> = workspaces.iter().map(Id::as_str).collect();
    let rows = sqlx::query(SELECT_HEADS)
        .bind(ids)
        .fetch_all(connection)
        .await?;
    rows.iter().map(head).collect()
}

/// A workspace and the end of its chain.
fn head(row: &PgRow) -> Result<(Id, Head), Error> {
    let id: &str = row.try_get(0)?;
    let id = id
        .parse()
        .map_err(|_| Error::Corrupt("a workspace's id".to_owned()))?;
    let incarnation: Option<i64> = row.try_get(2)?;
    let sequence: Option<i64> = row.try_get(3)?;
    let hash: Option<&[u8]> = row.try_get(4)?;
    let head = Head {
        number: row.try_get(1)?,
        incarnation: unsigned(incarnation.unwrap_or(0)),
        sequence: unsigned(sequence.unwrap_or(0)),
        hash: hash.map_or(Ok(postern_types::Sha256::ZERO), digest)?,
    };
    Ok((id, head))
}

async fn by_keys(connection: &mut PgConnection, keys: &[Key]) -> Result<Vec<Receipt>, Error> {
    let texts = |part: fn(&Key) -> &Id| {
        keys.iter()
            .map(|key| part(key).as_str())
            .collect::<Vec<_>>()
    };
    let rows = sqlx::query(SELECT_BY_KEYS)
        .bind(texts(|key| &key.workspace))
        .bind(texts(|key| &key.session))
        .bind(texts(|key| &key.call))
        .fetch_all(connection)
        .await?;
    fold(&rows)
}

async fn by_ids(
    connection: &mut PgConnection,
    ids: &[ReceiptId],
    statement: &'static str,
) -> Result<Vec<Receipt>, Error> {
    let ids: Vec<_> = ids.iter().copied().map(bytes_of).collect();
    let rows = sqlx::query(statement)
        .bind(ids)
        .fetch_all(connection)
        .await?;
    fold(&rows)
}

/// Receipts from their events, which come one receipt after the other.
fn fold(rows: &[PgRow]) -> Result<Vec<Receipt>, Error> {
    let mut fold = Fold::default();
    for row in rows {
        let blob = |index: usize| -> Result<Option<Bytes>, Error> {
            Ok(row.try_get::<Option<Vec<u8>>, _>(index)?.map(Bytes::from))
        };
        let blobs = Blobs {
            plan: blob(3)?,
            proposal: blob(4)?,
            result: blob(5)?,
            answer: blob(6)?,
        };
        fold.push(row.try_get(2)?, row.try_get(1)?, blobs)?;
    }
    Ok(fold.finish())
}
