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
/// as an `Option` that older events leave out, and fields stand in the order of their names: what the serializer writes is
/// then canonical as it is (numbers are integers within [`ReceiptEvent::MAX_NUMBER`]).
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReceiptEvent {
    /// Digest of the words that came with the decision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer_sha256: Option<Sha256>,
    /// Digest of the arguments; in a receipt's first event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub args_sha256: Option<Sha256>,
    /// When, milliseconds since 1970 UTC.
    pub at_ms: i64,
    /// Call id; in a receipt's first event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call_id: Option<Id>,
    /// Who decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided_by: Option<String>,
    /// The decision: "approve", "approve-session", "deny", "answer" or "expire".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision: Option<String>,
    /// When waiting ends, milliseconds since 1970 UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at_ms: Option<i64>,
    /// Kind of the inbox item, "approval" or "question".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inbox_kind: Option<String>,
    /// Incarnation of the edge that said so.
    pub incarnation: u64,
    /// Intention; in a receipt's first event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub intention: Option<Intention>,
    /// What happened.
    pub kind: EventKind,
    /// "ok" or the error's code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// Digest of the plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan_sha256: Option<Sha256>,
    /// Deciding rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy_id: Option<String>,
    /// Hash of the event before.
    pub previous_hash: Sha256,
    /// Digest of what the owner was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proposal_sha256: Option<Sha256>,
    /// Receipt.
    pub receipt_id: ReceiptId,
    /// Digest of the stored result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result_sha256: Option<Sha256>,
    /// Position in the workspace's chain, from 1.
    pub sequence: u64,
    /// Session; in a receipt's first event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<Id>,
    /// Start of a reading call that is recorded in one event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at_ms: Option<i64>,
    /// What the call is about, on one line; in a receipt's first event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// Tool; in a receipt's first event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// Trace of the call; in a receipt's first event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
    /// True in the first event of a receipt that is kept for the audit alone and leaves the call id free.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unkeyed: Option<bool>,
    /// Workspace of the chain.
    pub workspace_id: Id,
}

impl ReceiptEvent {
    /// Largest number that is written alike with and without floating point, and so has one canonical form.
    pub const MAX_NUMBER: i64 = (1 << 53) - 1;

    /// The event's canonical JSON.
    ///
    /// # Errors
    /// The serializer's error; never for events made of valid parts.
    pub fn canonical(&self) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec(self)
    }

    /// The event's hash: SHA-256 of its canonical JSON, which holds the hash before it.
    ///
    /// # Errors
    /// The serializer's error; never for events made of valid parts.
    pub fn hash(&self) -> serde_json::Result<Sha256> {
        Ok(Sha256::of(&self.canonical()?))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;

    /// Every field that can be there, with any text.
    fn event(text: &str, number: i64) -> ReceiptEvent {
        let words = Some(text.to_owned());
        let digest = Some(Sha256::of(text.as_bytes()));
        let id = "!\"\\~".parse::<Id>().expect("id");
        ReceiptEvent {
            answer_sha256: digest,
            args_sha256: digest,
            at_ms: -number,
            call_id: Some(id.clone()),
            decided_by: words.clone(),
            decision: words.clone(),
            expires_at_ms: Some(number),
            inbox_kind: words.clone(),
            incarnation: number.unsigned_abs(),
            intention: format!("i{text}").parse().ok(),
            kind: EventKind::Executing,
            outcome: words.clone(),
            plan_sha256: digest,
            policy_id: words.clone(),
            previous_hash: Sha256::ZERO,
            proposal_sha256: digest,
            receipt_id: ReceiptId::from(Uuid::nil()),
            result_sha256: None,
            sequence: number.unsigned_abs(),
            session_id: Some(id.clone()),
            started_at_ms: Some(number),
            summary: words.clone(),
            tool: words.clone(),
            trace_id: words,
            unkeyed: Some(true),
            workspace_id: id,
        }
    }

    proptest! {
        #[test]
        fn what_is_hashed_is_canonical(text in any::<String>(), number in 0..=ReceiptEvent::MAX_NUMBER) {
            let event = event(&text, number);
            let canonical = serde_json_canonicalizer::to_vec(&event).expect("canonical");
            prop_assert_eq!(event.canonical().expect("written"), canonical);
        }
    }
}
