//! Leases of exec workers on SQLite.

use sqlx::{Connection as _, Row as _, SqliteConnection, sqlite::SqliteRow};

use crate::{
    Error,
    workers::{ENDED_KEPT, Ground, Past, WorkerRow},
};

/// The end of a lease is final: a trigger keeps it.
const PUT: &str = "INSERT INTO workers (id, address, capacity, lease_ms, standing, registered_ms, ground) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (id) DO UPDATE SET address = excluded.address, \
     capacity = excluded.capacity, lease_ms = excluded.lease_ms, standing = excluded.standing, ground = excluded.ground";
/// Ids are UUIDs of version 7, so their order is that of time.
const FORGET: &str = "DELETE FROM workers WHERE standing <> 1 AND id NOT IN \
     (SELECT id FROM workers WHERE standing <> 1 ORDER BY id DESC LIMIT ?1)";
const SELECT: &str = "SELECT id, address, capacity, lease_ms, standing, registered_ms, ground FROM workers ORDER BY id";

pub(super) async fn put(
    connection: &mut SqliteConnection,
    rows: &[WorkerRow],
) -> Result<(), Error> {
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    for row in rows {
        sqlx::query(PUT)
            .bind(row.id.to_string())
            .bind(row.address.as_str())
            .bind(row.capacity)
            .bind(row.lease_ms)
            .bind(Past::number(row.past))
            .bind(row.registered_ms)
            .bind(Ground::text(row.ground.as_ref()))
            .execute(&mut *transaction)
            .await?;
    }
    sqlx::query(FORGET)
        .bind(i64::try_from(ENDED_KEPT).unwrap_or(i64::MAX))
        .execute(&mut *transaction)
        .await?;
    transaction.commit().await?;
    Ok(())
}

pub(super) async fn all(connection: &mut SqliteConnection) -> Result<Vec<WorkerRow>, Error> {
    let rows = sqlx::query(SELECT).fetch_all(connection).await?;
    rows.iter().map(row).collect()
}

fn row(row: &SqliteRow) -> Result<WorkerRow, Error> {
    let id: &str = row.try_get(0)?;
    Ok(WorkerRow {
        id: id
            .parse()
            .map_err(|_| Error::Corrupt("a worker's id".to_owned()))?,
        address: row.try_get(1)?,
        capacity: row.try_get(2)?,
        lease_ms: row.try_get(3)?,
        past: Past::from_number(row.try_get(4)?)?,
        registered_ms: row.try_get(5)?,
        ground: Ground::from_text(row.try_get(6)?)?,
    })
}
