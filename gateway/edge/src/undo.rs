//! Taking changes of files back, as the owner wishes: a receipt, or all that a session changed.
//!
//! An undo is a call of the owner's own, with a receipt of the tool [`TOOL`] in the session whose changes it takes back. Its plan
//! names every file, so that what a crash interrupted is gone on with at the next start, without anybody asking. It needs no
//! permission, in no mode and with the channel closed: it is the owner's wish. What it may not do is destroy what somebody
//! made since: every file must be at the revision that the receipts left.

mod back;
mod carry;
mod diff;
mod history;
mod patch;
mod plan;
mod refused;
mod resume;

use std::sync::Arc;

use postern_kit::{
    Failure,
    task::Tasks,
    transport::{LONG_DEADLINE, Transport, within},
};
use postern_proto::{
    filesystem::v1::{RestoreRequest, RestoreResponse, filesystem_client::FilesystemClient},
    ledger::v1::{Receipt, ledger_client::LedgerClient},
};
use serde_json::Value;
use tokio::sync::OwnedMutexGuard;

use crate::{
    clients::{Clients, long_hop},
    control::Control,
    stack::Ledger,
};

pub(crate) use diff::{Diff, FileDiff, Net};
pub(crate) use plan::{FileChange, undone_receipts};
pub(crate) use refused::Refused;

/// Tool of an undo's receipt. No agent can call it: it is in no catalogue.
pub(crate) const TOOL: &str = "owner_undo";

/// Undo, over the services of one edge. Clones stand for the same.
#[derive(Clone, Debug)]
pub(crate) struct Undo(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    control: Control,
    filesystem: FilesystemClient<Transport>,
    receipts: LedgerClient<Transport>,
    ledger: Ledger,
    /// One undo at a time: whether something is undone already is looked up before it is done.
    turn: Arc<tokio::sync::Mutex<()>>,
    /// One diff at a time: each holds contents in memory.
    diffs: tokio::sync::Mutex<()>,
    tasks: Tasks,
}

/// An undo that was carried out.
#[derive(Debug)]
pub(crate) struct Undone {
    /// Its receipt.
    pub(crate) receipt: Receipt,
    /// What became of which files.
    pub(crate) files: Vec<FileChange>,
    /// Directories that stay because something else is in them.
    pub(crate) kept_directories: Vec<String>,
}

impl Undo {
    pub(crate) fn new(clients: &Clients, control: Control, tasks: Tasks) -> Self {
        Self(Arc::new(Parts {
            filesystem: clients.filesystem.clone(),
            receipts: clients.ledger.clone(),
            ledger: Ledger::of_owner(clients, &control),
            turn: control.undo_turn(),
            control,
            diffs: tokio::sync::Mutex::new(()),
            tasks,
        }))
    }

    /// Takes back what one receipt changed; of an undo's own receipt, does again what that took back.
    pub(crate) async fn receipt(&self, receipt: Receipt) -> Result<Undone, Refused> {
        let this = self.clone();
        self.run(async move {
            let _turn = this.turn().await?;
            let changes = plan::changes_of(&receipt)?;
            let undos = this.undos_of(&receipt.session_id).await?;
            if let Some(by) = plan::undone_by(&undos).get(&receipt.id) {
                return Err(refused::already_undone(&receipt, by));
            }
            let files = changes.iter().map(FileChange::reversed).collect();
            this.carry_out(&receipt.session_id, vec![receipt.id], files)
                .await
        })
        .await
    }

    /// Takes back everything that a session changed.
    pub(crate) async fn session(&self, session_id: String) -> Result<Undone, Refused> {
        let this = self.clone();
        self.run(async move {
            let _turn = this.turn().await?;
            let history = this.history_of(&session_id).await?;
            this.demand_session(&session_id, &history).await?;
            if history.files.is_empty() {
                return Err(refused::nothing_to_undo(history.receipts.is_empty()));
            }
            let broken: Vec<Value> = history
                .files
                .iter()
                .filter_map(|file| file.broken.as_ref().map(|by| by.to_json(&file.net.path)))
                .collect();
            if !broken.is_empty() {
                return Err(refused::changed_between(broken));
            }
            let files = history.files.iter().map(|file| file.net.reversed());
            this.carry_out(&session_id, history.receipts, files.collect())
                .await
        })
        .await
    }

    /// A call of the filesystem service about all files of an undo.
    async fn ask_to_restore(&self, request: RestoreRequest) -> Result<RestoreResponse, Failure> {
        let request = within(LONG_DEADLINE, request);
        long_hop(self.0.filesystem.clone().restore(request)).await
    }

    /// Waits for those before it, for a while.
    async fn turn(&self) -> Result<OwnedMutexGuard<()>, Refused> {
        let turn = Arc::clone(&self.0.turn).lock_owned();
        let had = tokio::time::timeout(TURN_LIMIT, turn).await;
        had.map_err(|_elapsed| refused::not_its_turn())
    }

    /// Runs it to its end, also when whoever asked goes away.
    async fn run(
        &self,
        undo: impl Future<Output = Result<Undone, Refused>> + Send + 'static,
    ) -> Result<Undone, Refused> {
        let done = self.0.tasks.spawn("undo", undo).await;
        done.unwrap_or_else(|_| Err(refused::interrupted()))
    }
}

/// How long an undo waits for those before it.
const TURN_LIMIT: std::time::Duration = std::time::Duration::from_secs(15);

/// Starts what goes on with the undos that an earlier run began.
pub(crate) fn resume(clients: &Clients, control: Control, tasks: &Tasks) {
    resume::start(Undo::new(clients, control, tasks.clone()), tasks);
}
