//! Whether the index says what the events say. The events are folded here, as everywhere else, a few receipts at a time: so
//! the whole is compared without a statement that takes as long as the ledger is large.

use std::collections::HashMap;

use postern_types::{Id, ReceiptEvent, ReceiptId};
use sqlx::{Row as _, postgres::PgRow};

use super::{
    by_ids,
    reader::{Reader, within},
    statements::{SELECT_ENTRIES, SELECT_PAGE, SELECT_TOLD_SESSIONS, SELECT_UNLISTED},
};
use crate::{Error, page::receipt_id, receipt::Receipt};

/// Entries that are compared at a time.
const ENTRIES: i64 = 200;
/// Events whose entries are looked for at a time.
const EVENTS: i64 = 5000;

/// A receipt whose index entry is not what its events say.
pub(super) async fn misindexed(
    reader: &Reader,
    workspace: Option<&Id>,
) -> Result<Option<ReceiptId>, Error> {
    if let Some(unlisted) = unlisted(reader).await? {
        return Ok(Some(unlisted));
    }
    let mut after = Some(Vec::new());
    while let Some(id) = after {
        let compared = within(entries(reader, id, workspace)).await?;
        if let Some(wrong) = compared.wrong {
            return Ok(Some(wrong));
        }
        after = compared.last;
    }
    Ok(None)
}

/// The receipt of an event that the index does not know.
async fn unlisted(reader: &Reader) -> Result<Option<ReceiptId>, Error> {
    let mut after = Some(0_i64);
    while let Some(position) = after {
        let row = within(async {
            Ok(sqlx::query(SELECT_UNLISTED)
                .bind(position)
                .bind(EVENTS)
                .fetch_one(&mut *reader.connection().await?)
                .await?)
        })
        .await?;
        if let Some(id) = row.try_get::<Option<&[u8]>, _>(1)? {
            return receipt_id(id).map(Some);
        }
        after = row.try_get(0)?;
    }
    Ok(None)
}

struct Compared {
    wrong: Option<ReceiptId>,
    /// Absent when there are no more.
    last: Option<Vec<u8>>,
}

async fn entries(
    reader: &Reader,
    after: Vec<u8>,
    workspace: Option<&Id>,
) -> Result<Compared, Error> {
    let mut connection = reader.connection().await?;
    let rows = sqlx::query(SELECT_ENTRIES)
        .bind(after)
        .bind(workspace.map(Id::as_str))
        .bind(ENTRIES)
        .fetch_all(&mut *connection)
        .await?;
    let ids: Vec<_> = rows
        .iter()
        .map(|row| receipt_id(row.try_get(0)?))
        .collect::<Result<_, Error>>()?;
    let receipts = by_ids(&mut connection, &ids, SELECT_PAGE).await?;
    let receipts: HashMap<_, _> = receipts.iter().map(|it| (it.id, it)).collect();
    for (row, id) in rows.iter().zip(&ids) {
        // A receipt that has gone on since the entry was read is not wrong: both are read once more.
        let same = match receipts.get(id) {
            Some(receipt) => says(row, receipt)?,
            None => false,
        };
        if !same && still_wrong(reader, *id).await? {
            return Ok(Compared {
                wrong: Some(*id),
                last: None,
            });
        }
    }
    let last = rows.last().map(|row| row.try_get(0)).transpose()?;
    Ok(Compared { wrong: None, last })
}

/// Whether an entry differs from its events in one state of the database.
async fn still_wrong(reader: &Reader, id: ReceiptId) -> Result<bool, Error> {
    let mut connection = reader.connection().await?;
    let begin = "BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY";
    let mut snapshot = sqlx::Connection::begin_with(&mut *connection, begin).await?;
    let just_before = before(id);
    let row = sqlx::query(SELECT_ENTRIES)
        .bind(just_before)
        .bind(None::<&str>)
        .bind(1_i64)
        .fetch_optional(&mut *snapshot)
        .await?;
    let receipts = by_ids(&mut snapshot, &[id], SELECT_PAGE).await?;
    snapshot.rollback().await?;
    match (row, receipts.first()) {
        (Some(row), Some(receipt)) => Ok(!says(&row, receipt)?),
        _ => Ok(true),
    }
}

/// The bytes that come before an id and after every other one.
fn before(id: ReceiptId) -> Vec<u8> {
    let number = u128::from_be_bytes(*id.as_uuid().as_bytes());
    number.saturating_sub(1).to_be_bytes().to_vec()
}

fn says(row: &PgRow, receipt: &Receipt) -> Result<bool, Error> {
    let (key, standing) = (&receipt.call.key, receipt.standing());
    let (workspace, session, call): (&str, &str, &str) =
        (row.try_get(1)?, row.try_get(2)?, row.try_get(3)?);
    let (tool, keyed, state, ok): (&[u8], bool, i16, bool) = (
        row.try_get(4)?,
        row.try_get(5)?,
        row.try_get(6)?,
        row.try_get(7)?,
    );
    let has_session: bool = row.try_get(8)?;
    Ok(workspace == key.workspace.as_str()
        && session == key.session.as_str()
        && call == key.call.as_str()
        && tool == receipt.call.tool.as_bytes()
        && (keyed, state, ok) == (standing.keyed, standing.state as i16, standing.ok)
        && has_session)
}

/// A session of which something else is told than its events say.
pub(super) async fn mistold_session(
    reader: &Reader,
    workspace: Option<&Id>,
) -> Result<Option<String>, Error> {
    let mut after = Some((0_i64, String::new()));
    while let Some((number, session)) = after {
        let rows = within(async {
            Ok(sqlx::query(SELECT_TOLD_SESSIONS)
                .bind(number)
                .bind(session)
                .bind(workspace.map(Id::as_str))
                .bind(ENTRIES)
                .fetch_all(&mut *reader.connection().await?)
                .await?)
        })
        .await?;
        for row in &rows {
            if !is_told_right(row)? {
                return Ok(Some(row.try_get(1)?));
            }
        }
        let last = |row: &PgRow| Ok::<_, Error>((row.try_get(0)?, row.try_get(1)?));
        after = rows.last().map(last).transpose()?;
    }
    Ok(None)
}

fn is_told_right(row: &PgRow) -> Result<bool, Error> {
    let at_ms = |body: Option<&str>| {
        let event: Option<ReceiptEvent> = body.and_then(|it| serde_json::from_str(it).ok());
        event.map(|event| event.at_ms)
    };
    let (first_ms, last_sequence, last_ms): (i64, i64, i64) =
        (row.try_get(2)?, row.try_get(3)?, row.try_get(4)?);
    let last: Option<i64> = row.try_get(5)?;
    Ok(last == Some(last_sequence)
        && at_ms(row.try_get(6)?) == Some(first_ms)
        && at_ms(row.try_get(7)?) == Some(last_ms))
}
