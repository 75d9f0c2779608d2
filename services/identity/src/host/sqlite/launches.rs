//! Launches in the host's store, and what they let channel tokens open.

use postern_types::Timestamp;

use super::{Store, WRITE, Write, insert, rows};
use crate::{
    Error,
    host::{
        index::Door,
        model::{Launch, Token},
    },
};

/// Launches that a list shows, the newest: it stays within a message, as each may bring 16 KiB of intention.
const MAX_LISTED_LAUNCHES: i64 = 400;

/// A launch and its token that are valid at `?1`.
macro_rules! valid {
    () => {
        "launches.revoked_at IS NULL AND (launches.expires_at IS NULL OR launches.expires_at > ?1) \
         AND tokens.revoked_at IS NULL AND (tokens.expires_at IS NULL OR tokens.expires_at > ?1)"
    };
}

/// Workspaces that tokens open, each until the last of its launches is over.
macro_rules! doors {
    ($which:literal) => {
        concat!(
            "SELECT launches.token_id, launches.workspace_id, \
             CASE WHEN count(*) = count(launches.expires_at) THEN max(launches.expires_at) END AS until \
             FROM launches JOIN tokens ON tokens.id = launches.token_id WHERE ",
            valid!(),
            $which,
            " GROUP BY launches.token_id, launches.workspace_id"
        )
    };
}

impl Store {
    /// What each valid channel token opens at `now`.
    pub(in crate::host) async fn doors(&self, now: Timestamp) -> Result<Vec<Door>, Error> {
        let rows = sqlx::query(doors!(""))
            .bind(now.as_millis())
            .fetch_all(&self.pool)
            .await?;
        rows.iter().map(rows::door).collect()
    }

    /// Inserts a launch, with the channel token that was minted for it if one was.
    pub(in crate::host) async fn insert_launch(
        &self,
        launch: &Launch,
        minted: Option<&Token>,
    ) -> Result<(), Error> {
        let mut transaction = self.pool.begin_with(WRITE).await?;
        if let Some(token) = minted {
            insert::token(&mut transaction, token).await?;
        }
        sqlx::query(
            "INSERT INTO launches (id, workspace_id, intention, token_id, created_at, expires_at) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )
        .bind(&launch.id)
        .bind(&launch.workspace_id)
        .bind(launch.intention.as_str())
        .bind(&launch.token_id)
        .bind(launch.created_at.as_millis())
        .bind(launch.expires_at.map(Timestamp::as_millis))
        .execute(&mut *transaction)
        .await?;
        transaction.commit().await?;
        Ok(())
    }

    /// The newest launch of a workspace that is valid at `now` and whose token is.
    pub(in crate::host) async fn current_launch(
        &self,
        workspace_id: &str,
        now: Timestamp,
    ) -> Result<Option<Launch>, Error> {
        let row = sqlx::query(concat!(
            "SELECT launches.* FROM launches JOIN tokens ON tokens.id = launches.token_id WHERE ",
            valid!(),
            " AND launches.workspace_id = ?2 ORDER BY launches.rowid DESC LIMIT 1",
        ))
        .bind(now.as_millis())
        .bind(workspace_id)
        .fetch_optional(&self.pool)
        .await?;
        row.as_ref().map(rows::launch).transpose()
    }

    /// The newest launches of the workspaces in which the principal may change things, or of one of these, in the order of
    /// their creation.
    pub(in crate::host) async fn launches_of(
        &self,
        principal_id: &str,
        workspace_id: Option<&str>,
    ) -> Result<Vec<Launch>, Error> {
        let rows = sqlx::query(
            "SELECT launches.* FROM launches JOIN workspaces ON workspaces.id = launches.workspace_id \
             LEFT JOIN memberships ON memberships.organization_id = workspaces.organization_id \
             AND memberships.principal_id = ?1 \
             LEFT JOIN workspace_roles ON workspace_roles.workspace_id = workspaces.id \
             AND workspace_roles.principal_id = ?1 \
             WHERE (memberships.role = 'owner' OR workspace_roles.role IN ('owner', 'editor')) \
             AND (?2 IS NULL OR launches.workspace_id = ?2) ORDER BY launches.rowid DESC LIMIT ?3",
        )
        .bind(principal_id)
        .bind(workspace_id)
        .bind(MAX_LISTED_LAUNCHES)
        .fetch_all(&self.pool)
        .await?;
        rows.iter().rev().map(rows::launch).collect()
    }

    /// One launch.
    pub(in crate::host) async fn launch(&self, id: &str) -> Result<Option<Launch>, Error> {
        let row = sqlx::query("SELECT * FROM launches WHERE id = ?1")
            .bind(id)
            .fetch_optional(&self.pool)
            .await?;
        row.as_ref().map(rows::launch).transpose()
    }

    /// Revokes a launch; one that is revoked stays as it is.
    pub(in crate::host) async fn revoke_launch(
        &self,
        id: &str,
        now: Timestamp,
    ) -> Result<Option<Launch>, Error> {
        let row = sqlx::query(
            "UPDATE launches SET revoked_at = coalesce(revoked_at, ?2) WHERE id = ?1 RETURNING *",
        )
        .bind(id)
        .bind(now.as_millis())
        .fetch_optional(&self.pool)
        .await?;
        row.as_ref().map(rows::launch).transpose()
    }
}

/// What one valid channel token opens at `now`.
pub(super) async fn doors_of(
    transaction: &mut Write,
    token_id: &str,
    now: Timestamp,
) -> Result<Vec<Door>, Error> {
    let rows = sqlx::query(doors!(" AND launches.token_id = ?2"))
        .bind(now.as_millis())
        .bind(token_id)
        .fetch_all(&mut **transaction)
        .await?;
    rows.iter().map(rows::door).collect()
}
