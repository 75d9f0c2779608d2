//! One call, as it came through the channel.

use std::{borrow::Cow, ops::Range};

use bytes::Bytes;
use postern_proto::{channel, ledger::v1 as ledger};
use postern_types::{ReceiptId, Sha256, args_sha256, trace_id};

use crate::{control::Control, summary::summary};

/// Arguments above this size are digested off the runtime, since that takes milliseconds.
const LARGE_ARGS_BYTES: usize = 64 * 1024;

/// One call. Its arguments stay where the frame put them.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) workspace_id: String,
    pub(crate) session_id: String,
    pub(crate) call_id: String,
    pub(crate) intention: String,
    pub(crate) tool: String,
    args: Bytes,
    args_sha256: Option<Sha256>,
    /// What it is about, for people.
    summary: String,
}

/// Longest name of a tool that is taken as it is, in characters.
const TOOL_CHARS: usize = 200;
/// Characters kept of any other.
const TOOL_CHARS_KEPT: usize = 64;

/// A tool's name as it goes on from here. One that no tool could have (empty, long, or of other than visible ASCII) becomes a
/// short printable name that no tool has either, so that the call is refused, recorded and shown like that of any other
/// unknown tool. Different names stay different.
fn tool_name(name: Cow<'_, str>) -> String {
    let is_plain =
        (1..=TOOL_CHARS).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic());
    if is_plain {
        return name.into_owned();
    }
    let kept: String = name
        .chars()
        .take(TOOL_CHARS_KEPT)
        .map(|c| if c.is_ascii_graphic() { c } else { '\u{fffd}' })
        .collect();
    format!("{kept}…{}", Sha256::of(name.as_bytes()))
}

/// What makes a call the same call: (workspace, session, id).
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Key {
    workspace_id: String,
    session_id: String,
    call_id: String,
}

impl Call {
    /// Takes a call out of the frame that it was read from.
    pub(crate) fn from_frame(frame: &Bytes, call: channel::Call<'_>) -> Self {
        Self {
            args: frame.slice(range_in(frame, call.args.get())),
            workspace_id: call.workspace_id.into_owned(),
            session_id: call.session_id.into_owned(),
            call_id: call.id.into_owned(),
            intention: call.intention.into_owned(),
            tool: tool_name(call.tool),
            args_sha256: None,
            summary: String::new(),
        }
    }

    /// The arguments: one JSON object.
    pub(crate) fn args(&self) -> &str {
        // The frame was UTF-8 and its parser cut at characters.
        std::str::from_utf8(&self.args).unwrap_or_default()
    }

    /// The arguments' bytes, shared.
    pub(crate) fn args_bytes(&self) -> Bytes {
        self.args.clone()
    }

    pub(crate) fn key(&self) -> Key {
        Key {
            workspace_id: self.workspace_id.clone(),
            session_id: self.session_id.clone(),
            call_id: self.call_id.clone(),
        }
    }

    /// Computes the digest that the following layers compare, and what people are told of the call. Arguments without a canonical form (a number beyond every
    /// float) are told apart by their bytes; the policy refuses them anyway.
    pub(crate) async fn digested(mut self) -> Self {
        let args = self.args.clone();
        let read = move || {
            let text = std::str::from_utf8(&args).unwrap_or_default();
            let digest = args_sha256(text).unwrap_or_else(|_| Sha256::of(&args));
            (digest, summary(text))
        };
        let (sha256, summary) = if self.args.len() > LARGE_ARGS_BYTES {
            tokio::task::spawn_blocking(read)
                .await
                .unwrap_or_else(|_| (Sha256::of(&self.args), String::new()))
        } else {
            read()
        };
        self.args_sha256 = Some(sha256);
        self.summary = summary;
        self
    }

    /// The question to the owner whether this call's session is let in, as a call of that session. `attempt` counts from 1.
    pub(crate) fn of_its_session(&self, attempt: u32) -> Self {
        let args = Bytes::from_static(b"{}");
        Self {
            call_id: format!("postern-session:{attempt}"),
            tool: "session".to_owned(),
            args_sha256: Some(Sha256::of(&args)),
            summary: String::new(),
            args,
            ..self.clone()
        }
    }

    /// What it is about, for people; empty before it is digested.
    pub(crate) fn summary(&self) -> &str {
        &self.summary
    }

    /// A call of the owner's own in a session, with arguments that are canonical JSON.
    pub(crate) fn of_owner(control: &Control, session_id: &str, tool: &str, args: Bytes) -> Self {
        Self {
            workspace_id: control.workspace_id().to_string(),
            session_id: session_id.to_owned(),
            // No host can know it beforehand.
            call_id: format!("postern-owner:{}", ReceiptId::generate()),
            intention: control.intention().to_string(),
            tool: tool.to_owned(),
            args_sha256: Some(Sha256::of(&args)),
            summary: summary(std::str::from_utf8(&args).unwrap_or_default()),
            args,
        }
    }

    /// The call that a receipt is of, without its arguments.
    pub(crate) fn of_receipt(receipt: &ledger::Receipt) -> Option<Self> {
        Some(Self {
            workspace_id: receipt.workspace_id.clone(),
            session_id: receipt.session_id.clone(),
            call_id: receipt.call_id.clone(),
            intention: receipt.intention.clone(),
            tool: receipt.tool.clone(),
            summary: receipt.summary.clone(),
            args: Bytes::new(),
            args_sha256: Some(receipt.args_sha256.parse().ok()?),
        })
    }

    /// The digest of the arguments.
    pub(crate) fn args_sha256(&self) -> Sha256 {
        self.args_sha256.unwrap_or_else(|| Sha256::of(&self.args))
    }

    /// The call as the ledger knows it.
    pub(crate) fn to_ledger(&self) -> ledger::Call {
        ledger::Call {
            workspace_id: self.workspace_id.clone(),
            session_id: self.session_id.clone(),
            call_id: self.call_id.clone(),
            intention: self.intention.clone(),
            tool: self.tool.clone(),
            args_sha256: self.args_sha256().to_string(),
            trace_id: trace_id(&self.call_id),
            summary: self.summary.clone(),
        }
    }
}

/// Where `part`, which was borrowed from `whole`, lies in it.
fn range_in(whole: &[u8], part: &str) -> Range<usize> {
    let start = part.as_ptr().addr() - whole.as_ptr().addr();
    start..start + part.len()
}

#[cfg(test)]
mod tests {
    use postern_proto::channel::{HostFrame, parse_host_frame};
    use pretty_assertions::assert_eq;

    use super::*;

    fn read(frame: &'static str) -> Call {
        let bytes = Bytes::from_static(frame.as_bytes());
        match parse_host_frame(std::str::from_utf8(&bytes).expect("text")).expect("frame") {
            HostFrame::Call(call) => Call::from_frame(&bytes, *call),
            HostFrame::Ready => panic!("a call was written"),
        }
    }

    #[tokio::test]
    async fn arguments_are_shared_with_their_frame() {
        let call = read(
            r#"{"type":"call","protocol":1,"id":"i","workspaceId":"w","sessionId":"s","intention":"é","tool":"t","args":{"a": "ü"},"more":1}"#,
        );
        assert_eq!(call.args(), r#"{"a": "ü"}"#);
        let call = call.digested().await;
        assert_eq!(
            call.args_sha256(),
            args_sha256(r#"{"a":"ü"}"#).expect("digest")
        );
    }

    #[test]
    fn a_name_that_no_tool_can_have_becomes_a_short_printable_one() {
        assert_eq!(tool_name("workspace_read".into()), "workspace_read");
        let long = "workspace_read".repeat(100_000);
        let odd = ["", " ", "workspace_read\0", "workspace_read ", "é", &long];
        let told: std::collections::HashSet<_> =
            odd.iter().map(|name| tool_name((*name).into())).collect();
        assert_eq!(told.len(), odd.len(), "different names stay different");
        for name in told {
            assert!(name.len() <= 4 * TOOL_CHARS && !name.contains(char::is_control));
            assert!(postern_proto::catalogue::workspace_tool(&name).is_none());
        }
    }

    #[tokio::test]
    async fn arguments_without_canonical_form_still_have_a_digest() {
        let call = read(
            r#"{"type":"call","protocol":1,"id":"i","workspaceId":"w","sessionId":"s","intention":"i","tool":"t","args":{}}"#,
        );
        let mut odd = call.clone();
        odd.args = Bytes::from_static(br#"{"a":1e999}"#);
        assert_ne!(
            odd.digested().await.args_sha256(),
            call.digested().await.args_sha256()
        );
    }
}
