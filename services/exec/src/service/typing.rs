//! Typing into a command, once for its receipt; and the note that a stop leaves.

use std::{io, sync::Arc};

use postern_types::ReceiptId;

use super::{Kind, Service, Worker, parse_command, run_blocking};
use crate::{
    Error,
    command::{Command, Typing},
    config::INPUT_CHARS,
    error::Ended,
    spool::{EffectLog, EffectPhase},
};

/// Inputs and stops of one command that are remembered. After so many it takes no more input; it can be stopped all the
/// same, since nothing is lost when a stop is done again.
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
                rule: "maxLength",
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
            match (typing.record.get(&receipt), end) {
                (Some(phase), _) => repeated(*phase),
                (None, Some(end)) => Err(Error::Ended(Ended(end))),
                (None, None) => typing.type_text(&log, receipt, &text),
            }
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
        self.blocking(move || typing.begin_stop(&log, receipt))
            .await
    }

    /// What became of an effect of a command that this worker has; what is not there never will be.
    pub(super) async fn settle_effect(
        &self,
        command: &Command,
        kind: Kind,
        receipt: ReceiptId,
    ) -> Result<EffectPhase, Error> {
        let log = self.log(command.id).await?;
        let mut typing = Arc::clone(&command.typing).lock_owned().await;
        self.blocking(move || Ok(typing.settle(&log, kind, receipt)?))
            .await
    }

    async fn log(&self, id: ReceiptId) -> Result<EffectLog, Error> {
        self.with_entry(id, |entry| Ok(entry.effects())).await
    }
}

impl Typing {
    /// Types a text under a receipt that is new.
    fn type_text(&mut self, log: &EffectLog, receipt: ReceiptId, text: &str) -> Result<u64, Error> {
        if self.is_full() {
            return Err(Error::TooManyInputs);
        }
        postern_kit::fault_point!(crate::fault_points::INPUT_BEFORE);
        log.note(receipt, EffectPhase::Begun)
            .map_err(Error::Unwritten)?;
        postern_kit::fault_point!(crate::fault_points::INPUT_NOTED);
        self.record.insert(receipt, EffectPhase::Begun);
        let terminal = self.terminal.as_mut().ok_or(Error::Uncertain)?;
        let taken = terminal.type_text(text)? as u64;
        postern_kit::fault_point!(crate::fault_points::INPUT_TYPED);
        let done = EffectPhase::Done(taken);
        self.record.insert(receipt, done);
        if let Err(error) = log.note(receipt, done) {
            // It is typed, and whoever asks is told so as long as the command is here. Later it counts as uncertain.
            tracing::warn!(%error, "an input that was typed could not be noted");
        }
        postern_kit::fault_point!(crate::fault_points::INPUT_AFTER);
        Ok(taken)
    }

    /// Remembers a stop. One that cannot be remembered is done all the same: the command may be what fills the disk.
    fn begin_stop(&mut self, log: &EffectLog, receipt: ReceiptId) -> Result<(), Error> {
        match self.record.get(&receipt) {
            Some(EffectPhase::Refused) => return Err(Error::NotApplied),
            Some(_) => return Ok(()),
            None if self.is_full() => return Ok(()),
            None => {}
        }
        self.record.insert(receipt, EffectPhase::Begun);
        if let Err(error) = log.note(receipt, EffectPhase::Begun) {
            tracing::warn!(%error, "a stop could not be noted");
        }
        Ok(())
    }

    /// What became of an effect. One that is not there is refused from now on.
    fn settle(
        &mut self,
        log: &EffectLog,
        kind: Kind,
        receipt: ReceiptId,
    ) -> io::Result<EffectPhase> {
        match self.record.get(&receipt) {
            Some(phase) => Ok(*phase),
            // Stops go on without being remembered; inputs do not.
            None if self.is_full() && kind == Kind::Stop => Ok(EffectPhase::Begun),
            None if self.is_full() => Ok(EffectPhase::Refused),
            None => {
                log.note(receipt, EffectPhase::Refused)?;
                self.record.insert(receipt, EffectPhase::Refused);
                Ok(EffectPhase::Refused)
            }
        }
    }

    fn is_full(&self) -> bool {
        self.record.len() >= EFFECTS
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

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    #[test]
    fn a_command_that_took_all_the_inputs_it_may_can_be_stopped() {
        let folder = tempfile::tempdir().expect("folder");
        let log = EffectLog::new(folder.path());
        let mut typing = Typing::default();
        while !typing.is_full() {
            let done = EffectPhase::Done(1);
            typing.record.insert(ReceiptId::generate(), done);
        }
        let (typed, stop) = (ReceiptId::generate(), ReceiptId::generate());
        let refused = typing.type_text(&log, typed, "x").expect_err("full");
        assert_eq!(refused.code(), postern_types::ErrorCode::TooLarge);
        typing.begin_stop(&log, stop).expect("stopped");
        let settled = [(Kind::Input, typed), (Kind::Stop, stop)]
            .map(|(kind, id)| typing.settle(&log, kind, id).expect("settled"));
        assert_eq!(settled, [EffectPhase::Refused, EffectPhase::Begun]);
        assert_eq!(typing.record.len(), EFFECTS, "the bound holds");
    }

    #[test]
    fn a_stop_that_cannot_be_noted_is_done() {
        let folder = tempfile::tempdir().expect("folder");
        let log = EffectLog::new(&folder.path().join("missing"));
        let mut typing = Typing::default();
        let stop = ReceiptId::generate();
        typing.begin_stop(&log, stop).expect("stopped");
        let settled = typing.settle(&log, Kind::Stop, stop).expect("settled");
        assert_eq!(settled, EffectPhase::Begun);
        let typed = typing.type_text(&log, ReceiptId::generate(), "x");
        assert!(matches!(typed, Err(Error::Unwritten(_))));
    }
}
