//! Answers to calls: MCP `CallToolResult`s, written once and kept byte for byte.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use postern_kit::Failure;
use postern_proto::{catalogue::MAX_FRAME_BYTES, channel};
use postern_types::ErrorCode;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Room in a result frame for everything but the result: two ids of 200 characters, each escaped at worst, and the keys.
const FRAME_OVERHEAD_BYTES: usize = 1024;
/// Largest result, so that its frame is one the host accepts.
pub(crate) const MAX_RESULT_BYTES: usize = MAX_FRAME_BYTES - FRAME_OVERHEAD_BYTES;
/// Characters of a failure's message that are kept when its details had to go.
const SHORT_MESSAGE_CHARS: usize = 1000;

/// The outcome's name of a success.
const OK: &str = "ok";

/// What of a tool's result must be as it must be.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Returned<'a> {
    #[serde(borrow, default)]
    content: Option<Vec<&'a RawValue>>,
    #[serde(borrow, default)]
    structured_content: Option<&'a RawValue>,
    #[serde(default, rename = "isError")]
    _is_error: Option<bool>,
    #[serde(borrow, default, rename = "_meta")]
    _meta: BTreeMap<Cow<'a, str>, &'a RawValue>,
}

/// An answer that stands: what is stored, sent and replayed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Reply {
    body: Arc<str>,
    outcome: Option<ErrorCode>,
    /// Where links led to what this tells of.
    place: Option<Arc<str>>,
}

/// What a layer answers. An `Err` is an answer that leaves nothing behind; whatever is kept is a [`Reply`].
pub(crate) type Answer = Result<Reply, Failure>;

impl Reply {
    /// A success with this structured content.
    pub(crate) fn success(structured: &impl Serialize) -> Result<Self, Failure> {
        Self::fitting(body("", structured, false)?)
    }

    /// A success that is an image, with this structured content behind it.
    pub(crate) fn image(
        mime_type: &str,
        data: &[u8],
        structured: &impl Serialize,
    ) -> Result<Self, Failure> {
        let mime_type = serde_json::to_string(mime_type).map_err(|error| unwritable(&error))?;
        let data = BASE64_STANDARD.encode(data);
        let image = format!(r#"{{"type":"image","data":"{data}","mimeType":{mime_type}}},"#);
        Self::fitting(body(&image, structured, false)?)
    }

    /// What a tool of the owner's returned, as it is: an MCP `CallToolResult`.
    pub(crate) fn returned(result: &RawValue) -> Result<Self, Failure> {
        let text = result.get();
        if text.len() > MAX_RESULT_BYTES {
            return Err(Failure::new(
                ErrorCode::TooLarge,
                "The tool did its work, and its answer does not fit into one frame. Ask it for less.",
            )
            .with("limit", MAX_RESULT_BYTES)
            .with("bytes", text.len()));
        }
        let odd = || {
            Failure::new(
                ErrorCode::Internal,
                "The tool did its work, and its server answered with something that is no tool result. Look at what the tool may have done before you call it again.",
            )
        };
        let parts: Returned<'_> = serde_json::from_str(text).map_err(|_| odd())?;
        let body = match parts.content {
            Some(_) => text.to_owned(),
            // Some servers leave it out when there is structured content alone.
            None if parts.structured_content.is_some() => {
                format!(
                    r#"{{"content":[],{}"#,
                    text.trim_start_matches(['{', ' ', '\n', '\r', '\t'])
                )
            }
            None => return Err(odd()),
        };
        // What the host takes for no frame would cost the whole channel.
        let framed = channel::result_frame("i", "s", &body).map_err(|_| odd())?;
        channel::parse_edge_frame(&framed).map_err(|_| odd())?;
        Ok(Self {
            body: body.into(),
            outcome: None,
            place: None,
        })
    }

    fn fitting(body: String) -> Result<Self, Failure> {
        if body.len() > MAX_RESULT_BYTES {
            return Err(Failure::new(
                ErrorCode::TooLarge,
                "The answer does not fit into one frame. Ask for a smaller part.",
            )
            .with("limit", MAX_RESULT_BYTES));
        }
        Ok(Self {
            body: body.into(),
            outcome: None,
            place: None,
        })
    }

    /// The same, told of what links led to.
    pub(crate) fn at(self, place: Option<&str>) -> Self {
        Self {
            place: place.map(Arc::from),
            ..self
        }
    }

    /// Where links led to what this tells of; none when none did. A stored answer no longer knows.
    pub(crate) fn place(&self) -> Option<&str> {
        self.place.as_deref()
    }

    /// A failure as a result with `isError`.
    pub(crate) fn failure(failure: &Failure) -> Self {
        let written = body("", &failure.to_json(), true)
            .ok()
            .filter(|body| body.len() <= MAX_RESULT_BYTES);
        let body = written.unwrap_or_else(|| {
            let short: String = failure.message.chars().take(SHORT_MESSAGE_CHARS).collect();
            body("", &Failure::new(failure.code, short).to_json(), true).unwrap_or_default()
        });
        Self {
            body: body.into(),
            outcome: Some(failure.code),
            place: None,
        }
    }

    /// A result that the ledger kept.
    pub(crate) fn stored(result: &[u8], outcome: &str) -> Result<Self, Failure> {
        let body = std::str::from_utf8(result).map_err(|_| {
            Failure::new(
                ErrorCode::Internal,
                "The stored answer of this call cannot be read. The owner's receipts tell its outcome.",
            )
        })?;
        Ok(Self {
            body: body.into(),
            outcome: outcome.parse().ok(),
            place: None,
        })
    }

    /// The `CallToolResult`.
    pub(crate) fn body(&self) -> &str {
        &self.body
    }

    /// "ok" or the error's code.
    pub(crate) fn outcome(&self) -> &'static str {
        self.outcome.map_or(OK, ErrorCode::as_str)
    }

    /// The result frame of a call.
    pub(crate) fn frame(&self, call_id: &str, session_id: &str) -> serde_json::Result<String> {
        channel::result_frame(call_id, session_id, &self.body)
    }
}

/// `{"content":[…,{"type":"text","text":…}],"structuredContent":…}`: the structured content is written once, and its text
/// is that same JSON as a string. `before` are the blocks that come first, each with the comma behind it.
fn body(before: &str, structured: &impl Serialize, is_error: bool) -> Result<String, Failure> {
    let write = || -> serde_json::Result<String> {
        let structured = serde_json::to_string(structured)?;
        let text = serde_json::to_string(&structured)?;
        let error = if is_error { r#","isError":true"# } else { "" };
        Ok(format!(
            r#"{{"content":[{before}{{"type":"text","text":{text}}}],"structuredContent":{structured}{error}}}"#
        ))
    };
    write().map_err(|error| unwritable(&error))
}

fn unwritable(error: &serde_json::Error) -> Failure {
    tracing::error!(%error, "an answer could not be written");
    Failure::new(
        ErrorCode::Internal,
        "The answer could not be written. The owner's log tells more.",
    )
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn the_text_block_holds_the_structured_content() {
        let reply = Reply::success(&json!({"a": "é\n\"\u{1}"})).expect("reply");
        let value: Value = serde_json::from_str(reply.body()).expect("json");
        assert_eq!(value["structuredContent"], json!({"a": "é\n\"\u{1}"}));
        let text = value["content"][0]["text"].as_str().expect("text");
        assert_eq!(
            serde_json::from_str::<Value>(text).expect("json"),
            value["structuredContent"]
        );
        assert_eq!(value.get("isError"), None);
        assert_eq!(reply.outcome(), "ok");
    }

    #[test]
    fn an_image_comes_before_the_text_of_its_facts() {
        let reply = Reply::image("image/png", b"\x89PNG", &json!({"width": 1})).expect("reply");
        let value: Value = serde_json::from_str(reply.body()).expect("json");
        assert_eq!(
            value,
            json!({
                "content": [
                    {"type": "image", "data": "iVBORw==", "mimeType": "image/png"},
                    {"type": "text", "text": r#"{"width":1}"#},
                ],
                "structuredContent": {"width": 1},
            })
        );
        let huge = vec![0; MAX_RESULT_BYTES];
        let failure = Reply::image("image/png", &huge, &json!({})).expect_err("too large");
        assert_eq!(failure.code, ErrorCode::TooLarge);
    }

    #[test]
    fn the_largest_image_fits_with_the_longest_facts() {
        let facts = json!({"path": "\u{1}".repeat(2048), "resolvedPath": "\u{1}".repeat(4096)});
        assert!(Reply::image("image/jpeg", &vec![0; 1_100_000], &facts).is_ok());
    }

    #[test]
    fn a_failure_is_an_error_result() {
        let failure = Failure::new(ErrorCode::StaleRevision, "changed").with("currentSha256", "x");
        let reply = Reply::failure(&failure);
        let value: Value = serde_json::from_str(reply.body()).expect("json");
        assert_eq!(value["isError"], true);
        assert_eq!(
            value["structuredContent"],
            json!({"error": {"code": "STALE_REVISION", "message": "changed", "retryable": false,
                "details": {"currentSha256": "x"}}})
        );
        assert_eq!(reply.outcome(), "STALE_REVISION");
    }

    #[test]
    fn nothing_outgrows_a_frame() {
        let huge = "\u{1}".repeat(200_000);
        let failure = Reply::success(&json!({ "a": huge })).expect_err("too large");
        assert_eq!(failure.code, ErrorCode::TooLarge);
        let failure = Failure::new(ErrorCode::Internal, huge.clone()).with("a", huge);
        assert!(Reply::failure(&failure).body().len() <= MAX_RESULT_BYTES);
    }

    #[test]
    fn the_longest_ids_fit_around_the_largest_result() {
        let ids = "\"".repeat(200);
        let reply = Reply {
            body: "x".repeat(MAX_RESULT_BYTES).into(),
            outcome: None,
            place: None,
        };
        assert!(reply.frame(&ids, &ids).expect("frame").len() <= MAX_FRAME_BYTES);
    }

    #[test]
    fn a_page_of_control_characters_fits() {
        let page =
            json!({"path": "p".repeat(2048), "content": "\u{1}".repeat(131_072), "size": u64::MAX});
        assert!(Reply::success(&page).is_ok());
        let page = json!({"path": "\u{1}".repeat(2048), "text": "\"".repeat(262_144)});
        assert!(Reply::success(&page).is_ok());
    }
}
