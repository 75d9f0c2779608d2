//! A service's database: a SQLite file, or PostgreSQL by URL. Statements are written once, in the SQL that both speak, and
//! what differs (opening, taking the write lock, the scripts that make the tables) is here. `sqlx::Any` would do the same
//! with fewer types and without the settings of either.
//!
//! Writing transactions take one lock on both: SQLite's own, and an advisory one on PostgreSQL. So each of them sees all that
//! was committed before, and two never decide on the same state. Writes here are rare; what is asked often is in memory.

use postern_kit::trace::{self, Span};
use sqlx::{PgPool, SqlitePool};
use tokio::time::Instant;

use crate::{
    Database, Error, Row, Schema, Value,
    postgres::{self, limited},
    sqlite,
    statement::{bound, fetch},
};

/// What spans call the two.
const SQLITE: &str = "sqlite";
const POSTGRESQL: &str = "postgresql";
/// What spans call the databases of services that speak by a pool.
const NAMESPACE: &str = "identity";

/// Connections to a database. Clones stand for the same ones.
#[derive(Clone, Debug)]
pub enum Pool {
    /// To a file.
    Sqlite(SqlitePool),
    /// To a server, with the schema there.
    Postgres(PgPool, &'static Schema),
}

impl Pool {
    /// Opens a SQLite file and brings it to the present schema, or gets ready to connect to PostgreSQL, which may be away;
    /// [`Pool::prepare`] brings that to the present schema once it is there.
    ///
    /// # Errors
    /// When the file cannot be used: what is wrong with it and what to do. Never for PostgreSQL.
    pub async fn open(database: &Database, schema: &'static Schema) -> Result<Self, Error> {
        Ok(match database {
            Database::Sqlite(path) => Self::Sqlite(sqlite::open(path, schema).await?),
            Database::Postgres(server) => {
                Self::Postgres(postgres::pool(postgres::options(server, schema)), schema)
            }
        })
    }

    /// Whether other processes may write to the same database.
    #[must_use]
    pub const fn is_shared(&self) -> bool {
        matches!(self, Self::Postgres(..))
    }

    const fn system(&self) -> &'static str {
        match self {
            Self::Sqlite(_) => SQLITE,
            Self::Postgres(..) => POSTGRESQL,
        }
    }

    /// The connections to PostgreSQL, for statements that only it knows; `None` for a file.
    #[must_use]
    pub const fn postgres(&self) -> Option<&PgPool> {
        match self {
            Self::Sqlite(_) => None,
            Self::Postgres(pool, _) => Some(pool),
        }
    }

    /// Brings PostgreSQL to the present schema. A SQLite file was when it was opened.
    ///
    /// # Errors
    /// When the server is away ([`Error::is_away`]), a newer program made the tables, or the database cannot hold every text.
    pub async fn prepare(&self) -> Result<(), Error> {
        match self {
            Self::Sqlite(_) => Ok(()),
            Self::Postgres(pool, schema) => {
                let deadline = postgres::deadline();
                limited(deadline, postgres::migrate(pool, schema)).await
            }
        }
    }

    /// Waits for what runs and closes the connections.
    pub async fn close(&self) {
        match self {
            Self::Sqlite(pool) => pool.close().await,
            Self::Postgres(pool, _) => {
                // A server that hangs must not hold up the end.
                let closed = tokio::time::timeout_at(postgres::deadline(), pool.close());
                drop(closed.await);
            }
        }
    }

    /// Begins a transaction that reads one state of the database throughout.
    ///
    /// # Errors
    /// When the database is away, does not answer in time, or refuses.
    pub async fn read(&self) -> Result<Transaction, Error> {
        Ok(match self {
            Self::Sqlite(pool) => Transaction::Sqlite(pool.begin().await?),
            Self::Postgres(pool, _) => {
                let deadline = postgres::deadline();
                let begun = limited(deadline, postgres::read(pool)).await?;
                Transaction::Postgres(begun, deadline)
            }
        })
    }

    /// Begins a transaction that writes, alone.
    ///
    /// # Errors
    /// When the database is away, does not answer in time, or refuses.
    pub async fn write(&self) -> Result<Transaction, Error> {
        Ok(match self {
            Self::Sqlite(pool) => Transaction::Sqlite(pool.begin_with(sqlite::WRITE).await?),
            Self::Postgres(pool, schema) => {
                let deadline = postgres::deadline();
                let begun = limited(deadline, postgres::write(pool, schema)).await?;
                Transaction::Postgres(begun, deadline)
            }
        })
    }

    /// The rows of one statement.
    ///
    /// # Errors
    /// When the database is away, does not answer in time, or refuses.
    pub async fn fetch_all(
        &self,
        sql: &'static str,
        values: &[Value<'_>],
    ) -> Result<Vec<Row>, Error> {
        let statement = async {
            match self {
                Self::Sqlite(pool) => fetch!(Row::Sqlite, pool, sql, values),
                Self::Postgres(pool, _) => {
                    let rows = async { fetch!(Row::Postgres, pool, sql, values) };
                    limited(postgres::deadline(), rows).await
                }
            }
        };
        traced(self.system(), operation(sql), statement).await
    }

    /// The first row of one statement.
    ///
    /// # Errors
    /// When the database is away, does not answer in time, or refuses.
    pub async fn fetch_optional(
        &self,
        sql: &'static str,
        values: &[Value<'_>],
    ) -> Result<Option<Row>, Error> {
        Ok(self.fetch_all(sql, values).await?.into_iter().next())
    }
}

/// A transaction. Dropped before its commit it leaves nothing behind. On PostgreSQL all of it has one deadline.
#[derive(Debug)]
pub enum Transaction {
    /// In a file.
    Sqlite(sqlx::Transaction<'static, sqlx::Sqlite>),
    /// On a server, until its deadline.
    Postgres(sqlx::Transaction<'static, sqlx::Postgres>, Instant),
}

impl Transaction {
    /// Whether other processes may write to the same database.
    #[must_use]
    pub const fn is_shared(&self) -> bool {
        matches!(self, Self::Postgres(..))
    }

    const fn system(&self) -> &'static str {
        match self {
            Self::Sqlite(_) => SQLITE,
            Self::Postgres(..) => POSTGRESQL,
        }
    }

    /// The number of rows that a statement changed.
    ///
    /// # Errors
    /// When the database is away, does not answer in time, or refuses.
    pub async fn execute(&mut self, sql: &'static str, values: &[Value<'_>]) -> Result<u64, Error> {
        let system = self.system();
        let statement = async {
            Ok(match self {
                Self::Sqlite(transaction) => bound!(sqlx::query(sql), values)
                    .execute(&mut **transaction)
                    .await?
                    .rows_affected(),
                Self::Postgres(transaction, deadline) => {
                    let done = bound!(sqlx::query(sql), values).execute(&mut **transaction);
                    limited(*deadline, async { Ok::<_, Error>(done.await?) })
                        .await?
                        .rows_affected()
                }
            })
        };
        traced(system, operation(sql), statement).await
    }

    /// The rows of a statement.
    ///
    /// # Errors
    /// When the database is away, does not answer in time, or refuses.
    pub async fn fetch_all(
        &mut self,
        sql: &'static str,
        values: &[Value<'_>],
    ) -> Result<Vec<Row>, Error> {
        let system = self.system();
        let statement = async {
            match self {
                Self::Sqlite(transaction) => fetch!(Row::Sqlite, &mut **transaction, sql, values),
                Self::Postgres(transaction, deadline) => {
                    let rows = async { fetch!(Row::Postgres, &mut **transaction, sql, values) };
                    limited(*deadline, rows).await
                }
            }
        };
        traced(system, operation(sql), statement).await
    }

    /// The first row of a statement.
    ///
    /// # Errors
    /// When the database is away, does not answer in time, or refuses.
    pub async fn fetch_optional(
        &mut self,
        sql: &'static str,
        values: &[Value<'_>],
    ) -> Result<Option<Row>, Error> {
        Ok(self.fetch_all(sql, values).await?.into_iter().next())
    }

    /// Makes it all durable.
    ///
    /// # Errors
    /// When it may not be durable. On PostgreSQL it may be all the same: the answer can be lost.
    pub async fn commit(self) -> Result<(), Error> {
        let system = self.system();
        let statement = async {
            match self {
                Self::Sqlite(transaction) => Ok(transaction.commit().await?),
                Self::Postgres(transaction, deadline) => {
                    limited(deadline, async { Ok(transaction.commit().await?) }).await
                }
            }
        };
        traced(system, "COMMIT", statement).await
    }
}

/// Has a statement in a span of its own.
async fn traced<T>(
    system: &'static str,
    operation: &'static str,
    statement: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let span: Span = trace::database(system, NAMESPACE, operation);
    let done = span.run(statement).await;
    if done.is_err() {
        span.fail("database");
    }
    done
}

/// What a statement does, by its first word.
fn operation(sql: &'static str) -> &'static str {
    sql.split_whitespace().next().unwrap_or("EXECUTE")
}
