//! The transaction of a batch.

use std::sync::Arc;

use bytes::Bytes;
use sqlx::{
    AssertSqlSafe, SqliteConnection,
    query::Query,
    sqlite::{Sqlite, SqliteArguments},
};

use super::statements::{APPENDS, CHANGE_COLUMNS, EVENT_COLUMNS, RECEIPT_COLUMNS, SESSION_COLUMNS};
use crate::{
    Error,
    entries::Entries,
    fold::signed,
    page::bytes_of,
    store::{Row, Standing},
};

/// The transaction ends with its last statement. When any of them fails, the connection is closed and nothing is left.
pub(super) async fn append(connection: &mut SqliteConnection, rows: Vec<Row>) -> Result<(), Error> {
    let power = rows.len().next_power_of_two().ilog2();
    let statement = APPENDS
        .get(usize::try_from(power).unwrap_or(usize::MAX))
        .ok_or(Error::QueueFull)?;
    let (count, room) = (rows.len(), 1 << power);
    let mut query = sqlx::query(AssertSqlSafe(Arc::clone(statement)));
    let mut entries = Entries::default();
    for row in rows {
        let blob = |blob: Option<Bytes>| blob.map(Vec::from);
        let sequence = signed(row.sequence);
        entries.add(&row);
        query = query
            .bind(row.workspace)
            .bind(sequence)
            .bind(bytes_of(row.receipt))
            .bind(row.hash.as_bytes().to_vec())
            .bind(row.body)
            .bind(blob(row.blobs.plan))
            .bind(blob(row.blobs.proposal))
            .bind(blob(row.blobs.result))
            .bind(blob(row.blobs.answer));
    }
    query = unused(query, EVENT_COLUMNS * (room - count));
    // A receipt gives its key up before another takes it.
    let count = entries.changed.len();
    for (receipt, standing) in entries.changed {
        query = stands(query.bind(bytes_of(receipt)), standing);
    }
    query = unused(query, CHANGE_COLUMNS * (room - count));
    let count = entries.new.len();
    for (receipt, workspace, call, standing) in entries.new {
        query = query
            .bind(bytes_of(receipt))
            .bind(workspace)
            .bind(call.key.session.as_str().to_owned())
            .bind(call.key.call.as_str().to_owned())
            .bind(Arc::clone(&call.tool));
        query = stands(query, standing);
    }
    query = unused(query, RECEIPT_COLUMNS * (room - count));
    let count = entries.sessions.len();
    for ((workspace, session), (first_ms, last_sequence, last_ms)) in entries.sessions {
        query = query
            .bind(workspace)
            .bind(session.as_str().to_owned())
            .bind(first_ms)
            .bind(last_sequence)
            .bind(last_ms);
    }
    query = unused(query, SESSION_COLUMNS * (room - count));
    query.execute(connection).await?;
    Ok(())
}

type SqliteQuery = Query<'static, Sqlite, SqliteArguments>;

fn stands(query: SqliteQuery, standing: Standing) -> SqliteQuery {
    query
        .bind(standing.keyed)
        .bind(standing.state as i64)
        .bind(standing.ok)
}

fn unused(mut query: SqliteQuery, places: usize) -> SqliteQuery {
    for _ in 0..places {
        query = query.bind(None::<i64>);
    }
    query
}
