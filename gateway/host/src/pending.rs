//! Calls that are not answered yet. Whoever asks for one of them again waits for its one answer.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use postern_kit::Failure;
use postern_types::{ErrorCode, Sha256};
use serde_json::value::RawValue;
use tokio::sync::watch;

use crate::journal::Key;

/// What comes of a call: the edge's result as it came, or the host's refusal.
pub(crate) type Answer = Result<Arc<RawValue>, Failure>;

/// One call, and those who wait for it.
pub(crate) struct PendingCall {
    pub(crate) key: Key,
    /// Digest of tool and arguments.
    pub(crate) fingerprint: Sha256,
    /// Whether its answer is kept in the journal.
    pub(crate) keep: bool,
    answer: watch::Sender<Option<Answer>>,
}

impl PendingCall {
    /// Ends when nobody waits for the answer.
    pub(crate) async fn nobody_waits(&self) {
        self.answer.closed().await;
    }
}

/// Part of a caller in a call.
pub(crate) struct Entered {
    pub(crate) answer: watch::Receiver<Option<Answer>>,
    /// The call, when this caller is its first.
    pub(crate) first: Option<Arc<PendingCall>>,
}

/// Every call that is not answered yet.
#[derive(Default)]
pub(crate) struct Pending(Mutex<HashMap<Key, Arc<PendingCall>>>);

impl Pending {
    fn calls(&self) -> MutexGuard<'_, HashMap<Key, Arc<PendingCall>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Joins the call of that key, or starts it.
    ///
    /// # Errors
    /// `ID_REUSED` when the call of that key is another one.
    pub(crate) fn enter(
        &self,
        key: Key,
        fingerprint: Sha256,
        keep: bool,
    ) -> Result<Entered, Failure> {
        match self.calls().entry(key) {
            Entry::Occupied(entry) if entry.get().fingerprint == fingerprint => Ok(Entered {
                answer: entry.get().answer.subscribe(),
                first: None,
            }),
            Entry::Occupied(_) => Err(id_reused()),
            Entry::Vacant(entry) => {
                let (sender, answer) = watch::channel(None);
                let call = Arc::new(PendingCall {
                    key: entry.key().clone(),
                    fingerprint,
                    keep,
                    answer: sender,
                });
                entry.insert(Arc::clone(&call));
                Ok(Entered {
                    answer,
                    first: Some(call),
                })
            }
        }
    }

    /// Gives a call up that nobody waits for. Tells whether it is given up; somebody may just have joined.
    pub(crate) fn abandon(&self, call: &PendingCall) -> bool {
        let mut calls = self.calls();
        if call.answer.receiver_count() > 0 {
            return false;
        }
        calls.remove(&call.key);
        true
    }

    /// Tells everybody who waits. From here on the journal answers for the call.
    pub(crate) fn finish(&self, call: &PendingCall, answer: Answer) {
        self.calls().remove(&call.key);
        call.answer.send_replace(Some(answer));
    }
}

/// The id belongs to another call.
pub(crate) fn id_reused() -> Failure {
    Failure::new(
        ErrorCode::IdReused,
        "This call id was used for another tool or other arguments. Give the call an id of its own.",
    )
}
