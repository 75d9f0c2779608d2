//! Launches in the host's store, and what they let channel tokens open.

use postern_database::{Transaction, values};
use postern_types::Timestamp;

use super::{Store, changes, insert, rows};
use crate::{
    Error,
    host::{
        index::Door,
        model::{Launch, Revocation, Token},
    },
};

/// Launches that a list shows, the newest: it stays within a message, as each may bring 16 KiB of intention.
const MAX_LISTED_LAUNCHES: i64 = 400;

/// A launch and its token that are valid at `$1`.
macro_rules! valid {
    () => {
        "launches.revoked_at IS NULL AND (launches.expires_at IS NULL OR launches.expires_at > $1) \
         AND tokens.revoked_at IS NULL AND (tokens.expires_at IS NULL OR tokens.expires_at > $1)"
    };
}

pub(super) use valid;

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
    /// Inserts a launch, with the channel token that was minted for it if one was.
    pub(in crate::host) async fn insert_launch(
        &self,
        launch: &Launch,
        minted: Option<&Token>,
    ) -> Result<(), Error> {
        let mut transaction = self.pool.write().await?;
        if let Some(token) = minted {
            insert::token(&mut transaction, token).await?;
        }
        transaction
            .execute(
                "INSERT INTO launches (id, workspace_id, intention, token_id, created_at, expires_at) \
                 VALUES ($1, $2, $3, $4, $5, $6)",
                values![
                    &launch.id,
                    &launch.workspace_id,
                    launch.intention.as_str(),
                    &launch.token_id,
                    launch.created_at,
                    launch.expires_at,
                ],
            )
            .await?;
        changes::append(&mut transaction, &launch.token_id, None).await?;
        Ok(transaction.commit().await?)
    }

    /// The newest launch of a workspace that is valid at `now` and whose token is.
    pub(in crate::host) async fn current_launch(
        &self,
        workspace_id: &str,
        now: Timestamp,
    ) -> Result<Option<Launch>, Error> {
        let sql = concat!(
            "SELECT ",
            rows::launch_columns!(),
            " FROM launches JOIN tokens ON tokens.id = launches.token_id WHERE ",
            valid!(),
            " AND launches.workspace_id = $2 ORDER BY launches.rowid DESC LIMIT 1",
        );
        let row = self
            .pool
            .fetch_optional(sql, values![now, workspace_id])
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
        let sql = concat!(
            "SELECT ",
            rows::launch_columns!(),
            " FROM launches JOIN workspaces ON workspaces.id = launches.workspace_id \
             LEFT JOIN memberships ON memberships.organization_id = workspaces.organization_id \
             AND memberships.principal_id = $1 \
             LEFT JOIN workspace_roles ON workspace_roles.workspace_id = workspaces.id \
             AND workspace_roles.principal_id = $1 \
             WHERE (memberships.role = 'owner' OR workspace_roles.role IN ('owner', 'editor')) \
             AND ($2 IS NULL OR launches.workspace_id = $2) ORDER BY launches.rowid DESC LIMIT $3"
        );
        let rows = self
            .pool
            .fetch_all(
                sql,
                values![principal_id, workspace_id, MAX_LISTED_LAUNCHES],
            )
            .await?;
        rows.iter().rev().map(rows::launch).collect()
    }

    /// One launch.
    pub(in crate::host) async fn launch(&self, id: &str) -> Result<Option<Launch>, Error> {
        let sql = concat!(
            "SELECT ",
            rows::launch_columns!(),
            " FROM launches WHERE id = $1"
        );
        let row = self.pool.fetch_optional(sql, values![id]).await?;
        row.as_ref().map(rows::launch).transpose()
    }

    /// Revokes a launch; one that is revoked stays as it is.
    pub(in crate::host) async fn revoke_launch(
        &self,
        id: &str,
        now: Timestamp,
    ) -> Result<Option<(Launch, Revocation)>, Error> {
        let mut transaction = self.pool.write().await?;
        let row = transaction
            .fetch_optional(
                concat!(
                    "UPDATE launches SET revoked_at = coalesce(revoked_at, $2) WHERE id = $1 RETURNING ",
                    rows::launch_columns!(),
                ),
                values![id, now],
            )
            .await?;
        let Some(row) = row else {
            return Ok(None);
        };
        let launch = rows::launch(&row)?;
        let revocation = Revocation {
            token_id: launch.token_id.clone(),
            workspace_id: Some(launch.workspace_id.clone()),
        };
        changes::append(&mut transaction, &launch.token_id, Some(&revocation)).await?;
        transaction.commit().await?;
        Ok(Some((launch, revocation)))
    }
}

/// What each valid channel token opens at `now`.
pub(super) async fn doors(
    transaction: &mut Transaction,
    now: Timestamp,
) -> Result<Vec<Door>, Error> {
    let rows = transaction.fetch_all(doors!(""), values![now]).await?;
    rows.iter().map(rows::door).collect()
}

/// What one valid channel token opens at `now`.
pub(super) async fn doors_of(
    transaction: &mut Transaction,
    token_id: &str,
    now: Timestamp,
) -> Result<Vec<Door>, Error> {
    let rows = transaction
        .fetch_all(
            doors!(" AND launches.token_id = $2"),
            values![now, token_id],
        )
        .await?;
    rows.iter().map(rows::door).collect()
}
