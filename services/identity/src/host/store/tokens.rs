//! Tokens in the host's store.

use postern_database::values;
use postern_types::Timestamp;

use super::{Store, changes, insert, launches, rows};
use crate::{
    Error,
    host::{
        index::Door,
        model::{Revocation, Token},
    },
};

/// Tokens that a list shows, the newest: it stays within a message.
const MAX_LISTED_TOKENS: i64 = 2_000;

/// The workspaces that a token opens at `$1`, with commas between.
macro_rules! opens {
    () => {
        concat!(
            "(SELECT string_agg(opened.workspace_id, ',') FROM (SELECT DISTINCT launches.workspace_id FROM launches \
             WHERE launches.token_id = tokens.id AND ",
            launches::valid!(),
            ") AS opened) AS opens"
        )
    };
}

impl Store {
    /// A token that is valid at `now`, with what it opens.
    pub(in crate::host) async fn holder(
        &self,
        token_id: &str,
        now: Timestamp,
    ) -> Result<Option<(Token, Vec<Door>)>, Error> {
        let mut transaction = self.pool.read().await?;
        let row = transaction
            .fetch_optional(
                concat!(
                    "SELECT ",
                    rows::token_columns!(),
                    " FROM tokens WHERE id = $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $2)",
                ),
                values![token_id, now],
            )
            .await?;
        let Some(row) = row else {
            return Ok(None);
        };
        let doors = launches::doors_of(&mut transaction, token_id, now).await?;
        Ok(Some((rows::token(&row)?, doors)))
    }

    /// Inserts a token of a principal that is there.
    pub(in crate::host) async fn insert_token(&self, token: &Token) -> Result<(), Error> {
        let mut transaction = self.pool.write().await?;
        insert::token(&mut transaction, token).await?;
        changes::append(&mut transaction, &token.id, None).await?;
        Ok(transaction.commit().await?)
    }

    /// Inserts an agent's token with its principal and that principal's role.
    pub(in crate::host) async fn insert_agent(&self, token: &Token) -> Result<(), Error> {
        let mut transaction = self.pool.write().await?;
        insert::principal(&mut transaction, token, "member").await?;
        if let Some((workspace_id, role)) = &token.active {
            insert::role(&mut transaction, &token.principal_id, workspace_id, *role).await?;
        }
        insert::token(&mut transaction, token).await?;
        changes::append(&mut transaction, &token.id, None).await?;
        Ok(transaction.commit().await?)
    }

    /// The newest tokens of an organization in the order of their creation, each with the workspaces that it opens at `now`.
    pub(in crate::host) async fn tokens_of(
        &self,
        organization_id: &str,
        now: Timestamp,
    ) -> Result<Vec<(Token, Vec<String>)>, Error> {
        let sql = concat!(
            "SELECT ",
            rows::token_columns!(),
            ", ",
            opens!(),
            " FROM tokens WHERE organization_id = $2 ORDER BY rowid DESC LIMIT $3"
        );
        let rows = self
            .pool
            .fetch_all(sql, values![now, organization_id, MAX_LISTED_TOKENS])
            .await?;
        rows.iter().rev().map(rows::token_and_workspaces).collect()
    }

    /// Revokes a token of an organization; one that is revoked stays as it is. Nothing when there is no such token.
    pub(in crate::host) async fn revoke(
        &self,
        id: &str,
        organization_id: &str,
        now: Timestamp,
    ) -> Result<Option<(Token, Vec<String>)>, Error> {
        let sql = concat!(
            "UPDATE tokens SET revoked_at = coalesce(revoked_at, $1) WHERE id = $2 AND organization_id = $3 RETURNING ",
            rows::token_columns!(),
            ", ",
            opens!()
        );
        let mut transaction = self.pool.write().await?;
        let row = transaction
            .fetch_optional(sql, values![now, id, organization_id])
            .await?;
        let Some(row) = row else {
            return Ok(None);
        };
        let revoked = rows::token_and_workspaces(&row)?;
        let revocation = Revocation {
            token_id: id.to_owned(),
            workspace_id: None,
        };
        changes::append(&mut transaction, id, Some(&revocation)).await?;
        transaction.commit().await?;
        Ok(Some(revoked))
    }
}
