//! Events before they are put into a chain, and what stands beside them.

use bytes::Bytes;
use postern_types::{EventKind, Id, ReceiptEvent, ReceiptId, Sha256};

use crate::receipt::{Blobs, Call, Receipt};

/// The text, unless there is none.
pub(crate) fn non_empty(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

/// A plan to stand beside an event; none when it is empty.
pub(crate) fn with_plan(plan: Bytes) -> Blobs {
    Blobs {
        plan: (!plan.is_empty()).then_some(plan),
        ..Blobs::default()
    }
}

/// A result to stand beside an event; none when it is empty.
pub(crate) fn with_result(result: Bytes) -> Blobs {
    Blobs {
        result: (!result.is_empty()).then_some(result),
        ..Blobs::default()
    }
}

/// The first event of a new receipt, but for what only its end of the chain can tell.
pub(crate) fn first(kind: EventKind, call: &Call, incarnation: u64, at_ms: i64) -> ReceiptEvent {
    ReceiptEvent {
        session_id: Some(call.key.session.clone()),
        call_id: Some(call.key.call.clone()),
        intention: Some(call.intention.clone()),
        tool: Some(call.tool.as_ref().to_owned()),
        args_sha256: Some(call.args_sha256),
        trace_id: Some(call.trace_id.as_ref().to_owned()),
        summary: non_empty(call.summary.as_ref().to_owned()),
        ..bare(
            kind,
            ReceiptId::generate(),
            &call.key.workspace,
            incarnation,
            at_ms,
        )
    }
}

/// A further event of a receipt.
pub(crate) fn further(
    kind: EventKind,
    receipt: &Receipt,
    incarnation: u64,
    at_ms: i64,
) -> ReceiptEvent {
    bare(
        kind,
        receipt.id,
        &receipt.call.key.workspace,
        incarnation,
        at_ms,
    )
}

fn bare(
    kind: EventKind,
    receipt_id: ReceiptId,
    workspace: &Id,
    incarnation: u64,
    at_ms: i64,
) -> ReceiptEvent {
    ReceiptEvent {
        sequence: 0,
        receipt_id,
        kind,
        workspace_id: workspace.clone(),
        incarnation,
        at_ms,
        session_id: None,
        call_id: None,
        intention: None,
        summary: None,
        tool: None,
        args_sha256: None,
        unkeyed: None,
        policy_id: None,
        trace_id: None,
        started_at_ms: None,
        outcome: None,
        plan_sha256: None,
        result_sha256: None,
        proposal_sha256: None,
        inbox_kind: None,
        expires_at_ms: None,
        decision: None,
        answer_sha256: None,
        decided_by: None,
        previous_hash: Sha256::ZERO,
    }
}
