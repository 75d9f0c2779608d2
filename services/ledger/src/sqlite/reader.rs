//! The reading connections.

use std::{io, ops::ControlFlow, path::Path, time::Duration};

use postern_types::{Id, ReceiptId};
use sqlx::{
    Row as _, SqliteConnection, SqlitePool,
    pool::PoolConnection,
    sqlite::{Sqlite, SqliteConnectOptions, SqlitePoolOptions, SqliteRow},
};
use tokio_stream::StreamExt as _;

use super::{
    fold, heads, ids_json, keys_json, options,
    statements::{
        LIST, LIST_OPEN, SELECT_BY_IDS, SELECT_BY_KEYS, SELECT_CHAIN, SELECT_KEYS,
        SELECT_MISINDEXED, SELECT_PAGE,
    },
    version,
};
use crate::{
    Error,
    receipt::{Key, Receipt, State},
    store::{Filter, Head, Page, Read},
    verify::{Link, Walker},
};

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

    async fn walk(&self, workspace: Option<&Id>, walker: &mut Walker) -> Result<(), Error> {
        let mut connection = self.connection().await?;
        let mut rows = sqlx::query(SELECT_CHAIN)
            .bind(workspace.map(Id::as_str))
            .fetch(&mut *connection);
        while let Some(row) = rows.next().await {
            if walker.step(link(&row?)?) == ControlFlow::Break(()) {
                break;
            }
        }
        Ok(())
    }

    async fn misindexed(&self, workspace: Option<&Id>) -> Result<Option<ReceiptId>, Error> {
        let row = sqlx::query(SELECT_MISINDEXED)
            .bind(workspace.map(Id::as_str))
            .fetch_optional(&mut *self.connection().await?)
            .await?;
        row.map(|row| receipt_id(row.try_get(0)?)).transpose()
    }
}

/// The ids of a page within its bytes, and where the next one begins.
async fn page(
    connection: &mut SqliteConnection,
    filter: &Filter,
) -> Result<(Vec<ReceiptId>, Option<ReceiptId>), Error> {
    let statement = match filter.state {
        Some(State::Awaiting | State::Executing) => LIST_OPEN,
        None | Some(State::Completed | State::Refused | State::Uncertain | State::Abandoned) => {
            LIST
        }
    };
    let rows = sqlx::query(statement)
        .bind(filter.workspace.as_ref().map(Id::as_str))
        .bind(filter.session.as_ref().map(Id::as_str))
        .bind(filter.tool.as_deref())
        .bind(filter.state.map(|state| state as i64))
        .bind(filter.before.map(|id| id.as_uuid().as_bytes().to_vec()))
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
        body: row.try_get(5)?,
        plan: row.try_get(6)?,
        proposal: row.try_get(7)?,
        result: row.try_get(8)?,
        answer: row.try_get(9)?,
    })
}
