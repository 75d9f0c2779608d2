//! A ledger's file as the beginning or the end of a copy. While a file is the end of one it carries a mark of its own.

use std::{fs::File, path::Path};

use bytes::Bytes;
use postern_database::sqlite as database;
use postern_types::{Id, Sha256};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Row as _, SqliteConnection, sqlite::SqliteRow};

use super::{Reader, Writer, lock, open_read_only, writable};
use crate::{
    Error,
    copy::{Incarnation, Source, Stored, Target},
    fold::{digest, signed, unsigned},
    reader::Reader as AnyReader,
    receipt::Blobs,
    store::SCHEMA,
};

/// Marks a file that holds an unfinished copy ("PLcp").
const COPYING: i64 = 0x504c_6370;
/// Events that are read at a time.
const EVENTS: i64 = 100;

const SELECT_INCARNATIONS: &str = "SELECT w.id, i.incarnation, i.at_ms FROM workspaces w \
     JOIN incarnations i ON i.workspace = w.number ORDER BY w.number, i.incarnation";
const SELECT_EVENTS: &str = "SELECT e.position, w.id, e.hash, e.body, e.plan, e.proposal, e.result, e.answer \
     FROM events e JOIN workspaces w ON w.number = e.workspace WHERE e.position > ?1 ORDER BY e.position LIMIT ?2";
const SELECT_PLACE: &str = "SELECT e.position, e.hash FROM events e JOIN workspaces w ON w.number = e.workspace \
     WHERE w.id = ?1 AND e.sequence = ?2";
const SELECT_LAST: &str = "SELECT (SELECT count(*) FROM events), w.id, e.sequence FROM events e \
     JOIN workspaces w ON w.number = e.workspace ORDER BY e.position DESC LIMIT 1";
const INSERT_INCARNATION: &str = "INSERT INTO incarnations (workspace, incarnation, at_ms) \
     SELECT number, ?2, ?3 FROM workspaces WHERE id = ?1 ON CONFLICT DO NOTHING";

/// Whether a file is marked as an unfinished copy.
pub(super) async fn is_unfinished(connection: &mut SqliteConnection) -> Result<bool, Error> {
    let row = sqlx::query("SELECT application_id FROM pragma_application_id")
        .fetch_one(connection)
        .await?;
    Ok(row.try_get::<i64, _>(0)? == COPYING)
}

async fn mark(connection: &mut SqliteConnection, number: i64) -> Result<(), Error> {
    let mark = format!("PRAGMA application_id = {number}");
    sqlx::raw_sql(AssertSqlSafe(mark))
        .execute(connection)
        .await?;
    Ok(())
}

/// A file to copy from, on which no ledger runs.
#[derive(Debug)]
pub(crate) struct FileSource {
    reader: Reader,
    _lock: File,
}

/// Opens a file to copy from.
pub(crate) async fn source(path: &Path) -> Result<FileSource, Error> {
    if !path.exists() {
        return Err(Error::Missing);
    }
    let lock = lock(path).await?;
    let reader = open_read_only(path).await?;
    Ok(FileSource {
        reader,
        _lock: lock,
    })
}

impl Source for FileSource {
    async fn incarnations(&mut self) -> Result<Vec<Incarnation>, Error> {
        let rows = sqlx::query(SELECT_INCARNATIONS)
            .fetch_all(&mut *self.reader.connection().await?)
            .await?;
        rows.iter().map(incarnation).collect()
    }

    async fn events(&mut self, after: i64) -> Result<Vec<Stored>, Error> {
        let rows = sqlx::query(SELECT_EVENTS)
            .bind(after)
            .bind(EVENTS)
            .fetch_all(&mut *self.reader.connection().await?)
            .await?;
        rows.iter().map(stored).collect()
    }

    async fn place(
        &mut self,
        workspace: &Id,
        sequence: u64,
    ) -> Result<Option<(i64, Sha256)>, Error> {
        let row = sqlx::query(SELECT_PLACE)
            .bind(workspace.as_str())
            .bind(signed(sequence))
            .fetch_optional(&mut *self.reader.connection().await?)
            .await?;
        row.map(|row| Ok((row.try_get(0)?, digest(row.try_get(1)?)?)))
            .transpose()
    }

    async fn total(&mut self) -> Result<u64, Error> {
        let row = sqlx::query("SELECT coalesce(max(position), 0) FROM events")
            .fetch_one(&mut *self.reader.connection().await?)
            .await?;
        Ok(unsigned(row.try_get(0)?))
    }

    fn reader(&self) -> AnyReader {
        AnyReader::Sqlite(self.reader.clone())
    }
}

/// Opens a file to copy into: an empty one, or one that an interrupted copy left.
pub(crate) async fn target(path: &Path) -> Result<(Writer, AnyReader), Error> {
    let lock = lock(path).await?;
    let options = writable(path);
    let mut connection = options.connect().await?;
    if !is_unfinished(&mut connection).await? {
        database::migrate(&mut connection, path, &SCHEMA).await?;
        let row = sqlx::query("SELECT EXISTS (SELECT 1 FROM workspaces)")
            .fetch_one(&mut connection)
            .await?;
        if row.try_get(0)? {
            return Err(Error::NotEmpty);
        }
        mark(&mut connection, COPYING).await?;
    }
    let writer = Writer {
        options,
        connection: Some(connection),
        _lock: lock,
    };
    Ok((writer, AnyReader::Sqlite(Reader::new(path))))
}

impl Target for Writer {
    async fn taken(&mut self) -> Result<Vec<Incarnation>, Error> {
        let rows = sqlx::query(SELECT_INCARNATIONS)
            .fetch_all(self.connection().await?)
            .await?;
        rows.iter().map(incarnation).collect()
    }

    async fn take(&mut self, incarnations: &[Incarnation]) -> Result<(), Error> {
        let connection = self.connection().await?;
        sqlx::raw_sql("BEGIN IMMEDIATE")
            .execute(&mut *connection)
            .await?;
        for one in incarnations {
            sqlx::query(super::INSERT_WORKSPACE)
                .bind(one.workspace.as_str())
                .execute(&mut *connection)
                .await?;
            sqlx::query(INSERT_INCARNATION)
                .bind(one.workspace.as_str())
                .bind(one.number)
                .bind(one.at_ms)
                .execute(&mut *connection)
                .await?;
        }
        sqlx::raw_sql("COMMIT").execute(connection).await?;
        Ok(())
    }

    async fn last(&mut self) -> Result<Option<(u64, Id, u64)>, Error> {
        let row = sqlx::query(SELECT_LAST)
            .fetch_optional(self.connection().await?)
            .await?;
        row.map(|row| {
            let (count, sequence) = (unsigned(row.try_get(0)?), unsigned(row.try_get(2)?));
            Ok((count, workspace(row.try_get(1)?)?, sequence))
        })
        .transpose()
    }

    async fn finish(&mut self) -> Result<(), Error> {
        mark(self.connection().await?, SCHEMA.application_id).await
    }
}

fn workspace(id: &str) -> Result<Id, Error> {
    id.parse()
        .map_err(|_| Error::Corrupt("a workspace's id".to_owned()))
}

fn incarnation(row: &SqliteRow) -> Result<Incarnation, Error> {
    Ok(Incarnation {
        workspace: workspace(row.try_get(0)?)?,
        number: row.try_get(1)?,
        at_ms: row.try_get(2)?,
    })
}

fn stored(row: &SqliteRow) -> Result<Stored, Error> {
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
