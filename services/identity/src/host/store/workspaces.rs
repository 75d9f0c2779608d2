//! Workspaces in the host's store, and the idempotency keys of their creation.

use std::collections::HashSet;

use postern_database::{Transaction, values};
use postern_types::Timestamp;

use super::{Store, insert, rows};
use crate::{
    Error,
    host::{
        model::{Idempotency, Role, Workspace},
        slug,
    },
};

/// Workspaces of an organization at most: a list of them stays within a message.
const MAX_WORKSPACES: i64 = 10_000;

/// A workspace to insert.
#[derive(Debug)]
pub(in crate::host) struct NewWorkspace {
    pub(in crate::host) id: String,
    pub(in crate::host) principal_id: String,
    pub(in crate::host) organization_id: String,
    pub(in crate::host) name: String,
    pub(in crate::host) now: Timestamp,
}

/// What came of a workspace to insert.
#[derive(Debug)]
pub(in crate::host) enum Creation {
    /// It is there.
    Created(Workspace),
    /// The key was used with the same body before; this was the answer.
    Replayed(Vec<u8>),
    /// The key was used with another body before.
    KeyReused,
    /// The principal is no member of the organization.
    NotAMember,
    /// The organization has as many workspaces as it may.
    Full,
}

/// The role of the principal `$1` in a workspace.
macro_rules! role {
    () => {
        "CASE WHEN memberships.role = 'owner' THEN 'owner' ELSE workspace_roles.role END AS role FROM workspaces \
         LEFT JOIN memberships ON memberships.organization_id = workspaces.organization_id \
         AND memberships.principal_id = $1 \
         LEFT JOIN workspace_roles ON workspace_roles.workspace_id = workspaces.id \
         AND workspace_roles.principal_id = $1 \
         WHERE (memberships.role = 'owner' OR workspace_roles.role IS NOT NULL)"
    };
}

impl Store {
    /// Inserts a workspace with a free slug, whose owner is the principal. `answer` makes what is kept for the key.
    pub(in crate::host) async fn create_workspace(
        &self,
        new: &NewWorkspace,
        idempotency: Option<&Idempotency>,
        answer: impl FnOnce(&Workspace) -> Vec<u8> + Send,
    ) -> Result<Creation, Error> {
        let mut transaction = self.pool.write().await?;
        if let Some(idempotency) = idempotency
            && let Some(known) = known_answer(&mut transaction, new, idempotency).await?
        {
            return Ok(known);
        }
        let member = transaction
            .fetch_optional(
                "SELECT role FROM memberships WHERE principal_id = $1 AND organization_id = $2",
                values![&new.principal_id, &new.organization_id],
            )
            .await?;
        if member.is_none() {
            return Ok(Creation::NotAMember);
        }
        let Some(slug) = free_slug(&mut transaction, new).await? else {
            return Ok(Creation::Full);
        };
        let workspace = insert_workspace(&mut transaction, new, slug).await?;
        if let Some(Idempotency { key, body }) = idempotency {
            let (body, answer) = (body.to_string(), answer(&workspace));
            transaction
                .execute(
                    "INSERT INTO idempotency_keys (principal_id, operation, key, body_sha256, answer, created_at) \
                     VALUES ($1, 'workspace/create', $2, $3, $4, $5)",
                    values![&new.principal_id, key, &body, answer.as_slice(), new.now],
                )
                .await?;
        }
        transaction.commit().await?;
        Ok(Creation::Created(workspace))
    }

    /// Workspaces in which the principal has a role, in the order of their creation.
    pub(in crate::host) async fn workspaces_of(
        &self,
        principal_id: &str,
    ) -> Result<Vec<Workspace>, Error> {
        let sql = concat!(
            "SELECT ",
            rows::workspace_columns!(),
            ", ",
            role!(),
            " ORDER BY workspaces.rowid"
        );
        let rows = self.pool.fetch_all(sql, values![principal_id]).await?;
        rows.iter().map(rows::workspace).collect()
    }

    /// The organization of a workspace and the principal's role in it; nothing when it has none.
    pub(in crate::host) async fn role_in(
        &self,
        principal_id: &str,
        workspace_id: &str,
    ) -> Result<Option<(String, Role)>, Error> {
        let sql = concat!(
            "SELECT workspaces.organization_id, ",
            role!(),
            " AND workspaces.id = $2"
        );
        let row = self
            .pool
            .fetch_optional(sql, values![principal_id, workspace_id])
            .await?;
        row.map(|row| Ok((row.text("organization_id")?, rows::role(&row)?)))
            .transpose()
    }
}

async fn known_answer(
    transaction: &mut Transaction,
    new: &NewWorkspace,
    idempotency: &Idempotency,
) -> Result<Option<Creation>, Error> {
    let row = transaction
        .fetch_optional(
            "SELECT body_sha256, answer FROM idempotency_keys \
             WHERE principal_id = $1 AND operation = 'workspace/create' AND key = $2",
            values![&new.principal_id, &idempotency.key],
        )
        .await?;
    let Some(row) = row else {
        return Ok(None);
    };
    if row.text("body_sha256")? != idempotency.body.to_string() {
        return Ok(Some(Creation::KeyReused));
    }
    Ok(Some(Creation::Replayed(row.bytes("answer")?)))
}

/// A slug that is free in the organization; nothing when that has as many workspaces as it may.
async fn free_slug(
    transaction: &mut Transaction,
    new: &NewWorkspace,
) -> Result<Option<String>, Error> {
    let count = transaction
        .fetch_optional(
            "SELECT count(*) AS workspaces FROM workspaces WHERE organization_id = $1",
            values![&new.organization_id],
        )
        .await?;
    let count = count.map_or(Ok(0), |row| row.number("workspaces"))?;
    if count >= MAX_WORKSPACES {
        return Ok(None);
    }
    let slug = slug::of(&new.name);
    let taken = transaction
        .fetch_all(
            "SELECT slug FROM workspaces WHERE organization_id = $1 \
             AND (slug = $2 OR substr(slug, 1, length($2) + 1) = $2 || '-')",
            values![&new.organization_id, &slug],
        )
        .await?;
    let taken = taken.iter().map(|row| row.text("slug"));
    let taken = taken.collect::<Result<HashSet<_>, _>>()?;
    Ok(Some(slug::free(slug, &taken)))
}

async fn insert_workspace(
    transaction: &mut Transaction,
    new: &NewWorkspace,
    slug: String,
) -> Result<Workspace, Error> {
    let workspace = Workspace {
        id: new.id.clone(),
        organization_id: new.organization_id.clone(),
        slug,
        name: new.name.clone(),
        created_at: new.now,
        version: 1,
        role: Role::Owner,
    };
    transaction
        .execute(
            "INSERT INTO workspaces (id, organization_id, slug, name, created_at, version) \
             VALUES ($1, $2, $3, $4, $5, $6)",
            values![
                &workspace.id,
                &workspace.organization_id,
                &workspace.slug,
                &workspace.name,
                workspace.created_at,
                workspace.version,
            ],
        )
        .await?;
    insert::role(
        transaction,
        &new.principal_id,
        &workspace.id,
        workspace.role,
    )
    .await?;
    Ok(workspace)
}
