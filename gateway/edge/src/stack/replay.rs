//! The same ids again: running here, the call is joined; answered before, the answer is given again.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use postern_kit::{Failure, trace};
use postern_proto::ledger::v1::begin_response::Outcome;
use postern_types::{ErrorCode, Sha256};
use tokio::sync::watch;

use super::{
    judge::Verdict,
    layer::{Inner, Stage},
    pin::Pinned,
};
use crate::{
    call::{Call, Key},
    reply::{Answer, Reply},
};

/// A call that nobody else runs, held by its claim.
#[derive(Debug)]
pub(super) struct Claimed {
    pub(super) call: Arc<Call>,
    pub(super) verdict: Verdict,
    /// Kept for as long as the ids must not be claimed again.
    pub(super) claim: Arc<Claim>,
}

type Running = Arc<Mutex<HashMap<Key, Run>>>;

#[derive(Debug)]
struct Run {
    tool: String,
    args_sha256: Sha256,
    answer: watch::Receiver<Option<Answer>>,
}

/// The right to run a call, given back when dropped.
#[derive(Debug)]
pub(super) struct Claim {
    key: Key,
    running: Running,
    answer: watch::Sender<Option<Answer>>,
}

impl Drop for Claim {
    fn drop(&mut self) {
        lock(&self.running).remove(&self.key);
    }
}

fn lock(running: &Running) -> MutexGuard<'_, HashMap<Key, Run>> {
    running.lock().unwrap_or_else(PoisonError::into_inner)
}

enum Turn {
    Mine(Claim),
    Another(watch::Receiver<Option<Answer>>),
}

#[derive(Debug)]
pub(super) struct Replay {
    running: Running,
}

impl Replay {
    pub(super) fn new() -> Self {
        Self {
            running: Arc::default(),
        }
    }

    fn claim(&self, call: &Call) -> Result<Turn, Failure> {
        let key = call.key();
        match lock(&self.running).entry(key.clone()) {
            Entry::Occupied(entry) => {
                let run = entry.get();
                if run.tool == call.tool && run.args_sha256 == call.args_sha256() {
                    Ok(Turn::Another(run.answer.clone()))
                } else {
                    Err(id_reused())
                }
            }
            Entry::Vacant(entry) => {
                let (answer, receiver) = watch::channel(None);
                entry.insert(Run {
                    tool: call.tool.clone(),
                    args_sha256: call.args_sha256(),
                    answer: receiver,
                });
                Ok(Turn::Mine(Claim {
                    key,
                    running: Arc::clone(&self.running),
                    answer,
                }))
            }
        }
    }
}

/// The answer to an id that stands for another call. The existing receipt stays as it is.
pub(super) fn id_reused() -> Failure {
    Failure::new(
        ErrorCode::IdReused,
        "This call id was used for another tool or other arguments. Send the call with a new id.",
    )
}

/// What the ledger's knowledge of a reading call's ids means for it; `None` when the call is to be made.
fn known_answer(known: Option<Outcome>) -> Option<Answer> {
    match known? {
        Outcome::Conflict(_) => Some(Err(id_reused())),
        // A recorded reading call has no stored result and may be made again.
        Outcome::Replay(replay) if replay.result.is_empty() => None,
        Outcome::Replay(replay) => {
            let outcome = replay.receipt.unwrap_or_default().outcome;
            Some(Reply::stored(&replay.result, &outcome))
        }
        // A reading call that the owner's rules made wait: its receipt is taken up again further in.
        Outcome::Started(_)
        | Outcome::Running(_)
        | Outcome::Orphaned(_)
        | Outcome::Awaiting(_)
        | Outcome::Unknown(_) => None,
    }
}

impl Stage<Pinned> for Replay {
    type Inner = Claimed;

    async fn handle<I: Inner<Claimed>>(&self, pinned: Pinned, inner: I) -> Answer {
        let Pinned {
            call,
            known,
            verdict,
        } = pinned;
        let claim = match self.claim(&call)? {
            Turn::Mine(claim) => Arc::new(claim),
            Turn::Another(mut answer) => {
                trace::is_again(&call.call_id);
                return match answer.wait_for(Option::is_some).await {
                    Ok(answer) => answer.clone().unwrap_or_else(|| Err(vanished())),
                    Err(_dropped) => Err(vanished()),
                };
            }
        };
        let answer = match known_answer(known) {
            Some(answer) => {
                trace::is_again(&call.call_id);
                answer
            }
            None => {
                postern_kit::fault_point!(crate::fault_points::CLAIM_AFTER);
                let claimed = Claimed {
                    call,
                    verdict,
                    claim: Arc::clone(&claim),
                };
                inner.answer(claimed).await
            }
        };
        claim.answer.send_replace(Some(answer.clone()));
        answer
    }
}

fn vanished() -> Failure {
    Failure::new(
        ErrorCode::Unavailable,
        "The call that runs under this id ended without an answer. Send it again with the same id.",
    )
}
