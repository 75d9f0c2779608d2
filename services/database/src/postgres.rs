//! PostgreSQL: settings, the write lock, deadlines and the schema's versions.

use std::time::Duration;

use sqlx::{
    PgConnection, PgPool, Postgres, Row as _, Transaction,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use tokio::time::Instant;

use crate::{Error, Schema, Server};

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
/// The only encoding that holds every text.
const ENCODING: &str = "UTF8";
/// What the server itself ends, so that a process that hangs does not hold the lock for the others.
const SETTINGS: [(&str, &str); 9] = [
    ("statement_timeout", "6s"),
    ("lock_timeout", "5s"),
    ("idle_in_transaction_session_timeout", "8s"),
    // An answer is given only for what is on the disk, whatever the server's own default.
    ("synchronous_commit", "on"),
    // Statements here are short: compiling one costs more than running it.
    ("jit", "off"),
    // A process that the network has lost is noticed by the server as well, in about the same time.
    ("tcp_user_timeout", "8s"),
    ("tcp_keepalives_idle", "5s"),
    ("tcp_keepalives_interval", "1s"),
    ("tcp_keepalives_count", "3"),
];

/// When a transaction that begins now is given up.
#[must_use]
pub fn deadline() -> Instant {
    Instant::now() + LIMIT
}

/// Gives up at the deadline: a server can hang without the connection breaking.
///
/// # Errors
/// What `work` fails with, or [`Error::Silent`] at the deadline.
pub fn limited<T, E: From<Error>>(
    deadline: Instant,
    work: impl Future<Output = Result<T, E>> + Send,
) -> impl Future<Output = Result<T, E>> + Send {
    // The future of a connection that may have to be made is large: it has a place of its own.
    let work = Box::pin(work);
    async move {
        tokio::time::timeout_at(deadline, work)
            .await
            .unwrap_or_else(|_| Err(Error::Silent.into()))
    }
}

/// How every connection to a schema is made.
#[must_use]
pub fn options(server: &Server, schema: &Schema) -> PgConnectOptions {
    server
        .options()
        .application_name("postern")
        .statement_cache_capacity(STATEMENTS)
        .options(SETTINGS)
        .options([("search_path", schema.name)])
}

/// Connections that are made when they are needed.
pub(crate) fn pool(options: PgConnectOptions) -> PgPool {
    PgPoolOptions::new()
        .max_connections(CONNECTIONS)
        .acquire_timeout(ACQUIRE_TIMEOUT)
        .idle_timeout(IDLE)
        .max_lifetime(LIFETIME)
        .connect_lazy_with(options)
}

/// Begins a transaction that reads one state throughout.
pub(crate) async fn read(pool: &PgPool) -> Result<Transaction<'static, Postgres>, Error> {
    let begin = "BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY";
    Ok(pool.begin_with(begin).await?)
}

/// Begins a transaction that no other of the schema runs beside. What it reads after that is committed and stays as it is.
pub(crate) async fn write(
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
pub(crate) async fn migrate(pool: &PgPool, schema: &Schema) -> Result<(), Error> {
    let found = recorded(&mut *pool.acquire().await?, schema).await?;
    if pending(found, schema)?.is_empty() {
        return Ok(());
    }
    let mut transaction = write(pool, schema).await?;
    demand_encoding(&mut transaction).await?;
    // Another process may have been there first.
    let found = recorded(&mut transaction, schema).await?;
    if found.is_none() {
        make(&mut transaction, schema).await?;
    }
    for script in pending(found, schema)? {
        sqlx::raw_sql(*script).execute(&mut *transaction).await?;
    }
    sqlx::query("UPDATE schema_version SET version = $1")
        .bind(Schema::newest(schema.postgres))
        .execute(&mut *transaction)
        .await?;
    transaction.commit().await?;
    Ok(())
}

/// Refuses a database that cannot hold every text, such as one whose cluster was made without a locale.
async fn demand_encoding(connection: &mut PgConnection) -> Result<(), Error> {
    let row = sqlx::query("SELECT current_setting('server_encoding')")
        .fetch_one(connection)
        .await?;
    let encoding: String = row.try_get(0)?;
    if encoding == ENCODING {
        Ok(())
    } else {
        Err(Error::Encoding(encoding))
    }
}

/// The version of a schema that is there: 0 when it was not made yet.
///
/// # Errors
/// [`Error::NewerTables`] when a newer program has made it, and [`Error::Store`] when it cannot be read.
pub async fn version(connection: &mut PgConnection, schema: &Schema) -> Result<i64, Error> {
    let found = recorded(connection, schema).await?;
    pending(found, schema)?;
    Ok(found.unwrap_or(0))
}

/// The schema's version, if there is one.
async fn recorded(connection: &mut PgConnection, schema: &Schema) -> Result<Option<i64>, Error> {
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
    Schema::pending(schema.postgres, found).ok_or(Error::NewerTables {
        found,
        known: Schema::newest(schema.postgres),
    })
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
