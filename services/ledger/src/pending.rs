//! Recorded reading calls that wait to be written. Nobody waits for them, but everybody sees them.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use postern_kit::trace::Place;
use postern_types::ReceiptId;
use tokio::sync::Notify;

use crate::receipt::{Call, Key, Receipt, State};

/// Records that may wait. A full batch of them is written within milliseconds, so only a failing database fills this.
const LIMIT: usize = 4096;
/// Bytes of intentions that may wait.
const LIMIT_BYTES: usize = 8 * 1024 * 1024;
/// How long a record waits for others, or for a call whose commit it shares: it needs none of its own.
const LINGER: Duration = Duration::from_millis(25);

/// A finished reading call.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) id: ReceiptId,
    pub(crate) call: Arc<Call>,
    pub(crate) incarnation: u64,
    pub(crate) outcome: Arc<str>,
    pub(crate) started_at_ms: i64,
    pub(crate) finished_at_ms: i64,
    /// Where in its call's trace it was recorded.
    pub(crate) place: Place,
}

impl Record {
    /// The receipt that it will become.
    fn receipt(&self) -> Receipt {
        Receipt {
            id: self.id,
            call: Arc::clone(&self.call),
            state: State::Completed,
            keyed: true,
            outcome: Arc::clone(&self.outcome),
            created_at_ms: self.finished_at_ms,
            started_at_ms: Some(self.started_at_ms),
            finished_at_ms: Some(self.finished_at_ms),
            sequence: 0,
            previous_hash: None,
            hash: None,
            incarnation: self.incarnation,
            policy_id: "".into(),
            plan: bytes::Bytes::new(),
            inbox: None,
            result: bytes::Bytes::new(),
            result_sha256: None,
        }
    }

    fn size(&self) -> usize {
        size_of::<Self>() + size_of::<Call>() + self.call.intention.as_str().len()
    }
}

/// The queue.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    inner: Mutex<Inner>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    order: VecDeque<Key>,
    records: HashMap<Key, Record>,
    bytes: usize,
    dropped: u64,
}

impl Pending {
    /// Queues a record, unless its key is queued already.
    pub(crate) fn push(&self, record: Record) {
        let mut inner = self.lock();
        if inner.records.contains_key(&record.call.key) {
            return;
        }
        if inner.order.len() >= LIMIT || inner.bytes + record.size() > LIMIT_BYTES {
            inner.dropped += 1;
            let dropped = inner.dropped;
            drop(inner);
            tracing::warn!(dropped, "the queue of recorded reading calls is full");
            return;
        }
        inner.bytes += record.size();
        inner.order.push_back(record.call.key.clone());
        inner.records.insert(record.call.key.clone(), record);
        drop(inner);
        self.changed.notify_one();
    }

    /// The receipt that a queued record will become.
    pub(crate) fn find(&self, key: &Key) -> Option<Receipt> {
        self.lock().records.get(key).map(Record::receipt)
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.lock().order.len()
    }

    /// The oldest records, at most `limit`. They stay visible until [`Self::written`].
    pub(crate) fn oldest(&self, limit: usize) -> Vec<Record> {
        let inner = self.lock();
        inner
            .order
            .iter()
            .take(limit)
            .filter_map(|key| inner.records.get(key).cloned())
            .collect()
    }

    /// The oldest `count` records are on disk.
    pub(crate) fn written(&self, count: usize) {
        let mut inner = self.lock();
        for _ in 0..count {
            let Some(key) = inner.order.pop_front() else {
                return;
            };
            if let Some(record) = inner.records.remove(&key) {
                inner.bytes -= record.size();
            }
        }
    }

    /// Waits until records are due: a batch of them, or some for [`LINGER`].
    pub(crate) async fn due(&self, batch: usize) {
        while self.len() == 0 {
            self.changed.notified().await;
        }
        let full = async {
            while self.len() < batch {
                self.changed.notified().await;
            }
        };
        // Either end is good: a batch is there, or the time is over.
        let _ = tokio::time::timeout(LINGER, full).await;
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
