//! Receipts around effects: durable before the effect, and their result durable before the answer.

mod inbox;
mod ledger;
mod owner;
mod reading;
mod resolve;
mod sweep;

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use postern_kit::{Clock, Effect, Failure, task::Tasks, trace};
use postern_proto::{
    catalogue,
    ledger::v1::{Question, Receipt, State, begin_response::Outcome},
};
use postern_types::ErrorCode;

use super::{
    judge::{Asked, Judge, Verdict},
    layer::{Inner, Stage},
    replay::{Claimed, id_reused},
};
use crate::{
    args,
    call::Call,
    clients::is_passing,
    config::Config,
    control::{Control, Wish},
    reply::{Answer, Reply},
    tools::{Location, Planned, Tools},
};
pub(super) use inbox::Inbox;
pub(crate) use ledger::Ledger;
pub(super) use owner::refusal;
use reading::Recorder;

/// How often a call is judged afresh because the owner changed his mind between two looks. Then it is left for later.
const MAX_ROUNDS: usize = 4;
/// Orphans of earlier incarnations that are remembered as such until they are resolved.
const MAX_ADOPTED: usize = 1024;

/// A call that may be made: it passed every layer.
#[derive(Debug)]
pub(crate) struct Permit {
    pub(crate) call: Arc<Call>,
    /// The executing receipt; absent for a reading call.
    pub(crate) receipt: Option<Held>,
    /// What was permitted: the receipt's plan. Empty when there is none.
    pub(crate) plan: Bytes,
}

/// A receipt that this edge holds.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) workspace_id: String,
    pub(crate) receipt_id: String,
    pub(crate) incarnation: u64,
}

/// Who let the call go ahead.
enum Permission {
    /// The rules, under this wish of the owner.
    Unattended(Wish),
    /// The owner, for this call, about which these rules ask.
    Owner(Asked),
    /// The owner, who has said so.
    Given,
}

/// What is about to be begun.
struct Intent {
    plan: Result<Bytes, Failure>,
    permission: Permission,
}

/// What became of one look at a call.
enum Step {
    Answered(Reply),
    /// The owner's wish or the receipt's state changed: judge the call afresh.
    Again,
}

/// May the effect start, right now?
enum Start {
    Now,
    NotUnattended,
    ChannelClosed,
}

#[derive(Debug)]
pub(super) struct Receipts {
    ledger: Ledger,
    judge: Judge,
    tools: Tools,
    control: Control,
    clock: Clock,
    recorder: Recorder,
    inbox: Inbox,
    patience: Duration,
    adopted: Mutex<HashSet<String>>,
}

impl Receipts {
    pub(super) fn new(
        config: &Config,
        inbox: Inbox,
        judge: Judge,
        tools: Tools,
        tasks: &Tasks,
    ) -> Self {
        let (ledger, control, clock) = inbox.parts();
        sweep::start(ledger.clone(), clock.clone(), tasks);
        Self {
            recorder: Recorder::start(ledger.clone(), tasks),
            ledger,
            judge,
            tools,
            control,
            clock,
            inbox,
            patience: config.patience,
            adopted: Mutex::default(),
        }
    }

    /// One look: what the verdict and the receipt, taken together, make of the call.
    async fn look<I: Inner<Permit>>(
        &self,
        call: &Arc<Call>,
        verdict: Verdict,
        inner: &I,
    ) -> Result<Step, Failure> {
        match verdict {
            Verdict::Refuse { failure, policy_id } => {
                self.refuse(call, &failure, policy_id, inner).await
            }
            Verdict::Away(failure) => self.only_known(call, failure, inner).await,
            Verdict::Allow { policy_id, wish } => {
                let permission = Permission::Unattended(wish);
                self.begin(call, policy_id, permission, inner).await
            }
            Verdict::Ask(asked) => {
                let policy_id = asked.policy_id.clone();
                self.begin(call, policy_id, Permission::Owner(asked), inner)
                    .await
            }
        }
    }

    async fn refuse<I: Inner<Permit>>(
        &self,
        call: &Arc<Call>,
        failure: &Failure,
        policy_id: String,
        inner: &I,
    ) -> Result<Step, Failure> {
        let reply = Reply::failure(failure);
        let outcome = self.ledger.refuse(call, &reply, policy_id).await?;
        if matches!(outcome, Outcome::Started(_)) {
            return Ok(Step::Answered(reply));
        }
        // The ids were known before, so their receipt decides.
        self.settle(call, outcome, None, inner).await
    }

    /// A part of the edge is away, so nothing new may start; an existing receipt still decides.
    async fn only_known<I: Inner<Permit>>(
        &self,
        call: &Arc<Call>,
        away: Failure,
        inner: &I,
    ) -> Result<Step, Failure> {
        let outcome = self.ledger.lookup(call).await?;
        if matches!(outcome, Outcome::Unknown(_)) {
            return Err(away);
        }
        self.settle(call, outcome, None, inner).await
    }

    async fn begin<I: Inner<Permit>>(
        &self,
        call: &Arc<Call>,
        policy_id: String,
        permission: Permission,
        inner: &I,
    ) -> Result<Step, Failure> {
        postern_kit::fault_point!(crate::fault_points::PLAN_BEFORE);
        let Planned { json, location } = match self.tools.plan(call).await {
            Ok(planned) => planned,
            Err(away) => return self.only_known(call, away, inner).await,
        };
        // A tool that is not there is refused rather than begun: nothing could be done under its receipt.
        let plan = match json {
            Err(failure) if failure.code == ErrorCode::UnknownTool => {
                return self.refuse(call, &failure, policy_id, inner).await;
            }
            plan => plan,
        };
        postern_kit::fault_point!(crate::fault_points::PLAN_AFTER);
        let place = location.resolved_path.as_deref();
        let (policy_id, permission) = match place {
            None => (policy_id, permission),
            Some(_) => match self.judge.judge(call, place).await {
                Verdict::Allow { policy_id, wish } => (policy_id, Permission::Unattended(wish)),
                Verdict::Ask(asked) => (asked.policy_id.clone(), Permission::Owner(asked)),
                verdict @ (Verdict::Refuse { .. } | Verdict::Away(_)) => {
                    return Box::pin(self.look(call, verdict, inner)).await;
                }
            },
        };
        let (policy_id, permission, is_hidden) = match self.telling(call, &plan, place).await {
            Verdict::Allow { .. } => (policy_id, permission, false),
            Verdict::Ask(asked) => (asked.policy_id.clone(), Permission::Owner(asked), true),
            verdict @ (Verdict::Refuse { .. } | Verdict::Away(_)) => {
                return Box::pin(self.look(call, verdict, inner)).await;
            }
        };
        let question = match is_hidden {
            true => self.question(call, &Ok(location.to_bytes()), &permission)?,
            false => self.question(call, &plan, &permission)?,
        };
        let planned = plan.clone().unwrap_or_default();
        let outcome = self
            .ledger
            .begin(call, planned, question, policy_id)
            .await?;
        let intent = Intent { plan, permission };
        self.settle(call, outcome, Some(intent), inner).await
    }

    /// Whether what came of a plan may be told. Why a change of a file cannot be made (its revision, a text that is or is not
    /// in it, that it exists) tells what reading it would tell, so it is told where that goes unattended.
    async fn telling(
        &self,
        call: &Call,
        plan: &Result<Bytes, Failure>,
        place: Option<&str>,
    ) -> Verdict {
        let nothing = Verdict::Allow {
            policy_id: String::new(),
            wish: self.control.wish(),
        };
        let changes = matches!(
            call.tool.as_str(),
            "workspace_write" | "workspace_patch" | "workspace_delete"
        );
        match args::path(call) {
            Some(path) if changes && plan.is_err() => {
                self.judge.judge_reading(call, &path, place).await
            }
            Some(_) | None => nothing,
        }
    }

    /// What the owner is asked, if he is.
    fn question(
        &self,
        call: &Call,
        plan: &Result<Bytes, Failure>,
        permission: &Permission,
    ) -> Result<Option<Question>, Failure> {
        let asked = match (plan, permission) {
            _ if call.tool == "workspace_ask" => owner::question(call)?,
            // What cannot be done anyway is not worth the owner's time.
            (Err(_), _) | (_, Permission::Unattended(_) | Permission::Given) => return Ok(None),
            (Ok(plan), Permission::Owner(asked)) => owner::proposal(call, plan, asked),
        };
        Ok(Some(Question {
            expires_at_ms: self.inbox.expiry().as_millis(),
            ..asked
        }))
    }

    /// Does what the ids stand for. `intent` is there when a new receipt may have been begun.
    async fn settle<I: Inner<Permit>>(
        &self,
        call: &Arc<Call>,
        outcome: Outcome,
        intent: Option<Intent>,
        inner: &I,
    ) -> Result<Step, Failure> {
        match outcome {
            Outcome::Started(receipt) if receipt.state() == State::AwaitingOwner => {
                self.ask_owner(call, receipt, inner).await
            }
            Outcome::Started(receipt) => match intent {
                Some(intent) => self.execute(call, &receipt.id, intent, inner).await,
                None => Err(unexpected("a receipt was started by a look-up")),
            },
            Outcome::Awaiting(receipt) => self.ask_owner(call, receipt, inner).await,
            Outcome::Replay(replay) if replay.result.is_empty() => Err(Failure::new(
                ErrorCode::IdReused,
                "This call id belongs to an earlier reading call. Send the call with a new id.",
            )),
            Outcome::Replay(replay) => {
                trace::is_again(&call.call_id);
                let outcome = replay.receipt.unwrap_or_default().outcome;
                Reply::stored(&replay.result, &outcome).map(Step::Answered)
            }
            Outcome::Conflict(_) => Err(id_reused()),
            // Nobody runs it here, or this call would have joined it: it was left behind by a failure of this run.
            Outcome::Running(receipt) if !self.is_adopted(&receipt.id) => {
                self.resolve_left(call, &receipt, inner).await
            }
            Outcome::Running(receipt) | Outcome::Orphaned(receipt) => {
                self.adopt(&receipt.id);
                self.resolve_orphan(call, &receipt, inner).await
            }
            Outcome::Unknown(_) => Err(unexpected("the ledger told nothing of a call")),
        }
    }

    /// The effect, under its executing receipt.
    async fn execute<I: Inner<Permit>>(
        &self,
        call: &Arc<Call>,
        receipt_id: &str,
        intent: Intent,
        inner: &I,
    ) -> Result<Step, Failure> {
        self.control.note_receipt(call, receipt_id, false);
        let plan = match intent.plan {
            Ok(plan) => plan,
            Err(failure) => return self.complete(receipt_id, &Reply::failure(&failure)).await,
        };
        let place = Location::of(&plan).resolved_path;
        match self
            .may_start(call, place.as_deref(), &intent.permission)
            .await
        {
            Start::Now => {
                postern_kit::fault_point!(crate::fault_points::MAY_START_AFTER);
            }
            Start::NotUnattended => {
                self.ledger.abandon(receipt_id).await?;
                return Ok(Step::Again);
            }
            Start::ChannelClosed => {
                self.ledger.abandon(receipt_id).await?;
                return Err(channel_closed());
            }
        }
        postern_kit::fault_point!(crate::fault_points::EFFECT_BEFORE);
        let answer = self.answer(call, receipt_id, &plan, inner).await;
        postern_kit::fault_point!(crate::fault_points::EFFECT_AFTER);
        match answer {
            Ok(reply) => self.complete(receipt_id, &reply).await,
            Err(failure) if failure.effect == Effect::Unknown => {
                self.resolve_failed(call, receipt_id, &plan, failure, inner)
                    .await
            }
            Err(failure) if is_passing(failure.code) => {
                self.ledger.abandon(receipt_id).await?;
                Err(failure)
            }
            Err(failure) => self.complete(receipt_id, &Reply::failure(&failure)).await,
        }
    }

    /// Makes a call under its receipt, at the place that its plan tells. An effect elsewhere is refused by whoever would make
    /// it; what was read elsewhere is not told.
    async fn answer<I: Inner<Permit>>(
        &self,
        call: &Arc<Call>,
        receipt_id: &str,
        plan: &Bytes,
        inner: &I,
    ) -> Answer {
        let permit = Permit {
            call: Arc::clone(call),
            receipt: Some(self.held(receipt_id)),
            plan: plan.clone(),
        };
        let reply = inner.answer(permit).await?;
        let place = reply.place();
        if place.is_some() && place != Location::of(plan).place.as_deref() {
            return Err(Failure::new(
                ErrorCode::Busy,
                "The path leads elsewhere than a moment ago: a link on it was changed. Send the call again.",
            ));
        }
        Ok(reply)
    }

    fn held(&self, receipt_id: &str) -> Held {
        Held {
            workspace_id: self.control.workspace_id().to_string(),
            receipt_id: receipt_id.to_owned(),
            incarnation: self.control.incarnation(),
        }
    }

    async fn complete(&self, receipt_id: &str, reply: &Reply) -> Result<Step, Failure> {
        self.ledger
            .complete(receipt_id, State::Completed, reply)
            .await?;
        self.forget(receipt_id);
        Ok(Step::Answered(reply.clone()))
    }

    /// The last look before an effect: the owner may have changed his mind while the receipt became durable, or while he
    /// was asked. A call that he approved himself needs no second approval, but still a mode that does not forbid it.
    async fn may_start(&self, call: &Call, place: Option<&str>, permission: &Permission) -> Start {
        let (mut seen, by_owner) = match permission {
            Permission::Unattended(wish) => (Some(*wish), false),
            Permission::Owner(_) | Permission::Given => (None, true),
        };
        for _ in 0..MAX_ROUNDS {
            let wish = self.control.wish();
            if !wish.open {
                return Start::ChannelClosed;
            }
            if seen == Some(wish) {
                return Start::Now;
            }
            seen = Some(wish);
            match self.judge.judge(call, place).await {
                Verdict::Allow { .. } => {}
                Verdict::Ask(_) if by_owner => {}
                Verdict::Ask(_) | Verdict::Refuse { .. } | Verdict::Away(_) => {
                    return Start::NotUnattended;
                }
            }
        }
        Start::NotUnattended
    }

    fn adopt(&self, receipt_id: &str) {
        let mut adopted = self.adopted.lock().unwrap_or_else(PoisonError::into_inner);
        if adopted.len() < MAX_ADOPTED {
            adopted.insert(receipt_id.to_owned());
        }
    }

    fn is_adopted(&self, receipt_id: &str) -> bool {
        let adopted = self.adopted.lock().unwrap_or_else(PoisonError::into_inner);
        adopted.contains(receipt_id)
    }

    fn forget(&self, receipt_id: &str) {
        let mut adopted = self.adopted.lock().unwrap_or_else(PoisonError::into_inner);
        adopted.remove(receipt_id);
    }
}

impl Stage<Claimed> for Receipts {
    type Inner = Permit;

    async fn handle<I: Inner<Permit>>(&self, claimed: Claimed, inner: I) -> Answer {
        let Claimed {
            call,
            mut verdict,
            claim,
        } = claimed;
        if !catalogue::has_effect(&call.tool) && matches!(verdict, Verdict::Allow { .. }) {
            match self.read(&call, claim, &inner).await? {
                Ok(reply) => return Ok(reply),
                Err(elsewhere) => verdict = elsewhere,
            }
        }
        for _ in 0..MAX_ROUNDS {
            match Box::pin(self.look(&call, verdict, &inner)).await? {
                Step::Answered(reply) => return Ok(reply),
                Step::Again => verdict = self.judge.judge(&call, None).await,
            }
        }
        Err(Failure::new(
            ErrorCode::Unavailable,
            "What this call may do changed while it was looked at. Send it again with the same id.",
        ))
    }
}

fn channel_closed() -> Failure {
    Failure::new(
        ErrorCode::Unavailable,
        "The owner has closed the channel, so no effect starts. Send the call again with the same id once it is open.",
    )
}

fn unexpected(what: &str) -> Failure {
    tracing::error!(what, "the ledger answered against its contract");
    Failure::new(
        ErrorCode::Internal,
        "The ledger answered in a way that makes no sense. The owner's log tells more.",
    )
}

/// The receipt as it is after a step, for steps that answer with it.
fn present(receipt: Option<Receipt>) -> Result<Receipt, Failure> {
    receipt.ok_or_else(|| unexpected("an answer without its receipt"))
}
