//! The reading connections.

use std::{io, ops::ControlFlow, path::Path, time::Duration};

use postern_types::{Id, ReceiptId, Sha256};
use sqlx::{
    AssertSqlSafe, Row as _, SqliteConnection, SqlitePool,
    pool::PoolConnection,
    sqlite::{Sqlite, SqliteConnectOptions, SqlitePoolOptions, SqliteRow},
};
use tokio_stream::StreamExt as _;

use super::{
    digest, fold, heads, ids_json, json, keys_json, options,
    statements::{
        SELECT_BY_IDS, SELECT_BY_KEYS, SELECT_CHAIN, SELECT_HASH, SELECT_KEYS, SELECT_MISINDEXED,
        SELECT_MISINDEXED_1, SELECT_MISTOLD_SESSION, SELECT_PAGE, SESSIONS, list,
    },
    unsigned, version,
};
use crate::{
    Error,
    receipt::{Key, Receipt, State},
    store::{Filter, Head, Page, Read, Session, SessionFilter, SessionPage},
    verify::{Beside, Link},
};

/// Version of the schema that brought sessions.
const SESSIONS_SINCE: i64 = 2;
/// Reading connections.
const READERS: u32 = 2;
/// An idle reading connection is closed after this.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a reader waits for a connection.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(8);

pub(super) fn readable(path: &Path) -> SqliteConnectOptions {
    options(path).read_only(true)
}

/// Opens the file for reading only, whether or not a ledger runs on it.
pub(crate) async fn open_read_only(path: &Path) -> Result<Reader, Error> {
    let reader = Reader::new(readable(path));
    match reader.check().await {
        Err(Error::Database(_)) if !has_log(path)? => {
            // A directory that cannot be written has no room for the files by which readers and a writer agree.
            // Without a log there is nothing to agree on.
            let reader = Reader::new(readable(path).immutable(true));
            reader.check().await?;
            Ok(reader)
        }
        checked => checked.map(|()| reader),
    }
}

fn has_log(path: &Path) -> io::Result<bool> {
    let mut name = path.as_os_str().to_owned();
    name.push("-wal");
    Path::new(&name).try_exists()
}

/// A few short-lived connections, opened when first used.
#[derive(Clone, Debug)]
pub(crate) struct Reader {
    pool: SqlitePool,
}

impl Reader {
    pub(super) fn new(options: SqliteConnectOptions) -> Self {
        let pool = SqlitePoolOptions::new()
            .max_connections(READERS)
            .min_connections(0)
            .idle_timeout(IDLE_TIMEOUT)
            .max_lifetime(None)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            .test_before_acquire(false)
            .connect_lazy_with(options);
        Self { pool }
    }

    async fn check(&self) -> Result<(), Error> {
        match version(&mut *self.connection().await?).await? {
            0 => Err(Error::Foreign),
            _ => Ok(()),
        }
    }

    async fn connection(&self) -> Result<PoolConnection<Sqlite>, Error> {
        Ok(self.pool.acquire().await?)
    }
}

impl Read for Reader {
    async fn head(&self, workspace: &Id) -> Result<Option<Head>, Error> {
        let mut connection = self.connection().await?;
        let found = heads(&mut connection, std::slice::from_ref(workspace)).await?;
        Ok(found.into_iter().next().map(|(_, head)| head))
    }

    async fn find(&self, key: &Key) -> Result<Option<Receipt>, Error> {
        let rows = sqlx::query(SELECT_BY_KEYS)
            .bind(keys_json(std::slice::from_ref(key)))
            .fetch_all(&mut *self.connection().await?)
            .await?;
        Ok(fold(&rows)?.pop())
    }

    async fn get(&self, id: ReceiptId) -> Result<Option<Receipt>, Error> {
        let rows = sqlx::query(SELECT_BY_IDS)
            .bind(ids_json(&[id]))
            .fetch_all(&mut *self.connection().await?)
            .await?;
        Ok(fold(&rows)?.pop())
    }

    async fn list(&self, filter: &Filter) -> Result<Page, Error> {
        let mut connection = self.connection().await?;
        let (ids, next) = page(&mut connection, filter).await?;
        let rows = sqlx::query(SELECT_PAGE)
            .bind(ids_json(&ids))
            .fetch_all(&mut *connection)
            .await?;
        Ok(Page {
            receipts: fold(&rows)?,
            next,
        })
    }

    async fn sessions(&self, filter: &SessionFilter) -> Result<SessionPage, Error> {
        let before = filter.before.unwrap_or(u64::MAX);
        let rows = sqlx::query(SESSIONS)
            .bind(filter.workspace.as_str())
            .bind(i64::try_from(before).unwrap_or(i64::MAX))
            .bind(i64::from(filter.limit) + 1)
            .bind(json(&filter.changing_tools))
            .fetch_all(&mut *self.connection().await?)
            .await?;
        let mut sessions: Vec<Session> = Vec::new();
        for row in &rows {
            let sequence = unsigned(row.try_get(3)?);
            if sessions
                .last()
                .is_none_or(|last| last.last_sequence != sequence)
            {
                sessions.push(session(row, sequence)?);
            }
            if let Some(session) = sessions.last_mut() {
                count(session, row)?;
            }
        }
        let limit = usize::try_from(filter.limit).unwrap_or(usize::MAX);
        let more = sessions.len() > limit;
        sessions.truncate(limit);
        let last = sessions.last().filter(|_| more);
        Ok(SessionPage {
            next: last.map(|last| last.last_sequence),
            sessions,
        })
    }

    async fn keys(
        &self,
        after: Option<ReceiptId>,
        limit: u32,
        mut visit: impl FnMut(&str, &str, &str) + Send,
    ) -> Result<Option<ReceiptId>, Error> {
        let after = after.map_or(Vec::new(), |id| id.as_uuid().as_bytes().to_vec());
        let row = sqlx::query(SELECT_KEYS)
            .bind(after)
            .bind(limit)
            .fetch_one(&mut *self.connection().await?)
            .await?;
        let lines: Option<&str> = row.try_get(0)?;
        for line in lines.unwrap_or_default().lines() {
            // Ids are visible ASCII, so a space only ever parts them.
            let mut parts = line.split(' ');
            if let (Some(workspace), Some(session), Some(call)) =
                (parts.next(), parts.next(), parts.next())
            {
                visit(workspace, session, call);
            }
        }
        row.try_get::<Option<&[u8]>, _>(1)?
            .map(receipt_id)
            .transpose()
    }

    async fn hash_at(&self, workspace: &Id, sequence: u64) -> Result<Option<Sha256>, Error> {
        let row = sqlx::query(SELECT_HASH)
            .bind(workspace.as_str())
            .bind(i64::try_from(sequence).unwrap_or(i64::MAX))
            .fetch_optional(&mut *self.connection().await?)
            .await?;
        row.map(|row| digest(row.try_get(0)?)).transpose()
    }

    async fn walk(
        &self,
        workspace: Option<&Id>,
        mut visit: impl FnMut(Link<'_>) -> ControlFlow<()> + Send,
    ) -> Result<(), Error> {
        let mut connection = self.connection().await?;
        let mut rows = sqlx::query(SELECT_CHAIN)
            .bind(workspace.map(Id::as_str))
            .fetch(&mut *connection);
        while let Some(row) = rows.next().await {
            if visit(link(&row?)?) == ControlFlow::Break(()) {
                break;
            }
        }
        Ok(())
    }

    async fn misindexed(&self, workspace: Option<&Id>) -> Result<Option<ReceiptId>, Error> {
        let mut connection = self.connection().await?;
        // A file that is only read may be one that an older program left.
        let statement = match version(&mut connection).await? {
            ..SESSIONS_SINCE => SELECT_MISINDEXED_1,
            _ => SELECT_MISINDEXED,
        };
        let row = sqlx::query(statement)
            .bind(workspace.map(Id::as_str))
            .fetch_optional(&mut *connection)
            .await?;
        row.map(|row| receipt_id(row.try_get(0)?)).transpose()
    }

    async fn mistold_session(&self, workspace: Option<&Id>) -> Result<Option<String>, Error> {
        let mut connection = self.connection().await?;
        if version(&mut connection).await? < SESSIONS_SINCE {
            return Ok(None);
        }
        let row = sqlx::query(SELECT_MISTOLD_SESSION)
            .bind(workspace.map(Id::as_str))
            .fetch_optional(&mut *connection)
            .await?;
        Ok(row.map(|row| row.try_get(0)).transpose()?)
    }
}

/// A session of a page, without its counts.
fn session(row: &SqliteRow, last_sequence: u64) -> Result<Session, Error> {
    let id: &str = row.try_get(0)?;
    Ok(Session {
        id: id
            .parse()
            .map_err(|_| Error::Corrupt("a session's id".to_owned()))?,
        first_ms: row.try_get(1)?,
        last_ms: row.try_get(2)?,
        last_sequence,
        changes: 0,
        states: Vec::new(),
    })
}

/// Adds what a row says of one state of a session's receipts.
fn count(session: &mut Session, row: &SqliteRow) -> Result<(), Error> {
    let state = match row.try_get::<i64, _>(4)? {
        1 => State::Awaiting,
        2 => State::Executing,
        3 => State::Completed,
        4 => State::Refused,
        5 => State::Uncertain,
        _ => return Ok(()),
    };
    session.states.push((state, unsigned(row.try_get(5)?)));
    session.changes += unsigned(row.try_get(6)?);
    Ok(())
}

/// The lowest id that a receipt begun at a time can have. Ids are UUIDs of version 7, which begin with it.
fn lowest_id(millis: i64) -> Vec<u8> {
    /// The largest time that fits into such an id.
    const LAST: i64 = (1 << 48) - 1;
    let mut id = millis.clamp(0, LAST).to_be_bytes()[2..].to_vec();
    id.resize(16, 0);
    id
}

/// The ids of a page within its bytes, and where the next one begins.
async fn page(
    connection: &mut SqliteConnection,
    filter: &Filter,
) -> Result<(Vec<ReceiptId>, Option<ReceiptId>), Error> {
    let before = filter.before.map(|id| id.as_uuid().as_bytes().to_vec());
    let until = filter.until_ms.map(lowest_id);
    let end = [before, until].into_iter().flatten().min();
    // The same filters make the same text, which keeps its prepared statement.
    let rows = sqlx::query(AssertSqlSafe(list(filter)))
        .bind(filter.workspace.as_ref().map(Id::as_str))
        .bind(filter.session.as_ref().map(Id::as_str))
        .bind(filter.tool.as_deref())
        .bind(end.unwrap_or_else(|| vec![u8::MAX; 16]))
        .bind(lowest_id(filter.since_ms.unwrap_or(0)))
        .bind(i64::from(filter.limit) + 1)
        .fetch_all(connection)
        .await?;
    let limit = usize::try_from(filter.limit).unwrap_or(usize::MAX);
    let (mut ids, mut bytes) = (Vec::new(), 0);
    for row in &rows {
        bytes += usize::try_from(row.try_get::<i64, _>(1)?).unwrap_or(usize::MAX);
        if ids.len() == limit || (bytes > filter.bytes && !ids.is_empty()) {
            let last = ids.last().copied();
            return Ok((ids, last));
        }
        ids.push(receipt_id(row.try_get(0)?)?);
    }
    Ok((ids, None))
}

fn receipt_id(bytes: &[u8]) -> Result<ReceiptId, Error> {
    uuid::Uuid::from_slice(bytes)
        .map(ReceiptId::from)
        .map_err(|_| Error::Corrupt("a receipt's id".to_owned()))
}

fn link(row: &SqliteRow) -> Result<Link<'_>, Error> {
    Ok(Link {
        position: row.try_get(0)?,
        workspace: row.try_get(1)?,
        sequence: row.try_get(2)?,
        receipt: row.try_get(3)?,
        hash: row.try_get(4)?,
        // What is no text is no event either, and is told as such.
        body: std::str::from_utf8(row.try_get(5)?).unwrap_or_default(),
        beside: Some(Beside {
            plan: row.try_get(6)?,
            proposal: row.try_get(7)?,
            result: row.try_get(8)?,
            answer: row.try_get(9)?,
        }),
    })
}
