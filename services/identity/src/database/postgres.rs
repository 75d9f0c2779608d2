//! PostgreSQL: settings, the write lock, deadlines and the schema's versions.

use std::time::Duration;

use sqlx::{
    PgConnection, PgPool, Postgres, Row as _, Transaction,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use tokio::time::Instant;

use super::{Schema, location::Server};
use crate::Error;

/// Time that a transaction has, with the wait for its connection: within the hop's deadline of 10 s.
const LIMIT: Duration = Duration::from_secs(8);
/// Time that the wait for a connection has.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);
/// Connections of one process. Writes take turns anyway, and what is asked often is in memory.
const CONNECTIONS: u32 = 8;
/// Time after which a connection that nobody uses is closed.
const IDLE: Duration = Duration::from_secs(300);
/// Time after which a connection is made anew.
const LIFETIME: Duration = Duration::from_secs(1800);
/// Prepared statements kept by a connection: above the number of statements of a store.
const STATEMENTS: usize = 64;
/// What the server itself ends, so that a process that hangs does not hold the lock for the others.
const SETTINGS: [(&str, &str); 4] = [
    ("statement_timeout", "6s"),
    ("lock_timeout", "5s"),
    ("idle_in_transaction_session_timeout", "8s"),
    // An answer is given only for what is on the disk, whatever the server's own default.
    ("synchronous_commit", "on"),
];

/// When a transaction that begins now is given up.
pub(super) fn deadline() -> Instant {
    Instant::now() + LIMIT
}

/// Gives up at the deadline: a server can hang without the connection breaking.
pub(super) fn limited<T>(
    deadline: Instant,
    work: impl Future<Output = Result<T, Error>> + Send,
) -> impl Future<Output = Result<T, Error>> + Send {
    // The future of a connection that may have to be made is large: it has a place of its own.
    let work = Box::pin(work);
    async move {
        tokio::time::timeout_at(deadline, work)
            .await
            .unwrap_or(Err(Error::Silent))
    }
}

/// Connections that are made when they are needed.
pub(super) fn pool(server: &Server, schema: &Schema) -> PgPool {
    let options = PgConnectOptions::clone(&server.0)
        .application_name("postern")
        .statement_cache_capacity(STATEMENTS)
        .options(SETTINGS)
        .options([("search_path", schema.name)]);
    PgPoolOptions::new()
        .max_connections(CONNECTIONS)
        .acquire_timeout(ACQUIRE_TIMEOUT)
        .idle_timeout(IDLE)
        .max_lifetime(LIFETIME)
        .connect_lazy_with(options)
}

/// Begins a transaction that reads one state throughout.
pub(super) async fn read(pool: &PgPool) -> Result<Transaction<'static, Postgres>, Error> {
    let begin = "BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY";
    Ok(pool.begin_with(begin).await?)
}

/// Begins a transaction that no other of the schema runs beside. What it reads after that is committed and stays as it is.
pub(super) async fn write(
    pool: &PgPool,
    schema: &Schema,
) -> Result<Transaction<'static, Postgres>, Error> {
    let begin = "BEGIN TRANSACTION ISOLATION LEVEL READ COMMITTED READ WRITE";
    let mut transaction = pool.begin_with(begin).await?;
    sqlx::query("SELECT pg_advisory_xact_lock($1)")
        .bind(schema.application_id)
        .execute(&mut *transaction)
        .await?;
    Ok(transaction)
}

/// Brings the schema to its present version. Processes that start together take turns.
pub(super) async fn migrate(pool: &PgPool, schema: &Schema) -> Result<(), Error> {
    let found = version(&mut *pool.acquire().await?, schema).await?;
    if pending(found, schema)?.is_empty() {
        return Ok(());
    }
    let mut transaction = write(pool, schema).await?;
    // Another process may have been there first.
    let found = version(&mut transaction, schema).await?;
    if found.is_none() {
        make(&mut transaction, schema).await?;
    }
    for script in pending(found, schema)? {
        sqlx::raw_sql(*script).execute(&mut *transaction).await?;
    }
    sqlx::query("UPDATE schema_version SET version = $1")
        .bind(newest(schema))
        .execute(&mut *transaction)
        .await?;
    transaction.commit().await?;
    Ok(())
}

/// The schema's version, if there is one.
async fn version(connection: &mut PgConnection, schema: &Schema) -> Result<Option<i64>, Error> {
    let exists = sqlx::query(
        "SELECT 1 FROM pg_catalog.pg_tables WHERE schemaname = $1 AND tablename = 'schema_version'",
    )
    .bind(schema.name)
    .fetch_optional(&mut *connection)
    .await?;
    if exists.is_none() {
        return Ok(None);
    }
    let row = sqlx::query("SELECT version FROM schema_version")
        .fetch_one(connection)
        .await?;
    Ok(Some(row.try_get("version")?))
}

/// The scripts that were not applied yet.
fn pending(found: Option<i64>, schema: &Schema) -> Result<&'static [&'static str], Error> {
    let found = found.unwrap_or(0);
    let applied = usize::try_from(found).unwrap_or(usize::MAX);
    schema.postgres.get(applied..).ok_or(Error::NewerTables {
        found,
        known: newest(schema),
    })
}

fn newest(schema: &Schema) -> i64 {
    i64::try_from(schema.postgres.len()).unwrap_or(i64::MAX)
}

/// Makes the schema itself, unless the server's administrator has: that takes fewer rights then.
async fn make(
    transaction: &mut Transaction<'static, Postgres>,
    schema: &Schema,
) -> Result<(), Error> {
    let made = sqlx::query("SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = $1")
        .bind(schema.name)
        .fetch_optional(&mut **transaction)
        .await?;
    if made.is_none() {
        let create = format!("CREATE SCHEMA {}", schema.name);
        sqlx::raw_sql(sqlx::AssertSqlSafe(create))
            .execute(&mut **transaction)
            .await?;
    }
    let version = "CREATE TABLE schema_version (version BIGINT NOT NULL); INSERT INTO schema_version VALUES (0)";
    sqlx::raw_sql(version).execute(&mut **transaction).await?;
    Ok(())
}
