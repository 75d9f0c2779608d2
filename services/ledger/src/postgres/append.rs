//! The one statement of a batch.

use std::collections::HashSet;

use bytes::Bytes;
use postern_types::Sha256;
use sqlx::{PgConnection, Row as _};

use super::statements::APPEND;
use crate::{
    Error,
    entries::Entries,
    fold::signed,
    page::bytes_of,
    store::{Row, Standing},
};

/// A batch as the statement takes it: a list a column.
#[derive(Debug, Default)]
pub(super) struct Batch {
    last: Last,
    anchors: Anchors,
    events: Events,
    changed: Changed,
    begun: Begun,
    sessions: Sessions,
}

/// The last event of a batch. The batch is in the database when it is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Last {
    pub(super) workspace: i64,
    pub(super) sequence: i64,
    pub(super) hash: Option<Sha256>,
}

/// The newest events before it, one a chain.
#[derive(Debug, Default)]
struct Anchors {
    workspaces: Vec<i64>,
    sequences: Vec<i64>,
    hashes: Vec<Vec<u8>>,
}

#[derive(Debug, Default)]
struct Events {
    workspaces: Vec<i64>,
    sequences: Vec<i64>,
    receipts: Vec<Vec<u8>>,
    hashes: Vec<Vec<u8>>,
    bodies: Vec<String>,
    plans: Vec<Option<Vec<u8>>>,
    proposals: Vec<Option<Vec<u8>>>,
    results: Vec<Option<Vec<u8>>>,
    answers: Vec<Option<Vec<u8>>>,
}

#[derive(Debug, Default)]
struct Standings {
    keyed: Vec<bool>,
    states: Vec<i16>,
    ok: Vec<bool>,
}

#[derive(Debug, Default)]
struct Changed {
    ids: Vec<Vec<u8>>,
    standings: Standings,
}

#[derive(Debug, Default)]
struct Begun {
    ids: Vec<Vec<u8>>,
    workspaces: Vec<i64>,
    sessions: Vec<String>,
    calls: Vec<String>,
    tools: Vec<Vec<u8>>,
    standings: Standings,
}

#[derive(Debug, Default)]
struct Sessions {
    workspaces: Vec<i64>,
    ids: Vec<String>,
    first_ms: Vec<i64>,
    last_sequences: Vec<i64>,
    last_ms: Vec<i64>,
}

/// What the statement tells. Unless both hold it has written nothing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Appended {
    /// No other ledger has taken over.
    pub(super) leads: bool,
    /// The events follow the newest ones of their chains.
    pub(super) follows: bool,
}

impl Batch {
    pub(super) fn of(rows: Vec<Row>) -> Self {
        let (mut batch, mut entries) = (Self::default(), Entries::default());
        let mut chains = HashSet::new();
        for row in rows {
            entries.add(&row);
            let sequence = signed(row.sequence);
            if chains.insert(row.workspace) {
                batch.anchors.workspaces.push(row.workspace);
                batch.anchors.sequences.push(sequence - 1);
                batch.anchors.hashes.push(row.previous.as_bytes().to_vec());
            }
            batch.last = Last {
                workspace: row.workspace,
                sequence,
                hash: Some(row.hash),
            };
            batch.events.push(row, sequence);
        }
        for (receipt, standing) in entries.changed {
            batch.changed.ids.push(bytes_of(receipt));
            batch.changed.standings.push(standing);
        }
        for (receipt, workspace, call, standing) in entries.new {
            let begun = &mut batch.begun;
            begun.ids.push(bytes_of(receipt));
            begun.workspaces.push(workspace);
            begun.sessions.push(call.key.session.as_str().to_owned());
            begun.calls.push(call.key.call.as_str().to_owned());
            begun.tools.push(call.tool.as_bytes().to_vec());
            begun.standings.push(standing);
        }
        for ((workspace, session), (first_ms, last_sequence, last_ms)) in entries.sessions {
            let sessions = &mut batch.sessions;
            sessions.workspaces.push(workspace);
            sessions.ids.push(session.as_str().to_owned());
            sessions.first_ms.push(first_ms);
            sessions.last_sequences.push(last_sequence);
            sessions.last_ms.push(last_ms);
        }
        batch
    }

    pub(super) const fn last(&self) -> Last {
        self.last
    }

    /// Appends all of it or nothing; durable when it returns.
    pub(super) async fn append(
        self,
        connection: &mut PgConnection,
        epoch: i64,
    ) -> Result<Appended, Error> {
        let (events, changed, begun) = (self.events, self.changed, self.begun);
        let row = sqlx::query(APPEND)
            .bind(epoch)
            .bind(self.anchors.workspaces)
            .bind(self.anchors.sequences)
            .bind(self.anchors.hashes)
            .bind(events.workspaces)
            .bind(events.sequences)
            .bind(events.receipts)
            .bind(events.hashes)
            .bind(events.bodies)
            .bind(events.plans)
            .bind(events.proposals)
            .bind(events.results)
            .bind(events.answers)
            .bind(changed.ids)
            .bind(changed.standings.keyed)
            .bind(changed.standings.states)
            .bind(changed.standings.ok)
            .bind(begun.ids)
            .bind(begun.workspaces)
            .bind(begun.sessions)
            .bind(begun.calls)
            .bind(begun.tools)
            .bind(begun.standings.keyed)
            .bind(begun.standings.states)
            .bind(begun.standings.ok)
            .bind(self.sessions.workspaces)
            .bind(self.sessions.ids)
            .bind(self.sessions.first_ms)
            .bind(self.sessions.last_sequences)
            .bind(self.sessions.last_ms)
            .fetch_one(connection)
            .await?;
        Ok(Appended {
            leads: row.try_get(0)?,
            follows: row.try_get(1)?,
        })
    }
}

impl Events {
    fn push(&mut self, row: Row, sequence: i64) {
        let blob = |blob: Option<Bytes>| blob.map(Vec::from);
        self.workspaces.push(row.workspace);
        self.sequences.push(sequence);
        self.receipts.push(bytes_of(row.receipt));
        self.hashes.push(row.hash.as_bytes().to_vec());
        self.bodies.push(row.body);
        self.plans.push(blob(row.blobs.plan));
        self.proposals.push(blob(row.blobs.proposal));
        self.results.push(blob(row.blobs.result));
        self.answers.push(blob(row.blobs.answer));
    }
}

impl Standings {
    fn push(&mut self, standing: Standing) {
        self.keyed.push(standing.keyed);
        self.states.push(standing.state as i16);
        self.ok.push(standing.ok);
    }
}
