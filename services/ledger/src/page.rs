//! Pages as either store makes them: where they are cut, and what their rows become.

use postern_types::ReceiptId;

use crate::{
    Error,
    receipt::State,
    store::{Filter, Session, SessionPage},
};

/// A receipt's id as a database keeps it.
pub(crate) fn receipt_id(bytes: &[u8]) -> Result<ReceiptId, Error> {
    uuid::Uuid::from_slice(bytes)
        .map(ReceiptId::from)
        .map_err(|_| Error::Corrupt("a receipt's id".to_owned()))
}

/// The same towards the database.
pub(crate) fn bytes_of(id: ReceiptId) -> Vec<u8> {
    id.as_uuid().as_bytes().to_vec()
}

/// The lowest id that a receipt of a page can have.
pub(crate) fn lowest_of(filter: &Filter) -> Vec<u8> {
    lowest_id(filter.since_ms.unwrap_or(0))
}

/// The id that every receipt of a page is below.
pub(crate) fn end_of(filter: &Filter) -> Vec<u8> {
    let before = filter.before.map(bytes_of);
    let until = filter.until_ms.map(lowest_id);
    let end = [before, until].into_iter().flatten().min();
    end.unwrap_or_else(|| vec![u8::MAX; 16])
}

/// The lowest id that a receipt begun at a time can have. Ids are UUIDs of version 7, which begin with it.
fn lowest_id(millis: i64) -> Vec<u8> {
    /// The largest time that fits into such an id.
    const LAST: i64 = (1 << 48) - 1;
    let mut id = millis.clamp(0, LAST).to_be_bytes()[2..].to_vec();
    id.resize(16, 0);
    id
}

/// The ids of a page within its bytes, and where the next one begins. `found` are at most one more than the page's limit,
/// with the bytes that each receipt has.
pub(crate) fn cut(
    found: impl Iterator<Item = Result<(ReceiptId, i64), Error>>,
    filter: &Filter,
) -> Result<(Vec<ReceiptId>, Option<ReceiptId>), Error> {
    let limit = usize::try_from(filter.limit).unwrap_or(usize::MAX);
    let (mut ids, mut bytes) = (Vec::new(), 0_usize);
    for one in found {
        let (id, size) = one?;
        bytes = bytes.saturating_add(usize::try_from(size).unwrap_or(usize::MAX));
        if ids.len() == limit || (bytes > filter.bytes && !ids.is_empty()) {
            let last = ids.last().copied();
            return Ok((ids, last));
        }
        ids.push(id);
    }
    Ok((ids, None))
}

/// What a store tells of one state of a session's receipts.
#[derive(Debug)]
pub(crate) struct SessionRow<'a> {
    pub(crate) session: &'a str,
    pub(crate) first_ms: i64,
    pub(crate) last_ms: i64,
    pub(crate) last_sequence: u64,
    pub(crate) state: i64,
    pub(crate) receipts: u64,
    pub(crate) changes: u64,
}

/// A page from its rows, those of a session one after the other. They are of at most one session more than the limit.
pub(crate) fn sessions<'a>(
    rows: impl Iterator<Item = Result<SessionRow<'a>, Error>>,
    limit: u32,
) -> Result<SessionPage, Error> {
    let mut sessions: Vec<Session> = Vec::new();
    for row in rows {
        let row = row?;
        if sessions
            .last()
            .is_none_or(|last| last.last_sequence != row.last_sequence)
        {
            sessions.push(session(&row)?);
        }
        if let (Some(session), Some(state)) = (sessions.last_mut(), listed(row.state)) {
            session.states.push((state, row.receipts));
            session.changes += row.changes;
        }
    }
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let more = sessions.len() > limit;
    sessions.truncate(limit);
    let last = sessions.last().filter(|_| more);
    Ok(SessionPage {
        next: last.map(|last| last.last_sequence),
        sessions,
    })
}

/// A session of a page, without its counts.
fn session(row: &SessionRow<'_>) -> Result<Session, Error> {
    Ok(Session {
        id: row
            .session
            .parse()
            .map_err(|_| Error::Corrupt("a session's id".to_owned()))?,
        first_ms: row.first_ms,
        last_ms: row.last_ms,
        last_sequence: row.last_sequence,
        changes: 0,
        states: Vec::new(),
    })
}

/// A state that is counted: every one but abandoned.
fn listed(state: i64) -> Option<State> {
    State::LISTED.into_iter().find(|it| *it as i64 == state)
}
