//! Results as a server wrote them. The MCP library reads messages into types of its own, which drop what they do not know; what
//! an agent gets is taken beside it, by the request's id.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rmcp::model::{ClientJsonRpcMessage, ClientRequest, RequestId, ServerJsonRpcMessage};
use serde::Deserialize;
use serde_json::value::RawValue;

/// Takes results aside. Clones stand for the same one; each connection has its own.
#[derive(Clone, Debug, Default)]
pub(super) struct Tap(Arc<Mutex<Taken>>);

#[derive(Debug, Default)]
struct Taken {
    /// Requests whose result is to be taken, and what stands in for it towards the library. As many as there are calls in
    /// flight, and a listing.
    wanted: HashMap<RequestId, &'static str>,
    /// Requests that may have reached the server.
    sent: HashSet<RequestId>,
    results: HashMap<RequestId, Box<RawValue>>,
}

/// A message, as far as it must be read here.
#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(default)]
    id: Option<RequestId>,
    #[serde(borrow, default)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    result: Option<&'a RawValue>,
}

impl Tap {
    /// Notes what is about to be sent.
    pub(super) fn sending(&self, message: &ClientJsonRpcMessage) {
        if let ClientJsonRpcMessage::Request(request) = message
            && let Some(substitute) = substitute(&request.request)
        {
            self.taken().wanted.insert(request.id.clone(), substitute);
        }
    }

    /// Notes that a request may have reached the server from now on.
    pub(super) fn sent(&self, message: &ClientJsonRpcMessage) {
        if let ClientJsonRpcMessage::Request(request) = message {
            let mut taken = self.taken();
            if taken.wanted.contains_key(&request.id) {
                taken.sent.insert(request.id.clone());
            }
        }
    }

    /// Notes that a request did not reach the server after all.
    pub(super) fn unsent(&self, message: &ClientJsonRpcMessage) {
        if let ClientJsonRpcMessage::Request(request) = message {
            self.taken().sent.remove(&request.id);
        }
    }

    /// Reads a message. `None` for what is none.
    pub(super) fn read(&self, text: &str) -> Option<ServerJsonRpcMessage> {
        let envelope: Envelope<'_> = serde_json::from_str(text).ok()?;
        let (Some(id), Some(result), None) = (&envelope.id, envelope.result, &envelope.method)
        else {
            return serde_json::from_str(text).ok();
        };
        let Some(substitute) = self.take(id, result) else {
            return serde_json::from_str(text).ok();
        };
        // The library has the listing itself where it can read it, for it heeds what that says of headers.
        let whole = || serde_json::from_str(text).ok();
        let is_listing = substitute == LISTED;
        is_listing.then(whole).flatten().or_else(|| {
            let id = serde_json::to_string(id).ok()?;
            let stand_in = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{substitute}}}"#);
            serde_json::from_str(&stand_in).ok()
        })
    }

    /// What came for a request, once; and nothing more is taken for it.
    pub(super) fn result(&self, id: &RequestId) -> Option<Box<RawValue>> {
        let mut taken = self.taken();
        taken.wanted.remove(id);
        taken.sent.remove(id);
        taken.results.remove(id)
    }

    /// Whether a request may have reached the server.
    pub(super) fn may_have_reached(&self, id: &RequestId) -> bool {
        self.taken().sent.contains(id)
    }

    fn take(&self, id: &RequestId, result: &RawValue) -> Option<&'static str> {
        let mut taken = self.taken();
        // Taken once: a second answer to the same request changes nothing.
        let (own, substitute) = taken
            .wanted
            .iter()
            .find(|(wanted, _)| answers(wanted, id))
            .map(|(own, substitute)| (own.clone(), *substitute))?;
        taken
            .results
            .entry(own)
            .or_insert_with(|| result.to_owned());
        Some(substitute)
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether an answer's id is a request's. Some servers write numbers as text.
fn answers(request: &RequestId, answer: &RequestId) -> bool {
    request == answer
        || matches!((request, answer), (RequestId::Number(number), RequestId::String(text)) if text.parse() == Ok(*number))
}

/// What the library gets for a tool's result.
const CALLED: &str = r#"{"resultType":"complete","content":[]}"#;
/// What it gets for a listing that it cannot read.
const LISTED: &str = r#"{"resultType":"complete","tools":[],"ttlMs":0,"cacheScope":"private"}"#;

fn substitute(request: &ClientRequest) -> Option<&'static str> {
    if matches!(request, ClientRequest::CallToolRequest(_)) {
        Some(CALLED)
    } else if matches!(request, ClientRequest::ListToolsRequest(_)) {
        Some(LISTED)
    } else {
        None
    }
}
