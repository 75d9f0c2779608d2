//! The host's store on SQLite: every statement of it is here and in the modules below, and each method is one transaction.

mod insert;
mod launches;
mod rows;

use std::{collections::HashSet, path::Path};

use postern_types::Timestamp;
use sqlx::{Row as _, Sqlite, SqlitePool, Transaction};

use super::{
    index::Door,
    model::{Idempotency, Role, Token, Workspace},
    slug,
};
use crate::{
    Error,
    database::{self, Schema},
};

static SCHEMA: Schema = Schema {
    // "PoHI" in ASCII.
    application_id: 0x506F_4849,
    migrations: &[include_str!("0001.sql"), include_str!("0002.sql")],
};

/// Starts a transaction that takes the write lock at once: one that began by reading could find the lock taken later, and
/// SQLite then fails it without waiting.
const WRITE: &str = "BEGIN IMMEDIATE";

/// Workspaces of an organization at most: a list of them stays within a message.
const MAX_WORKSPACES: i64 = 10_000;
/// Tokens that a list shows, the newest: it stays within a message.
const MAX_LISTED_TOKENS: i64 = 2_000;
/// Conversations of a token at most: a bound on what one agent makes the host keep.
const MAX_CONVERSATIONS: i64 = 100_000;

/// The store.
#[derive(Clone, Debug)]
pub(super) struct Store {
    pool: SqlitePool,
}

/// The first organization and its owner.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Founding {
    pub(super) organization_id: String,
    pub(super) principal_id: String,
}

/// A workspace to insert.
#[derive(Debug)]
pub(super) struct NewWorkspace {
    pub(super) id: String,
    pub(super) principal_id: String,
    pub(super) organization_id: String,
    pub(super) name: String,
    pub(super) now: Timestamp,
}

/// What came of a workspace to insert.
#[derive(Debug)]
pub(super) enum Creation {
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

impl Store {
    pub(super) async fn open(path: &Path) -> Result<Self, Error> {
        let pool = database::open(path, &SCHEMA).await?;
        Ok(Self { pool })
    }

    pub(super) async fn close(&self) {
        self.pool.close().await;
    }

    /// Makes the first organization with its owner and the admin token. Tells what was there before, if anything was.
    pub(super) async fn bootstrap(&self, admin: &Token) -> Result<Option<Founding>, Error> {
        let mut transaction = self.pool.begin_with(WRITE).await?;
        if let Some(founding) = founding(&mut transaction).await? {
            return Ok(Some(founding));
        }
        let now = admin.created_at.as_millis();
        sqlx::query("INSERT INTO organizations (id, created_at) VALUES (?1, ?2)")
            .bind(&admin.organization_id)
            .bind(now)
            .execute(&mut *transaction)
            .await?;
        insert::principal(&mut transaction, admin, "owner").await?;
        sqlx::query("INSERT INTO host (only, organization_id, principal_id) VALUES (1, ?1, ?2)")
            .bind(&admin.organization_id)
            .bind(&admin.principal_id)
            .execute(&mut *transaction)
            .await?;
        insert::token(&mut transaction, admin).await?;
        transaction.commit().await?;
        Ok(None)
    }

    /// What was made first, if anything was.
    pub(super) async fn founding(&self) -> Result<Option<Founding>, Error> {
        let mut transaction = self.pool.begin().await?;
        founding(&mut transaction).await
    }

    /// Every token that is valid at `now`.
    pub(super) async fn valid_tokens(&self, now: Timestamp) -> Result<Vec<Token>, Error> {
        let rows = sqlx::query(
            "SELECT * FROM tokens WHERE revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ?1) ORDER BY rowid",
        )
        .bind(now.as_millis())
        .fetch_all(&self.pool)
        .await?;
        rows.iter().map(rows::token).collect()
    }

    /// A token that is valid at `now`, with what it opens.
    pub(super) async fn holder(
        &self,
        token_id: &str,
        now: Timestamp,
    ) -> Result<Option<(Token, Vec<Door>)>, Error> {
        let mut transaction = self.pool.begin().await?;
        let row = sqlx::query(
            "SELECT * FROM tokens WHERE id = ?1 \
             AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ?2)",
        )
        .bind(token_id)
        .bind(now.as_millis())
        .fetch_optional(&mut *transaction)
        .await?;
        let Some(row) = row else {
            return Ok(None);
        };
        let doors = launches::doors_of(&mut transaction, token_id, now).await?;
        Ok(Some((rows::token(&row)?, doors)))
    }

    /// Inserts a workspace with a free slug, whose owner is the principal. `answer` makes what is kept for the key.
    pub(super) async fn create_workspace(
        &self,
        new: &NewWorkspace,
        idempotency: Option<&Idempotency>,
        answer: impl FnOnce(&Workspace) -> Vec<u8> + Send,
    ) -> Result<Creation, Error> {
        let mut transaction = self.pool.begin_with(WRITE).await?;
        if let Some(idempotency) = idempotency
            && let Some(known) = known_answer(&mut transaction, new, idempotency).await?
        {
            return Ok(known);
        }
        let member: Option<i64> = sqlx::query_scalar(
            "SELECT 1 FROM memberships WHERE principal_id = ?1 AND organization_id = ?2",
        )
        .bind(&new.principal_id)
        .bind(&new.organization_id)
        .fetch_optional(&mut *transaction)
        .await?;
        if member.is_none() {
            return Ok(Creation::NotAMember);
        }
        let Some(slug) = free_slug(&mut transaction, new).await? else {
            return Ok(Creation::Full);
        };
        let workspace = insert_workspace(&mut transaction, new, slug).await?;
        if let Some(Idempotency { key, body }) = idempotency {
            sqlx::query(
                "INSERT INTO idempotency_keys (principal_id, operation, key, body_sha256, answer, created_at) \
                 VALUES (?1, 'workspace/create', ?2, ?3, ?4, ?5)",
            )
            .bind(&new.principal_id)
            .bind(key)
            .bind(body.to_string())
            .bind(answer(&workspace))
            .bind(workspace.created_at.as_millis())
            .execute(&mut *transaction)
            .await?;
        }
        transaction.commit().await?;
        Ok(Creation::Created(workspace))
    }

    /// Workspaces in which the principal has a role, in the order of their creation.
    pub(super) async fn workspaces_of(&self, principal_id: &str) -> Result<Vec<Workspace>, Error> {
        let rows = sqlx::query(
            "SELECT workspaces.*, iif(memberships.role = 'owner', 'owner', workspace_roles.role) AS role \
             FROM workspaces \
             LEFT JOIN memberships ON memberships.organization_id = workspaces.organization_id \
             AND memberships.principal_id = ?1 \
             LEFT JOIN workspace_roles ON workspace_roles.workspace_id = workspaces.id \
             AND workspace_roles.principal_id = ?1 \
             WHERE memberships.role = 'owner' OR workspace_roles.role IS NOT NULL ORDER BY workspaces.rowid",
        )
        .bind(principal_id)
        .fetch_all(&self.pool)
        .await?;
        rows.iter().map(rows::workspace).collect()
    }

    /// The organization of a workspace and the principal's role in it; nothing when it has none.
    pub(super) async fn role_in(
        &self,
        principal_id: &str,
        workspace_id: &str,
    ) -> Result<Option<(String, Role)>, Error> {
        let row = sqlx::query(
            "SELECT workspaces.organization_id, \
             iif(memberships.role = 'owner', 'owner', workspace_roles.role) AS role FROM workspaces \
             LEFT JOIN memberships ON memberships.organization_id = workspaces.organization_id \
             AND memberships.principal_id = ?1 \
             LEFT JOIN workspace_roles ON workspace_roles.workspace_id = workspaces.id \
             AND workspace_roles.principal_id = ?1 \
             WHERE workspaces.id = ?2 AND (memberships.role = 'owner' OR workspace_roles.role IS NOT NULL)",
        )
        .bind(principal_id)
        .bind(workspace_id)
        .fetch_optional(&self.pool)
        .await?;
        row.map(|row| Ok((row.try_get("organization_id")?, rows::role(&row)?)))
            .transpose()
    }

    /// Inserts a token of a principal that is there.
    pub(super) async fn insert_token(&self, token: &Token) -> Result<(), Error> {
        let mut transaction = self.pool.begin_with(WRITE).await?;
        insert::token(&mut transaction, token).await?;
        transaction.commit().await?;
        Ok(())
    }

    /// Inserts an agent's token with its principal and that principal's role.
    pub(super) async fn insert_agent(&self, token: &Token) -> Result<(), Error> {
        let mut transaction = self.pool.begin_with(WRITE).await?;
        insert::principal(&mut transaction, token, "member").await?;
        if let Some((workspace_id, role)) = &token.active {
            insert::role(&mut transaction, &token.principal_id, workspace_id, *role).await?;
        }
        insert::token(&mut transaction, token).await?;
        transaction.commit().await?;
        Ok(())
    }

    /// The newest tokens of an organization in the order of their creation, each with the workspaces that it opens.
    pub(super) async fn tokens_of(
        &self,
        organization_id: &str,
    ) -> Result<Vec<(Token, Vec<String>)>, Error> {
        let rows = sqlx::query(
            "SELECT tokens.*, (SELECT group_concat(DISTINCT launches.workspace_id) FROM launches \
             WHERE launches.token_id = tokens.id AND launches.revoked_at IS NULL) AS opens \
             FROM tokens WHERE organization_id = ?1 ORDER BY rowid DESC LIMIT ?2",
        )
        .bind(organization_id)
        .bind(MAX_LISTED_TOKENS)
        .fetch_all(&self.pool)
        .await?;
        rows.iter().rev().map(rows::token_and_workspaces).collect()
    }

    /// Revokes a token of an organization; one that is revoked stays as it is. Nothing when there is no such token.
    pub(super) async fn revoke(
        &self,
        id: &str,
        organization_id: &str,
        now: Timestamp,
    ) -> Result<Option<(Token, Vec<String>)>, Error> {
        let row = sqlx::query(
            "UPDATE tokens SET revoked_at = coalesce(revoked_at, ?3) WHERE id = ?1 AND organization_id = ?2 \
             RETURNING *, (SELECT group_concat(DISTINCT launches.workspace_id) FROM launches \
             WHERE launches.token_id = tokens.id AND launches.revoked_at IS NULL) AS opens",
        )
        .bind(id)
        .bind(organization_id)
        .bind(now.as_millis())
        .fetch_optional(&self.pool)
        .await?;
        row.as_ref().map(rows::token_and_workspaces).transpose()
    }

    /// The session of a token's conversation: the one that is kept, else `candidate`, which is kept from now on. Nothing
    /// when the token has as many conversations as it may.
    pub(super) async fn conversation(
        &self,
        token_id: &str,
        key: &str,
        candidate: &str,
        now: Timestamp,
    ) -> Result<Option<String>, Error> {
        let mut transaction = self.pool.begin_with(WRITE).await?;
        let known: Option<String> = sqlx::query_scalar(
            "SELECT session_id FROM conversations WHERE token_id = ?1 AND key = ?2",
        )
        .bind(token_id)
        .bind(key)
        .fetch_optional(&mut *transaction)
        .await?;
        if known.is_some() {
            return Ok(known);
        }
        let inserted = sqlx::query(
            "INSERT INTO conversations (token_id, key, session_id, created_at) SELECT ?1, ?2, ?3, ?4 \
             WHERE (SELECT count(*) FROM conversations WHERE token_id = ?1) < ?5",
        )
        .bind(token_id)
        .bind(key)
        .bind(candidate)
        .bind(now.as_millis())
        .bind(MAX_CONVERSATIONS)
        .execute(&mut *transaction)
        .await?;
        transaction.commit().await?;
        Ok((inserted.rows_affected() == 1).then(|| candidate.to_owned()))
    }
}

type Write = Transaction<'static, Sqlite>;

async fn founding(transaction: &mut Write) -> Result<Option<Founding>, Error> {
    let row = sqlx::query("SELECT organization_id, principal_id FROM host")
        .fetch_optional(&mut **transaction)
        .await?;
    row.map(|row| {
        Ok(Founding {
            organization_id: row.try_get("organization_id")?,
            principal_id: row.try_get("principal_id")?,
        })
    })
    .transpose()
}

async fn known_answer(
    transaction: &mut Write,
    new: &NewWorkspace,
    idempotency: &Idempotency,
) -> Result<Option<Creation>, Error> {
    let row = sqlx::query(
        "SELECT body_sha256, answer FROM idempotency_keys \
         WHERE principal_id = ?1 AND operation = 'workspace/create' AND key = ?2",
    )
    .bind(&new.principal_id)
    .bind(&idempotency.key)
    .fetch_optional(&mut **transaction)
    .await?;
    let Some(row) = row else {
        return Ok(None);
    };
    let body: String = row.try_get("body_sha256")?;
    if body != idempotency.body.to_string() {
        return Ok(Some(Creation::KeyReused));
    }
    Ok(Some(Creation::Replayed(row.try_get("answer")?)))
}

/// A slug that is free in the organization; nothing when that has as many workspaces as it may.
async fn free_slug(transaction: &mut Write, new: &NewWorkspace) -> Result<Option<String>, Error> {
    let count: i64 =
        sqlx::query_scalar("SELECT count(*) FROM workspaces WHERE organization_id = ?1")
            .bind(&new.organization_id)
            .fetch_one(&mut **transaction)
            .await?;
    if count >= MAX_WORKSPACES {
        return Ok(None);
    }
    let slug = slug::of(&new.name);
    // A slug holds no character that GLOB reads as anything but itself.
    let taken: Vec<String> = sqlx::query_scalar(
        "SELECT slug FROM workspaces WHERE organization_id = ?1 AND (slug = ?2 OR slug GLOB ?2 || '-*')",
    )
    .bind(&new.organization_id)
    .bind(&slug)
    .fetch_all(&mut **transaction)
    .await?;
    Ok(Some(slug::free(slug, &HashSet::from_iter(taken))))
}

async fn insert_workspace(
    transaction: &mut Write,
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
    sqlx::query(
        "INSERT INTO workspaces (id, organization_id, slug, name, created_at, version) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )
    .bind(&workspace.id)
    .bind(&workspace.organization_id)
    .bind(&workspace.slug)
    .bind(&workspace.name)
    .bind(workspace.created_at.as_millis())
    .bind(workspace.version)
    .execute(&mut **transaction)
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
