//! Rows that several transactions of the host's store insert.

use postern_types::Timestamp;

use super::Write;
use crate::{
    Error,
    host::model::{Role, Token},
};

/// The principal that acts by a token, as an owner or a member of its organization.
pub(super) async fn principal(
    transaction: &mut Write,
    token: &Token,
    membership: &'static str,
) -> Result<(), Error> {
    sqlx::query("INSERT INTO principals (id, organization_id, created_at) VALUES (?1, ?2, ?3)")
        .bind(&token.principal_id)
        .bind(&token.organization_id)
        .bind(token.created_at.as_millis())
        .execute(&mut **transaction)
        .await?;
    sqlx::query(
        "INSERT INTO memberships (principal_id, organization_id, role) VALUES (?1, ?2, ?3)",
    )
    .bind(&token.principal_id)
    .bind(&token.organization_id)
    .bind(membership)
    .execute(&mut **transaction)
    .await?;
    Ok(())
}

/// A principal's role in a workspace.
pub(super) async fn role(
    transaction: &mut Write,
    principal_id: &str,
    workspace_id: &str,
    role: Role,
) -> Result<(), Error> {
    sqlx::query(
        "INSERT INTO workspace_roles (principal_id, workspace_id, role) VALUES (?1, ?2, ?3)",
    )
    .bind(principal_id)
    .bind(workspace_id)
    .bind(role.as_str())
    .execute(&mut **transaction)
    .await?;
    Ok(())
}

/// A token.
pub(super) async fn token(transaction: &mut Write, token: &Token) -> Result<(), Error> {
    let (workspace_id, role) = match &token.active {
        Some((workspace_id, role)) => (Some(workspace_id.as_str()), Some(role.as_str())),
        None => (None, None),
    };
    sqlx::query(
        "INSERT INTO tokens (id, kind, digest, principal_id, organization_id, workspace_id, role, \
         created_at, expires_at, revoked_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
    )
    .bind(&token.id)
    .bind(token.kind.as_str())
    .bind(token.digest.as_bytes().as_slice())
    .bind(&token.principal_id)
    .bind(&token.organization_id)
    .bind(workspace_id)
    .bind(role)
    .bind(token.created_at.as_millis())
    .bind(token.expires_at.map(Timestamp::as_millis))
    .bind(token.revoked_at.map(Timestamp::as_millis))
    .execute(&mut **transaction)
    .await?;
    Ok(())
}
