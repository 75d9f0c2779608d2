//! The edge's store: every statement of it is here, and each method is one transaction.

use postern_database::{Database, Pool, Row, Schema, Transaction, values};
use postern_types::{Id, Intention, Timestamp};

use super::model::{Admission, Pin, Session};
use crate::Error;

static SCHEMA: Schema = Schema {
    name: "postern_edge_identity",
    // "PoEI" in ASCII.
    application_id: 0x506F_4549,
    sqlite: &[include_str!("schema/sqlite-0001.sql")],
    postgres: &[include_str!("schema/postgres-0001.sql")],
};

/// Sessions of a workspace at most: a bound on what the other side makes the owner keep.
const MAX_SESSIONS: i64 = 100_000;
/// Sessions that a list shows, the newest: it stays within a message.
const MAX_LISTED_SESSIONS: i64 = 10_000;

/// A session of a workspace.
const KNOWN: &str = "SELECT admitted_at FROM sessions WHERE workspace_id = $1 AND session_id = $2";

/// The store.
#[derive(Clone, Debug)]
pub(super) struct Store {
    pool: Pool,
}

impl Store {
    pub(super) async fn open(database: &Database) -> Result<Self, Error> {
        let pool = Pool::open(database, &SCHEMA).await?;
        Ok(Self { pool })
    }

    pub(super) async fn close(&self) {
        self.pool.close().await;
    }

    /// Whether other processes may change it.
    pub(super) const fn is_shared(&self) -> bool {
        self.pool.is_shared()
    }

    /// Makes its tables, or brings them to the present schema. Fails when the database is away.
    pub(super) async fn prepare(&self) -> Result<(), Error> {
        Ok(self.pool.prepare().await?)
    }

    /// The pin of a workspace.
    pub(super) async fn pin(&self, workspace_id: &Id) -> Result<Option<Pin>, Error> {
        pinned(&mut self.pool.read().await?, workspace_id).await
    }

    /// Pins a workspace that has no pin, or replaces its pin when `replace` says so. Gives back the pin that stood before.
    /// Sessions were admitted under the pin that is replaced, so they are forgotten with it.
    pub(super) async fn set_pin(
        &self,
        workspace_id: &Id,
        pin: &Pin,
        replace: bool,
        now: Timestamp,
    ) -> Result<Option<Pin>, Error> {
        let mut transaction = self.pool.write().await?;
        let before = pinned(&mut transaction, workspace_id).await?;
        if before
            .as_ref()
            .is_some_and(|before| before == pin || !replace)
        {
            return Ok(before);
        }
        transaction
            .execute(
                "DELETE FROM sessions WHERE workspace_id = $1",
                values![workspace_id.as_str()],
            )
            .await?;
        transaction
            .execute(
                "INSERT INTO pins (workspace_id, intention, project_path, device, inode, pinned_at) \
                 VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (workspace_id) DO UPDATE SET \
                 intention = excluded.intention, project_path = excluded.project_path, \
                 device = excluded.device, inode = excluded.inode, pinned_at = excluded.pinned_at",
                values![
                    workspace_id.as_str(),
                    pin.intention.as_str(),
                    &pin.project_path,
                    pin.device.cast_signed(),
                    pin.inode.cast_signed(),
                    now,
                ],
            )
            .await?;
        transaction.commit().await?;
        Ok(before)
    }

    /// Looks a session up, and admits it when it is new and `admit_new` says so.
    pub(super) async fn admit(
        &self,
        workspace_id: &Id,
        session_id: &Id,
        admit_new: bool,
        now: Timestamp,
    ) -> Result<Admission, Error> {
        let session = values![workspace_id.as_str(), session_id.as_str()];
        if self.pool.fetch_optional(KNOWN, session).await?.is_some() {
            return Ok(Admission::Known);
        }
        if !admit_new {
            return Ok(Admission::Unknown);
        }
        let mut transaction = self.pool.write().await?;
        if transaction.fetch_optional(KNOWN, session).await?.is_some() {
            return Ok(Admission::Known);
        }
        let inserted = transaction
            .execute(
                "INSERT INTO sessions (workspace_id, session_id, admitted_at) SELECT $1, $2, $3 \
                 WHERE (SELECT count(*) FROM sessions WHERE workspace_id = $1) < $4",
                values![
                    workspace_id.as_str(),
                    session_id.as_str(),
                    now,
                    MAX_SESSIONS
                ],
            )
            .await?;
        transaction.commit().await?;
        if inserted == 1 {
            Ok(Admission::New)
        } else {
            Ok(Admission::Full)
        }
    }

    /// The newest sessions of a workspace, in the order of their admission.
    pub(super) async fn sessions(&self, workspace_id: &Id) -> Result<Vec<Session>, Error> {
        let rows = self
            .pool
            .fetch_all(
                "SELECT session_id, admitted_at FROM sessions WHERE workspace_id = $1 \
                 ORDER BY position DESC LIMIT $2",
                values![workspace_id.as_str(), MAX_LISTED_SESSIONS],
            )
            .await?;
        rows.iter()
            .rev()
            .map(|row| {
                Ok(Session {
                    session_id: row.text("session_id")?,
                    admitted_at: row.instant("admitted_at")?,
                })
            })
            .collect()
    }
}

async fn pinned(transaction: &mut Transaction, workspace_id: &Id) -> Result<Option<Pin>, Error> {
    let row = transaction
        .fetch_optional(
            "SELECT intention, project_path, device, inode FROM pins WHERE workspace_id = $1",
            values![workspace_id.as_str()],
        )
        .await?;
    row.as_ref().map(pin).transpose()
}

fn pin(row: &Row) -> Result<Pin, Error> {
    Ok(Pin {
        intention: Intention::try_from(row.text("intention")?)
            .map_err(|_| Error::Corrupt("intention"))?,
        project_path: row.text("project_path")?,
        device: row.number("device")?.cast_unsigned(),
        inode: row.number("inode")?.cast_unsigned(),
    })
}
