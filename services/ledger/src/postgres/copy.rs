//! A ledger on a server as the beginning or the end of a copy. While it is the end of one its epoch is below zero.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use postern_database::{
    Database, Pool, Server,
    postgres::{deadline, limited},
};
use postern_types::{Id, Sha256};
use sqlx::{
    PgConnection, Postgres, Row as _,
    postgres::{PgArguments, PgConnectOptions, PgRow},
    query::Query,
};

use super::{
    Reader, Writer,
    seen::demand_accepted,
    session::{Lead, connect, connect_by, options, try_lock},
};
use crate::{
    Error,
    copy::{Incarnation, Source, Stored, Target},
    fold::{digest, signed, unsigned},
    lease::Lease,
    reader::Reader as AnyReader,
    receipt::Blobs,
    store::SCHEMA,
};

/// How often the lock is tried, and the time between: the server gives that of a connection that was closed a moment ago back
/// when it comes to it.
const LOCK_TRIES: u32 = 10;
const LOCK_PAUSE: Duration = Duration::from_millis(100);
/// Events that are read at a time.
const EVENTS: i64 = 100;

const SELECT_INCARNATIONS: &str = "SELECT w.id, i.incarnation, i.at_ms FROM workspaces w \
     JOIN incarnations i ON i.workspace = w.number ORDER BY w.number, i.incarnation";
const SELECT_EVENTS: &str = "SELECT e.position, w.id, e.hash, e.body, e.plan, e.proposal, e.result, e.answer \
     FROM events e JOIN workspaces w ON w.number = e.workspace WHERE e.position > $1 ORDER BY e.position LIMIT $2";
const SELECT_PLACE: &str = "SELECT e.position, e.hash FROM events e JOIN workspaces w ON w.number = e.workspace \
     WHERE w.id = $1 AND e.sequence = $2";
const SELECT_LAST: &str = "SELECT (SELECT count(*) FROM events), w.id, e.sequence FROM events e \
     JOIN workspaces w ON w.number = e.workspace ORDER BY e.position DESC LIMIT 1";
/// Workspaces get their numbers in the order in which they come.
const INSERT_WORKSPACES: &str = "INSERT INTO workspaces (id) SELECT j.id FROM (SELECT id, min(n) AS n \
     FROM unnest($1::TEXT[]) WITH ORDINALITY u (id, n) GROUP BY id) j ORDER BY j.n ON CONFLICT DO NOTHING";
const INSERT_INCARNATIONS: &str = "INSERT INTO incarnations (workspace, incarnation, at_ms) \
     SELECT w.number, j.incarnation, j.at_ms FROM unnest($1::TEXT[], $2::BIGINT[], $3::BIGINT[]) j (id, incarnation, at_ms) \
     JOIN workspaces w ON w.id = j.id ON CONFLICT DO NOTHING";
/// Takes an empty ledger, or an unfinished copy, for this copy alone.
const BEGIN: &str = "UPDATE leader SET epoch = -abs(epoch) - 1 \
     WHERE epoch < 0 OR NOT EXISTS (SELECT FROM workspaces) RETURNING epoch";
const FINISH: &str = "UPDATE leader SET epoch = abs(epoch) + 1 WHERE epoch = $1";

/// A server to copy from, on which no ledger runs.
#[derive(Debug)]
pub(crate) struct ServerSource {
    reader: Reader,
    /// Holds the lock.
    connection: PgConnection,
}

/// Between two batches a copy may be busy with the other end.
fn patient(server: &Server) -> PgConnectOptions {
    options(server).options([("idle_session_timeout", "0")])
}

/// A connection that holds the lock for as long as a copy takes, and readers.
async fn locked(server: &Server) -> Result<(PgConnection, Pool), Error> {
    let pool = Pool::open(&Database::Postgres(server.clone()), &SCHEMA).await?;
    let options = patient(server);
    let connecting = async {
        let mut connection = connect(&options).await?;
        for _ in 0..LOCK_TRIES {
            if try_lock(&mut connection).await? {
                return Ok((connection, true));
            }
            tokio::time::sleep(LOCK_PAUSE).await;
        }
        Ok::<_, Error>((connection, false))
    };
    let (connection, locked) = limited(connect_by(deadline()), connecting).await?;
    if locked {
        Ok((connection, pool))
    } else {
        Err(Error::InUse)
    }
}

/// Connects to a server to copy from.
pub(crate) async fn source(server: &Server) -> Result<ServerSource, Error> {
    let (connection, pool) = locked(server).await?;
    let reader = Reader::new(pool);
    reader.check().await?;
    Ok(ServerSource { reader, connection })
}

impl ServerSource {
    async fn rows(&mut self, query: Query<'_, Postgres, PgArguments>) -> Result<Vec<PgRow>, Error> {
        let rows = query.fetch_all(&mut self.connection);
        limited(deadline(), async { Ok(rows.await?) }).await
    }
}

impl Source for ServerSource {
    async fn incarnations(&mut self) -> Result<Vec<Incarnation>, Error> {
        let rows = self.rows(sqlx::query(SELECT_INCARNATIONS)).await?;
        rows.iter().map(incarnation).collect()
    }

    async fn events(&mut self, after: i64) -> Result<Vec<Stored>, Error> {
        let query = sqlx::query(SELECT_EVENTS).bind(after).bind(EVENTS);
        self.rows(query).await?.iter().map(stored).collect()
    }

    async fn place(
        &mut self,
        workspace: &Id,
        sequence: u64,
    ) -> Result<Option<(i64, Sha256)>, Error> {
        let query = sqlx::query(SELECT_PLACE)
            .bind(workspace.as_str().to_owned())
            .bind(signed(sequence));
        let rows = self.rows(query).await?;
        let place = |row: &PgRow| Ok((row.try_get(0)?, digest(row.try_get(1)?)?));
        rows.first().map(place).transpose()
    }

    async fn total(&mut self) -> Result<u64, Error> {
        let rows = self.rows(sqlx::query(super::statements::COUNT)).await?;
        let count = rows.first().map(|row| row.try_get(0)).transpose()?;
        Ok(unsigned(count.unwrap_or(0)))
    }

    fn reader(&self) -> AnyReader {
        AnyReader::Postgres(self.reader.clone())
    }
}

/// Connects to a server to copy into: an empty ledger, or one that an interrupted copy left.
pub(crate) async fn target(server: &Server) -> Result<(Writer, AnyReader), Error> {
    let (mut connection, pool) = locked(server).await?;
    pool.prepare().await?;
    limited(deadline(), demand_accepted(&mut connection)).await?;
    let begin = sqlx::query(BEGIN).fetch_optional(&mut connection);
    let begun = limited(deadline(), async { Ok::<_, Error>(begin.await?) }).await?;
    let epoch = begun.ok_or(Error::NotEmpty)?.try_get(0)?;
    let lead = Lead::of_copy(patient(server), connection, epoch);
    let writer = Writer::new(lead, Arc::new(Lease::lapsed()));
    Ok((writer, AnyReader::Postgres(Reader::new(pool))))
}

impl Target for Writer {
    async fn taken(&mut self) -> Result<Vec<Incarnation>, Error> {
        let deadline = deadline();
        let find = sqlx::query(SELECT_INCARNATIONS).fetch_all(self.connection(deadline).await?);
        let rows = limited(deadline, async { Ok::<_, Error>(find.await?) }).await?;
        rows.iter().map(incarnation).collect()
    }

    async fn take(&mut self, incarnations: &[Incarnation]) -> Result<(), Error> {
        let ids = incarnations.iter().map(|it| it.workspace.as_str());
        let ids: Vec<_> = ids.map(str::to_owned).collect();
        let numbers: Vec<_> = incarnations.iter().map(|it| it.number).collect();
        let times: Vec<_> = incarnations.iter().map(|it| it.at_ms).collect();
        let deadline = deadline();
        let connection = self.connection(deadline).await?;
        limited(deadline, async {
            sqlx::query(INSERT_WORKSPACES)
                .bind(ids.clone())
                .execute(&mut *connection)
                .await?;
            sqlx::query(INSERT_INCARNATIONS)
                .bind(ids)
                .bind(numbers)
                .bind(times)
                .execute(connection)
                .await?;
            Ok(())
        })
        .await
    }

    async fn last(&mut self) -> Result<Option<(u64, Id, u64)>, Error> {
        let deadline = deadline();
        let find = sqlx::query(SELECT_LAST).fetch_optional(self.connection(deadline).await?);
        let row = limited(deadline, async { Ok::<_, Error>(find.await?) }).await?;
        row.map(|row| {
            let (count, sequence) = (unsigned(row.try_get(0)?), unsigned(row.try_get(2)?));
            Ok((count, workspace(row.try_get(1)?)?, sequence))
        })
        .transpose()
    }

    async fn finish(&mut self) -> Result<(), Error> {
        let (deadline, epoch) = (deadline(), self.epoch);
        let finish = sqlx::query(FINISH)
            .bind(epoch)
            .execute(self.connection(deadline).await?);
        let done = limited(deadline, async { Ok::<_, Error>(finish.await?) }).await?;
        match done.rows_affected() {
            0 => Err(Error::Superseded),
            _ => Ok(()),
        }
    }
}

fn workspace(id: &str) -> Result<Id, Error> {
    id.parse()
        .map_err(|_| Error::Corrupt("a workspace's id".to_owned()))
}

fn incarnation(row: &PgRow) -> Result<Incarnation, Error> {
    Ok(Incarnation {
        workspace: workspace(row.try_get(0)?)?,
        number: row.try_get(1)?,
        at_ms: row.try_get(2)?,
    })
}

fn stored(row: &PgRow) -> Result<Stored, Error> {
    let blob = |index: usize| -> Result<Option<Bytes>, Error> {
        Ok(row.try_get::<Option<Vec<u8>>, _>(index)?.map(Bytes::from))
    };
    Ok(Stored {
        position: row.try_get(0)?,
        workspace: workspace(row.try_get(1)?)?,
        hash: digest(row.try_get(2)?)?,
        body: row.try_get(3)?,
        blobs: Blobs {
            plan: blob(4)?,
            proposal: blob(5)?,
            result: blob(6)?,
            answer: blob(7)?,
        },
    })
}
