//! Typing into a command, once for its receipt; and the note that a stop leaves.

use std::{io, sync::Arc};

use postern_types::ReceiptId;

use super::{Service, Worker, parse_command, run_blocking};
use crate::{
    Error,
    command::{Command, Typing},
    config::INPUT_CHARS,
    error::Ended,
    spool::{EffectLog, EffectPhase},
};

/// Inputs and stops of one command that are remembered.
const EFFECTS: usize = 65_536;

impl Service {
    /// Types a text; tells how many of its bytes the terminal took.
    pub(crate) async fn input(
        &self,
        receipt: ReceiptId,
        session_id: &str,
        command_id: &str,
        text: String,
    ) -> Result<u64, Error> {
        let id = parse_command(command_id)?;
        if text.chars().count() > INPUT_CHARS {
            return Err(Error::Invalid {
                pointer: "/text",
                message: format!("One input is at most {INPUT_CHARS} characters."),
            });
        }
        let told = self.worker.entry_of(id, session_id).await?;
        if let Some(end) = told.end {
            let record = self
                .worker
                .with_entry(id, |entry| Ok(entry.effects().read()?));
            return match record.await?.get(&receipt) {
                Some(phase) => repeated(*phase),
                None => Err(Error::Ended(Ended(end))),
            };
        }
        let command = self.worker.command(id).ok_or(Error::Elsewhere)?;
        let worker = Arc::clone(&self.worker);
        // A task of its own: a caller that goes away does not leave an input without its note.
        let task = self.worker.tasks.spawn("type an input", async move {
            worker.type_once(&command, receipt, text).await
        });
        task.await
            .map_err(|error| Error::System(io::Error::other(error)))?
    }
}

impl Worker {
    async fn type_once(
        &self,
        command: &Command,
        receipt: ReceiptId,
        text: String,
    ) -> Result<u64, Error> {
        let mut typing = Arc::clone(&command.typing).lock_owned().await;
        let read = self.with_entry(command.id, |entry| Ok((entry.effects(), entry.header.end)));
        let (log, end) = read.await?;
        run_blocking(&self.typists, move || {
            if let Some(phase) = typing.record.get(&receipt) {
                return repeated(*phase);
            }
            if let Some(end) = end {
                return Err(Error::Ended(Ended(end)));
            }
            typing.note(&log, receipt, EffectPhase::Begun)?;
            let terminal = typing.terminal.as_mut().ok_or(Error::Uncertain)?;
            let taken = terminal.type_text(&text)? as u64;
            typing.note(&log, receipt, EffectPhase::Done(taken))?;
            Ok(taken)
        })
        .await
    }

    /// Notes a stop before it is done.
    pub(super) async fn note_stop(
        &self,
        command: &Command,
        receipt: ReceiptId,
    ) -> Result<(), Error> {
        let log = self.log(command.id).await?;
        let mut typing = Arc::clone(&command.typing).lock_owned().await;
        self.blocking(move || match typing.record.get(&receipt) {
            Some(EffectPhase::Refused) => Err(Error::NotApplied),
            Some(_) => Ok(()),
            None => typing.note(&log, receipt, EffectPhase::Begun),
        })
        .await
    }

    /// What became of an effect of a command that this worker has; what is not there never will be.
    pub(super) async fn settle_effect(
        &self,
        command: &Command,
        receipt: ReceiptId,
    ) -> Result<EffectPhase, Error> {
        let log = self.log(command.id).await?;
        let mut typing = Arc::clone(&command.typing).lock_owned().await;
        self.blocking(move || match typing.record.get(&receipt) {
            Some(phase) => Ok(*phase),
            None => {
                typing.note(&log, receipt, EffectPhase::Refused)?;
                Ok(EffectPhase::Refused)
            }
        })
        .await
    }

    async fn log(&self, id: ReceiptId) -> Result<EffectLog, Error> {
        self.with_entry(id, |entry| Ok(entry.effects())).await
    }
}

impl Typing {
    fn note(
        &mut self,
        log: &EffectLog,
        receipt: ReceiptId,
        phase: EffectPhase,
    ) -> Result<(), Error> {
        if self.record.len() >= EFFECTS && !self.record.contains_key(&receipt) {
            return Err(Error::Full);
        }
        log.note(receipt, phase)?;
        self.record.insert(receipt, phase);
        Ok(())
    }
}

/// An input that was asked for before.
fn repeated(phase: EffectPhase) -> Result<u64, Error> {
    match phase {
        EffectPhase::Done(bytes) => Ok(bytes),
        EffectPhase::Begun => Err(Error::Uncertain),
        EffectPhase::Refused => Err(Error::NotApplied),
    }
}
