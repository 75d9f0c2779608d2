//! The reading connections.

use std::{io, ops::ControlFlow, path::Path, sync::Arc, time::Duration};

use postern_database::sqlite;
use postern_types::{Id, ReceiptId, Sha256};
use sqlx::{
    AssertSqlSafe, Row as _, SqliteConnection, SqlitePool,
    pool::PoolConnection,
    sqlite::{Sqlite, SqliteConnectOptions, SqlitePoolOptions, SqliteRow},
};
use tokio_stream::StreamExt as _;

use super::{
    copy::is_unfinished,
    fold, heads, ids_json, json, keys_json, options,
    statements::{
        SELECT_BY_IDS, SELECT_BY_KEYS, SELECT_CHAIN, SELECT_HASH, SELECT_KEYS, SELECT_MISINDEXED,
        SELECT_MISINDEXED_1, SELECT_MISTOLD_SESSION, SELECT_PAGE, SESSIONS, list,
    },
};
use crate::{
    Error,
    fold::{digest, unsigned},
    page::{self, SessionRow, bytes_of, end_of, lowest_of, receipt_id},
    receipt::{Key, Receipt},
    store::{Filter, Head, Page, Read, SCHEMA, SessionFilter, SessionPage},
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

fn readable(path: &Path) -> SqliteConnectOptions {
    options(path).read_only(true)
}

/// Opens the file for reading only, whether or not a ledger runs on it.
pub(crate) async fn open_read_only(path: &Path) -> Result<Reader, Error> {
    let reader = Reader::new(path);
    match reader.check().await {
        Err(Error::Database(_)) if !has_log(path)? => {
            // A directory that cannot be written has no room for the files by which readers and a writer agree.
            // Without a log there is nothing to agree on.
            let reader = Reader::with(path, readable(path).immutable(true));
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
    path: Arc<Path>,
    pool: SqlitePool,
}

impl Reader {
    pub(super) fn new(path: &Path) -> Self {
        Self::with(path, readable(path))
    }

    fn with(path: &Path, options: SqliteConnectOptions) -> Self {
        let pool = SqlitePoolOptions::new()
            .max_connections(READERS)
            .min_connections(0)
            .idle_timeout(IDLE_TIMEOUT)
            .max_lifetime(None)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            .test_before_acquire(false)
            .connect_lazy_with(options);
        Self {
            path: path.into(),
            pool,
        }
    }

    async fn check(&self) -> Result<(), Error> {
        let mut connection = self.connection().await?;
        if is_unfinished(&mut connection).await? {
            return Err(Error::UnfinishedCopy);
        }
        match self.version(&mut connection).await? {
            0 => Err(Error::Foreign),
            _ => Ok(()),
        }
    }

    /// The schema's version. A file that is only read may be one that an older program left.
    async fn version(&self, connection: &mut SqliteConnection) -> Result<i64, Error> {
        if is_unfinished(connection).await? {
            return Ok(SESSIONS_SINCE);
        }
        Ok(sqlite::version(connection, &self.path, &SCHEMA).await?)
    }

    pub(super) async fn connection(&self) -> Result<PoolConnection<Sqlite>, Error> {
        Ok(self.pool.acquire().await?)
    }
}

impl Read for Reader {
    fn system(&self) -> &'static str {
        super::SYSTEM
    }

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
        page::sessions(rows.iter().map(session_row), filter.limit)
    }

    async fn keys(
        &self,
        after: Option<ReceiptId>,
        limit: u32,
        mut visit: impl FnMut(&str, &str, &str) + Send,
    ) -> Result<Option<ReceiptId>, Error> {
        let after = after.map_or(Vec::new(), bytes_of);
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
        let statement = match self.version(&mut connection).await? {
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
        if self.version(&mut connection).await? < SESSIONS_SINCE {
            return Ok(None);
        }
        let row = sqlx::query(SELECT_MISTOLD_SESSION)
            .bind(workspace.map(Id::as_str))
            .fetch_optional(&mut *connection)
            .await?;
        Ok(row.map(|row| row.try_get(0)).transpose()?)
    }
}

/// What a row says of one state of a session's receipts.
fn session_row(row: &SqliteRow) -> Result<SessionRow<'_>, Error> {
    Ok(SessionRow {
        session: row.try_get(0)?,
        first_ms: row.try_get(1)?,
        last_ms: row.try_get(2)?,
        last_sequence: unsigned(row.try_get(3)?),
        state: row.try_get(4)?,
        receipts: unsigned(row.try_get(5)?),
        changes: unsigned(row.try_get(6)?),
    })
}

/// The ids of a page within its bytes, and where the next one begins.
async fn page(
    connection: &mut SqliteConnection,
    filter: &Filter,
) -> Result<(Vec<ReceiptId>, Option<ReceiptId>), Error> {
    // The same filters make the same text, which keeps its prepared statement.
    let rows = sqlx::query(AssertSqlSafe(list(filter)))
        .bind(filter.workspace.as_ref().map(Id::as_str))
        .bind(filter.session.as_ref().map(Id::as_str))
        .bind(filter.tool.as_deref())
        .bind(end_of(filter))
        .bind(lowest_of(filter))
        .bind(i64::from(filter.limit) + 1)
        .fetch_all(connection)
        .await?;
    let found = rows
        .iter()
        .map(|row| Ok((receipt_id(row.try_get(0)?)?, row.try_get(1)?)));
    page::cut(found, filter)
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
