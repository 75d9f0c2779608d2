//! Rows of the host's store as what they mean.

use postern_database::Row;
use postern_types::Sha256;

use crate::{
    Error,
    host::{
        index::Door,
        model::{Launch, Role, Token, Workspace},
    },
    secret::Kind,
};

/// Columns of one table by their own names. Statements name what they read: what a newer program adds to a table does not
/// change what the prepared statements of an older one beside it give back, which PostgreSQL refuses to do.
macro_rules! columns {
    ($table:literal: $first:literal $(, $other:literal)*) => {
        concat!(
            $table, ".", $first, " AS ", $first
            $(, ", ", $table, ".", $other, " AS ", $other)*
        )
    };
}

/// What [`token`] reads.
macro_rules! token_columns {
    () => {
        $crate::host::store::rows::columns!(
            "tokens": "id", "kind", "digest", "principal_id", "organization_id", "workspace_id", "role", "created_at",
            "expires_at", "revoked_at"
        )
    };
}

/// What [`workspace`] reads, but the role.
macro_rules! workspace_columns {
    () => {
        $crate::host::store::rows::columns!(
            "workspaces": "id", "organization_id", "slug", "name", "created_at", "version"
        )
    };
}

/// What [`launch`] reads.
macro_rules! launch_columns {
    () => {
        $crate::host::store::rows::columns!(
            "launches": "id", "workspace_id", "intention", "token_id", "created_at", "expires_at", "revoked_at"
        )
    };
}

pub(super) use {columns, launch_columns, token_columns, workspace_columns};

pub(super) fn role(row: &Row) -> Result<Role, Error> {
    Role::parse(&row.text("role")?)
}

pub(super) fn token(row: &Row) -> Result<Token, Error> {
    let (kind, digest) = (row.text("kind")?, row.bytes("digest")?);
    Ok(Token {
        id: row.text("id")?,
        kind: Kind::ALL
            .into_iter()
            .find(|known| known.as_str() == kind)
            .ok_or(Error::Corrupt("kind of token"))?,
        digest: Sha256::from_bytes(
            digest
                .try_into()
                .map_err(|_| Error::Corrupt("digest of a token"))?,
        ),
        principal_id: row.text("principal_id")?,
        organization_id: row.text("organization_id")?,
        active: row
            .optional_text("workspace_id")?
            .map(|workspace_id| Ok::<_, Error>((workspace_id, role(row)?)))
            .transpose()?,
        created_at: row.instant("created_at")?,
        expires_at: row.optional_instant("expires_at")?,
        revoked_at: row.optional_instant("revoked_at")?,
    })
}

/// A token and the workspaces that it is active in or opens, which are in `opens` with commas between.
pub(super) fn token_and_workspaces(row: &Row) -> Result<(Token, Vec<String>), Error> {
    let (token, opens) = (token(row)?, row.optional_text("opens")?);
    let workspaces = match (&token.active, opens) {
        (Some((workspace_id, _)), _) => vec![workspace_id.clone()],
        (None, Some(opens)) => opens.split(',').map(str::to_owned).collect(),
        (None, None) => Vec::new(),
    };
    Ok((token, workspaces))
}

pub(super) fn workspace(row: &Row) -> Result<Workspace, Error> {
    Ok(Workspace {
        id: row.text("id")?,
        organization_id: row.text("organization_id")?,
        slug: row.text("slug")?,
        name: row.text("name")?,
        created_at: row.instant("created_at")?,
        version: row.number("version")?,
        role: role(row)?,
    })
}

pub(super) fn launch(row: &Row) -> Result<Launch, Error> {
    Ok(Launch {
        id: row.text("id")?,
        workspace_id: row.text("workspace_id")?,
        intention: row
            .text("intention")?
            .try_into()
            .map_err(|_| Error::Corrupt("intention"))?,
        token_id: row.text("token_id")?,
        created_at: row.instant("created_at")?,
        expires_at: row.optional_instant("expires_at")?,
        revoked_at: row.optional_instant("revoked_at")?,
    })
}

pub(super) fn door(row: &Row) -> Result<Door, Error> {
    Ok(Door {
        token_id: row.text("token_id")?,
        workspace_id: row.text("workspace_id")?,
        until: row.optional_instant("until")?,
    })
}
