//! After a crash: what became of an effect.

use std::sync::Arc;

use postern_types::ReceiptId;
use tokio::time::sleep;

use super::{
    END_LIMIT, Service, Started, Told, Worker,
    start::{CLAIM_LOOK, CLAIM_LOOKS, START_LIMIT},
};
use crate::{
    Error,
    spool::{EffectPhase, End, EndKind, Entry, Header, TOMBSTONE},
};

/// How often a receipt is looked for when others claim it meanwhile.
const LOOKS: usize = 8;

/// Which effect.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    /// A start.
    Start,
    /// An input.
    Input,
    /// A stop.
    Stop,
}

/// What is known.
#[derive(Clone, Debug)]
pub(crate) enum Inspected {
    /// It did not happen and cannot any more.
    NotApplied,
    /// It cannot be known.
    Unknown,
    /// The command was started.
    Started(Started),
    /// So many bytes were taken.
    Typed(u64),
    /// The command has ended.
    Stopped(Told),
}

impl Service {
    /// Finds out about an effect. A start that never was can never be from now on.
    pub(crate) async fn inspect(
        &self,
        kind: Kind,
        receipt: ReceiptId,
        command_id: &str,
    ) -> Result<Inspected, Error> {
        postern_kit::fault_point!(crate::fault_points::INSPECT_BEFORE);
        match (kind, command_id.parse()) {
            (Kind::Start, _) => self.worker.inspect_start(receipt).await,
            // What is no command's id was refused when it was asked, and would be again.
            (Kind::Input | Kind::Stop, Err(_)) => Ok(Inspected::NotApplied),
            (Kind::Input | Kind::Stop, Ok(id)) => {
                self.worker.inspect_effect(kind, receipt, id).await
            }
        }
    }
}

impl Worker {
    async fn inspect_start(self: &Arc<Self>, receipt: ReceiptId) -> Result<Inspected, Error> {
        if let Some(command) = self.command(receipt) {
            command.started(START_LIMIT).await;
        }
        for _ in 1..CLAIM_LOOKS {
            let worker = Arc::clone(self);
            let found = self
                .blocking(move || worker.look_for_start(receipt))
                .await?;
            let is_open = matches!(found, Inspected::Unknown);
            if !is_open || !self.is_claimed_elsewhere(receipt).await? {
                return Ok(found);
            }
            // Another worker is just about to start it.
            sleep(CLAIM_LOOK).await;
        }
        let worker = Arc::clone(self);
        self.blocking(move || worker.look_for_start(receipt)).await
    }

    /// Whether another worker, alive, has claimed a receipt and has not started it yet.
    async fn is_claimed_elsewhere(self: &Arc<Self>, receipt: ReceiptId) -> Result<bool, Error> {
        let worker = Arc::clone(self);
        let looked = self.with_entry(receipt, move |entry| {
            Ok(worker.spool.is_elsewhere(&entry) && !entry.header.launched)
        });
        match looked.await {
            Err(Error::UnknownCommand) => Ok(false),
            looked => looked,
        }
    }

    fn look_for_start(&self, receipt: ReceiptId) -> Result<Inspected, Error> {
        let now = self.clock.now();
        for _ in 0..LOOKS {
            match self.spool.find(receipt, now) {
                Ok(Some(entry)) => return Ok(self.found_start(receipt, &entry)),
                Ok(None) => {}
                Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                    return Ok(Inspected::Unknown);
                }
                Err(error) => return Err(error.into()),
            }
            let remembered = self.spool.remembers(receipt);
            let header = Header {
                end: Some(End::without_status(EndKind::NeverStarted, now)),
                ..Header::default()
            };
            let tombstone = self.spool.meta(TOMBSTONE, now);
            let draft = self.spool.draft()?;
            postern_kit::fault_point!(crate::fault_points::TOMBSTONE_BEFORE);
            if self
                .spool
                .claim(draft, receipt, tombstone, header)?
                .is_some()
            {
                postern_kit::fault_point!(crate::fault_points::TOMBSTONE_AFTER);
                return Ok(if remembered {
                    Inspected::NotApplied
                } else {
                    Inspected::Unknown
                });
            }
        }
        Ok(Inspected::Unknown)
    }

    fn found_start(&self, receipt: ReceiptId, entry: &Entry) -> Inspected {
        let told = Told::of(entry);
        if entry.never_started() {
            // A tombstone of an earlier look tells no more than that look did.
            if entry.is_tombstone() && !self.spool.remembers(receipt) {
                Inspected::Unknown
            } else {
                Inspected::NotApplied
            }
        } else if entry.header.launched {
            Inspected::Started(Started::of(&told))
        } else {
            // Its worker died, or is just about to start it.
            Inspected::Unknown
        }
    }

    async fn inspect_effect(
        self: &Arc<Self>,
        kind: Kind,
        receipt: ReceiptId,
        id: ReceiptId,
    ) -> Result<Inspected, Error> {
        let Some(command) = self.command(id) else {
            return self.inspect_past_effect(kind, receipt, id).await;
        };
        match (kind, self.settle_effect(&command, kind, receipt).await?) {
            (_, EffectPhase::Refused) => Ok(Inspected::NotApplied),
            (Kind::Input, EffectPhase::Done(bytes)) => Ok(Inspected::Typed(bytes)),
            (Kind::Stop, EffectPhase::Begun | EffectPhase::Done(_)) => {
                command.ended(END_LIMIT).await;
                let told = self.with_entry(id, |entry| Ok(Told::of(&entry))).await?;
                Ok(match told.end {
                    Some(_) => Inspected::Stopped(told),
                    None => Inspected::Unknown,
                })
            }
            (Kind::Input, EffectPhase::Begun) | (Kind::Start, _) => Ok(Inspected::Unknown),
        }
    }

    /// Of a command that this worker does not have, or has no more.
    async fn inspect_past_effect(
        self: &Arc<Self>,
        kind: Kind,
        receipt: ReceiptId,
        id: ReceiptId,
    ) -> Result<Inspected, Error> {
        let worker = Arc::clone(self);
        let looked = self.with_entry(id, move |entry| {
            if worker.spool.is_elsewhere(&entry) {
                // Only its own worker can keep the effect from happening yet.
                return Err(Error::Elsewhere);
            }
            let whole = worker.spool.is_of_this_boot(&entry);
            let phase = entry.effects().read()?.get(&receipt).copied();
            Ok((Told::of(&entry), phase, whole))
        });
        match looked.await {
            Ok((told, phase, whole)) => Ok(match (kind, phase) {
                (_, None) if !whole => Inspected::Unknown,
                // A stop is done also when it cannot be noted, and is no other than this one.
                (Kind::Stop, None) if told.end.is_some_and(|end| end.kind == EndKind::Stopped) => {
                    Inspected::Stopped(told)
                }
                (_, None | Some(EffectPhase::Refused)) => Inspected::NotApplied,
                (Kind::Input, Some(EffectPhase::Done(bytes))) => Inspected::Typed(bytes),
                (Kind::Stop, Some(_)) => Inspected::Stopped(told),
                (Kind::Input | Kind::Start, Some(_)) => Inspected::Unknown,
            }),
            // Nobody types into a command that never was; but it may have been forgotten.
            Err(Error::UnknownCommand) if self.spool.remembers(id) => Ok(Inspected::NotApplied),
            Err(Error::UnknownCommand) => Ok(Inspected::Unknown),
            Err(error) => Err(error),
        }
    }
}
