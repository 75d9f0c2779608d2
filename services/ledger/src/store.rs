//! What the ledger asks of a database. One implementation a back end, each with all of its SQL in one file.

use std::{future::Future, ops::ControlFlow, sync::Arc};

use postern_database::Schema;
use postern_types::{Id, ReceiptId, Sha256};

use crate::{
    Error,
    receipt::{Blobs, Call, Key, Receipt, State},
    verify::Link,
    workers::WorkerRow,
};

/// A ledger's tables ("PLdg"). Applied scripts never change.
pub(crate) static SCHEMA: Schema = Schema {
    name: "postern_ledger",
    application_id: 0x504c_6467,
    sqlite: &[
        include_str!("sqlite/0001.sql"),
        include_str!("sqlite/0002.sql"),
        include_str!("sqlite/0003.sql"),
        include_str!("sqlite/0004.sql"),
    ],
    postgres: &[
        include_str!("postgres/0001.sql"),
        include_str!("postgres/0002.sql"),
        include_str!("postgres/0003.sql"),
        include_str!("postgres/0004.sql"),
    ],
};

/// Most rows of one batch.
pub(crate) const MAX_ROWS: usize = 256;

/// One event about to be appended.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// The workspace's number in the store.
    pub(crate) workspace: i64,
    pub(crate) sequence: u64,
    pub(crate) receipt: ReceiptId,
    pub(crate) session: Id,
    pub(crate) at_ms: i64,
    pub(crate) hash: Sha256,
    /// Hash of the event before it in the chain; zero for the first.
    pub(crate) previous: Sha256,
    /// Canonical JSON of the event.
    pub(crate) body: String,
    pub(crate) blobs: Blobs,
    pub(crate) entry: Entry,
}

/// What an event does to the index of receipts.
#[derive(Clone, Debug)]
pub(crate) enum Entry {
    /// A receipt begins.
    New(Arc<Call>, Standing),
    /// It changes, or stays as it is.
    Changed(Standing),
}

impl Entry {
    /// Whether a receipt ends by it without anybody knowing of its effect.
    pub(crate) const fn is_uncertain(&self) -> bool {
        let (Self::New(_, standing) | Self::Changed(standing)) = self;
        matches!(standing.state, State::Uncertain)
    }
}

/// What the index says of a receipt beside its call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Standing {
    /// Whether it holds its call id.
    pub(crate) keyed: bool,
    pub(crate) state: State,
    /// Whether it ended well.
    pub(crate) ok: bool,
}

/// The newest of a workspace.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Head {
    /// The workspace's number in the store.
    pub(crate) number: i64,
    /// Newest incarnation.
    pub(crate) incarnation: u64,
    /// Sequence of the newest event; 0 before the first.
    pub(crate) sequence: u64,
    /// Hash of the newest event.
    pub(crate) hash: Sha256,
}

/// What must be known before a batch can be decided on.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) workspaces: Vec<Id>,
    pub(crate) keys: Vec<Key>,
    pub(crate) receipts: Vec<ReceiptId>,
}

impl Wanted {
    pub(crate) const fn is_empty(&self) -> bool {
        self.workspaces.is_empty() && self.keys.is_empty() && self.receipts.is_empty()
    }
}

/// What of it there is.
#[derive(Debug, Default)]
pub(crate) struct Loaded {
    pub(crate) workspaces: Vec<(Id, Head)>,
    pub(crate) receipts: Vec<Receipt>,
}

/// A new incarnation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Opened {
    pub(crate) incarnation: u64,
    pub(crate) orphans: u64,
}

/// Which receipts a page holds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filter {
    pub(crate) workspace: Option<Id>,
    pub(crate) session: Option<Id>,
    pub(crate) tool: Option<String>,
    pub(crate) state: Option<State>,
    /// Only receipts begun at this time or later.
    pub(crate) since_ms: Option<i64>,
    /// Only receipts begun before this time.
    pub(crate) until_ms: Option<i64>,
    /// Only receipts older than this one.
    pub(crate) before: Option<ReceiptId>,
    pub(crate) limit: u32,
    /// Bytes after which a page ends early.
    pub(crate) bytes: usize,
}

/// One page, newest first.
#[derive(Debug, Default)]
pub(crate) struct Page {
    pub(crate) receipts: Vec<Receipt>,
    /// The last of them, when there are older ones.
    pub(crate) next: Option<ReceiptId>,
}

/// Which sessions a page holds.
#[derive(Clone, Debug)]
pub(crate) struct SessionFilter {
    pub(crate) workspace: Id,
    /// Only sessions whose newest event is older than this one.
    pub(crate) before: Option<u64>,
    pub(crate) limit: u32,
    /// Tools whose receipts are changes when they ended well.
    pub(crate) changing_tools: Vec<String>,
}

/// A session as its receipts make it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Session {
    pub(crate) id: Id,
    pub(crate) first_ms: i64,
    pub(crate) last_ms: i64,
    pub(crate) last_sequence: u64,
    pub(crate) changes: u64,
    pub(crate) states: Vec<(State, u64)>,
}

/// One page, newest activity first.
#[derive(Debug, Default)]
pub(crate) struct SessionPage {
    pub(crate) sessions: Vec<Session>,
    /// The newest event of the last of them, when there are others.
    pub(crate) next: Option<u64>,
}

/// The single writer. It decides on what [`Write::load`] told and appends; the store's unique constraints on
/// (workspace, sequence) and on keys refuse the whole batch if anything changed in between, so that the two together are
/// one serializable step.
pub(crate) trait Write: Send + 'static {
    /// What spans call the database (`db.system.name`).
    fn system(&self) -> &'static str;

    /// Loads what is wanted and there.
    fn load(&mut self, wanted: &Wanted) -> impl Future<Output = Result<Loaded, Error>> + Send;

    /// Appends all rows or none; durable when it returns.
    fn append(&mut self, rows: Vec<Row>) -> impl Future<Output = Result<(), Error>> + Send;

    /// Takes the next incarnation of a workspace; durable when it returns.
    fn open(
        &mut self,
        workspace: &Id,
        at_ms: i64,
    ) -> impl Future<Output = Result<Opened, Error>> + Send;

    /// Writes down leases of exec workers that began or ended, and forgets the oldest that ended; durable when it returns. The
    /// end of a lease that is on disk stays.
    fn put_workers(&mut self, rows: &[WorkerRow])
    -> impl Future<Output = Result<(), Error>> + Send;

    /// Every lease on disk, by the workers' ids.
    fn workers(&mut self) -> impl Future<Output = Result<Vec<WorkerRow>, Error>> + Send;

    /// Keeps the store's own files small. Called now and then; a failure is no concern of a caller.
    fn tidy(&mut self) -> impl Future<Output = Result<(), Error>> + Send;

    /// Waits until [`Write::attend`] is due: never, for a store that needs no attention. Forgotten and asked again at any time.
    fn due(&mut self) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }

    /// Sees to the store while nobody asks anything of it.
    fn attend(&mut self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// Whether what was decided on may not be so any more, because another has written: nothing is written from here again.
    fn is_lost(&self) -> bool {
        false
    }

    /// Gives the database up.
    fn close(self) -> impl Future<Output = ()> + Send;
}

/// The readers.
pub(crate) trait Read: Clone + Send + Sync + 'static {
    /// What spans call the database (`db.system.name`).
    fn system(&self) -> &'static str;

    /// The newest of a workspace.
    fn head(&self, workspace: &Id) -> impl Future<Output = Result<Option<Head>, Error>> + Send;

    /// The receipt that holds a key.
    fn find(&self, key: &Key) -> impl Future<Output = Result<Option<Receipt>, Error>> + Send;

    /// One receipt.
    fn get(&self, id: ReceiptId) -> impl Future<Output = Result<Option<Receipt>, Error>> + Send;

    /// One page of receipts, without results.
    fn list(&self, filter: &Filter) -> impl Future<Output = Result<Page, Error>> + Send;

    /// One page of sessions.
    fn sessions(
        &self,
        filter: &SessionFilter,
    ) -> impl Future<Output = Result<SessionPage, Error>> + Send;

    /// Tells `visit` the keys of at most `limit` receipts after `after`; answers with the last of these receipts.
    fn keys(
        &self,
        after: Option<ReceiptId>,
        limit: u32,
        visit: impl FnMut(&str, &str, &str) + Send,
    ) -> impl Future<Output = Result<Option<ReceiptId>, Error>> + Send;

    /// Hash of one event of a workspace.
    fn hash_at(
        &self,
        workspace: &Id,
        sequence: u64,
    ) -> impl Future<Output = Result<Option<Sha256>, Error>> + Send;

    /// Shows every event to `visit`, by workspace and sequence, until it breaks.
    fn walk(
        &self,
        workspace: Option<&Id>,
        visit: impl FnMut(Link<'_>) -> ControlFlow<()> + Send,
    ) -> impl Future<Output = Result<(), Error>> + Send;

    /// A receipt whose index entry is not what its events say.
    fn misindexed(
        &self,
        workspace: Option<&Id>,
    ) -> impl Future<Output = Result<Option<ReceiptId>, Error>> + Send;

    /// A session of which something else is told than its events say.
    fn mistold_session(
        &self,
        workspace: Option<&Id>,
    ) -> impl Future<Output = Result<Option<String>, Error>> + Send;
}
