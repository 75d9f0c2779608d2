//! The call journal: which calls were sent with which session and intention, and what came back.
//!
//! One task owns the one connection, so that operations happen in the order in which they were asked for: who asks for an
//! answer after it has come sees it. Whatever waits when the task comes round shares one commit.
//!
//! `synchronous=NORMAL` is enough: what is committed outlives a kill of the process. A loss of power may lose the last
//! commits; a call lost so is asked again as a new one with the same ids, and the edge's ledger, which is durable against
//! that too, answers it without repeating the effect.

use std::{path::Path, time::Duration};

use postern_kit::task::Tasks;
use postern_types::{Sha256, Timestamp};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, timeout_at},
};
use tokio_util::sync::CancellationToken;

use crate::error::Error;

mod store;

use store::Store;

/// Operations that wait for the journal's task at most; more callers than that wait before they may ask.
const MAX_QUEUED: usize = 256;
/// Operations between two looks at what may be forgotten.
const OPERATIONS_PER_PRUNE: usize = 4096;
/// How long what nobody waits for may wait for company, so that a run of reads costs one commit and not two each.
const LINGER: Duration = Duration::from_millis(20);

/// What a call is known by: the same token may ask for its answer by the call's id.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Key {
    pub(crate) token_id: String,
    pub(crate) workspace_id: String,
    pub(crate) call_id: String,
}

/// A call as it is sent, each time.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Sending {
    /// Digest of tool and arguments.
    pub(crate) fingerprint: Sha256,
    pub(crate) session_id: String,
    pub(crate) intention: String,
}

/// A call that the journal knows.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Known {
    pub(crate) sending: Sending,
    /// The kept answer. A reading call's is not kept, and an old one may have been forgotten: the edge is asked again.
    pub(crate) answer: Option<String>,
}

/// The journal did not do what it was asked; its log tells why.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failed;

type Waiter = oneshot::Sender<Result<(), Failed>>;

enum Operation {
    Find(Key, oneshot::Sender<Result<Option<Known>, Failed>>),
    Open(Key, Sending, Timestamp, Option<Waiter>),
    Answer(Key, Option<String>, Timestamp),
    Free(Key),
}

impl Operation {
    /// Whether somebody waits for it.
    const fn is_urgent(&self) -> bool {
        matches!(self, Self::Find(..) | Self::Open(.., Some(_)))
    }
}

/// The journal. Clones stand for the same one; it is closed when the last is gone.
#[derive(Clone)]
pub(crate) struct Journal {
    operations: mpsc::Sender<Operation>,
}

impl Journal {
    /// Opens the journal's file, or makes it.
    ///
    /// # Errors
    /// When the file cannot be used or is of a newer version.
    pub(crate) async fn open(file: &Path, now: Timestamp, tasks: &Tasks) -> Result<Self, Error> {
        let store = Store::open(file, now).await?;
        let (operations, queue) = mpsc::channel(MAX_QUEUED);
        tasks.spawn("call journal", run(store, queue, tasks.stopping()));
        Ok(Self { operations })
    }

    /// Whether the journal's task is there.
    pub(crate) fn is_open(&self) -> bool {
        !self.operations.is_closed()
    }

    /// The call of that key, if it was sent before.
    pub(crate) async fn find(&self, key: Key) -> Result<Option<Known>, Failed> {
        let (reply, answer) = oneshot::channel();
        self.ask(Operation::Find(key, reply)).await?;
        answer.await.map_err(|_| Failed)?
    }

    /// Records that a call is about to be sent. Known already, it stays as it was.
    pub(crate) async fn open_call(
        &self,
        key: Key,
        sending: Sending,
        now: Timestamp,
    ) -> Result<(), Failed> {
        let (reply, answer) = oneshot::channel();
        self.ask(Operation::Open(key, sending, now, Some(reply)))
            .await?;
        answer.await.map_err(|_| Failed)?
    }

    /// The same for a call that changes nothing: whoever asks for it afterwards sees it, but the record is not waited for.
    /// A kill within [`LINGER`] may lose it; asked again by its id, such a call is made again, which is what happens to a
    /// reading call anyway.
    pub(crate) async fn note_call(
        &self,
        key: Key,
        sending: Sending,
        now: Timestamp,
    ) -> Result<(), Failed> {
        self.ask(Operation::Open(key, sending, now, None)).await
    }

    /// Waits for room to say what became of a call.
    pub(crate) async fn room(&self) -> Result<Room<'_>, Failed> {
        self.operations
            .reserve()
            .await
            .map(Room)
            .map_err(|_| Failed)
    }

    async fn ask(&self, operation: Operation) -> Result<(), Failed> {
        self.operations.send(operation).await.map_err(|_| Failed)
    }
}

/// Room for one word on what became of a call. It is not waited for: a call whose answer is lost with the process is
/// asked again.
pub(crate) struct Room<'a>(mpsc::Permit<'a, Operation>);

impl Room<'_> {
    /// The call was answered.
    pub(crate) fn answer(self, key: Key, answer: Option<String>, now: Timestamp) {
        self.0.send(Operation::Answer(key, answer, now));
    }

    /// Nothing came of the call, and its id is free.
    pub(crate) fn free(self, key: Key) {
        self.0.send(Operation::Free(key));
    }
}

/// Works until the last handle is gone or the process stops. What is asked after that fails, and an answer that comes after
/// that is asked for again.
async fn run(mut store: Store, mut queue: mpsc::Receiver<Operation>, stopping: CancellationToken) {
    let mut batch = Vec::with_capacity(MAX_QUEUED);
    let mut since_prune = 0;
    loop {
        tokio::select! {
            biased;
            () = stopping.cancelled(), if !queue.is_closed() => {
                queue.close();
                continue;
            }
            received = queue.recv_many(&mut batch, MAX_QUEUED) => if received == 0 { break },
        }
        gather(&mut queue, &mut batch, &stopping).await;
        since_prune += batch.len();
        let writes = batch
            .iter()
            .filter(|operation| !matches!(operation, Operation::Find(..)))
            .count();
        // One write commits by itself; several share one commit.
        let shared = writes > 1 && store.begin().await.is_ok();
        let mut replies = Vec::new();
        for operation in batch.drain(..) {
            replies.extend(apply(&mut store, operation).await);
        }
        let committed = !shared || store.commit().await.is_ok();
        for (reply, outcome) in replies {
            let _gone = reply.send(if committed { outcome } else { Err(Failed) });
        }
        if since_prune >= OPERATIONS_PER_PRUNE {
            since_prune = 0;
            store.prune(Timestamp::now()).await;
        }
    }
    store.close().await;
}

/// Lets what nobody waits for wait for more.
async fn gather(
    queue: &mut mpsc::Receiver<Operation>,
    batch: &mut Vec<Operation>,
    stopping: &CancellationToken,
) {
    let end = Instant::now() + LINGER;
    while batch.len() < MAX_QUEUED && !batch.iter().any(Operation::is_urgent) {
        let room = MAX_QUEUED - batch.len();
        let received = tokio::select! {
            biased;
            () = stopping.cancelled() => return,
            received = timeout_at(end, queue.recv_many(batch, room)) => received,
        };
        // Nothing more comes, or nothing came in time.
        if !matches!(received, Ok(1..)) {
            return;
        }
    }
}

type Reply = (Waiter, Result<(), Failed>);

/// Does one operation. What must be durable before it is told is handed back to be told after the commit.
async fn apply(store: &mut Store, operation: Operation) -> Option<Reply> {
    match operation {
        Operation::Find(key, reply) => {
            let _gone = reply.send(store.find(&key).await);
            None
        }
        Operation::Open(key, sending, now, reply) => {
            let outcome = store.open_call(&key, &sending, now).await;
            reply.map(|reply| (reply, outcome))
        }
        Operation::Answer(key, answer, now) => {
            store.answer(&key, answer.as_deref(), now).await;
            None
        }
        Operation::Free(key) => {
            store.free(&key).await;
            None
        }
    }
}

#[cfg(test)]
mod tests;
