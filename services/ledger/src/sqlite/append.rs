//! The transaction of a batch.

use std::{collections::HashMap, sync::Arc};

use bytes::Bytes;
use postern_types::{Id, ReceiptId};
use sqlx::{
    AssertSqlSafe, SqliteConnection,
    query::Query,
    sqlite::{Sqlite, SqliteArguments},
};

use super::statements::{APPENDS, CHANGE_COLUMNS, EVENT_COLUMNS, RECEIPT_COLUMNS, SESSION_COLUMNS};
use crate::{
    Error,
    receipt::Call,
    store::{Entry, Row, Standing},
};

/// The index entries that a batch leaves, one a receipt.
#[derive(Default)]
struct Entries {
    new: Vec<(ReceiptId, i64, Arc<Call>, Standing)>,
    changed: Vec<(ReceiptId, Standing)>,
    /// Where a receipt is among the new (true) or the changed ones.
    places: HashMap<ReceiptId, (bool, usize)>,
    /// Sessions by workspace, with the time of their first event in the batch and the sequence and time of their last.
    sessions: HashMap<(i64, Id), (i64, i64, i64)>,
}

impl Entries {
    fn add(&mut self, row: &Row, sequence: i64) {
        let session = (row.workspace, row.session.clone());
        let active = self
            .sessions
            .entry(session)
            .or_insert((row.at_ms, sequence, row.at_ms));
        (active.1, active.2) = (sequence, row.at_ms);
        let (receipt, workspace) = (row.receipt, row.workspace);
        match (&row.entry, self.places.get(&receipt)) {
            (Entry::New(call, standing), _) => {
                self.places.insert(receipt, (true, self.new.len()));
                let call = Arc::clone(call);
                self.new.push((receipt, workspace, call, *standing));
            }
            (Entry::Changed(standing), Some((true, place))) => self.new[*place].3 = *standing,
            (Entry::Changed(standing), Some((false, place))) => self.changed[*place].1 = *standing,
            (Entry::Changed(standing), None) => {
                self.places.insert(receipt, (false, self.changed.len()));
                self.changed.push((receipt, *standing));
            }
        }
    }
}

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
        let sequence = i64::try_from(row.sequence).unwrap_or(i64::MAX);
        entries.add(&row, sequence);
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

fn bytes_of(id: ReceiptId) -> Vec<u8> {
    id.as_uuid().as_bytes().to_vec()
}
