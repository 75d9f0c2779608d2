//! The store on SQLite, whose SQL lies in one file beside this one.
//!
//! One writing connection, which only the writer task uses, and a few short-lived reading ones. A batch is one
//! transaction in one trip to the connection's thread: it takes the write lock at its start and is durable when it returns
//! (`synchronous=FULL`).

mod append;
mod copy;
mod reader;
mod statements;
mod workers;

use std::{
    fs::{File, OpenOptions, TryLockError},
    io,
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
    time::Duration,
};

use bytes::Bytes;
use postern_database::sqlite;
use postern_types::{Id, ReceiptId, Sha256};
use sqlx::{
    AssertSqlSafe, ConnectOptions as _, Connection as _, Row as _, SqliteConnection,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteRow, SqliteSynchronous},
};

use self::statements::{
    INSERT_INCARNATION, INSERT_WORKSPACE, SELECT_BY_IDS, SELECT_BY_KEYS, SELECT_HEADS,
};
pub(crate) use self::{
    copy::{source, target},
    reader::{Reader, open_read_only},
};
use crate::{
    Error,
    fold::{Fold, digest, unsigned},
    receipt::{Blobs, Key, Receipt},
    store::{Head, Loaded, Opened, Row, SCHEMA, Wanted, Write},
    workers::WorkerRow,
};

/// What spans call it.
const SYSTEM: &str = "sqlite";
/// How long a statement waits for another program that holds the file, such as a backup.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// How often the lock is tried, and the time between: a child that this process is starting holds a lock that was given back a
/// moment ago until it is a program of its own.
const LOCK_TRIES: u32 = 10;
const LOCK_PAUSE: Duration = Duration::from_millis(20);
/// How long tidying may hold writers up while it waits for readers.
const TIDY_TIMEOUT_MS: u64 = 100;
/// Page cache of one connection, in KiB.
const CACHE_KIB: &str = "-2048";
/// Pages of the log (4 KiB each) after which it is copied into the file.
const CHECKPOINT_PAGES: &str = "2000";
/// Size that the log is cut back to, in bytes.
const LOG_BYTES: &str = "8388608";
/// Rows in flight between a connection's thread and its user; each may hold a whole result.
const ROWS_IN_FLIGHT: usize = 8;

/// Opens the file for writing, creating it when it is not there. Tells how many events it holds, too.
pub(crate) async fn open(path: &Path) -> Result<(Writer, Reader, u64), Error> {
    let lock = lock(path).await?;
    let options = writable(path);
    let mut connection = options.connect().await?;
    if copy::is_unfinished(&mut connection).await? {
        return Err(Error::UnfinishedCopy);
    }
    sqlite::migrate(&mut connection, path, &SCHEMA).await?;
    let count = sqlx::query("SELECT coalesce(max(position), 0) FROM events")
        .fetch_one(&mut connection)
        .await?
        .try_get(0)?;
    let writer = Writer {
        options,
        connection: Some(connection),
        _lock: lock,
    };
    let reader = Reader::new(path);
    Ok((writer, reader, unsigned(count)))
}

/// How a file is opened that is written to.
fn writable(path: &Path) -> SqliteConnectOptions {
    options(path)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .pragma("wal_autocheckpoint", CHECKPOINT_PAGES)
        .pragma("journal_size_limit", LOG_BYTES)
        .pragma("recursive_triggers", "ON")
}

fn options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .busy_timeout(BUSY_TIMEOUT)
        .row_buffer_size(ROWS_IN_FLIGHT)
        .pragma("cache_size", CACHE_KIB)
        .disable_statement_logging()
}

/// Creates the directory (0700) and file (0600) when they are not there, and takes the lock that keeps a second ledger
/// out. The lock lies on a file of its own: closing any descriptor of the database would drop SQLite's own locks.
async fn lock(path: &Path) -> Result<File, Error> {
    let path = path.to_owned();
    let task = tokio::task::spawn_blocking(move || {
        sqlite::make_private(&path)?;
        let mut name = path.as_os_str().to_owned();
        name.push("-lock");
        let lock = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(name)?;
        for _ in 0..LOCK_TRIES {
            match lock.try_lock() {
                Ok(()) => return Ok(lock),
                Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_PAUSE),
                Err(TryLockError::Error(error)) => return Err(error.into()),
            }
        }
        Err(Error::InUse)
    });
    task.await
        .map_err(|error| Error::from(io::Error::other(error)))?
}

/// The writing connection. After a failure it is opened afresh.
#[derive(Debug)]
pub(crate) struct Writer {
    options: SqliteConnectOptions,
    connection: Option<SqliteConnection>,
    _lock: File,
}

impl Writer {
    async fn connection(&mut self) -> Result<&mut SqliteConnection, Error> {
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.options.connect().await?,
        };
        Ok(self.connection.insert(connection))
    }

    /// Lets appends find no room, or as much as they want.
    #[cfg(test)]
    pub(crate) async fn forbid_growth(&mut self, forbidden: bool) -> Result<(), Error> {
        let limit = if forbidden {
            "PRAGMA max_page_count = 1"
        } else {
            "PRAGMA max_page_count = 4294967294"
        };
        let connection = self.connection().await?;
        sqlx::raw_sql(limit).execute(connection).await?;
        Ok(())
    }

    async fn renewed_on_failure<T>(&mut self, result: Result<T, Error>) -> Result<T, Error> {
        if result.is_err()
            && let Some(connection) = self.connection.take()
        {
            // It has failed already: how it closes tells nothing more.
            let _ = connection.close().await;
        }
        result
    }
}

impl Write for Writer {
    fn system(&self) -> &'static str {
        SYSTEM
    }

    async fn load(&mut self, wanted: &Wanted) -> Result<Loaded, Error> {
        let connection = self.connection().await?;
        let result = load(connection, wanted).await;
        self.renewed_on_failure(result).await
    }

    async fn append(&mut self, rows: Vec<Row>) -> Result<(), Error> {
        let connection = self.connection().await?;
        let result = append::append(connection, rows).await;
        self.renewed_on_failure(result).await
    }

    async fn open(&mut self, workspace: &Id, at_ms: i64) -> Result<Opened, Error> {
        let connection = self.connection().await?;
        let result = open_incarnation(connection, workspace, at_ms).await;
        self.renewed_on_failure(result).await
    }

    async fn put_workers(&mut self, rows: &[WorkerRow]) -> Result<(), Error> {
        let connection = self.connection().await?;
        let result = workers::put(connection, rows).await;
        self.renewed_on_failure(result).await
    }

    async fn workers(&mut self) -> Result<Vec<WorkerRow>, Error> {
        let connection = self.connection().await?;
        let result = workers::all(connection).await;
        self.renewed_on_failure(result).await
    }

    async fn tidy(&mut self) -> Result<(), Error> {
        let connection = self.connection().await?;
        let tidy = format!(
            "PRAGMA busy_timeout = {TIDY_TIMEOUT_MS}; PRAGMA wal_checkpoint(TRUNCATE); PRAGMA busy_timeout = {}",
            BUSY_TIMEOUT.as_millis()
        );
        let result = sqlx::raw_sql(AssertSqlSafe(tidy)).execute(connection).await;
        self.renewed_on_failure(result.map_err(Error::from)).await?;
        Ok(())
    }

    async fn close(mut self) {
        if let Some(connection) = self.connection.take()
            && let Err(error) = connection.close().await
        {
            tracing::warn!(%error, "the ledger's database did not close cleanly");
        }
    }
}

async fn load(connection: &mut SqliteConnection, wanted: &Wanted) -> Result<Loaded, Error> {
    let mut loaded = Loaded::default();
    if !wanted.workspaces.is_empty() {
        loaded.workspaces = heads(&mut *connection, &wanted.workspaces).await?;
    }
    if !wanted.keys.is_empty() {
        let query = sqlx::query(SELECT_BY_KEYS).bind(keys_json(&wanted.keys));
        loaded.receipts = fold(&query.fetch_all(&mut *connection).await?)?;
    }
    if !wanted.receipts.is_empty() {
        let query = sqlx::query(SELECT_BY_IDS).bind(ids_json(&wanted.receipts));
        let rows = query.fetch_all(&mut *connection).await?;
        loaded.receipts.extend(fold(&rows)?);
    }
    Ok(loaded)
}

async fn open_incarnation(
    connection: &mut SqliteConnection,
    workspace: &Id,
    at_ms: i64,
) -> Result<Opened, Error> {
    sqlx::query(INSERT_WORKSPACE)
        .bind(workspace.as_str())
        .execute(&mut *connection)
        .await?;
    let row = sqlx::query(INSERT_INCARNATION)
        .bind(at_ms)
        .bind(workspace.as_str())
        .fetch_one(&mut *connection)
        .await?;
    Ok(Opened {
        incarnation: unsigned(row.try_get(0)?),
        orphans: unsigned(row.try_get(1)?),
    })
}

async fn heads(
    connection: &mut SqliteConnection,
    workspaces: &[Id],
) -> Result<Vec<(Id, Head)>, Error> {
    let ids: Vec<_> = workspaces.iter().map(Id::as_str).collect();
    let rows = sqlx::query(SELECT_HEADS)
        .bind(json(&ids))
        .fetch_all(connection)
        .await?;
    rows.iter()
        .map(|row| {
            let id: &str = row.try_get(0)?;
            let id = id
                .parse()
                .map_err(|_| Error::Corrupt("a workspace's id".to_owned()))?;
            let hash: Option<&[u8]> = row.try_get(4)?;
            let head = Head {
                number: row.try_get(1)?,
                incarnation: unsigned(row.try_get::<Option<i64>, _>(2)?.unwrap_or(0)),
                sequence: unsigned(row.try_get::<Option<i64>, _>(3)?.unwrap_or(0)),
                hash: hash.map_or(Ok(Sha256::ZERO), digest)?,
            };
            Ok((id, head))
        })
        .collect()
}

/// Receipts from their events, which come one receipt after the other.
fn fold(rows: &[SqliteRow]) -> Result<Vec<Receipt>, Error> {
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

fn keys_json(keys: &[Key]) -> String {
    let keys: Vec<_> = keys
        .iter()
        .map(|key| {
            [
                key.workspace.as_str(),
                key.session.as_str(),
                key.call.as_str(),
            ]
        })
        .collect();
    json(&keys)
}

fn ids_json(ids: &[ReceiptId]) -> String {
    let ids: Vec<_> = ids
        .iter()
        .map(|id| id.as_uuid().simple().to_string())
        .collect();
    json(&ids)
}

/// Strings and arrays of them are always JSON.
fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}
