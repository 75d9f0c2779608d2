//! Answers to tool calls. What the workspace said is put into the answer as it came, byte for byte.

use std::{borrow::Cow, collections::BTreeMap};

use axum::{
    body::{Body, Bytes},
    response::Response,
};
use http::{HeaderValue, StatusCode, header};
use postern_kit::Failure;
use postern_types::ErrorCode;
use rmcp::model::ErrorData;
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};

use super::era::Era;

/// Under this key of `_meta` the id of the call is told, by which its answer can be asked for again.
const CALL_ID: &str = "postern/callId";
/// Under this key of a failure's details its call's id is told.
const FAILED_CALL: &str = "callId";
/// What an answer needs around the result, in bytes; a guess that saves growing.
const ENVELOPE_BYTES: usize = 512;

/// How the answer to one request is written.
#[derive(Debug)]
pub(super) struct Form {
    /// The request's id, as it came.
    pub(super) id: Box<RawValue>,
    /// The request's lifecycle.
    pub(super) era: Era,
    /// Whether clients may hold a structured error against a listed output schema (CONTRACT.md, section 5).
    pub(super) output_schemas: bool,
    /// Whether the answer is for the eye alone: an image block and its facts as text.
    pub(super) content_only: bool,
}

/// An MCP `CallToolResult`, its parts as they came.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ToolResult<'a> {
    #[serde(borrow)]
    content: &'a RawValue,
    #[serde(borrow, default)]
    structured_content: Option<&'a RawValue>,
    #[serde(default)]
    is_error: Option<bool>,
    #[serde(borrow, default, rename = "_meta")]
    meta: BTreeMap<Cow<'a, str>, &'a RawValue>,
}

impl Form {
    /// The answer that carries a tool's result. A result that is none is a fault of the workspace's instance, and told as one.
    pub(super) fn result(&self, result: &str, call_id: &str) -> String {
        match serde_json::from_str(result) {
            Ok(parts) => self.write(&parts, Some(call_id)),
            Err(_) => self.failure(
                &Failure::new(
                    ErrorCode::Internal,
                    "The workspace answered with something that is no tool result. Its owner's log tells more.",
                )
                .with(FAILED_CALL, call_id),
            ),
        }
    }

    /// The answer of a tool that succeeded here, on the host.
    pub(super) fn success(&self, structured: &Value) -> String {
        self.own(structured, None, None)
    }

    /// The answer of a failed call: a result that a model can read, not an error of the protocol.
    pub(super) fn failure(&self, failure: &Failure) -> String {
        let call_id = failure.details.get(FAILED_CALL).and_then(Value::as_str);
        self.own(&failure.to_json(), Some(true), call_id)
    }

    fn own(&self, structured: &Value, is_error: Option<bool>, call_id: Option<&str>) -> String {
        let text = structured.to_string();
        let content = json!([{"type": "text", "text": text}]).to_string();
        let parts = ToolResult {
            content: raw(&content),
            structured_content: Some(raw(&text)),
            is_error,
            meta: BTreeMap::new(),
        };
        self.write(&parts, call_id)
    }

    fn write(&self, result: &ToolResult<'_>, call_id: Option<&str>) -> String {
        let failed = result.is_error == Some(true);
        let held_back = self.content_only || (failed && self.output_schemas);
        let structured = result
            .structured_content
            .filter(|_| !held_back)
            .map(RawValue::get);
        let content = result.content.get();
        let length = content.len() + structured.map_or(0, str::len) + ENVELOPE_BYTES;
        let mut out = String::with_capacity(length);
        out.push_str(r#"{"jsonrpc":"2.0","id":"#);
        out.push_str(self.id.get());
        out.push_str(r#","result":{"#);
        if self.era == Era::Request {
            out.push_str(r#""resultType":"complete","#);
        }
        out.push_str(r#""content":"#);
        out.push_str(content);
        if let Some(structured) = structured {
            out.push_str(r#","structuredContent":"#);
            out.push_str(structured);
        }
        if let Some(is_error) = result.is_error {
            out.push_str(if is_error {
                r#","isError":true"#
            } else {
                r#","isError":false"#
            });
        }
        push_meta(&mut out, &result.meta, call_id);
        out.push_str("}}");
        out
    }
}

fn push_meta(out: &mut String, meta: &BTreeMap<Cow<'_, str>, &RawValue>, call_id: Option<&str>) {
    let mut before = r#","_meta":{"#;
    let mut push = |key: &str, value: &str| {
        out.push_str(before);
        out.push_str(&quoted(key));
        out.push(':');
        out.push_str(value);
        before = ",";
    };
    for (key, value) in meta {
        if *key != CALL_ID || call_id.is_none() {
            push(key, value.get());
        }
    }
    if let Some(call_id) = call_id {
        push(CALL_ID, &quoted(call_id));
    }
    if before == "," {
        out.push('}');
    }
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

fn raw(json: &str) -> &RawValue {
    #[expect(clippy::expect_used, reason = "the text was just written as JSON")]
    serde_json::from_str(json).expect("JSON that was just written")
}

/// A JSON-RPC error.
pub(super) fn error_message(id: Option<&RawValue>, error: &ErrorData) -> String {
    let id = id.map_or("null", RawValue::get);
    let error = json!(error);
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#)
}

/// A notification of progress under the client's token.
pub(super) fn progress_message(token: &RawValue, seconds: u64) -> String {
    let token = token.get();
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":{seconds},"message":"Waiting for the workspace."}}}}"#
    )
}

/// A response of one JSON message.
pub(super) fn json_response(status: StatusCode, message: String) -> Response {
    response(status, "application/json", Body::from(message))
}

/// A response that is a stream of server-sent events.
pub(super) fn event_response(body: Body) -> Response {
    let mut response = response(StatusCode::OK, "text/event-stream", body);
    // Proxies that collect a response before they hand it on would hold back progress.
    response
        .headers_mut()
        .insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

fn response(status: StatusCode, kind: &'static str, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// One server-sent event. Line ends, which JSON may have between its tokens, begin a new `data` line; clients join them.
pub(super) fn event(message: &str) -> Bytes {
    let mut out = String::with_capacity(message.len() + 32);
    out.push_str("event: message\n");
    for line in message.split(['\n', '\r']).filter(|line| !line.is_empty()) {
        out.push_str("data: ");
        out.push_str(line);
        out.push('\n');
    }
    out.push('\n');
    out.into()
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    fn form(era: Era) -> Form {
        Form {
            id: RawValue::from_string("7".to_owned()).expect("id"),
            era,
            output_schemas: false,
            content_only: false,
        }
    }

    #[test]
    fn results_keep_their_bytes() {
        let result = r#"{"content":[{"type":"odd","x":1.0}],"structuredContent":{"b":1.10,"a":123456789012345678901234567890},"extra":1}"#;
        assert_eq!(
            form(Era::Session).result(result, "c\"1"),
            r#"{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"odd","x":1.0}],"structuredContent":{"b":1.10,"a":123456789012345678901234567890},"_meta":{"postern/callId":"c\"1"}}}"#
        );
        assert_eq!(
            form(Era::Request).result(r#"{"content":[],"isError":false}"#, "c"),
            r#"{"jsonrpc":"2.0","id":7,"result":{"resultType":"complete","content":[],"isError":false,"_meta":{"postern/callId":"c"}}}"#
        );
    }

    #[test]
    fn the_results_own_metadata_stays_beside_the_call_id() {
        let result = r#"{"content":[],"_meta":{"postern/callId":"x","k":[1]}}"#;
        assert_eq!(
            form(Era::Session).result(result, "c"),
            r#"{"jsonrpc":"2.0","id":7,"result":{"content":[],"_meta":{"k":[1],"postern/callId":"c"}}}"#
        );
    }

    #[test]
    fn something_that_is_no_result_is_an_error_for_the_model() {
        let answer: Value = serde_json::from_str(
            &form(Era::Session).result(r#"{"content":1.5e999,"isError":7}"#, "c"),
        )
        .expect("JSON");
        assert_eq!(answer["result"]["isError"], true);
        assert_eq!(
            answer["result"]["structuredContent"]["error"]["code"],
            "INTERNAL"
        );
    }

    #[test]
    fn structured_content_is_held_back_where_clients_would_misread_it() {
        let mut form = form(Era::Session);
        form.output_schemas = true;
        let failure = Failure::new(ErrorCode::Busy, "Later.");
        assert!(!form.failure(&failure).contains("structuredContent"));
        assert!(form.success(&json!({"a": 1})).contains("structuredContent"));
        form.content_only = true;
        assert!(!form.success(&json!({"a": 1})).contains("structuredContent"));
    }

    #[test]
    fn events_carry_json_of_many_lines() {
        assert_eq!(
            event("{\r\n\"a\":1\n}"),
            "event: message\ndata: {\ndata: \"a\":1\ndata: }\n\n"
        );
    }
}
