//! JSON-RPC messages on their way through: read as far as the way needs it, and sent on as they came.

use std::{borrow::Cow, collections::BTreeMap};

use serde::Deserialize;
use serde_json::{
    Value, json,
    value::{RawValue, to_raw_value},
};
use uuid::Uuid;

/// JSON-RPC: not JSON.
const PARSE_ERROR: i32 = -32700;
/// JSON-RPC: no request.
const INVALID_REQUEST: i32 = -32600;
/// JSON-RPC: the server failed.
const INTERNAL_ERROR: i32 = -32603;
/// Under this key of `_meta` a request of 2026-07-28 and later names its protocol version.
const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// Under this key of `_meta` a call has an id of its own, by which it can be sent again.
const CALL_ID: &str = "postern/callId";
/// Prefix of the tools whose calls can be sent again by their id.
const WORKSPACE_TOOLS: &str = "workspace_";

/// The host's own tool that only tells.
const CONTEXT_TOOL: &str = "sosoapi_get_workspace_context";

/// An object whose values stay as they came.
pub(super) type Object<'a> = BTreeMap<String, &'a RawValue>;

/// One message.
#[derive(Debug, Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    jsonrpc: Cow<'a, str>,
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
}

/// What a line is.
#[derive(Debug)]
pub(super) enum Incoming {
    /// Wants an answer.
    Request(Request),
    /// Wants none.
    Notification {
        /// What it is about.
        method: String,
        /// The request that it ends the waiting for, if it does: its id as it came.
        cancels: Option<String>,
        /// The message.
        body: String,
    },
    /// Answers something that nobody asked.
    Answer,
    /// No message: what the client is told.
    Malformed(String),
}

/// Which of the two lifecycles of the protocol a request belongs to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Era {
    /// Inside the session that a handshake opened.
    Session,
    /// On its own, of this protocol version.
    Alone(String),
}

/// A request.
#[derive(Clone, Debug)]
pub(super) struct Request {
    /// Its id, as it came.
    pub(super) id: String,
    /// Its method.
    pub(super) method: String,
    /// The tool, prompt or resource that it names.
    pub(super) name: Option<String>,
    /// Its lifecycle.
    pub(super) era: Era,
    /// Whether it may be sent again when its answer was lost.
    pub(super) repeatable: bool,
    /// The message.
    pub(super) body: String,
}

/// Reads a line.
pub(super) fn read(line: &[u8]) -> Incoming {
    let Ok(text) = std::str::from_utf8(line) else {
        return malformed(PARSE_ERROR, "The line is not UTF-8.");
    };
    let message: Message<'_> = match serde_json::from_str(text) {
        Ok(message) => message,
        Err(problem) if problem.is_data() => return not_a_message(),
        Err(_) => return malformed(PARSE_ERROR, "The line is not JSON."),
    };
    if message.jsonrpc != "2.0" {
        return not_a_message();
    }
    match (message.method, message.id) {
        (Some(method), Some(id)) if is_id(id) => match request(&method, id, message.params, text) {
            Ok(request) => Incoming::Request(request),
            Err(_) => Incoming::Malformed(error(id.get(), INVALID_REQUEST, "params is an object.")),
        },
        (Some(method), None) => Incoming::Notification {
            cancels: (method == "notifications/cancelled")
                .then(|| cancelled(message.params))
                .flatten(),
            method: method.into_owned(),
            body: text.to_owned(),
        },
        (None, Some(_)) => Incoming::Answer,
        (Some(_), Some(_)) | (None, None) => not_a_message(),
    }
}

fn request(
    method: &str,
    id: &RawValue,
    params: Option<&RawValue>,
    text: &str,
) -> serde_json::Result<Request> {
    let params: Object<'_> = params.map_or_else(|| Ok(Object::new()), read_object)?;
    let meta: Object<'_> = match params.get("_meta") {
        Some(raw) => read_object(raw)?,
        None => Object::new(),
    };
    let era = string(meta.get(VERSION).copied()).map_or(Era::Session, Era::Alone);
    let named_by = if method == "resources/read" {
        "uri"
    } else {
        "name"
    };
    let name = string(params.get(named_by).copied());
    let is_tool = |prefix: &str| name.as_deref().is_some_and(|name| name.starts_with(prefix));
    let calls_workspace = method == "tools/call" && is_tool(WORKSPACE_TOOLS);
    let repeatable = method != "tools/call" || calls_workspace || is_tool(CONTEXT_TOOL);
    let body = if calls_workspace && !meta.contains_key(CALL_ID) {
        with_call_id(id, method, &params, &meta)?
    } else {
        text.to_owned()
    };
    Ok(Request {
        id: id.get().to_owned(),
        method: method.to_owned(),
        name,
        era,
        repeatable,
        body,
    })
}

/// The request under an id of its own, by which a lost answer is asked for again and nothing is done twice.
fn with_call_id(
    id: &RawValue,
    method: &str,
    params: &Object<'_>,
    meta: &Object<'_>,
) -> serde_json::Result<String> {
    let call_id = to_raw_value(&Uuid::now_v7().to_string())?;
    let mut meta = meta.clone();
    meta.insert(CALL_ID.to_owned(), &call_id);
    let meta = to_raw_value(&meta)?;
    let mut params = params.clone();
    params.insert("_meta".to_owned(), &meta);
    written(id.get(), method, &params)
}

/// A request as text.
///
/// # Errors
/// Never for parts that were read as JSON.
pub(super) fn written(id: &str, method: &str, params: &Object<'_>) -> serde_json::Result<String> {
    let (method, params) = (
        serde_json::to_string(method)?,
        serde_json::to_string(params)?,
    );
    Ok(format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":{method},"params":{params}}}"#
    ))
}

/// Reads an object one level deep.
///
/// # Errors
/// When it is none.
pub(super) fn read_object(raw: &RawValue) -> serde_json::Result<Object<'_>> {
    serde_json::from_str(raw.get())
}

fn string(raw: Option<&RawValue>) -> Option<String> {
    serde_json::from_str(raw?.get()).ok()
}

fn cancelled(params: Option<&RawValue>) -> Option<String> {
    let params = read_object(params?).ok()?;
    params.get("requestId").map(|id| id.get().to_owned())
}

/// Whether an id is what a request may have: a string or a whole number.
fn is_id(id: &RawValue) -> bool {
    id.get().starts_with('"') || id.get().parse::<i64>().is_ok()
}

fn not_a_message() -> Incoming {
    malformed(
        INVALID_REQUEST,
        "A line is one JSON-RPC 2.0 message; batches are not accepted.",
    )
}

fn malformed(code: i32, text: &str) -> Incoming {
    Incoming::Malformed(error("null", code, text))
}

/// Whether a message is the answer to the request of that id.
pub(super) fn answers(message: &str, id: &str) -> bool {
    serde_json::from_str::<Message<'_>>(message).is_ok_and(|message| {
        message.method.is_none() && message.id.is_some_and(|found| found.get() == id)
    })
}

/// The answer to the request of that id, if the text is one. An error of the host that names no request answers the one
/// that was sent.
pub(super) fn answer_to(id: &str, text: &str) -> Option<String> {
    if answers(text, id) {
        return Some(text.to_owned());
    }
    let mut parts: Object<'_> = serde_json::from_str(text).ok()?;
    let nameless = parts.remove("id").is_none_or(|raw| raw.get() == "null");
    let error = parts.get("error").filter(|_| nameless)?;
    Some(format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#))
}

/// A line that was too long to be read.
pub(super) fn too_long(limit: usize) -> String {
    error(
        "null",
        INVALID_REQUEST,
        &format!("A line has at most {limit} bytes."),
    )
}

/// A request whose id is still in use.
pub(super) fn id_in_use(id: &str) -> String {
    error(id, INVALID_REQUEST, "A request of this id is under way.")
}

/// A request that found no answer, and why.
pub(super) fn unanswered(id: &str, text: &str) -> String {
    error(id, INTERNAL_ERROR, text)
}

fn error(id: &str, code: i32, text: &str) -> String {
    let error = json!({"code": code, "message": text});
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#)
}

/// The answer of a tool that was called here.
pub(super) fn tool_failure(id: &str, era: &Era, structured: &Value) -> String {
    let mut result = json!({
        "content": [{"type": "text", "text": structured.to_string()}],
        "structuredContent": structured,
        "isError": true,
    });
    if matches!(era, Era::Alone(_)) {
        result["resultType"] = "complete".into();
    }
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    fn request_of(line: &str) -> Request {
        let Incoming::Request(request) = read(line.as_bytes()) else {
            panic!("no request: {line}");
        };
        request
    }

    fn code_of(line: &[u8]) -> Value {
        let Incoming::Malformed(told) = read(line) else {
            panic!("taken for a message");
        };
        let told: Value = serde_json::from_str(&told).expect("JSON");
        assert_eq!(told["id"], Value::Null);
        told["error"]["code"].clone()
    }

    #[test]
    fn what_is_no_message_is_told_once_and_without_an_id() {
        for line in [&b"not json"[..], b"\xff\xfe", b"{\"jsonrpc\":"] {
            assert_eq!(code_of(line), PARSE_ERROR);
        }
        for line in [
            &b"[]"[..],
            b"{}",
            br#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#,
            br#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#,
        ] {
            assert_eq!(code_of(line), INVALID_REQUEST);
        }
    }

    #[test]
    fn a_call_gets_an_id_and_keeps_its_arguments_as_they_came() {
        let line = r#"{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"workspace_read","arguments":{"n":1.0,"big":123456789012345678901234567890}}}"#;
        let request = request_of(line);
        assert!(request.repeatable);
        assert!(
            request
                .body
                .contains(r#"{"n":1.0,"big":123456789012345678901234567890}"#)
        );
        let sent: Value = serde_json::from_str(&request.body).expect("JSON");
        let id = sent["params"]["_meta"][CALL_ID].as_str().expect("id");
        assert!(Uuid::parse_str(id).is_ok());
        assert_eq!(
            (sent["id"].as_str(), request.name.as_deref()),
            (Some("a"), Some("workspace_read"))
        );
    }

    #[test]
    fn a_given_id_and_every_other_request_pass_through_unchanged() {
        for line in [
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"workspace_read","_meta":{"postern/callId":"mine"}}}"#,
            r#"{"jsonrpc":"2.0", "id":1, "method":"tools/list"}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"sosoapi_create_workspace"}}"#,
        ] {
            assert_eq!(request_of(line).body, line);
        }
    }

    #[test]
    fn only_what_answers_the_request_is_its_answer() {
        let answer = r#"{"jsonrpc":"2.0","id":7,"result":{}}"#;
        assert_eq!(answer_to("7", answer).as_deref(), Some(answer));
        for other in [
            r#"{"message":"upstream not ready"}"#,
            r#"{"jsonrpc":"2.0","id":8,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":8,"error":{"code":1,"message":"m"}}"#,
            r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#,
            "<html>",
            "",
        ] {
            assert_eq!(answer_to("7", other), None, "{other}");
        }
        assert_eq!(
            answer_to(
                "7",
                r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"m"}}"#
            )
            .as_deref(),
            Some(r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32600,"message":"m"}}"#)
        );
    }

    #[test]
    fn the_lifecycle_is_told_by_the_request() {
        let alone = r#"{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;
        assert_eq!(request_of(alone).era, Era::Alone("2026-07-28".to_owned()));
        assert_eq!(
            request_of(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#).era,
            Era::Session
        );
    }

    #[test]
    fn a_cancellation_names_its_request_as_it_came() {
        let line = br#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"x","reason":"r"}}"#;
        let Incoming::Notification { cancels, .. } = read(line) else {
            panic!("a notification");
        };
        assert_eq!(cancels.as_deref(), Some("\"x\""));
    }
}
