//! JSON-RPC messages as an agent sends them, read without making a tree of what only passes through.

use std::borrow::Cow;

use http::HeaderMap;
use serde::Deserialize;
use serde_json::value::RawValue;

/// What stands for parameters or arguments that were not given.
const NOTHING: &str = "{}";
/// By this header `postern mcp` names its conversation: a stdio process is one (CONTRACT.md, section 5), also when the host
/// restarts and its sessions are opened again.
pub const CONVERSATION_HEADER: &str = "postern-conversation";
/// Longest text of a conversation's key, in bytes.
const MAX_KEY_BYTES: usize = 200;

/// One message: a request, a notification or an answer.
#[derive(Debug, Deserialize)]
pub(super) struct Message<'a> {
    #[serde(borrow)]
    jsonrpc: Cow<'a, str>,
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
}

/// What a message is, as far as this side of the protocol library cares.
#[derive(Debug)]
pub(super) enum Kind<'a> {
    /// The opening of a session.
    Initialize,
    /// A tool call: its id, and its parameters as they came.
    Call(&'a RawValue, Option<&'a RawValue>),
    /// The end of the wait for an earlier request.
    Cancelled(Option<&'a RawValue>),
    /// Anything else, which the library answers.
    Other,
}

/// Why a body is no message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Malformed {
    /// Not JSON.
    NotJson,
    /// JSON, but no JSON-RPC message of protocol 2.0. Batches are of no protocol version that is spoken here.
    NotAMessage,
}

impl<'a> Message<'a> {
    /// Reads a body.
    pub(super) fn read(body: &'a [u8]) -> Result<Self, Malformed> {
        let text = std::str::from_utf8(body).map_err(|_| Malformed::NotJson)?;
        let message: Self = serde_json::from_str(text).map_err(|error| {
            if error.is_data() {
                Malformed::NotAMessage
            } else {
                Malformed::NotJson
            }
        })?;
        let valid = message.jsonrpc == "2.0" && message.id.is_none_or(is_request_id);
        if valid {
            Ok(message)
        } else {
            Err(Malformed::NotAMessage)
        }
    }

    /// What it is.
    pub(super) fn kind(&self) -> Kind<'a> {
        match (self.method.as_deref(), self.id) {
            (Some("tools/call"), Some(id)) => Kind::Call(id, self.params),
            (Some("initialize"), Some(_)) => Kind::Initialize,
            (Some("notifications/cancelled"), None) => Kind::Cancelled(self.params),
            _ => Kind::Other,
        }
    }
}

/// Whether `id` is what a request may have: a string or a whole number.
fn is_request_id(id: &RawValue) -> bool {
    id.get().starts_with('"') || id.get().parse::<i64>().is_ok()
}

/// Parameters of `tools/call`.
#[derive(Debug, Deserialize)]
pub(super) struct CallParams<'a> {
    /// The tool.
    #[serde(borrow)]
    pub(super) name: Cow<'a, str>,
    #[serde(borrow, default)]
    arguments: Option<&'a RawValue>,
    /// What the client says beside the arguments.
    #[serde(borrow, default, rename = "_meta")]
    pub(super) meta: Option<Meta<'a>>,
}

impl<'a> CallParams<'a> {
    /// Reads the parameters.
    pub(super) fn read(params: Option<&'a RawValue>) -> serde_json::Result<Self> {
        serde_json::from_str(params.map_or(NOTHING, RawValue::get))
    }

    /// The arguments as they came; an object also when none were given.
    pub(super) fn arguments(&self) -> Box<RawValue> {
        #[expect(clippy::expect_used, reason = "a constant")]
        self.arguments.map_or_else(
            || serde_json::from_str(NOTHING).expect("an empty object is JSON"),
            ToOwned::to_owned,
        )
    }
}

/// The `_meta` of a request, as far as it is heeded.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Meta<'a> {
    #[serde(borrow, default, rename = "io.modelcontextprotocol/protocolVersion")]
    protocol_version: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "io.modelcontextprotocol/clientCapabilities")]
    client_capabilities: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "progressToken")]
    progress_token: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "postern/session")]
    session: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "postern/callId")]
    call_id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    traceparent: Option<&'a RawValue>,
}

impl<'a> Meta<'a> {
    /// The protocol version that the request itself names.
    pub(super) fn protocol_version(&self) -> Option<Cow<'a, str>> {
        self.protocol_version.and_then(text)
    }

    /// Whether the request itself tells the client's capabilities.
    pub(super) fn has_client_capabilities(&self) -> bool {
        self.client_capabilities
            .is_some_and(|raw| raw.get().starts_with('{'))
    }

    /// The token under which the client wants to hear of progress, as it came.
    pub(super) fn progress_token(&self) -> Option<&'a RawValue> {
        self.progress_token.filter(|token| is_request_id(token))
    }

    /// Where the client is in a trace of its own (W3C Trace Context), if it says so.
    pub(super) fn traceparent(&self) -> Option<Cow<'a, str>> {
        self.traceparent.and_then(text)
    }

    /// The key of the conversation, or what is wrong with it.
    pub(super) fn conversation(&self) -> Result<Option<String>, &'static str> {
        let form = "_meta[\"postern/session\"] is 1 to 200 visible ASCII characters";
        visible(self.session).map_err(|()| form)
    }

    /// The id that the client gives the call, or what is wrong with it.
    pub(super) fn call_id(&self) -> Result<Option<String>, &'static str> {
        let form = "_meta[\"postern/callId\"] is 1 to 200 visible ASCII characters";
        visible(self.call_id).map_err(|()| form)
    }
}

fn visible(raw: Option<&RawValue>) -> Result<Option<String>, ()> {
    let Some(raw) = raw else { return Ok(None) };
    let text = text(raw).filter(|text| is_key(text)).ok_or(())?;
    Ok(Some(text.into_owned()))
}

fn is_key(text: &str) -> bool {
    (1..=MAX_KEY_BYTES).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// The conversation that a bridge names for everything that its process sends, whatever sessions it has to open for it;
/// or what is wrong with it.
pub(super) fn conversation_of(headers: &HeaderMap) -> Result<Option<String>, &'static str> {
    let Some(value) = headers.get(CONVERSATION_HEADER) else {
        return Ok(None);
    };
    match value.to_str() {
        Ok(text) if is_key(text) => Ok(Some(text.to_owned())),
        Ok(_) | Err(_) => {
            Err("the Postern-Conversation header is 1 to 200 visible ASCII characters")
        }
    }
}

fn text(raw: &RawValue) -> Option<Cow<'_, str>> {
    serde_json::from_str(raw.get()).ok()
}

/// Parameters of `notifications/cancelled`.
#[derive(Debug, Deserialize)]
pub(super) struct CancelledParams<'a> {
    /// Id of the request whose answer is no longer awaited.
    #[serde(borrow, rename = "requestId")]
    pub(super) request_id: &'a RawValue,
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    fn malformed(body: &[u8]) -> Malformed {
        Message::read(body).map(|_| ()).expect_err("malformed")
    }

    #[test]
    fn bodies_that_are_no_message_are_told_apart_from_bodies_that_are_no_json() {
        for body in [&b"not json"[..], b"", b"{\"jsonrpc\":", b"\xff\xfe"] {
            assert_eq!(malformed(body), Malformed::NotJson, "{body:?}");
        }
        for body in [
            &b"[]"[..],
            b"{}",
            br#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#,
            br#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#,
            br#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#,
            br#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}"#,
        ] {
            assert_eq!(malformed(body), Malformed::NotAMessage, "{body:?}");
        }
    }

    #[test]
    fn arguments_stay_as_they_came() {
        let body = br#"{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"t","arguments":{"n":1.0,"big":123456789012345678901234567890}}}"#;
        let message = Message::read(body).expect("message");
        let Kind::Call(id, params) = message.kind() else {
            panic!("a call");
        };
        let params = CallParams::read(params).expect("params");
        assert_eq!(
            (id.get(), params.arguments().get()),
            ("\"a\"", r#"{"n":1.0,"big":123456789012345678901234567890}"#)
        );
    }

    #[test]
    fn keys_are_visible_ascii() {
        let meta = |text: &str| {
            let meta: Meta<'_> = serde_json::from_str(text).expect("meta");
            (meta.conversation(), meta.call_id().is_ok())
        };
        assert_eq!(meta("{}"), (Ok(None), true));
        assert_eq!(
            meta(r#"{"postern/session":"one","postern/callId":"~"}"#),
            (Ok(Some("one".to_owned())), true)
        );
        for bad in [r#""""#, r#""a b""#, "7", r#""\u00e9""#, "{}"] {
            let (session, call) = meta(&format!(
                r#"{{"postern/session":{bad},"postern/callId":{bad}}}"#
            ));
            assert!(session.is_err() && !call, "{bad}");
        }
    }
}
