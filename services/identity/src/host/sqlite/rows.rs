//! Rows of the host's store as what they mean.

use postern_types::{Sha256, Timestamp};
use sqlx::{Row as _, sqlite::SqliteRow};

use crate::{
    Error,
    host::{
        index::Door,
        model::{Launch, Role, Token, Workspace},
    },
    secret::Kind,
};

fn instant(row: &SqliteRow, column: &str) -> Result<Timestamp, Error> {
    Ok(Timestamp::from_millis(row.try_get(column)?))
}

fn optional_instant(row: &SqliteRow, column: &str) -> Result<Option<Timestamp>, Error> {
    let millis: Option<i64> = row.try_get(column)?;
    Ok(millis.map(Timestamp::from_millis))
}

pub(super) fn role(row: &SqliteRow) -> Result<Role, Error> {
    Role::parse(row.try_get("role")?)
}

pub(super) fn token(row: &SqliteRow) -> Result<Token, Error> {
    let kind: &str = row.try_get("kind")?;
    let digest: &[u8] = row.try_get("digest")?;
    let workspace_id: Option<String> = row.try_get("workspace_id")?;
    Ok(Token {
        id: row.try_get("id")?,
        kind: Kind::ALL
            .into_iter()
            .find(|known| known.as_str() == kind)
            .ok_or(Error::Corrupt("kind of token"))?,
        digest: Sha256::from_bytes(
            digest
                .try_into()
                .map_err(|_| Error::Corrupt("digest of a token"))?,
        ),
        principal_id: row.try_get("principal_id")?,
        organization_id: row.try_get("organization_id")?,
        active: workspace_id
            .map(|workspace_id| Ok::<_, Error>((workspace_id, role(row)?)))
            .transpose()?,
        created_at: instant(row, "created_at")?,
        expires_at: optional_instant(row, "expires_at")?,
        revoked_at: optional_instant(row, "revoked_at")?,
    })
}

pub(super) fn token_and_workspaces(row: &SqliteRow) -> Result<(Token, Vec<String>), Error> {
    let token = token(row)?;
    let opens: Option<&str> = row.try_get("opens")?;
    let workspaces = match (&token.active, opens) {
        (Some((workspace_id, _)), _) => vec![workspace_id.clone()],
        (None, Some(opens)) => opens.split(',').map(str::to_owned).collect(),
        (None, None) => Vec::new(),
    };
    Ok((token, workspaces))
}

pub(super) fn workspace(row: &SqliteRow) -> Result<Workspace, Error> {
    Ok(Workspace {
        id: row.try_get("id")?,
        organization_id: row.try_get("organization_id")?,
        slug: row.try_get("slug")?,
        name: row.try_get("name")?,
        created_at: instant(row, "created_at")?,
        version: row.try_get("version")?,
        role: role(row)?,
    })
}

pub(super) fn launch(row: &SqliteRow) -> Result<Launch, Error> {
    let intention: String = row.try_get("intention")?;
    Ok(Launch {
        id: row.try_get("id")?,
        workspace_id: row.try_get("workspace_id")?,
        intention: intention
            .try_into()
            .map_err(|_| Error::Corrupt("intention"))?,
        token_id: row.try_get("token_id")?,
        created_at: instant(row, "created_at")?,
        expires_at: optional_instant(row, "expires_at")?,
        revoked_at: optional_instant(row, "revoked_at")?,
    })
}

pub(super) fn door(row: &SqliteRow) -> Result<Door, Error> {
    Ok(Door {
        token_id: row.try_get("token_id")?,
        workspace_id: row.try_get("workspace_id")?,
        until: optional_instant(row, "until")?,
    })
}
