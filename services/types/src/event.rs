//! What is appended to a workspace's chain, and how it is hashed.

use serde::{Deserialize, Serialize};

use crate::{Id, Intention, ReceiptId, Sha256};

/// What an event says of its receipt.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum EventKind {
    /// The receipt waits for the owner.
    Awaiting,
    /// The owner decided, or the wait ran out.
    Decided,
    /// The effect may be under way.
    Executing,
    /// Another incarnation took the receipt over.
    Adopted,
    /// The result is recorded.
    Completed,
    /// The call was refused before any effect.
    Refused,
    /// Whether the effect happened cannot be known.
    Uncertain,
    /// There was no effect, and the call id is free again.
    Abandoned,
}

/// One event of a receipt. Its canonical JSON (RFC 8785) is what the chain's hash covers, so a field is only ever added
/// as an `Option` that older events leave out.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReceiptEvent {
    /// Position in the workspace's chain, from 1.
    pub sequence: u64,
    /// Receipt.
    pub receipt_id: ReceiptId,
    /// What happened.
    pub kind: EventKind,
    /// Workspace of the chain.
    pub workspace_id: Id,
    /// Incarnation of the edge that said so.
    pub incarnation: u64,
    /// When, milliseconds since 1970 UTC.
    pub at_ms: i64,
    /// Session; in a receipt's first event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<Id>,
    /// Call id; in a receipt's first event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call_id: Option<Id>,
    /// Intention; in a receipt's first event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub intention: Option<Intention>,
    /// Tool; in a receipt's first event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// Digest of the arguments; in a receipt's first event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub args_sha256: Option<Sha256>,
    /// True in the first event of a receipt that is kept for the audit alone and leaves the call id free.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unkeyed: Option<bool>,
    /// Deciding rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy_id: Option<String>,
    /// Trace of the call; in a receipt's first event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
    /// Start of a reading call that is recorded in one event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at_ms: Option<i64>,
    /// "ok" or the error's code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// Digest of the plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan_sha256: Option<Sha256>,
    /// Digest of the stored result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result_sha256: Option<Sha256>,
    /// Digest of what the owner was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proposal_sha256: Option<Sha256>,
    /// Kind of the inbox item, "approval" or "question".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inbox_kind: Option<String>,
    /// When waiting ends, milliseconds since 1970 UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at_ms: Option<i64>,
    /// The decision: "approve", "approve-session", "deny", "answer" or "expire".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision: Option<String>,
    /// Digest of the words that came with the decision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer_sha256: Option<Sha256>,
    /// Who decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided_by: Option<String>,
    /// Hash of the event before.
    pub previous_hash: Sha256,
}

impl ReceiptEvent {
    /// The event's canonical JSON.
    ///
    /// # Errors
    /// The serializer's error; never for events made of valid parts.
    pub fn canonical(&self) -> serde_json::Result<Vec<u8>> {
        serde_json_canonicalizer::to_vec(self)
    }

    /// The event's hash: SHA-256 of its canonical JSON, which holds the hash before it.
    ///
    /// # Errors
    /// The serializer's error; never for events made of valid parts.
    pub fn hash(&self) -> serde_json::Result<Sha256> {
        Ok(Sha256::of(&self.canonical()?))
    }
}
