//! A service's database: a SQLite file, or PostgreSQL by URL. Statements are written once, in the SQL that both speak, and
//! what differs (opening, taking the write lock, the scripts that make the tables) is here. `sqlx::Any` would do the same
//! with fewer types and without the settings of either.
//!
//! Writing transactions take one lock on both: SQLite's own, and an advisory one on PostgreSQL. So each of them sees all that
//! was committed before, and two never decide on the same state. Writes here are rare; what is asked often is in memory.

mod location;
mod postgres;
mod sqlite;
mod statement;

use sqlx::{PgPool, SqlitePool};
use tokio::time::Instant;

pub use self::location::{Database, InvalidDatabase};
pub(crate) use self::statement::{Row, Value, values};
use self::{
    postgres::limited,
    statement::{bound, fetch},
};
use crate::Error;

/// What a service's database is known by, and how it is made.
#[derive(Debug)]
pub(crate) struct Schema {
    /// PostgreSQL's schema: several services can share one database.
    pub(crate) name: &'static str,
    /// SQLite's `application_id`: tells one service's file from another's.
    pub(crate) application_id: i64,
    /// One script for each version of the SQLite file, from 1. Scripts only ever add.
    pub(crate) sqlite: &'static [&'static str],
    /// The same for PostgreSQL, which began later.
    pub(crate) postgres: &'static [&'static str],
}

/// Connections to a database. Clones stand for the same ones.
#[derive(Clone, Debug)]
pub(crate) enum Pool {
    Sqlite(SqlitePool),
    Postgres(PgPool, &'static Schema),
}

impl Pool {
    /// Opens a SQLite file and brings it to the present schema, or gets ready to connect to PostgreSQL, which may be away;
    /// [`Pool::prepare`] brings that to the present schema once it is there.
    pub(crate) async fn open(database: &Database, schema: &'static Schema) -> Result<Self, Error> {
        Ok(match database {
            Database::Sqlite(path) => Self::Sqlite(sqlite::open(path, schema).await?),
            Database::Postgres(server) => Self::Postgres(postgres::pool(server, schema), schema),
        })
    }

    /// Whether other processes may write to the same database.
    pub(crate) const fn is_shared(&self) -> bool {
        matches!(self, Self::Postgres(..))
    }

    /// Brings PostgreSQL to the present schema.
    pub(crate) async fn prepare(&self) -> Result<(), Error> {
        match self {
            Self::Sqlite(_) => Ok(()),
            Self::Postgres(pool, schema) => {
                let deadline = postgres::deadline();
                limited(deadline, postgres::migrate(pool, schema)).await
            }
        }
    }

    /// Waits for what runs and closes the connections.
    pub(crate) async fn close(&self) {
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
    pub(crate) async fn read(&self) -> Result<Transaction, Error> {
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
    pub(crate) async fn write(&self) -> Result<Transaction, Error> {
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
    pub(crate) async fn fetch_all(
        &self,
        sql: &'static str,
        values: &[Value<'_>],
    ) -> Result<Vec<Row>, Error> {
        match self {
            Self::Sqlite(pool) => fetch!(Row::Sqlite, pool, sql, values),
            Self::Postgres(pool, _) => {
                let rows = async { fetch!(Row::Postgres, pool, sql, values) };
                limited(postgres::deadline(), rows).await
            }
        }
    }

    /// The first row of one statement.
    pub(crate) async fn fetch_optional(
        &self,
        sql: &'static str,
        values: &[Value<'_>],
    ) -> Result<Option<Row>, Error> {
        Ok(self.fetch_all(sql, values).await?.into_iter().next())
    }
}

/// A transaction. Dropped before its commit it leaves nothing behind. On PostgreSQL all of it has one deadline.
#[derive(Debug)]
pub(crate) enum Transaction {
    Sqlite(sqlx::Transaction<'static, sqlx::Sqlite>),
    Postgres(sqlx::Transaction<'static, sqlx::Postgres>, Instant),
}

impl Transaction {
    /// Whether other processes may write to the same database.
    pub(crate) const fn is_shared(&self) -> bool {
        matches!(self, Self::Postgres(..))
    }

    /// The number of rows that a statement changed.
    pub(crate) async fn execute(
        &mut self,
        sql: &'static str,
        values: &[Value<'_>],
    ) -> Result<u64, Error> {
        Ok(match self {
            Self::Sqlite(transaction) => bound!(sqlx::query(sql), values)
                .execute(&mut **transaction)
                .await?
                .rows_affected(),
            Self::Postgres(transaction, deadline) => {
                let done = bound!(sqlx::query(sql), values).execute(&mut **transaction);
                limited(*deadline, async { Ok(done.await?) })
                    .await?
                    .rows_affected()
            }
        })
    }

    /// The rows of a statement.
    pub(crate) async fn fetch_all(
        &mut self,
        sql: &'static str,
        values: &[Value<'_>],
    ) -> Result<Vec<Row>, Error> {
        match self {
            Self::Sqlite(transaction) => fetch!(Row::Sqlite, &mut **transaction, sql, values),
            Self::Postgres(transaction, deadline) => {
                let rows = async { fetch!(Row::Postgres, &mut **transaction, sql, values) };
                limited(*deadline, rows).await
            }
        }
    }

    /// The first row of a statement.
    pub(crate) async fn fetch_optional(
        &mut self,
        sql: &'static str,
        values: &[Value<'_>],
    ) -> Result<Option<Row>, Error> {
        Ok(self.fetch_all(sql, values).await?.into_iter().next())
    }

    /// Makes it all durable.
    pub(crate) async fn commit(self) -> Result<(), Error> {
        match self {
            Self::Sqlite(transaction) => Ok(transaction.commit().await?),
            Self::Postgres(transaction, deadline) => {
                limited(deadline, async { Ok(transaction.commit().await?) }).await
            }
        }
    }
}
