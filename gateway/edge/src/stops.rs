//! Commands that the owner ends, each stop under a receipt of its own like any effect.
//!
//! Once begun it is carried out and recorded whether or not whoever asked is still there; what a kill of the edge interrupts, the
//! next start looks into.

use bytes::Bytes;
use postern_kit::{Effect as Had, Failure, task::Tasks, transport::Transport};
use postern_proto::{
    exec::v1::{
        Effect, EffectKind, Finding, InspectRequest, ListedCommand, StopRequest, StopResponse,
        exec_client::ExecClient,
    },
    ledger::v1::{Receipt, State, begin_response::Outcome, ledger_client::LedgerClient},
};
use postern_types::ErrorCode;
use serde_json::{Value, json};

use crate::{
    call::Call,
    clients::{Clients, hop, is_passing},
    control::Control,
    left_behind,
    reply::Reply,
    stack::Ledger,
    tools::command_status,
};

/// What stands in the receipt of a stop by the owner as the deciding rule.
const POLICY: &str = "owner.stop";
/// Tool of its receipt: what it does is what an agent's stop does.
const TOOL: &str = "workspace_stop";

/// Stops, over the services of one edge. Clones stand for the same.
#[derive(Clone, Debug)]
pub(crate) struct Stops {
    control: Control,
    exec: ExecClient<Transport>,
    receipts: LedgerClient<Transport>,
    ledger: Ledger,
    tasks: Tasks,
}

impl Stops {
    pub(crate) fn new(clients: &Clients, control: Control, tasks: Tasks) -> Self {
        Self {
            exec: clients.exec.clone(),
            receipts: clients.ledger.clone(),
            ledger: Ledger::of_owner(clients, &control),
            control,
            tasks,
        }
    }

    /// Ends a command with all that it started. Stopping an ended command tells its end.
    pub(crate) async fn stop(&self, command: ListedCommand) -> Result<StopResponse, Failure> {
        let this = self.clone();
        let carried_out = self
            .tasks
            .spawn("owner's stop", async move { this.carry_out(command).await });
        carried_out.await.unwrap_or_else(|_| {
            Err(Failure::new(
                ErrorCode::Unavailable,
                "The edge ends. Look at the command once it runs again.",
            ))
        })
    }

    async fn carry_out(&self, command: ListedCommand) -> Result<StopResponse, Failure> {
        let args = json!({"commandId": command.command_id}).to_string();
        let call = Call::of_owner(&self.control, &command.session_id, TOOL, args.into());
        let begun = self
            .ledger
            .begin(&call, Bytes::new(), None, POLICY.to_owned());
        let Outcome::Started(receipt) = begun.await? else {
            return Err(Failure::new(
                ErrorCode::Internal,
                "The ledger did not begin a receipt for this, so nothing was done. Try again.",
            ));
        };
        let request = StopRequest {
            effect: Some(self.effect(&receipt)),
            session_id: command.session_id,
            command_id: command.command_id,
        };
        let stopped = hop(self.exec.clone().stop(request)).await;
        self.record(&receipt.id, &stopped).await?;
        stopped
    }

    fn effect(&self, receipt: &Receipt) -> Effect {
        Effect {
            workspace_id: receipt.workspace_id.clone(),
            receipt_id: receipt.id.clone(),
            incarnation: self.control.incarnation(),
        }
    }

    async fn record(
        &self,
        receipt_id: &str,
        stopped: &Result<StopResponse, Failure>,
    ) -> Result<(), Failure> {
        let (state, reply) = match stopped {
            Ok(stopped) => (State::Completed, Reply::success(&to_json(stopped))?),
            Err(failure) if failure.effect == Had::Unknown => {
                let unknown = Failure::new(ErrorCode::Uncertain, failure.message.clone());
                (State::Uncertain, Reply::failure(&unknown))
            }
            Err(failure) if is_passing(failure.code) => {
                return self.ledger.abandon(receipt_id).await;
            }
            Err(failure) => (State::Completed, Reply::failure(failure)),
        };
        self.ledger.complete(receipt_id, state, &reply).await
    }

    async fn look_into_what_is_left(&self) -> Result<(), Failure> {
        for receipt in left_behind::receipts(&self.receipts, &self.control, TOOL).await? {
            if receipt.policy_id == POLICY {
                self.look_into(&receipt).await?;
            }
        }
        Ok(())
    }

    /// The worker knows what it did under a receipt.
    async fn look_into(&self, receipt: &Receipt) -> Result<(), Failure> {
        let Some(call) = Call::of_receipt(receipt) else {
            return Ok(());
        };
        let Outcome::Orphaned(receipt) = self.ledger.lookup(&call).await? else {
            return Ok(());
        };
        let request = InspectRequest {
            effect: Some(self.effect(&receipt)),
            kind: EffectKind::Stop.into(),
            // What its receipt is about, in full: an id is shorter than what a summary holds.
            command_id: receipt.summary.clone(),
        };
        let known = hop(self.exec.clone().inspect(request)).await?;
        let (state, reply) = match (known.finding(), known.stop) {
            (Finding::NotApplied, _) => {
                let message = "The edge was ended before the command was told to stop. Look at the command, and stop it again if it still runs.";
                let failure = Failure::new(ErrorCode::NotApplied, message);
                (State::Completed, Reply::failure(&failure))
            }
            (Finding::Applied, Some(stopped)) => {
                (State::Completed, Reply::success(&to_json(&stopped))?)
            }
            (Finding::Applied | Finding::Unknown | Finding::Unspecified, _) => {
                let message = "Whether this command was stopped cannot be known. Look at it; stopping it again does no harm.";
                let failure = Failure::new(ErrorCode::Uncertain, message);
                (State::Uncertain, Reply::failure(&failure))
            }
        };
        self.ledger.complete(&receipt.id, state, &reply).await
    }
}

/// Starts what brings the stops to an end that an earlier run began.
pub(crate) fn resume(clients: &Clients, control: Control, tasks: &Tasks) {
    let stops = Stops::new(clients, control, tasks.clone());
    tasks.spawn("unfinished stops", async move {
        left_behind::until_done(&stops.tasks, &stops.control, || {
            stops.look_into_what_is_left()
        })
        .await;
    });
}

/// What a stop came to, as the owner and the receipt are told it.
pub(crate) fn to_json(stopped: &StopResponse) -> Value {
    let state = stopped.state.clone().unwrap_or_default();
    json!({
        "commandId": stopped.command_id,
        "status": command_status(state.status()),
        "exitCode": state.exit_code,
        "signal": state.signal,
    })
}
