//! The readers of either store.

use std::ops::ControlFlow;

use postern_types::{Id, ReceiptId, Sha256};

use crate::{
    Error, postgres,
    receipt::{Key, Receipt},
    sqlite,
    store::{Filter, Head, Page, Read, SessionFilter, SessionPage},
    verify::Link,
};

/// A reader of the one or the other.
#[derive(Clone, Debug)]
pub(crate) enum Reader {
    Sqlite(sqlite::Reader),
    Postgres(postgres::Reader),
}

macro_rules! of_either {
    ($self:expr, $reader:ident => $ask:expr) => {
        match $self {
            Self::Sqlite($reader) => $ask.await,
            Self::Postgres($reader) => $ask.await,
        }
    };
}

impl Read for Reader {
    fn system(&self) -> &'static str {
        match self {
            Self::Sqlite(reader) => reader.system(),
            Self::Postgres(reader) => reader.system(),
        }
    }

    async fn head(&self, workspace: &Id) -> Result<Option<Head>, Error> {
        of_either!(self, reader => reader.head(workspace))
    }

    async fn find(&self, key: &Key) -> Result<Option<Receipt>, Error> {
        of_either!(self, reader => reader.find(key))
    }

    async fn get(&self, id: ReceiptId) -> Result<Option<Receipt>, Error> {
        of_either!(self, reader => reader.get(id))
    }

    async fn list(&self, filter: &Filter) -> Result<Page, Error> {
        of_either!(self, reader => reader.list(filter))
    }

    async fn sessions(&self, filter: &SessionFilter) -> Result<SessionPage, Error> {
        of_either!(self, reader => reader.sessions(filter))
    }

    async fn keys(
        &self,
        after: Option<ReceiptId>,
        limit: u32,
        visit: impl FnMut(&str, &str, &str) + Send,
    ) -> Result<Option<ReceiptId>, Error> {
        of_either!(self, reader => reader.keys(after, limit, visit))
    }

    async fn hash_at(&self, workspace: &Id, sequence: u64) -> Result<Option<Sha256>, Error> {
        of_either!(self, reader => reader.hash_at(workspace, sequence))
    }

    async fn walk(
        &self,
        workspace: Option<&Id>,
        visit: impl FnMut(Link<'_>) -> ControlFlow<()> + Send,
    ) -> Result<(), Error> {
        of_either!(self, reader => reader.walk(workspace, visit))
    }

    async fn misindexed(&self, workspace: Option<&Id>) -> Result<Option<ReceiptId>, Error> {
        of_either!(self, reader => reader.misindexed(workspace))
    }

    async fn mistold_session(&self, workspace: Option<&Id>) -> Result<Option<String>, Error> {
        of_either!(self, reader => reader.mistold_session(workspace))
    }
}
