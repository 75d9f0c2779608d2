//! Output and where a command stands, and waiting for news of both.

use std::time::Duration;

use postern_types::ReceiptId;
use tokio::time::Instant;

use super::{Service, Told, Worker, check_session, parse_command};
use crate::{Error, spool::Page};

/// How often the output of another worker's command is looked at while a poll waits.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Longest wait of a poll (CONTRACT.md, section 3).
const POLL_LIMIT: Duration = Duration::from_secs(2);

impl Service {
    /// Output from an offset, and where the command stands.
    pub(crate) async fn poll(
        &self,
        session_id: &str,
        command_id: &str,
        offset: u64,
        wait: Duration,
    ) -> Result<(Told, Page), Error> {
        let id = parse_command(command_id)?;
        let until = Instant::now() + wait.min(POLL_LIMIT);
        let command = self.worker.command(id);
        let mut changes = command.as_ref().map(|command| command.follow());
        // What runs here is known without a look at the disk, as long as nobody else can have declared it lost. What had ended
        // before may have been tidied away.
        let running = command.filter(|command| command.runs());
        loop {
            if let Some(changes) = &mut changes {
                changes.borrow_and_update();
            }
            let quiet = running
                .as_ref()
                .filter(|_| self.worker.lease.runs())
                .and_then(|command| command.quiet(session_id, offset));
            let (told, page) = match quiet {
                Some(told) => (told, Page::empty(offset)),
                None => self.worker.page(id, session_id, offset).await?,
            };
            let news = page.next_offset > offset || told.end.is_some();
            if news || Instant::now() >= until {
                return Ok((told, page));
            }
            match &mut changes {
                Some(changed) => {
                    let waited = tokio::time::timeout_at(until, changed.changed()).await;
                    if matches!(waited, Ok(Err(_))) {
                        // The worker has no more to say of it; the spool has.
                        changes = None;
                    }
                }
                None => tokio::time::sleep_until(until.min(Instant::now() + LOOK_EVERY)).await,
            }
        }
    }
}

impl Worker {
    /// Where a session's command stands, and its output from an offset, as the spool has them.
    async fn page(
        &self,
        id: ReceiptId,
        session_id: &str,
        offset: u64,
    ) -> Result<(Told, Page), Error> {
        let session = session_id.to_owned();
        self.with_entry(id, move |mut entry| {
            check_session(&entry, &session)?;
            let page = entry.page(offset)?;
            Ok((Told::of(&entry), page))
        })
        .await
    }
}
