//! The reading connections. What may take long is read in parts, each within the deadline of a statement.

use std::ops::ControlFlow;

use postern_database::{
    Pool,
    postgres::{deadline, limited, version},
};
use postern_types::{Id, ReceiptId, Sha256};
use sqlx::{PgConnection, Postgres, Row as _, pool::PoolConnection, postgres::PgRow};
use tokio_stream::StreamExt as _;

use super::{
    audit, by_ids, by_keys, heads,
    pages::list,
    statements::{
        SELECT_BY_IDS, SELECT_CHAIN, SELECT_CHAINS, SELECT_EPOCH, SELECT_HASH, SELECT_KEYS,
        SELECT_PAGE, SESSIONS,
    },
};
use crate::{
    Error,
    fold::{digest, signed, unsigned},
    page::{self, SessionRow, bytes_of, receipt_id},
    receipt::{Key, Receipt},
    store::{Filter, Head, Page, Read, SCHEMA, SessionFilter, SessionPage},
    verify::{Beside, Link},
};

/// Events of a chain that are read at a time.
const LINKS: i64 = 100;

/// A pool of connections.
#[derive(Clone, Debug)]
pub(crate) struct Reader {
    pool: Pool,
}

impl Reader {
    pub(crate) const fn new(pool: Pool) -> Self {
        Self { pool }
    }

    /// Whether there is a ledger, which this program knows.
    pub(crate) async fn check(&self) -> Result<(), Error> {
        within(async {
            let mut connection = self.connection().await?;
            if version(&mut connection, &SCHEMA).await? == 0 {
                return Err(Error::Missing);
            }
            let epoch: i64 = sqlx::query(SELECT_EPOCH)
                .fetch_one(&mut *connection)
                .await?
                .try_get(0)?;
            if epoch < 0 {
                return Err(Error::UnfinishedCopy);
            }
            Ok(())
        })
        .await
    }

    pub(super) async fn connection(&self) -> Result<PoolConnection<Postgres>, Error> {
        match self.pool.postgres() {
            Some(pool) => Ok(pool.acquire().await?),
            None => Err(Error::Foreign),
        }
    }
}

/// Gives up at the deadline of a statement.
pub(super) async fn within<T>(
    work: impl Future<Output = Result<T, Error>> + Send,
) -> Result<T, Error> {
    limited(deadline(), work).await
}

impl Read for Reader {
    fn system(&self) -> &'static str {
        super::SYSTEM
    }

    async fn head(&self, workspace: &Id) -> Result<Option<Head>, Error> {
        within(async {
            let mut connection = self.connection().await?;
            let found = heads(&mut connection, std::slice::from_ref(workspace)).await?;
            Ok(found.into_iter().next().map(|(_, head)| head))
        })
        .await
    }

    async fn find(&self, key: &Key) -> Result<Option<Receipt>, Error> {
        within(async {
            let mut connection = self.connection().await?;
            Ok(by_keys(&mut connection, std::slice::from_ref(key))
                .await?
                .pop())
        })
        .await
    }

    async fn get(&self, id: ReceiptId) -> Result<Option<Receipt>, Error> {
        within(async {
            let mut connection = self.connection().await?;
            Ok(by_ids(&mut connection, &[id], SELECT_BY_IDS).await?.pop())
        })
        .await
    }

    async fn list(&self, filter: &Filter) -> Result<Page, Error> {
        within(async {
            let mut connection = self.connection().await?;
            let rows = list(filter).build().fetch_all(&mut *connection).await?;
            let found = rows
                .iter()
                .map(|row| Ok((receipt_id(row.try_get(0)?)?, row.try_get(1)?)));
            let (ids, next) = page::cut(found, filter)?;
            let receipts = by_ids(&mut connection, &ids, SELECT_PAGE).await?;
            Ok(Page { receipts, next })
        })
        .await
    }

    async fn sessions(&self, filter: &SessionFilter) -> Result<SessionPage, Error> {
        within(async {
            let tools: Vec<_> = filter.changing_tools.iter().map(String::as_bytes).collect();
            let rows = sqlx::query(SESSIONS)
                .bind(filter.workspace.as_str())
                .bind(signed(filter.before.unwrap_or(u64::MAX)))
                .bind(i64::from(filter.limit) + 1)
                .bind(tools)
                .fetch_all(&mut *self.connection().await?)
                .await?;
            page::sessions(rows.iter().map(session_row), filter.limit)
        })
        .await
    }

    async fn keys(
        &self,
        after: Option<ReceiptId>,
        limit: u32,
        mut visit: impl FnMut(&str, &str, &str) + Send,
    ) -> Result<Option<ReceiptId>, Error> {
        within(async {
            let rows = sqlx::query(SELECT_KEYS)
                .bind(after.map_or(Vec::new(), bytes_of))
                .bind(i64::from(limit))
                .fetch_all(&mut *self.connection().await?)
                .await?;
            let mut last = None;
            for row in &rows {
                visit(row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
                last = Some(receipt_id(row.try_get(3)?)?);
            }
            Ok(last)
        })
        .await
    }

    async fn hash_at(&self, workspace: &Id, sequence: u64) -> Result<Option<Sha256>, Error> {
        within(async {
            let row = sqlx::query(SELECT_HASH)
                .bind(workspace.as_str())
                .bind(signed(sequence))
                .fetch_optional(&mut *self.connection().await?)
                .await?;
            row.map(|row| digest(row.try_get(0)?)).transpose()
        })
        .await
    }

    async fn walk(
        &self,
        workspace: Option<&Id>,
        mut visit: impl FnMut(Link<'_>) -> ControlFlow<()> + Send,
    ) -> Result<(), Error> {
        let chains = within(async {
            let rows = sqlx::query(SELECT_CHAINS)
                .bind(workspace.map(Id::as_str))
                .fetch_all(&mut *self.connection().await?)
                .await?;
            let chain = |row: &PgRow| Ok((row.try_get(0)?, row.try_get(1)?));
            rows.iter()
                .map(chain)
                .collect::<Result<Vec<(i64, String)>, Error>>()
        })
        .await?;
        for (number, id) in chains {
            let (mut after, mut ended) = (Some(0), ControlFlow::Continue(()));
            while let (Some(sequence), ControlFlow::Continue(())) = (after, ended) {
                (after, ended) = within(async {
                    let mut connection = self.connection().await?;
                    links(&mut connection, number, &id, sequence, &mut visit).await
                })
                .await?;
            }
            if ended == ControlFlow::Break(()) {
                break;
            }
        }
        Ok(())
    }

    async fn misindexed(&self, workspace: Option<&Id>) -> Result<Option<ReceiptId>, Error> {
        audit::misindexed(self, workspace).await
    }

    async fn mistold_session(&self, workspace: Option<&Id>) -> Result<Option<String>, Error> {
        audit::mistold_session(self, workspace).await
    }
}

/// Shows the next events of a chain. Tells the last one, unless there are no more, and whether the visitor has had enough.
async fn links(
    connection: &mut PgConnection,
    number: i64,
    workspace: &str,
    after: i64,
    visit: &mut (impl FnMut(Link<'_>) -> ControlFlow<()> + Send),
) -> Result<(Option<i64>, ControlFlow<()>), Error> {
    let mut rows = sqlx::query(SELECT_CHAIN)
        .bind(number)
        .bind(after)
        .bind(LINKS)
        .fetch(connection);
    let (mut last, mut count) = (after, 0);
    while let Some(row) = rows.next().await {
        let row = row?;
        let link = link(&row, workspace)?;
        (last, count) = (link.sequence, count + 1);
        if visit(link) == ControlFlow::Break(()) {
            return Ok((None, ControlFlow::Break(())));
        }
    }
    Ok(((count == LINKS).then_some(last), ControlFlow::Continue(())))
}

pub(super) fn link<'a>(row: &'a PgRow, workspace: &'a str) -> Result<Link<'a>, Error> {
    Ok(Link {
        position: row.try_get(0)?,
        workspace,
        sequence: row.try_get(1)?,
        receipt: row.try_get(2)?,
        hash: row.try_get(3)?,
        body: row.try_get(4)?,
        beside: Some(Beside {
            plan: row.try_get(5)?,
            proposal: row.try_get(6)?,
            result: row.try_get(7)?,
            answer: row.try_get(8)?,
        }),
    })
}

/// What a row says of one state of a session's receipts.
fn session_row(row: &PgRow) -> Result<SessionRow<'_>, Error> {
    Ok(SessionRow {
        session: row.try_get(0)?,
        first_ms: row.try_get(1)?,
        last_ms: row.try_get(2)?,
        last_sequence: unsigned(row.try_get(3)?),
        state: row.try_get(4)?,
        receipts: unsigned(row.try_get(5)?),
        changes: unsigned(row.try_get(6)?),
    })
}
