//! Sessions that the owner lets in one by one (`sessions = "ask"`, CONTRACT.md, section 2).
//!
//! The question is a receipt of the session itself, so it waits in the inbox and survives restarts like any other. What was
//! let in is kept by the identity service; it is told before the receipt ends, so a crash between the two asks nobody twice.

use postern_kit::{Failure, transport::Transport};
use postern_proto::{
    identity::v1::{AdmitRequest, edge_identity_client::EdgeIdentityClient},
    ledger::v1::{InboxKind, Question, Receipt, State, begin_response::Outcome},
};
use postern_types::ErrorCode;
use serde_json::json;
use tokio::sync::Mutex;

use super::receipt::{Inbox, Ledger, refusal};
use crate::{
    call::Call,
    clients::{Clients, hop},
    config::{Config, Sessions},
    control::Control,
    reply::Reply,
};

/// How often the owner is asked about one session, when he has not decided in time or has pinned the workspace anew.
const MAX_ATTEMPTS: u32 = 32;
/// What stands in the receipt as the deciding rule.
const POLICY_ID: &str = "owner.sessions";

/// Who is let in.
#[derive(Debug)]
pub(super) struct Admission {
    identity: EdgeIdentityClient<Transport>,
    pinned_workspace_id: String,
    control: Control,
    sessions: Sessions,
    ledger: Ledger,
    inbox: Inbox,
    /// Held while a decision is carried out: calls of one session may wait for the same one.
    carrying_out: Mutex<()>,
}

impl Admission {
    pub(super) fn new(config: &Config, clients: &Clients, ledger: Ledger, inbox: Inbox) -> Self {
        let (_, control, _) = inbox.parts();
        Self {
            control,
            identity: clients.identity.clone(),
            pinned_workspace_id: config.workspace_id.to_string(),
            sessions: config.sessions,
            ledger,
            inbox,
            carrying_out: Mutex::default(),
        }
    }

    /// Whether the call is one of the pinned workspace and intention, and of a session that is let in.
    pub(super) async fn admit(&self, call: &Call) -> Result<(), Failure> {
        self.look(call, self.sessions == Sessions::Open).await
    }

    /// Whether the owner may be asked to let in a session that was refused so.
    pub(super) fn asks_owner(&self, refused: &Failure) -> bool {
        self.sessions == Sessions::Ask && refused.code == ErrorCode::UnknownSession
    }

    /// Waits until the owner has decided about the call's session. Let in, it is admitted from now on.
    pub(super) async fn ask_owner(&self, call: &Call) -> Result<(), Failure> {
        for attempt in 1..=MAX_ATTEMPTS {
            let asked = call.of_its_session(attempt);
            let proposal = json!({"tool": asked.tool, "arguments": {"session": call.session_id}});
            let question = Question {
                kind: InboxKind::Approval.into(),
                proposal_json: proposal.to_string().into(),
                expires_at_ms: self.inbox.expiry().as_millis(),
            };
            let (plan, policy_id) = (bytes::Bytes::new(), POLICY_ID.to_owned());
            match self
                .ledger
                .begin(&asked, plan, Some(question), policy_id)
                .await?
            {
                Outcome::Started(receipt) | Outcome::Awaiting(receipt) => {
                    return self.wait(call, receipt).await;
                }
                // He let it in, and an earlier run did not come to say so everywhere.
                Outcome::Running(receipt) | Outcome::Orphaned(receipt) => {
                    let _alone = self.carrying_out.lock().await;
                    return self.let_in(call, &receipt.id).await;
                }
                Outcome::Replay(replay) => {
                    let outcome = replay.receipt.unwrap_or_default().outcome;
                    if outcome == ErrorCode::ApprovalDenied.as_str() {
                        return Err(kept_out());
                    }
                    // Nobody decided in time, or the workspace was pinned anew since: he is asked again.
                }
                Outcome::Conflict(_) | Outcome::Unknown(_) => return Err(kept_out()),
            }
        }
        Err(kept_out())
    }

    async fn wait(&self, call: &Call, receipt: Receipt) -> Result<(), Failure> {
        self.control.note_receipt(call, &receipt.id, true);
        let decided = self.inbox.decision(receipt).await?;
        self.control.note_receipt(call, &decided.id, false);
        let _alone = self.carrying_out.lock().await;
        if let Some(failure) = refusal(&decided) {
            let reply = Reply::failure(&failure);
            self.ledger
                .complete(&decided.id, State::Refused, &reply)
                .await?;
            let in_time = failure.code != ErrorCode::ApprovalTimeout;
            return Err(if in_time { kept_out() } else { undecided() });
        }
        if self.look(call, false).await.is_ok() {
            return Ok(());
        }
        self.ledger.start(&decided.id, bytes::Bytes::new()).await?;
        self.let_in(call, &decided.id).await
    }

    async fn let_in(&self, call: &Call, receipt_id: &str) -> Result<(), Failure> {
        let admitted = self.look(call, true).await;
        let reply = match &admitted {
            Ok(()) => Reply::success(&json!({"session": call.session_id}))?,
            Err(failure) if failure.code == ErrorCode::UnknownSession => Reply::failure(failure),
            Err(failure) => return Err(failure.clone()),
        };
        self.ledger
            .complete(receipt_id, State::Completed, &reply)
            .await?;
        admitted
    }

    async fn look(&self, call: &Call, let_in: bool) -> Result<(), Failure> {
        let request = AdmitRequest {
            workspace_id: call.workspace_id.clone(),
            intention: call.intention.clone(),
            session_id: call.session_id.clone(),
            pinned_workspace_id: self.pinned_workspace_id.clone(),
            let_in,
        };
        hop(self.identity.clone().admit(request)).await.map(drop)
    }
}

fn kept_out() -> Failure {
    Failure::new(
        ErrorCode::UnknownSession,
        "The owner has not let this session in. Nothing was done; do not call again without talking to him.",
    )
}

fn undecided() -> Failure {
    Failure::new(
        ErrorCode::UnknownSession,
        "The owner did not say in time whether this session is let in. Nothing was done; call again when he is there.",
    )
}
