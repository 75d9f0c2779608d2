//! Keeps the checkpoint of a running edge.

use std::{path::PathBuf, time::Duration};

use postern_edge::Control;
use postern_kit::{
    Clock,
    task::Tasks,
    transport::{DEADLINE, Transport},
};
use postern_proto::ledger::v1::{HeadRequest, HeadResponse, ledger_client::LedgerClient};
use postern_types::Sha256;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{FILE, FOREIGN_FILE, Key, LINES, LOST_FILE, Signed, parse, text_of};
use crate::{
    data_dir::{self, DataDir},
    error::Error,
    output,
};

/// Time between two looks at the chain: at most so long is a receipt without a checkpoint.
const INTERVAL: Duration = Duration::from_secs(2);

/// A keeper at work.
#[derive(Debug)]
pub(crate) struct Keeping {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Keeping {
    /// Ends it, after it has signed where the chain stands now.
    pub(crate) async fn end(self) {
        self.stop.cancel();
        if let Err(problem) = self.task.await {
            tracing::warn!(%problem, "the last checkpoint was not signed");
        }
    }
}

/// Compares the chain with the last checkpoint of its workspace, signs where it stands, and goes on doing both. A chain that
/// has lost what a checkpoint names is told loudly and does not keep the edge from working: its owner may have put a backup
/// back, and a closed door would not bring receipts again. The checkpoint is kept aside, so that `postern receipts verify`
/// fails until the owner has taken it away.
pub(crate) async fn keep(
    data: &DataDir,
    ledger: Transport,
    control: Control,
    clock: Clock,
    tasks: &Tasks,
) -> Result<Keeping, Error> {
    let is_missing = Key::of(data.path())?.is_some();
    let mut keeper = Keeper {
        directory: data.path().to_owned(),
        is_missing,
        key: Key::open(data)?,
        ledger: LedgerClient::new(ledger),
        control,
        clock,
        signed: Vec::new(),
    };
    keeper.recall(data)?;
    keeper.look().await;
    let stop = tasks.stopping().child_token();
    let stopped = stop.clone();
    let task = tasks.spawn("checkpoints", async move {
        while stopped
            .run_until_cancelled(tokio::time::sleep(INTERVAL))
            .await
            .is_some()
        {
            keeper.look().await;
        }
        keeper.look().await;
    });
    Ok(Keeping { stop, task })
}

struct Keeper {
    directory: PathBuf,
    key: Key,
    ledger: LedgerClient<Transport>,
    control: Control,
    clock: Clock,
    /// The newest checkpoint of each workspace.
    signed: Vec<Signed>,
    /// Whether the key is there and what it signed is not.
    is_missing: bool,
}

impl Keeper {
    /// Reads the checkpoints of the last run. What this key has not signed is set aside and told.
    fn recall(&mut self, data: &DataDir) -> Result<(), Error> {
        let Some(text) = data.read_private(FILE)? else {
            return Ok(());
        };
        self.is_missing = false;
        let own = |it: &Signed| it.is_genuine() && it.payload.public_key == self.key.public();
        match parse(&text) {
            Some(signed) if signed.iter().all(own) => self.signed = signed,
            Some(_) | None => {
                data.write_private(FOREIGN_FILE, &format!("{text}\n"))?;
                self.warn(format!(
                    "{FILE} in the data directory is damaged or signed by another key; it was set aside as {FOREIGN_FILE}, and whether receipts were cut off before this start cannot be told; postern receipts verify fails until you take that file out"
                ));
            }
        }
        Ok(())
    }

    /// One look at the chain. What goes wrong is tried again with the next one.
    async fn look(&mut self) {
        let workspace = self.control.workspace_id();
        let last = self
            .signed
            .iter()
            .position(|it| it.payload.workspace_id == *workspace);
        let request = HeadRequest {
            workspace_id: workspace.to_string(),
            sequence: last.map_or(0, |last| self.signed[last].payload.sequence),
        };
        let told = tokio::time::timeout(DEADLINE, self.ledger.head(request)).await;
        let looked = match told {
            Ok(Ok(told)) => self.settle(last, told.into_inner()).await,
            Ok(Err(status)) => Err(status.into()),
            Err(_elapsed) => Err(Error::Away("the ledger did not answer in time".to_owned())),
        };
        if let Err(problem) = looked {
            tracing::warn!(%problem, "no checkpoint could be signed");
        }
    }

    async fn settle(&mut self, last: Option<usize>, told: HeadResponse) -> Result<(), Error> {
        let (sequence, hash) = match &told.head {
            Some(head) => (head.sequence, head.hash.parse()),
            None => (0, Ok(Sha256::ZERO)),
        };
        let hash = hash.map_err(|problem| Error::failed("the ledger's head", problem))?;
        if let Some(last) = last {
            let last = &self.signed[last];
            let payload = &last.payload;
            if (payload.sequence, payload.hash) == (sequence, hash) {
                return Ok(());
            }
            if payload.sequence > 0 && told.hash != payload.hash.to_string() {
                self.lose(last.clone()).await?;
            }
        }
        // A chain without a receipt has lost none, and is what a start leaves that was killed before it signed.
        if std::mem::take(&mut self.is_missing) && sequence > 0 {
            self.write(FOREIGN_FILE, "taken away\n".to_owned()).await?;
            self.warn(format!(
                "{FILE} was taken out of the data directory, so whether receipts were cut off before this start cannot be told; postern receipts verify fails until you take {FOREIGN_FILE} out"
            ));
        }
        let workspace = self.control.workspace_id().clone();
        let signed = self.key.sign(workspace, sequence, hash, self.clock.now());
        let mut all = self.signed.clone();
        match last {
            Some(last) => all[last] = signed,
            None => all.push(signed),
        }
        // One workspace a data directory is what is usual; the oldest goes when there are too many.
        let over = all.len().saturating_sub(LINES);
        all.drain(..over);
        self.write(FILE, text_of(&all)).await?;
        self.signed = all;
        Ok(())
    }

    /// Keeps a checkpoint that the ledger does not hold any more, and tells the owner.
    async fn lose(&self, lost: Signed) -> Result<(), Error> {
        let told = format!(
            "RECEIPTS ARE MISSING: the ledger does not hold event {} of workspace {} any more, which was signed at {}. Unless you put an older ledger back yourself, somebody changed it. postern receipts verify tells more; it fails until {LOST_FILE} is taken out of the data directory",
            lost.payload.sequence, lost.payload.workspace_id, lost.payload.at
        );
        let path = self.directory.join(LOST_FILE);
        let read = tokio::task::spawn_blocking(move || data_dir::read_optional(&path)).await;
        let text = read.map_err(|problem| Error::failed("cannot read", problem))??;
        let mut all = text.as_deref().and_then(parse).unwrap_or_default();
        if !all.contains(&lost) && all.len() < LINES {
            all.push(lost);
            self.write(LOST_FILE, text_of(&all)).await?;
        }
        self.warn(told);
        Ok(())
    }

    fn warn(&self, told: String) {
        output::warn(&told);
        self.control.warn(told);
    }

    async fn write(&self, name: &'static str, text: String) -> Result<(), Error> {
        let directory = self.directory.clone();
        let write = move || data_dir::write_private(&directory, name, &text);
        let written = tokio::task::spawn_blocking(write).await;
        written.map_err(|problem| Error::failed("cannot write", problem))?
    }
}
