//! What this process has acknowledged, or seen on record, of each chain: the memory by which it notices that a server which lacks
//! the newest commits has taken the place of the one before.
//!
//! What is missing is put down in that database itself, durably and before the lock is given up. So no other ledger goes on with
//! the shorter chain either, those included that remember nothing, until the one that is missing is back or its owner accepts
//! the loss. Who leads already, because it had not seen so much, stops: every writing statement looks for what was put down.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use postern_database::{Database, Pool, Server, postgres};
use postern_types::{Id, Sha256};
use sqlx::{PgConnection, Row as _};

use super::session::{connect, connect_by, options};
use crate::{
    Error, Lost,
    fold::{signed, unsigned},
    store::{Head, Row, SCHEMA},
};

/// Chains that are remembered. Of more, some are not.
const CHAINS: usize = 65_536;
/// Those that are forgotten together, to make room.
const FORGOTTEN: usize = CHAINS / 8;
/// Chains of which a ledger that stands by looks at the end, those that came last.
const OBSERVED: i64 = 1000;

/// Those of the given places that are not on record.
const SELECT_GONE: &str = "SELECT s.n - 1 \
     FROM unnest($1::TEXT[], $2::BIGINT[], $3::BIGINT[], $4::BYTEA[]) WITH ORDINALITY s (workspace, incarnation, sequence, hash, n) \
     LEFT JOIN workspaces w ON w.id = s.workspace \
     WHERE (s.incarnation > 0 AND NOT EXISTS (SELECT FROM incarnations i \
         WHERE i.workspace = w.number AND i.incarnation = s.incarnation)) \
     OR (s.sequence > 0 AND NOT EXISTS (SELECT FROM events e \
         WHERE e.workspace = w.number AND e.sequence = s.sequence AND e.hash = s.hash))";
/// Puts down what is missing. What was accepted before stays accepted.
const INSERT_LOST: &str = "INSERT INTO lost (workspace, incarnation, sequence, hash, noticed_ms) \
     SELECT s.workspace, s.incarnation, s.sequence, s.hash, $5 \
     FROM unnest($1::TEXT[], $2::BIGINT[], $3::BIGINT[], $4::BYTEA[]) s (workspace, incarnation, sequence, hash) \
     ON CONFLICT DO NOTHING";
/// What is missing and not accepted, the newest event first.
const SELECT_LOST: &str = "SELECT workspace, incarnation, sequence FROM lost \
     WHERE accepted_ms IS NULL ORDER BY sequence DESC, workspace LIMIT 1";
const ACCEPT: &str = "UPDATE lost SET accepted_ms = $1 WHERE accepted_ms IS NULL RETURNING workspace, incarnation, sequence";
/// The ends of chains.
const SELECT_ENDS: &str = "SELECT w.id, w.number, \
     (SELECT max(incarnation) FROM incarnations i WHERE i.workspace = w.number), e.sequence, e.hash \
     FROM (SELECT * FROM workspaces ORDER BY number DESC LIMIT $1) w \
     LEFT JOIN LATERAL (SELECT sequence, hash FROM events l WHERE l.workspace = w.number \
     ORDER BY sequence DESC LIMIT 1) e ON true";

/// The newest of a chain.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Place {
    incarnation: u64,
    sequence: u64,
    hash: Sha256,
}

const NOTHING: Place = Place {
    incarnation: 0,
    sequence: 0,
    hash: Sha256::ZERO,
};

#[derive(Debug, Default)]
struct Places {
    by_workspace: HashMap<Id, Place>,
    /// The store's numbers of workspaces.
    ids: HashMap<i64, Id>,
}

impl Places {
    fn entry(&mut self, workspace: &Id) -> &mut Place {
        if self.by_workspace.len() >= CHAINS && !self.by_workspace.contains_key(workspace) {
            let some: Vec<_> = self.by_workspace.keys().take(FORGOTTEN).cloned().collect();
            for workspace in &some {
                self.by_workspace.remove(workspace);
            }
            self.ids.retain(|_, id| self.by_workspace.contains_key(id));
        }
        self.by_workspace
            .entry(workspace.clone())
            .or_insert(NOTHING)
    }
}

/// The ends that a batch gives to its chains.
#[derive(Debug)]
pub(super) struct Ends(HashMap<i64, (u64, Sha256)>);

impl Ends {
    pub(super) fn of(rows: &[Row]) -> Self {
        let ends = rows.iter();
        Self(
            ends.map(|row| (row.workspace, (row.sequence, row.hash)))
                .collect(),
        )
    }
}

/// What is remembered, from one term to the next.
#[derive(Debug, Default)]
pub(super) struct Seen(Mutex<Places>);

impl Seen {
    fn places(&self) -> MutexGuard<'_, Places> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The database tells the end of a chain. False when that is behind what was told before.
    #[must_use]
    pub(super) fn is_ahead(&self, workspace: &Id, head: &Head) -> bool {
        let mut places = self.places();
        let place = places.entry(workspace);
        let is_behind = head.sequence < place.sequence || head.incarnation < place.incarnation;
        let is_other = head.sequence == place.sequence && head.hash != place.hash;
        if is_behind || (is_other && place.sequence > 0) {
            return false;
        }
        *place = Place {
            incarnation: head.incarnation,
            sequence: head.sequence,
            hash: head.hash,
        };
        places.ids.insert(head.number, workspace.clone());
        true
    }

    /// An incarnation was taken.
    pub(super) fn opened(&self, workspace: &Id, incarnation: u64) {
        let mut places = self.places();
        let place = places.entry(workspace);
        place.incarnation = place.incarnation.max(incarnation);
    }

    /// A batch is on record. Its workspaces' ends were read before.
    pub(super) fn appended(&self, ends: Ends) {
        let mut places = self.places();
        for (number, (sequence, hash)) in ends.0 {
            if let Some(workspace) = places.ids.get(&number).cloned() {
                let place = places.entry(&workspace);
                (place.sequence, place.hash) = (sequence, hash);
            }
        }
    }

    /// Whether a database to which another ledger writes has everything, as [`Seen::check`].
    ///
    /// # Errors
    /// [`Error::WentBack`] when something is missing that was not accepted.
    pub(super) async fn check_beside(&self, connection: &mut PgConnection) -> Result<(), Error> {
        // The tables may be of an earlier version, which knows nothing of what is lost.
        match self.gone(connection).await? {
            gone if gone.is_empty() => Ok(()),
            gone => self.miss(connection, gone).await,
        }
    }

    /// Looks where chains end to which another ledger writes. By the same connection nothing can have gone back.
    pub(super) async fn observe(&self, connection: &mut PgConnection) -> Result<(), Error> {
        let rows = sqlx::query(SELECT_ENDS)
            .bind(OBSERVED)
            .fetch_all(connection)
            .await?;
        for row in &rows {
            let (id, head) = super::head(row)?;
            let _ = self.is_ahead(&id, &head);
        }
        Ok(())
    }

    /// Whether the database has everything that was acknowledged. What is missing is put down there. To be asked by who holds
    /// the lock, before anything is written.
    ///
    /// # Errors
    /// [`Error::WentBack`] when something is missing that was not accepted.
    pub(super) async fn check(&self, connection: &mut PgConnection) -> Result<(), Error> {
        let gone = self.gone(connection).await?;
        self.miss(connection, gone).await
    }

    /// What is remembered and not on record.
    async fn gone(&self, connection: &mut PgConnection) -> Result<Vec<(Id, Place)>, Error> {
        let known: Vec<_> = {
            let places = self.places();
            let all = places.by_workspace.iter();
            all.map(|(id, place)| (id.clone(), *place)).collect()
        };
        gone(connection, &known).await
    }

    /// Puts down what is missing, if anything is, and asks for what is put down and not accepted.
    async fn miss(
        &self,
        connection: &mut PgConnection,
        gone: Vec<(Id, Place)>,
    ) -> Result<(), Error> {
        if !gone.is_empty() {
            tracing::error!(
                chains = gone.len(),
                "the ledger's database went back behind what was acknowledged"
            );
            put_down(connection, &gone).await?;
        }
        demand_accepted(connection).await?;
        // Accepted: the chain begins anew from where it is.
        let mut places = self.places();
        for (workspace, _) in gone {
            places.by_workspace.remove(&workspace);
        }
        Ok(())
    }
}

/// Refuses a database that lacks something which was not accepted.
pub(super) async fn demand_accepted(connection: &mut PgConnection) -> Result<(), Error> {
    match sqlx::query(SELECT_LOST).fetch_optional(connection).await? {
        Some(row) => Err(Error::WentBack(lost(&row)?)),
        None => Ok(()),
    }
}

/// Columns of places, as the statements take them.
type Columns = (Vec<String>, Vec<i64>, Vec<i64>, Vec<Vec<u8>>);

fn columns(places: &[(Id, Place)]) -> Columns {
    let mut columns = Columns::default();
    for (workspace, place) in places {
        columns.0.push(workspace.as_str().to_owned());
        columns.1.push(signed(place.incarnation));
        columns.2.push(signed(place.sequence));
        columns.3.push(place.hash.as_bytes().to_vec());
    }
    columns
}

async fn gone(
    connection: &mut PgConnection,
    known: &[(Id, Place)],
) -> Result<Vec<(Id, Place)>, Error> {
    if known.is_empty() {
        return Ok(Vec::new());
    }
    let (workspaces, incarnations, sequences, hashes) = columns(known);
    let rows = sqlx::query(SELECT_GONE)
        .bind(workspaces)
        .bind(incarnations)
        .bind(sequences)
        .bind(hashes)
        .fetch_all(connection)
        .await?;
    let mut gone = Vec::new();
    for row in rows {
        let index = usize::try_from(row.try_get::<i64, _>(0)?).unwrap_or(usize::MAX);
        gone.extend(known.get(index).cloned());
    }
    Ok(gone)
}

async fn put_down(connection: &mut PgConnection, gone: &[(Id, Place)]) -> Result<(), Error> {
    let (workspaces, incarnations, sequences, hashes) = columns(gone);
    sqlx::query(INSERT_LOST)
        .bind(workspaces)
        .bind(incarnations)
        .bind(sequences)
        .bind(hashes)
        .bind(now_ms())
        .execute(connection)
        .await?;
    Ok(())
}

fn lost(row: &sqlx::postgres::PgRow) -> Result<Lost, Error> {
    Ok(Lost {
        workspace_id: row.try_get(0)?,
        incarnation: unsigned(row.try_get(1)?),
        sequence: unsigned(row.try_get(2)?),
    })
}

/// For people who look into the table; nothing depends on it.
fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    })
}

/// Has ledgers go on with a database without what it lost. Tells what that was.
pub(crate) async fn accept_loss(server: &Server) -> Result<Vec<Lost>, Error> {
    let pool = Pool::open(&Database::Postgres(server.clone()), &SCHEMA).await?;
    let reader = super::Reader::new(pool.clone());
    reader.check().await?;
    pool.prepare().await?;
    let deadline = postgres::deadline();
    let accepting = async {
        let mut connection = connect(&options(server)).await?;
        let rows = sqlx::query(ACCEPT)
            .bind(now_ms())
            .fetch_all(&mut connection)
            .await?;
        rows.iter().map(lost).collect::<Result<Vec<_>, Error>>()
    };
    let accepted = postgres::limited(connect_by(deadline), accepting).await;
    pool.close().await;
    accepted
}
