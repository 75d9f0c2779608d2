//! Leases of exec workers on PostgreSQL.

use sqlx::{PgConnection, Row as _, postgres::PgRow};

use super::statements::fence;
use crate::{
    Error,
    workers::{ENDED_KEPT, Ground, Past, WorkerRow},
};

/// The end of a lease is final: a trigger keeps it. Those that end with this statement are counted with the next. Told is
/// whether this ledger still leads; otherwise nothing is written.
const PUT: &str = concat!(
    "WITH ",
    fence!(),
    ", put AS ( \
         INSERT INTO workers (id, address, ground, capacity, lease_ms, standing, registered_ms) \
         SELECT * FROM unnest($2::TEXT[], $3::TEXT[], $4::TEXT[], $5::BIGINT[], $6::BIGINT[], $7::BIGINT[], $8::BIGINT[]) \
         WHERE EXISTS (SELECT FROM fence) ON CONFLICT (id) DO UPDATE SET address = excluded.address, \
         capacity = excluded.capacity, lease_ms = excluded.lease_ms, standing = excluded.standing, ground = excluded.ground \
     ), forgotten AS ( \
         DELETE FROM workers WHERE standing <> 1 AND id <> ALL ($2) AND EXISTS (SELECT FROM fence) AND id NOT IN \
         (SELECT id FROM workers WHERE standing <> 1 ORDER BY id DESC LIMIT $9) \
     ) SELECT EXISTS (SELECT FROM fence)"
);
const SELECT: &str = "SELECT id, address, capacity, lease_ms, standing, registered_ms, ground FROM workers ORDER BY id";

/// Writes leases down, unless another ledger has taken over.
pub(super) async fn put(
    connection: &mut PgConnection,
    epoch: i64,
    rows: &[WorkerRow],
) -> Result<bool, Error> {
    let (mut texts, mut numbers) = ([vec![], vec![], vec![]], [vec![], vec![], vec![], vec![]]);
    for row in rows {
        texts[0].push(row.id.to_string());
        texts[1].push(row.address.clone());
        texts[2].push(Ground::text(row.ground.as_ref()));
        numbers[0].push(i64::from(row.capacity));
        numbers[1].push(row.lease_ms);
        numbers[2].push(Past::number(row.past));
        numbers[3].push(row.registered_ms);
    }
    let mut query = sqlx::query(PUT).bind(epoch);
    for column in texts {
        query = query.bind(column);
    }
    for column in numbers {
        query = query.bind(column);
    }
    let kept = i64::try_from(ENDED_KEPT).unwrap_or(i64::MAX);
    Ok(query.bind(kept).fetch_one(connection).await?.try_get(0)?)
}

pub(super) async fn all(connection: &mut PgConnection) -> Result<Vec<WorkerRow>, Error> {
    let rows = sqlx::query(SELECT).fetch_all(connection).await?;
    rows.iter().map(row).collect()
}

fn row(row: &PgRow) -> Result<WorkerRow, Error> {
    let id: &str = row.try_get(0)?;
    let capacity: i64 = row.try_get(2)?;
    Ok(WorkerRow {
        id: id
            .parse()
            .map_err(|_| Error::Corrupt("a worker's id".to_owned()))?,
        address: row.try_get(1)?,
        capacity: u32::try_from(capacity)
            .map_err(|_| Error::Corrupt("a worker's capacity".to_owned()))?,
        lease_ms: row.try_get(3)?,
        past: Past::from_number(row.try_get(4)?)?,
        registered_ms: row.try_get(5)?,
        ground: Ground::from_text(row.try_get(6)?)?,
    })
}
