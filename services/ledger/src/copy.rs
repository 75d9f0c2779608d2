//! A ledger into another database: every event as it is, in the order in which they were written.
//!
//! The target counts as unfinished until both ends have been verified and are the same; no ledger serves from it before. A copy
//! that was interrupted goes on where it stopped. Nothing else may run on either end, which the ledgers' own locks see to.
//! Leases of exec workers are no record and stay behind.

use std::collections::HashMap;

use postern_database::Database;
use postern_types::{Id, ReceiptEvent, ReceiptId, Sha256};

use crate::{
    Error, Verification, postgres,
    reader::Reader,
    receipt::{Blobs, Receipt},
    service::verify_all,
    sqlite,
    store::{Entry, Head, MAX_ROWS, Row, Wanted, Write},
};

/// Bytes after which what was read is written.
const BATCH_BYTES: usize = 8 * 1024 * 1024;

/// How far a copy is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Progress {
    /// Events in the target.
    pub copied: u64,
    /// Events in the source, or a few more.
    pub total: u64,
}

/// A copy that is whole.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Copied {
    /// What was found in either.
    pub found: Verification,
}

/// An event as either store has it.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) position: i64,
    pub(crate) workspace: Id,
    pub(crate) hash: Sha256,
    pub(crate) body: String,
    pub(crate) blobs: Blobs,
}

/// An incarnation of a workspace, and when it was taken.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Incarnation {
    pub(crate) workspace: Id,
    pub(crate) number: i64,
    pub(crate) at_ms: i64,
}

/// Where a ledger is read from.
pub(crate) trait Source: Send {
    /// Every incarnation, workspaces in the order in which they came.
    fn incarnations(&mut self) -> impl Future<Output = Result<Vec<Incarnation>, Error>> + Send;

    /// The next events after a position, in the order of positions; none at the end.
    fn events(&mut self, after: i64) -> impl Future<Output = Result<Vec<Stored>, Error>> + Send;

    /// Position and hash of an event.
    fn place(
        &mut self,
        workspace: &Id,
        sequence: u64,
    ) -> impl Future<Output = Result<Option<(i64, Sha256)>, Error>> + Send;

    /// About how many events there are.
    fn total(&mut self) -> impl Future<Output = Result<u64, Error>> + Send;

    /// Readers of the same.
    fn reader(&self) -> Reader;
}

/// Where it is written to.
pub(crate) trait Target: Write {
    /// Every incarnation that is there already.
    fn taken(&mut self) -> impl Future<Output = Result<Vec<Incarnation>, Error>> + Send;

    /// Takes in incarnations that are not there yet, with their workspaces.
    fn take(
        &mut self,
        incarnations: &[Incarnation],
    ) -> impl Future<Output = Result<(), Error>> + Send;

    /// How many events there are, and the last one's workspace and sequence.
    fn last(&mut self) -> impl Future<Output = Result<Option<(u64, Id, u64)>, Error>> + Send;

    /// From now on it is a ledger.
    fn finish(&mut self) -> impl Future<Output = Result<(), Error>> + Send;
}

/// Copies a ledger into an empty database, or goes on with that. `told` hears of each batch.
///
/// # Errors
/// [`Error::InUse`] and [`Error::Standby`] while a ledger runs on either, [`Error::Missing`] without a source,
/// [`Error::NotEmpty`] when the target is anything but empty or a part of the source, [`Error::Unsound`] when either does not
/// hold afterwards, and whatever keeps a database from being used.
pub async fn copy(
    from: &Database,
    to: &Database,
    told: impl FnMut(Progress) + Send,
) -> Result<Copied, Error> {
    match from {
        Database::Sqlite(path) => {
            let source = sqlite::source(path).await;
            copy_from(source.map_err(|error| error.at(path))?, to, told).await
        }
        Database::Postgres(server) => copy_from(postgres::source(server).await?, to, told).await,
    }
}

async fn copy_from(
    source: impl Source,
    to: &Database,
    told: impl FnMut(Progress) + Send,
) -> Result<Copied, Error> {
    match to {
        Database::Sqlite(path) => {
            let target = sqlite::target(path).await;
            copy_into(source, target.map_err(|error| error.at(path))?, told).await
        }
        Database::Postgres(server) => {
            copy_into(source, postgres::target(server).await?, told).await
        }
    }
}

async fn copy_into<T: Target>(
    mut source: impl Source,
    (mut target, reader): (T, Reader),
    told: impl FnMut(Progress) + Send,
) -> Result<Copied, Error> {
    let copied = copy_all(&mut source, &mut target, &reader, told).await;
    target.close().await;
    copied
}

async fn copy_all(
    source: &mut impl Source,
    target: &mut impl Target,
    reader: &Reader,
    mut told: impl FnMut(Progress) + Send,
) -> Result<Copied, Error> {
    let total = source.total().await?;
    let incarnations = source.incarnations().await?;
    // A copy of another ledger may have been interrupted before its first event.
    if target
        .taken()
        .await?
        .iter()
        .any(|it| !incarnations.contains(it))
    {
        return Err(Error::NotEmpty);
    }
    let (mut copied, mut after) = resume(source, target).await?;
    target.take(&incarnations).await?;
    let mut copying = Copying::default();
    loop {
        let events = source.events(after).await?;
        let Some(last) = events.last() else { break };
        after = last.position;
        copied += events.len() as u64;
        let rows = copying.rows(events, target).await?;
        let (mut batch, mut bytes) = (Vec::new(), 0);
        for row in rows {
            bytes += row.body.len() + row.blobs.size();
            batch.push(row);
            if batch.len() == MAX_ROWS || bytes > BATCH_BYTES {
                target.append(std::mem::take(&mut batch)).await?;
                bytes = 0;
            }
        }
        if !batch.is_empty() {
            target.append(batch).await?;
        }
        let total = total.max(copied);
        told(Progress { copied, total });
    }
    let found = verified("the copy", reader).await?;
    if verified("the ledger that was copied", &source.reader()).await? != found {
        return Err(Error::Unsound {
            place: "the copy",
            problem: "it is another chain than the one that was copied".to_owned(),
        });
    }
    target.finish().await?;
    Ok(Copied { found })
}

/// Where to go on: the number of events in the target, and the position of the last of them in the source.
async fn resume(source: &mut impl Source, target: &mut impl Target) -> Result<(u64, i64), Error> {
    let Some((count, workspace, sequence)) = target.last().await? else {
        return Ok((0, 0));
    };
    let wanted = Wanted {
        workspaces: vec![workspace.clone()],
        ..Wanted::default()
    };
    let heads = target.load(&wanted).await?.workspaces;
    let place = source.place(&workspace, sequence).await?;
    match (heads.first(), place) {
        (Some((_, head)), Some((position, hash)))
            if head.sequence == sequence && head.hash == hash =>
        {
            Ok((count, position))
        }
        _ => Err(Error::NotEmpty),
    }
}

async fn verified(place: &'static str, reader: &Reader) -> Result<Verification, Error> {
    let mut found = verify_all(reader).await?;
    match found.fault.take() {
        None => Ok(found),
        Some(fault) => Err(Error::Unsound {
            place,
            problem: fault.problem,
        }),
    }
}

/// What is known of the target between two batches.
#[derive(Debug, Default)]
struct Copying {
    heads: HashMap<Id, Head>,
    /// Receipts to which something may still happen.
    open: HashMap<ReceiptId, Receipt>,
}

impl Copying {
    /// The rows that events become.
    async fn rows(
        &mut self,
        events: Vec<Stored>,
        target: &mut impl Target,
    ) -> Result<Vec<Row>, Error> {
        let mut parsed = Vec::with_capacity(events.len());
        let mut wanted = Wanted::default();
        for stored in events {
            let event: ReceiptEvent = serde_json::from_str(&stored.body)
                .map_err(|error| Error::Corrupt(format!("an event's content: {error}")))?;
            if !self.heads.contains_key(&stored.workspace)
                && !wanted.workspaces.contains(&stored.workspace)
            {
                wanted.workspaces.push(stored.workspace.clone());
            }
            if event.session_id.is_none() && !self.open.contains_key(&event.receipt_id) {
                wanted.receipts.push(event.receipt_id);
            }
            parsed.push((stored, event));
        }
        if !wanted.is_empty() {
            // Of the receipts that begin in this very part there is nothing yet.
            let loaded = target.load(&wanted).await?;
            self.heads.extend(loaded.workspaces);
            self.open
                .extend(loaded.receipts.into_iter().map(|it| (it.id, it)));
        }
        let rows = parsed
            .into_iter()
            .map(|(stored, event)| self.row(stored, &event))
            .collect();
        self.open.retain(|_, receipt| receipt.open());
        rows
    }

    fn row(&mut self, stored: Stored, event: &ReceiptEvent) -> Result<Row, Error> {
        let broken = || Error::Corrupt(format!("the events of receipt {}", event.receipt_id));
        let head = self.heads.get(&stored.workspace).ok_or_else(broken)?;
        let (receipt, entry) = match self.open.remove(&event.receipt_id) {
            Some(mut receipt) => {
                receipt.apply(event, stored.hash, stored.blobs.clone())?;
                let entry = Entry::Changed(receipt.standing());
                (receipt, entry)
            }
            None => {
                let receipt = Receipt::first(event, stored.hash, stored.blobs.clone())?;
                let entry = Entry::New(receipt.call.clone(), receipt.standing());
                (receipt, entry)
            }
        };
        let row = Row {
            workspace: head.number,
            sequence: event.sequence,
            receipt: event.receipt_id,
            session: receipt.call.key.session.clone(),
            at_ms: event.at_ms,
            hash: stored.hash,
            previous: event.previous_hash,
            body: stored.body,
            blobs: stored.blobs,
            entry,
        };
        self.open.insert(receipt.id, receipt);
        Ok(row)
    }
}
