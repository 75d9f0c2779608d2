//! Frames of the workspace channel, protocol 1 (CONTRACT.md, section 1).
//!
//! Parsing is in two steps: [`check`] walks the text once and refuses what no frame may be (not one JSON object,
//! a duplicate key at any depth, nesting without end); only then is a typed frame read, with its large parts left
//! as raw JSON so that nothing is copied into a tree.

mod strict;

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

pub use strict::{MAX_DEPTH, check, check_args};

use crate::catalogue::PROTOCOL;

/// Longest id in characters.
pub const MAX_ID_CHARS: usize = 200;
/// Longest intention in characters.
pub const MAX_INTENTION_CHARS: usize = 4000;

/// Close codes of the channel.
pub mod close {
    /// The peer is shutting down.
    pub const GOING_AWAY: u16 = 1001;
    /// Another protocol number.
    pub const PROTOCOL_ERROR: u16 = 1002;
    /// A binary message.
    pub const UNSUPPORTED: u16 = 1003;
    /// A text message that is not UTF-8.
    pub const INVALID_UTF8: u16 = 1007;
    /// Not a frame: not JSON, a duplicate key, an unknown type, a missing or ill-typed field.
    pub const POLICY_VIOLATION: u16 = 1008;
    /// A message over [`crate::catalogue::MAX_FRAME_BYTES`].
    pub const TOO_LARGE: u16 = 1009;
    /// The token was revoked or has expired.
    pub const UNAUTHORIZED: u16 = 4401;
    /// A newer channel of the same workspace took over.
    pub const SUPERSEDED: u16 = 4409;
}

/// Why a message is not a frame. The text is short enough for a close reason (123 bytes).
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum FrameError {
    /// The text is not one JSON object, or its shape is wrong.
    #[error("{0}")]
    Malformed(String),
    /// The frame is of another protocol number.
    #[error("protocol {0} is not supported, only {PROTOCOL}")]
    Protocol(u64),
}

impl FrameError {
    fn malformed(problem: impl std::fmt::Display) -> Self {
        let mut text = problem.to_string();
        if let Some((end, _)) = text
            .char_indices()
            .take_while(|(index, _)| *index <= 110)
            .last()
            && text.len() > 110
        {
            text.truncate(end);
        }
        Self::Malformed(text)
    }

    /// The close code that answers it.
    #[must_use]
    pub const fn close_code(&self) -> u16 {
        match self {
            Self::Malformed(_) => close::POLICY_VIOLATION,
            Self::Protocol(_) => close::PROTOCOL_ERROR,
        }
    }
}

/// A call, host to edge. Fields that it does not know are ignored.
#[derive(Debug)]
pub struct Call<'a> {
    /// Id of the call.
    pub id: Cow<'a, str>,
    /// Workspace.
    pub workspace_id: Cow<'a, str>,
    /// Session.
    pub session_id: Cow<'a, str>,
    /// Intention.
    pub intention: Cow<'a, str>,
    /// Tool.
    pub tool: Cow<'a, str>,
    /// Arguments: one JSON object, as it came.
    pub args: &'a RawValue,
}

/// What an edge may receive.
#[derive(Debug)]
pub enum HostFrame<'a> {
    /// The first frame.
    Ready,
    /// A call.
    Call(Box<Call<'a>>),
}

/// A result, edge to host.
#[derive(Debug)]
pub struct ResultFrame<'a> {
    /// Id of the call.
    pub id: Cow<'a, str>,
    /// Session of the call.
    pub session_id: Cow<'a, str>,
    /// MCP `CallToolResult`, as it came.
    pub result: &'a RawValue,
}

/// Every field that some frame has, each as it came: which of them a frame needs, its type says, and they are read in one
/// pass whatever their order.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Fields<'a> {
    #[serde(borrow, rename = "type", deserialize_with = "cow_str")]
    kind: Cow<'a, str>,
    #[serde(default)]
    protocol: Option<u64>,
    #[serde(borrow, default, deserialize_with = "raw")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "raw")]
    workspace_id: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "raw")]
    session_id: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "raw")]
    intention: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "raw")]
    tool: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "raw")]
    args: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "raw")]
    result: Option<&'a RawValue>,
}

/// A field that is there, `null` included.
fn raw<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// Whether `text` is an id: 1 to 200 visible ASCII characters.
#[must_use]
pub fn is_id(text: &str) -> bool {
    (1..=MAX_ID_CHARS).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Whether `text` is an intention: 1 to 4000 characters.
#[must_use]
pub fn is_intention(text: &str) -> bool {
    !text.is_empty()
        && (text.len() <= MAX_INTENTION_CHARS || text.chars().count() <= MAX_INTENTION_CHARS)
}

struct CowStr;

impl<'de> serde::de::Visitor<'de> for CowStr {
    type Value = Cow<'de, str>;

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("a string")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(text.to_owned()))
    }
}

fn cow_str<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Cow<'de, str>, D::Error> {
    deserializer.deserialize_str(CowStr)
}

/// A field that must be there.
fn needed<'a>(field: Option<&'a RawValue>, name: &str) -> Result<&'a RawValue, FrameError> {
    field.ok_or_else(|| FrameError::malformed(format_args!("missing field `{name}`")))
}

/// A string field.
fn string<'a>(field: Option<&'a RawValue>, name: &str) -> Result<Cow<'a, str>, FrameError> {
    let raw = needed(field, name)?.get();
    let mut deserializer = serde_json::Deserializer::from_str(raw);
    cow_str(&mut deserializer)
        .map_err(|_| FrameError::malformed(format_args!("`{name}` is a string")))
}

fn id<'a>(field: Option<&'a RawValue>, name: &str) -> Result<Cow<'a, str>, FrameError> {
    let text = string(field, name)?;
    if is_id(&text) {
        Ok(text)
    } else {
        Err(FrameError::malformed(format_args!(
            "`{name}` is 1 to 200 visible ASCII characters"
        )))
    }
}

fn intention(field: Option<&RawValue>) -> Result<Cow<'_, str>, FrameError> {
    let text = string(field, "intention")?;
    if is_intention(&text) {
        Ok(text)
    } else {
        Err(FrameError::malformed("`intention` is 1 to 4000 characters"))
    }
}

fn object<'a>(field: Option<&'a RawValue>, name: &str) -> Result<&'a RawValue, FrameError> {
    let raw = needed(field, name)?;
    if raw.get().starts_with('{') {
        Ok(raw)
    } else {
        Err(FrameError::malformed(format_args!("`{name}` is an object")))
    }
}

fn fields(text: &str) -> Result<Fields<'_>, FrameError> {
    check(text).map_err(FrameError::malformed)?;
    serde_json::from_str(text).map_err(FrameError::malformed)
}

fn demand_protocol(protocol: Option<u64>) -> Result<(), FrameError> {
    match protocol {
        Some(number) if number == u64::from(PROTOCOL) => Ok(()),
        Some(number) => Err(FrameError::Protocol(number)),
        None => Err(FrameError::malformed("missing field `protocol`")),
    }
}

/// Reads a frame that the host sent.
///
/// # Errors
/// [`FrameError`] when the text is no such frame; its close code answers it.
pub fn parse_host_frame(text: &str) -> Result<HostFrame<'_>, FrameError> {
    let fields = fields(text)?;
    match fields.kind.as_ref() {
        "ready" => demand_protocol(fields.protocol).map(|()| HostFrame::Ready),
        "call" => {
            demand_protocol(fields.protocol)?;
            Ok(HostFrame::Call(Box::new(Call {
                id: id(fields.id, "id")?,
                workspace_id: id(fields.workspace_id, "workspaceId")?,
                session_id: id(fields.session_id, "sessionId")?,
                intention: intention(fields.intention)?,
                tool: string(fields.tool, "tool")?,
                args: object(fields.args, "args")?,
            })))
        }
        _ => Err(FrameError::malformed("unknown frame type")),
    }
}

/// Reads a frame that the edge sent.
///
/// # Errors
/// [`FrameError`] when the text is no such frame; its close code answers it.
pub fn parse_edge_frame(text: &str) -> Result<ResultFrame<'_>, FrameError> {
    let fields = fields(text)?;
    match fields.kind.as_ref() {
        "result" => Ok(ResultFrame {
            id: id(fields.id, "id")?,
            session_id: id(fields.session_id, "sessionId")?,
            result: object(fields.result, "result")?,
        }),
        _ => Err(FrameError::malformed("unknown frame type")),
    }
}

/// The host's first frame.
#[must_use]
pub fn ready_frame() -> String {
    format!(r#"{{"type":"ready","protocol":{PROTOCOL}}}"#)
}

/// Parts of a call to send.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CallParts<'a> {
    /// Id of the call.
    pub id: &'a str,
    /// Workspace.
    pub workspace_id: &'a str,
    /// Session.
    pub session_id: &'a str,
    /// Intention.
    pub intention: &'a str,
    /// Tool.
    pub tool: &'a str,
    /// Arguments.
    pub args: &'a RawValue,
}

/// Writes a call.
///
/// # Errors
/// Never for parts that were read as JSON; the error of the serializer otherwise.
pub fn call_frame(parts: CallParts<'_>) -> serde_json::Result<String> {
    // Written in two pieces: serde's `flatten` and tagged enums cannot carry raw JSON.
    let body = serde_json::to_string(&parts)?;
    Ok(format!(
        r#"{{"type":"call","protocol":{PROTOCOL},{}"#,
        &body[1..]
    ))
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResultParts<'a> {
    id: &'a str,
    session_id: &'a str,
}

/// Writes a result around a `CallToolResult` that is JSON already. The result's bytes are copied as they are.
///
/// # Errors
/// Never for ids that are valid; the error of the serializer otherwise.
pub fn result_frame(id: &str, session_id: &str, result: &str) -> serde_json::Result<String> {
    let ids = serde_json::to_string(&ResultParts { id, session_id })?;
    Ok(format!(
        r#"{{"type":"result",{},"result":{result}}}"#,
        &ids[1..ids.len() - 1]
    ))
}

#[cfg(test)]
mod tests;
