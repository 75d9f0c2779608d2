//! The log of changes, by which the processes on one database follow each other. There is none in a SQLite file: one process
//! has that for itself.

use postern_database::{Row, Transaction, values};
use postern_types::Timestamp;

use super::{Store, launches, rows};
use crate::{
    Error,
    host::{
        index::Door,
        model::{Revocation, Token},
    },
};

/// Changes that are kept. Who is further behind reads everything anew.
const KEPT_CHANGES: i64 = 10_000;
/// Changes that are read at once.
const PAGE: i64 = 500;

/// What has changed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(in crate::host) struct Change {
    pub(in crate::host) sequence: i64,
    /// The token, or that of the launch.
    pub(in crate::host) token_id: String,
    /// What watchers hear of.
    pub(in crate::host) revocation: Option<Revocation>,
}

/// All that is in memory, as of one change.
#[derive(Debug)]
pub(in crate::host) struct Snapshot {
    pub(in crate::host) sequence: i64,
    pub(in crate::host) tokens: Vec<Token>,
    pub(in crate::host) doors: Vec<Door>,
}

impl Store {
    /// The changes after one, in order and without a gap, as many as are read at once; nothing when some of them are not
    /// kept any more.
    pub(in crate::host) async fn changes_after(
        &self,
        sequence: i64,
    ) -> Result<Option<Vec<Change>>, Error> {
        let rows = self
            .pool
            .fetch_all(
                "SELECT sequence, token_id, revoked, workspace_id FROM changes WHERE sequence > $1 ORDER BY sequence LIMIT $2",
                values![sequence, PAGE],
            )
            .await?;
        let changes = rows.iter().map(change).collect::<Result<Vec<_>, Error>>()?;
        let is_whole = (sequence + 1..)
            .zip(&changes)
            .all(|(expected, change)| change.sequence == expected);
        Ok(is_whole.then_some(changes))
    }

    /// The tokens that are valid at `now` and what they open.
    pub(in crate::host) async fn snapshot(&self, now: Timestamp) -> Result<Snapshot, Error> {
        let mut transaction = self.pool.read().await?;
        let sequence = if transaction.is_shared() {
            newest(&mut transaction).await?
        } else {
            0
        };
        let tokens = transaction
            .fetch_all(
                concat!(
                    "SELECT ",
                    rows::token_columns!(),
                    " FROM tokens WHERE revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $1) ORDER BY rowid",
                ),
                values![now],
            )
            .await?;
        let doors = launches::doors(&mut transaction, now).await?;
        Ok(Snapshot {
            sequence,
            tokens: tokens.iter().map(rows::token).collect::<Result<_, _>>()?,
            doors,
        })
    }
}

/// Adds a change, which is told once the transaction is committed.
pub(super) async fn append(
    transaction: &mut Transaction,
    token_id: &str,
    revocation: Option<&Revocation>,
) -> Result<(), Error> {
    if !transaction.is_shared() {
        return Ok(());
    }
    let sequence = newest(transaction).await? + 1;
    let workspace_id = revocation.and_then(|revocation| revocation.workspace_id.as_deref());
    let revoked = match (revocation, workspace_id) {
        (None, _) => "nothing",
        (Some(_), None) => "token",
        (Some(_), Some(_)) => "launch",
    };
    transaction
        .execute(
            "INSERT INTO changes (sequence, token_id, revoked, workspace_id) VALUES ($1, $2, $3, $4)",
            values![sequence, token_id, revoked, workspace_id],
        )
        .await?;
    transaction
        .execute(
            "DELETE FROM changes WHERE sequence <= $1",
            values![sequence - KEPT_CHANGES],
        )
        .await?;
    Ok(())
}

async fn newest(transaction: &mut Transaction) -> Result<i64, Error> {
    let row = transaction
        .fetch_optional(
            "SELECT coalesce(max(sequence), 0) AS sequence FROM changes",
            &[],
        )
        .await?;
    Ok(row.map_or(Ok(0), |row| row.number("sequence"))?)
}

fn change(row: &Row) -> Result<Change, Error> {
    let (token_id, workspace_id) = (row.text("token_id")?, row.optional_text("workspace_id")?);
    let revocation = (row.text("revoked")? != "nothing").then(|| Revocation {
        token_id: token_id.clone(),
        workspace_id,
    });
    Ok(Change {
        sequence: row.number("sequence")?,
        token_id,
        revocation,
    })
}
