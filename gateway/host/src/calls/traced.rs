//! The trace of a call at the host.
//!
//! The host makes the root. Which calls have theirs already is remembered, so that asking for one again makes no second.

use std::{
    collections::{HashSet, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use postern_kit::{Failure, trace};
use postern_proto::channel;
use postern_types::root_span_id;
use uuid::Uuid;

use super::{AgentCall, CallOutcome, Calls, Inner, invalid, outcome};
use crate::journal::Key;

/// The request by which a call came, for its trace.
#[derive(Clone, Debug)]
pub(crate) struct Came {
    /// When.
    pub(crate) since: SystemTime,
    /// Where the agent is in a trace of its own.
    pub(crate) agent: Option<trace::Agent>,
}

impl Calls {
    /// Makes a call within its trace.
    pub(super) async fn traced(
        &self,
        call: AgentCall,
        tool: &'static str,
    ) -> Result<CallOutcome, Failure> {
        let given = call.call_id.is_some();
        let call_id = match &call.call_id {
            Some(id) if channel::is_id(id) => id.clone(),
            Some(_) => return Err(invalid("A call id is 1 to 200 visible ASCII characters.")),
            None => Uuid::now_v7().to_string(),
        };
        let key = Key {
            token_id: call.token.id().to_owned(),
            workspace_id: call.token.workspace_id().to_owned(),
            call_id,
        };
        let agent = call.request.agent.as_ref();
        let span = if given && self.0.is_again(&key).await {
            trace::again(&key.call_id, tool, agent)
        } else {
            trace::call(&key.call_id, tool, agent, call.request.since)
        };
        let since = call.request.since;
        let answer = span.run(Box::pin(self.make(call, key, given))).await;
        span.outcome(match &answer {
            Ok(answered) => outcome::outcome(answered.result.get()),
            Err(failure) => failure.code.as_str(),
        });
        trace::request_of_call(&span.place(), "POST", "/mcp", since);
        answer
    }
}

impl Inner {
    /// Whether a call that the client names was asked for before, so that its trace has its root.
    async fn is_again(&self, key: &Key) -> bool {
        let is_known = !lock(&self.rooted).insert(key);
        is_known || matches!(self.journal.find(key.clone()).await, Ok(Some(_)))
    }
}

/// Calls that are remembered. Those that were answered are in the journal, too; a call that left nothing behind and is asked
/// for after so many others gets a second root.
const REMEMBERED: usize = 4096;

/// Span ids of roots, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Rooted {
    known: HashSet<[u8; 8]>,
    order: VecDeque<[u8; 8]>,
}

impl Rooted {
    /// Remembers a call. Tells whether it is a new one.
    fn insert(&mut self, key: &Key) -> bool {
        let id = root_span_id(&key.call_id);
        if !self.known.insert(id) {
            return false;
        }
        self.order.push_back(id);
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        true
    }
}

/// Every change under the lock is one step.
fn lock(rooted: &Mutex<Rooted>) -> MutexGuard<'_, Rooted> {
    rooted.lock().unwrap_or_else(PoisonError::into_inner)
}
