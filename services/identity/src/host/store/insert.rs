//! Rows that several transactions of the host's store insert.

use postern_database::{Transaction, values};

use crate::{
    Error,
    host::model::{Role, Token},
};

/// The principal that acts by a token, as an owner or a member of its organization.
pub(super) async fn principal(
    transaction: &mut Transaction,
    token: &Token,
    membership: &'static str,
) -> Result<(), Error> {
    let principal = values![
        &token.principal_id,
        &token.organization_id,
        token.created_at
    ];
    transaction
        .execute(
            "INSERT INTO principals (id, organization_id, created_at) VALUES ($1, $2, $3)",
            principal,
        )
        .await?;
    let member = values![&token.principal_id, &token.organization_id, membership];
    transaction
        .execute(
            "INSERT INTO memberships (principal_id, organization_id, role) VALUES ($1, $2, $3)",
            member,
        )
        .await?;
    Ok(())
}

/// A principal's role in a workspace.
pub(super) async fn role(
    transaction: &mut Transaction,
    principal_id: &str,
    workspace_id: &str,
    role: Role,
) -> Result<(), Error> {
    transaction
        .execute(
            "INSERT INTO workspace_roles (principal_id, workspace_id, role) VALUES ($1, $2, $3)",
            values![principal_id, workspace_id, role.as_str()],
        )
        .await?;
    Ok(())
}

/// A token.
pub(super) async fn token(transaction: &mut Transaction, token: &Token) -> Result<(), Error> {
    let (workspace_id, role) = match &token.active {
        Some((workspace_id, role)) => (Some(workspace_id.as_str()), Some(role.as_str())),
        None => (None, None),
    };
    let token = values![
        &token.id,
        token.kind.as_str(),
        token.digest.as_bytes().as_slice(),
        &token.principal_id,
        &token.organization_id,
        workspace_id,
        role,
        token.created_at,
        token.expires_at,
        token.revoked_at,
    ];
    transaction
        .execute(
            "INSERT INTO tokens (id, kind, digest, principal_id, organization_id, workspace_id, role, \
             created_at, expires_at, revoked_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
            token,
        )
        .await?;
    Ok(())
}
