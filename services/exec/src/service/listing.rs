//! Which commands there are.

use std::sync::Arc;

use postern_types::ReceiptId;

use super::{Service, Told};
use crate::Error;

/// Commands a page at most.
pub(crate) const PAGE: usize = 100;

impl Service {
    /// One page of commands, newest first, and where the next one goes on. A command whose worker died is `lost` from now on.
    pub(crate) async fn list(
        &self,
        after: Option<ReceiptId>,
        limit: usize,
    ) -> Result<(Vec<(ReceiptId, Told)>, Option<ReceiptId>), Error> {
        let (spool, now) = (Arc::clone(&self.worker.spool), self.worker.clock.now());
        let limit = limit.clamp(1, PAGE);
        self.worker
            .blocking(move || {
                let (listed, more) = spool.list(after, limit, now)?;
                let next = listed.last().map(|(id, _)| *id).filter(|_| more);
                let told = listed
                    .iter()
                    .map(|(id, entry)| (*id, Told::of(entry)))
                    .collect();
                Ok((told, next))
            })
            .await
    }

    /// One command, if there is one, whosever it is.
    pub(crate) async fn list_one(&self, id: ReceiptId) -> Result<Option<Told>, Error> {
        let told = self.worker.with_entry(id, |entry| Ok(Told::of(&entry)));
        match told.await {
            Ok(told) => Ok(Some(told)),
            Err(Error::UnknownCommand) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
