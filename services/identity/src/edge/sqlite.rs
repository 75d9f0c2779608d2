//! The edge's store on SQLite: every statement of it is here, and each method is one transaction.

use std::path::Path;

use postern_types::{Id, Intention, Timestamp};
use sqlx::{Row as _, Sqlite, SqlitePool, Transaction, sqlite::SqliteRow};

use super::model::{Admission, Pin, Session};
use crate::{
    Error,
    database::{self, Schema},
};

static SCHEMA: Schema = Schema {
    // "PoEI" in ASCII.
    application_id: 0x506F_4549,
    migrations: &[include_str!("schema.sql")],
};

/// Starts a transaction that takes the write lock at once, so that it never finds the lock taken halfway.
const WRITE: &str = "BEGIN IMMEDIATE";

/// Sessions of a workspace at most: a bound on what the other side makes the owner keep.
const MAX_SESSIONS: i64 = 100_000;
/// Sessions that a list shows, the newest: it stays within a message.
const MAX_LISTED_SESSIONS: i64 = 10_000;

/// The store.
#[derive(Clone, Debug)]
pub(super) struct Store {
    pool: SqlitePool,
}

impl Store {
    pub(super) async fn open(path: &Path) -> Result<Self, Error> {
        let pool = database::open(path, &SCHEMA).await?;
        Ok(Self { pool })
    }

    pub(super) async fn close(&self) {
        self.pool.close().await;
    }

    /// The pin of a workspace.
    pub(super) async fn pin(&self, workspace_id: &Id) -> Result<Option<Pin>, Error> {
        let mut transaction = self.pool.begin().await?;
        pinned(&mut transaction, workspace_id).await
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
        let mut transaction = self.pool.begin_with(WRITE).await?;
        let before = pinned(&mut transaction, workspace_id).await?;
        if before
            .as_ref()
            .is_some_and(|before| before == pin || !replace)
        {
            return Ok(before);
        }
        sqlx::query("DELETE FROM sessions WHERE workspace_id = ?1")
            .bind(workspace_id.as_str())
            .execute(&mut *transaction)
            .await?;
        sqlx::query(
            "INSERT INTO pins (workspace_id, intention, project_path, device, inode, pinned_at) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (workspace_id) DO UPDATE SET \
             intention = excluded.intention, project_path = excluded.project_path, \
             device = excluded.device, inode = excluded.inode, pinned_at = excluded.pinned_at",
        )
        .bind(workspace_id.as_str())
        .bind(pin.intention.as_str())
        .bind(&pin.project_path)
        .bind(pin.device.cast_signed())
        .bind(pin.inode.cast_signed())
        .bind(now.as_millis())
        .execute(&mut *transaction)
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
        let mut transaction = self.pool.begin_with(WRITE).await?;
        let known: Option<i64> = sqlx::query_scalar(
            "SELECT 1 FROM sessions WHERE workspace_id = ?1 AND session_id = ?2",
        )
        .bind(workspace_id.as_str())
        .bind(session_id.as_str())
        .fetch_optional(&mut *transaction)
        .await?;
        if known.is_some() {
            return Ok(Admission::Known);
        }
        if !admit_new {
            return Ok(Admission::Unknown);
        }
        let inserted = sqlx::query(
            "INSERT INTO sessions (workspace_id, session_id, admitted_at) SELECT ?1, ?2, ?3 \
             WHERE (SELECT count(*) FROM sessions WHERE workspace_id = ?1) < ?4",
        )
        .bind(workspace_id.as_str())
        .bind(session_id.as_str())
        .bind(now.as_millis())
        .bind(MAX_SESSIONS)
        .execute(&mut *transaction)
        .await?;
        transaction.commit().await?;
        if inserted.rows_affected() == 1 {
            Ok(Admission::New)
        } else {
            Ok(Admission::Full)
        }
    }

    /// The newest sessions of a workspace, in the order of their admission.
    pub(super) async fn sessions(&self, workspace_id: &Id) -> Result<Vec<Session>, Error> {
        let rows = sqlx::query(
            "SELECT session_id, admitted_at FROM sessions WHERE workspace_id = ?1 \
             ORDER BY position DESC LIMIT ?2",
        )
        .bind(workspace_id.as_str())
        .bind(MAX_LISTED_SESSIONS)
        .fetch_all(&self.pool)
        .await?;
        rows.iter()
            .rev()
            .map(|row| {
                Ok(Session {
                    session_id: row.try_get("session_id")?,
                    admitted_at: Timestamp::from_millis(row.try_get("admitted_at")?),
                })
            })
            .collect()
    }
}

async fn pinned(
    transaction: &mut Transaction<'static, Sqlite>,
    workspace_id: &Id,
) -> Result<Option<Pin>, Error> {
    let row = sqlx::query("SELECT * FROM pins WHERE workspace_id = ?1")
        .bind(workspace_id.as_str())
        .fetch_optional(&mut **transaction)
        .await?;
    row.as_ref().map(pin).transpose()
}

fn pin(row: &SqliteRow) -> Result<Pin, Error> {
    let intention: String = row.try_get("intention")?;
    let device: i64 = row.try_get("device")?;
    let inode: i64 = row.try_get("inode")?;
    Ok(Pin {
        intention: Intention::try_from(intention).map_err(|_| Error::Corrupt("intention"))?,
        project_path: row.try_get("project_path")?,
        device: device.cast_unsigned(),
        inode: inode.cast_unsigned(),
    })
}
