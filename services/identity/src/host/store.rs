//! The host's store: every statement of it is here and in the modules below, and each method is one transaction.

mod changes;
mod insert;
mod launches;
mod rows;
mod tokens;
mod workspaces;

use postern_database::{Database, Pool, Schema, Transaction, values};
use postern_types::Timestamp;

pub(super) use self::workspaces::{Creation, NewWorkspace};
use super::model::Token;
use crate::Error;

static SCHEMA: Schema = Schema {
    name: "postern_host_identity",
    // "PoHI" in ASCII.
    application_id: 0x506F_4849,
    sqlite: &[
        include_str!("schema/sqlite-0001.sql"),
        include_str!("schema/sqlite-0002.sql"),
    ],
    postgres: &[include_str!("schema/postgres-0001.sql")],
};

/// Conversations of a token at most: a bound on what one agent makes the host keep.
const MAX_CONVERSATIONS: i64 = 100_000;

/// The store.
#[derive(Clone, Debug)]
pub(super) struct Store {
    pool: Pool,
}

/// The first organization and its owner.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Founding {
    pub(super) organization_id: String,
    pub(super) principal_id: String,
}

impl Store {
    pub(super) async fn open(database: &Database) -> Result<Self, Error> {
        let pool = Pool::open(database, &SCHEMA).await?;
        Ok(Self { pool })
    }

    pub(super) async fn close(&self) {
        self.pool.close().await;
    }

    /// Whether other processes may change it.
    pub(super) const fn is_shared(&self) -> bool {
        self.pool.is_shared()
    }

    /// Makes its tables, or brings them to the present schema.
    pub(super) async fn prepare(&self) -> Result<(), Error> {
        Ok(self.pool.prepare().await?)
    }

    /// Makes the first organization with its owner and the admin token. Tells what was there before, if anything was.
    pub(super) async fn bootstrap(&self, admin: &Token) -> Result<Option<Founding>, Error> {
        let mut transaction = self.pool.write().await?;
        if let Some(founding) = founding(&mut transaction).await? {
            return Ok(Some(founding));
        }
        transaction
            .execute(
                "INSERT INTO organizations (id, created_at) VALUES ($1, $2)",
                values![&admin.organization_id, admin.created_at],
            )
            .await?;
        insert::principal(&mut transaction, admin, "owner").await?;
        transaction
            .execute(
                "INSERT INTO host (\"only\", organization_id, principal_id) VALUES (1, $1, $2)",
                values![&admin.organization_id, &admin.principal_id],
            )
            .await?;
        insert::token(&mut transaction, admin).await?;
        changes::append(&mut transaction, &admin.id, None).await?;
        transaction.commit().await?;
        Ok(None)
    }

    /// What was made first, if anything was.
    pub(super) async fn founding(&self) -> Result<Option<Founding>, Error> {
        founding(&mut self.pool.read().await?).await
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
        let mut transaction = self.pool.write().await?;
        let known = transaction
            .fetch_optional(
                "SELECT session_id FROM conversations WHERE token_id = $1 AND key = $2",
                values![token_id, key],
            )
            .await?;
        if let Some(row) = known {
            return Ok(Some(row.text("session_id")?));
        }
        let inserted = transaction
            .execute(
                "INSERT INTO conversations (token_id, key, session_id, created_at) SELECT $1, $2, $3, $4 \
                 WHERE (SELECT count(*) FROM conversations WHERE token_id = $1) < $5",
                values![token_id, key, candidate, now, MAX_CONVERSATIONS],
            )
            .await?;
        transaction.commit().await?;
        Ok((inserted == 1).then(|| candidate.to_owned()))
    }
}

async fn founding(transaction: &mut Transaction) -> Result<Option<Founding>, Error> {
    let row = transaction
        .fetch_optional("SELECT organization_id, principal_id FROM host", &[])
        .await?;
    row.map(|row| {
        Ok(Founding {
            organization_id: row.text("organization_id")?,
            principal_id: row.text("principal_id")?,
        })
    })
    .transpose()
}
