//! Requests into the ledger's own types, checked once, and its types into answers.

mod sessions;

use bytes::Bytes;
use postern_proto::ledger::v1 as proto;
use postern_types::{ErrorCode, Id, ReceiptEvent, ReceiptId, Sha256};

pub(crate) use self::sessions::{session_filter, session_page};
use crate::{
    Checkpoint, Error, Verification,
    command::{Found, Question},
    receipt::{Call, Decision, InboxKind, Key, Receipt, State},
    store::{Filter, Head, Page},
};

/// Largest plan, proposal or result, in bytes: above the largest frame (2 MiB), and three of them fit a message.
const BLOB_BYTES: usize = 5 * 512 * 1024;
/// Longest answer of the owner, in bytes.
const ANSWER_BYTES: usize = 256 * 1024;
/// Longest name of a tool, rule or decider, in bytes. An unknown tool's name is the agent's own words.
const NAME_BYTES: usize = 1000;
/// Longest summary of a call, in characters.
const SUMMARY_CHARS: usize = 200;
/// Receipts of a page when nothing is said, and at most.
const PAGE: (u32, u32) = (100, 1000);

/// Bytes of a page after which it ends early, so that it fits a message.
const PAGE_BYTES: usize = 2 * 1024 * 1024;

/// Checkpoints of one verification.
const CHECKPOINTS: usize = 1000;

const ID: &str = "an id is 1 to 200 visible ASCII characters";

pub(crate) fn id(field: &'static str, text: &str) -> Result<Id, Error> {
    text.parse().map_err(|_| Error::Invalid { field, rule: ID })
}

pub(crate) fn optional_id(field: &'static str, text: &str) -> Result<Option<Id>, Error> {
    if text.is_empty() {
        Ok(None)
    } else {
        id(field, text).map(Some)
    }
}

pub(crate) fn receipt_id(text: &str) -> Result<ReceiptId, Error> {
    text.parse().map_err(|_| Error::Invalid {
        field: "receipt_id",
        rule: "a receipt id is a UUID in lower case",
    })
}

pub(crate) fn call(call: Option<proto::Call>) -> Result<Call, Error> {
    let call = call.ok_or(Error::Invalid {
        field: "call",
        rule: "is required",
    })?;
    let hexadecimal = |text: &str| {
        text.len() == 32
            && text
                .bytes()
                .all(|it| matches!(it, b'0'..=b'9' | b'a'..=b'f'))
    };
    if !call.trace_id.is_empty() && !hexadecimal(&call.trace_id) {
        return Err(Error::Invalid {
            field: "call.trace_id",
            rule: "a trace id is 32 lower-case hexadecimal digits",
        });
    }
    if call.tool.is_empty() {
        return Err(Error::Invalid {
            field: "call.tool",
            rule: "is required",
        });
    }
    Ok(Call {
        key: Key {
            workspace: id("call.workspace_id", &call.workspace_id)?,
            session: id("call.session_id", &call.session_id)?,
            call: id("call.call_id", &call.call_id)?,
        },
        intention: call.intention.parse().map_err(|_| Error::Invalid {
            field: "call.intention",
            rule: "an intention is 1 to 4000 characters",
        })?,
        tool: name("call.tool", call.tool)?.into(),
        args_sha256: digest("call.args_sha256", &call.args_sha256)?,
        trace_id: call.trace_id.into(),
        summary: summary(call.summary)?.into(),
    })
}

fn summary(text: String) -> Result<String, Error> {
    if text.chars().any(char::is_control) || text.chars().count() > SUMMARY_CHARS {
        return Err(Error::Invalid {
            field: "call.summary",
            rule: "is at most 200 characters without control characters",
        });
    }
    Ok(text)
}

pub(crate) fn name(field: &'static str, text: String) -> Result<String, Error> {
    if text.len() > NAME_BYTES {
        return Err(Error::Invalid {
            field,
            rule: "is at most 1000 bytes",
        });
    }
    Ok(text)
}

/// A time that events can hold.
pub(crate) fn time(field: &'static str, millis: i64) -> Result<i64, Error> {
    if (0..=ReceiptEvent::MAX_NUMBER).contains(&millis) {
        Ok(millis)
    } else {
        Err(Error::Invalid {
            field,
            rule: "is milliseconds since 1970 UTC, below 2^53",
        })
    }
}

pub(crate) fn answer(text: String) -> Result<String, Error> {
    if text.len() > ANSWER_BYTES {
        return Err(Error::Invalid {
            field: "answer",
            rule: "is at most 256 KiB",
        });
    }
    Ok(text)
}

pub(crate) fn blob(field: &'static str, bytes: Bytes) -> Result<Bytes, Error> {
    if bytes.len() > BLOB_BYTES {
        return Err(Error::Invalid {
            field,
            rule: "is at most 2.5 MiB",
        });
    }
    Ok(bytes)
}

pub(crate) fn outcome(text: String) -> Result<String, Error> {
    let lasting = match text.parse() {
        Ok(ErrorCode::Busy | ErrorCode::Unavailable) => false,
        Ok(_) => true,
        Err(()) => text == "ok",
    };
    if !lasting {
        return Err(Error::Invalid {
            field: "outcome",
            rule: "is \"ok\" or an error's code, and neither BUSY nor UNAVAILABLE, which leave nothing behind",
        });
    }
    Ok(text)
}

pub(crate) fn question(question: Option<proto::Question>) -> Result<Option<Question>, Error> {
    let Some(question) = question else {
        return Ok(None);
    };
    let kind = match question.kind() {
        proto::InboxKind::Approval => InboxKind::Approval,
        proto::InboxKind::Question => InboxKind::Question,
        proto::InboxKind::Unspecified => {
            return Err(Error::Invalid {
                field: "question.kind",
                rule: "is required",
            });
        }
    };
    Ok(Some(Question {
        kind,
        proposal: blob("question.proposal_json", question.proposal_json)?,
        expires_at_ms: time("question.expires_at_ms", question.expires_at_ms)?,
    }))
}

pub(crate) fn end_state(state: proto::State) -> Result<State, Error> {
    match state {
        proto::State::Completed => Ok(State::Completed),
        proto::State::Refused => Ok(State::Refused),
        proto::State::Uncertain => Ok(State::Uncertain),
        proto::State::Unspecified | proto::State::AwaitingOwner | proto::State::Executing => {
            Err(Error::Invalid {
                field: "state",
                rule: "a receipt ends completed, refused or uncertain",
            })
        }
    }
}

pub(crate) fn decision(decision: proto::Decision) -> Result<Decision, Error> {
    match decision {
        proto::Decision::Approve => Ok(Decision::Approve),
        proto::Decision::ApproveSession => Ok(Decision::ApproveSession),
        proto::Decision::Deny => Ok(Decision::Deny),
        proto::Decision::Answer => Ok(Decision::Answer),
        proto::Decision::Expire => Ok(Decision::Expire),
        proto::Decision::Unspecified => Err(Error::Invalid {
            field: "decision",
            rule: "is required",
        }),
    }
}

pub(crate) fn filter(request: proto::ListRequest) -> Result<Filter, Error> {
    let state = match request.state() {
        proto::State::Unspecified => None,
        proto::State::AwaitingOwner => Some(State::Awaiting),
        proto::State::Executing => Some(State::Executing),
        proto::State::Completed => Some(State::Completed),
        proto::State::Refused => Some(State::Refused),
        proto::State::Uncertain => Some(State::Uncertain),
    };
    let before = match request.after.as_str() {
        "" => None,
        cursor => Some(cursor.parse::<ReceiptId>().map_err(|_| Error::Invalid {
            field: "after",
            rule: "is the `next` of a page",
        })?),
    };
    Ok(Filter {
        workspace: optional_id("workspace_id", &request.workspace_id)?,
        session: optional_id("session_id", &request.session_id)?,
        tool: Some(request.tool).filter(|tool| !tool.is_empty()),
        state,
        since_ms: request.since_ms,
        until_ms: request.until_ms,
        before,
        limit: page_limit(request.limit),
        bytes: PAGE_BYTES,
    })
}

const fn page_limit(asked: u32) -> u32 {
    match asked {
        0 => PAGE.0,
        limit if limit > PAGE.1 => PAGE.1,
        limit => limit,
    }
}

pub(crate) fn page(page: Page) -> proto::ListResponse {
    proto::ListResponse {
        receipts: page.receipts.into_iter().map(receipt).collect(),
        next: page.next.map(|it| it.to_string()).unwrap_or_default(),
    }
}

pub(crate) fn verification(found: Verification) -> proto::VerifyResponse {
    let valid = found.fault.is_none();
    let (bad_receipt_id, problem) = found
        .fault
        .map(|fault| (fault.receipt_id, fault.problem))
        .unwrap_or_default();
    proto::VerifyResponse {
        valid,
        events: found.events,
        receipts: found.receipts,
        bad_receipt_id,
        problem,
        heads: found.heads.into_iter().map(checkpoint).collect(),
    }
}

pub(crate) fn head(
    workspace: &Id,
    head: Option<Head>,
    hash: Option<Sha256>,
) -> proto::HeadResponse {
    proto::HeadResponse {
        head: head.map(|head| proto::Checkpoint {
            workspace_id: workspace.as_str().to_owned(),
            sequence: head.sequence,
            hash: head.hash.to_string(),
        }),
        hash: hash.map(|hash| hash.to_string()).unwrap_or_default(),
    }
}

fn checkpoint(checkpoint: Checkpoint) -> proto::Checkpoint {
    proto::Checkpoint {
        workspace_id: checkpoint.workspace_id,
        sequence: checkpoint.sequence,
        hash: checkpoint.hash.to_string(),
    }
}

pub(crate) fn checkpoints(given: Vec<proto::Checkpoint>) -> Result<Vec<Checkpoint>, Error> {
    if given.len() > CHECKPOINTS {
        return Err(Error::Invalid {
            field: "checkpoints",
            rule: "are at most 1000",
        });
    }
    let parse = |it: proto::Checkpoint| {
        Ok(Checkpoint {
            hash: digest("checkpoints.hash", &it.hash)?,
            workspace_id: it.workspace_id,
            sequence: it.sequence,
        })
    };
    given.into_iter().map(parse).collect()
}

fn digest(field: &'static str, text: &str) -> Result<Sha256, Error> {
    text.parse().map_err(|_| Error::Invalid {
        field,
        rule: "a SHA-256 digest is 64 lower-case hexadecimal digits",
    })
}

pub(crate) fn found(found: Found) -> proto::BeginResponse {
    use proto::begin_response::Outcome;
    let outcome = match found {
        Found::Started(it) => Outcome::Started(receipt(it)),
        Found::Replay(it) => Outcome::Replay(proto::Replay {
            result: it.result.clone(),
            receipt: Some(receipt(it)),
        }),
        Found::Running(it) => Outcome::Running(receipt(it)),
        Found::Orphaned(it) => Outcome::Orphaned(receipt(it)),
        Found::Conflict(it) => Outcome::Conflict(receipt(it)),
        Found::Awaiting(it) => Outcome::Awaiting(receipt(it)),
        Found::Unknown => Outcome::Unknown(proto::Unknown {}),
    };
    proto::BeginResponse {
        outcome: Some(outcome),
    }
}

pub(crate) fn receipt(receipt: Receipt) -> proto::Receipt {
    let call = &receipt.call;
    let text = |hash: Option<Sha256>| hash.map(|it| it.to_string()).unwrap_or_default();
    let mut answer = proto::Receipt {
        id: receipt.id.to_string(),
        workspace_id: call.key.workspace.as_str().to_owned(),
        session_id: call.key.session.as_str().to_owned(),
        call_id: call.key.call.as_str().to_owned(),
        intention: call.intention.as_str().to_owned(),
        tool: call.tool.as_ref().to_owned(),
        args_sha256: call.args_sha256.to_string(),
        state: state(receipt.state).into(),
        outcome: receipt.outcome.as_ref().to_owned(),
        created_at_ms: receipt.created_at_ms,
        started_at_ms: receipt.started_at_ms,
        finished_at_ms: receipt.finished_at_ms,
        trace_id: call.trace_id.as_ref().to_owned(),
        summary: call.summary.as_ref().to_owned(),
        previous_hash: text(receipt.previous_hash),
        hash: text(receipt.hash),
        sequence: receipt.sequence,
        incarnation: receipt.incarnation,
        plan_json: receipt.plan,
        policy_id: receipt.policy_id.as_ref().to_owned(),
        ..proto::Receipt::default()
    };
    if let Some(inbox) = receipt.inbox {
        answer.set_inbox_kind(match inbox.kind {
            InboxKind::Approval => proto::InboxKind::Approval,
            InboxKind::Question => proto::InboxKind::Question,
        });
        answer.proposal_json = inbox.proposal.clone();
        answer.expires_at_ms = Some(inbox.expires_at_ms);
        if let Some(decided) = &inbox.decided {
            answer.set_decision(decision_told(decided.decision));
            answer.answer = decided.answer.as_ref().to_owned();
            answer.decided_by = decided.by.as_ref().to_owned();
            answer.decided_at_ms = Some(decided.at_ms);
        }
    }
    answer
}

const fn state(state: State) -> proto::State {
    match state {
        State::Awaiting => proto::State::AwaitingOwner,
        State::Executing => proto::State::Executing,
        State::Completed => proto::State::Completed,
        State::Refused | State::Abandoned => proto::State::Refused,
        State::Uncertain => proto::State::Uncertain,
    }
}

const fn decision_told(decision: Decision) -> proto::Decision {
    match decision {
        Decision::Approve => proto::Decision::Approve,
        Decision::ApproveSession => proto::Decision::ApproveSession,
        Decision::Deny => proto::Decision::Deny,
        Decision::Answer => proto::Decision::Answer,
        Decision::Expire => proto::Decision::Expire,
    }
}
