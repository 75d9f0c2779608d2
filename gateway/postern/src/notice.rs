//! Telling the owner that something waits for him: the terminal's bell, a notice on his desktop. Off unless he wants it.

use std::{
    collections::HashSet,
    io::{IsTerminal as _, Write as _, stderr},
    process::Stdio,
    time::Duration,
};

use postern_edge::Control;
use postern_kit::{
    task::Tasks,
    transport::{MESSAGE_LIMIT, Transport},
};
use postern_proto::ledger::v1::{
    Decision, InboxKind, ListRequest, Receipt, State, WatchRequest, WatchResponse,
    ledger_client::LedgerClient,
};
use postern_types::Timestamp;
use tokio::{process::Command, task::JoinHandle, time::Instant};
use tonic::{Status, Streaming};

use crate::cli::Notify;

/// The program that shows notices, as desktops have it.
const NOTIFY_SEND: &str = "notify-send";
/// Time that it has.
const NOTIFY_LIMIT: Duration = Duration::from_secs(5);
/// Time between two notices. What comes to wait meanwhile is told by the next one, together.
const PAUSE: Duration = Duration::from_secs(2);
/// Time before a watch that the ledger ended is begun again.
const AGAIN: Duration = Duration::from_secs(1);
/// Receipts of which it is remembered that they were told.
const REMEMBERED: usize = 4096;
/// Items that are asked for when a watch begins: as many as the ledger tells at once.
const LISTED: u32 = 1000;
/// Characters that a notice shows of an item.
const SHOWN_CHARS: usize = 120;

/// Tells of what comes to wait at an edge, until the tasks stop.
pub(crate) fn start(how: Notify, edge: &Control, ledger: &Transport, tasks: &Tasks) {
    if how == Notify::Off {
        return;
    }
    let workspace_id = edge.workspace_id().to_string();
    let ledger = LedgerClient::new(ledger.clone()).max_decoding_message_size(MESSAGE_LIMIT);
    let teller = Teller::new(how, tasks.clone());
    let stop = tasks.stopping();
    tasks.spawn("notices", async move {
        tokio::select! {
            () = stop.cancelled() => {}
            () = teller.watch(ledger, workspace_id) => {}
        }
    });
}

struct Teller {
    how: Notify,
    tasks: Tasks,
    /// Receipts that were told, so that a further change of one is no news.
    told: HashSet<String>,
    /// When the next notice may be shown.
    next: Instant,
    /// What is to be told then, by receipt.
    waiting: Vec<(String, String)>,
    /// A notice that is being shown; the next one waits for it, and nothing else does.
    showing: Option<JoinHandle<()>>,
}

impl Teller {
    fn new(how: Notify, tasks: Tasks) -> Self {
        Self {
            how,
            tasks,
            told: HashSet::new(),
            next: Instant::now(),
            waiting: Vec::new(),
            showing: None,
        }
    }

    async fn watch(mut self, mut ledger: LedgerClient<Transport>, workspace_id: String) {
        loop {
            let request = WatchRequest {
                workspace_id: workspace_id.clone(),
            };
            if let Ok(changes) = ledger.watch(request).await
                && self
                    .note_what_waits(&mut ledger, &workspace_id)
                    .await
                    .is_ok()
            {
                self.follow(changes.into_inner()).await;
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// What came to wait before the watch: under an earlier run, or while this one was not told.
    async fn note_what_waits(
        &mut self,
        ledger: &mut LedgerClient<Transport>,
        workspace_id: &str,
    ) -> Result<(), Status> {
        let request = ListRequest {
            workspace_id: workspace_id.to_owned(),
            state: State::AwaitingOwner.into(),
            limit: LISTED,
            ..ListRequest::default()
        };
        let page = ledger.list(request).await?.into_inner();
        // They come newest first.
        for receipt in page.receipts.iter().rev() {
            self.note(receipt);
        }
        Ok(())
    }

    /// Until the ledger ends the watch, such as for a watcher that was too slow.
    async fn follow(&mut self, mut changes: Streaming<WatchResponse>) {
        loop {
            let due = tokio::time::sleep_until(self.next);
            let is_showing = self.showing.is_some();
            tokio::select! {
                change = changes.message() => match change {
                    Ok(Some(change)) => self.note(&change.receipt.unwrap_or_default()),
                    Ok(None) | Err(_) => return,
                },
                () = shown(&mut self.showing), if is_showing => self.showing = None,
                () = due, if !is_showing && !self.waiting.is_empty() => self.tell(),
            }
        }
    }

    fn note(&mut self, receipt: &Receipt) {
        if !is_waiting(receipt, Timestamp::now()) {
            // Decided before there was time to tell of it.
            self.waiting.retain(|(id, _)| *id != receipt.id);
            return;
        }
        if self.told.len() >= REMEMBERED {
            self.told.clear();
        }
        if self.told.insert(receipt.id.clone()) && self.waiting.len() < REMEMBERED {
            self.waiting.push((receipt.id.clone(), line(receipt)));
        }
    }

    fn tell(&mut self) {
        let waiting = std::mem::take(&mut self.waiting);
        let waiting: Vec<String> = waiting.into_iter().map(|(_, line)| line).collect();
        self.next = Instant::now() + PAUSE;
        if self.how.bell() {
            ring();
        }
        if self.how.desktop() {
            self.showing = Some(self.tasks.spawn("notice", async move {
                if let Err(problem) = show(&waiting).await {
                    tracing::warn!("a notice could not be shown by {NOTIFY_SEND}: {problem}");
                }
            }));
        }
    }
}

/// Waits until a notice is shown, or could not be.
async fn shown(showing: &mut Option<JoinHandle<()>>) {
    if let Some(showing) = showing {
        let _ended = showing.await;
    }
}

fn is_waiting(receipt: &Receipt, now: Timestamp) -> bool {
    let is_open = |end| end > now.as_millis();
    receipt.state() == State::AwaitingOwner
        && receipt.decision() == Decision::Unspecified
        && receipt.expires_at_ms.is_none_or(is_open)
}

/// What waits, in one harmless line.
fn line(receipt: &Receipt) -> String {
    let what = match receipt.inbox_kind() {
        InboxKind::Question => "a question",
        InboxKind::Approval | InboxKind::Unspecified => receipt.tool.as_str(),
    };
    let line = match receipt.summary.as_str() {
        "" => what.to_owned(),
        about => format!("{what}: {about}"),
    };
    postern_types::printable_start(&line, SHOWN_CHARS)
}

/// Only a terminal has a bell; a log must not get its byte.
fn ring() {
    let mut terminal = stderr();
    if terminal.is_terminal() {
        let _ = terminal.write_all(b"\x07").and_then(|()| terminal.flush());
    }
}

async fn show(waiting: &[String]) -> Result<(), String> {
    let mut command = Command::new(NOTIFY_SEND);
    command
        .args(["--app-name=Postern", "--", &title(waiting), &body(waiting)])
        .env_clear()
        .envs(std::env::vars_os().filter(|(name, _)| !is_ours(name)))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    let shown = tokio::time::timeout(NOTIFY_LIMIT, command.status()).await;
    match shown {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => Err(format!("it ended with {status}")),
        Ok(Err(problem)) => Err(problem.to_string()),
        Err(_elapsed) => Err("it did not end in time".to_owned()),
    }
}

/// Another program has no use for what this one was configured with, tokens least of all.
fn is_ours(name: &std::ffi::OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b"POSTERN_")
}

fn title(waiting: &[String]) -> String {
    match waiting.len() {
        1 => "Something waits for you".to_owned(),
        count => format!("{count} things wait for you"),
    }
}

/// Desktops read a little markup in here; agent text must not be any.
fn body(waiting: &[String]) -> String {
    let lines: Vec<String> = waiting
        .iter()
        .take(4)
        .map(|line| {
            line.replace('&', "&amp;")
                .replace('<', "&lt;")
                .replace('>', "&gt;")
        })
        .collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    fn receipt(id: &str, tool: &str, summary: &str) -> Receipt {
        Receipt {
            id: id.to_owned(),
            tool: tool.to_owned(),
            summary: summary.to_owned(),
            state: State::AwaitingOwner.into(),
            inbox_kind: InboxKind::Approval.into(),
            ..Receipt::default()
        }
    }

    #[test]
    fn each_item_is_told_once_and_decided_ones_are_not() {
        let mut teller = Teller::new(Notify::Both, Tasks::new());
        let item = receipt("1", "workspace_write", "src/main.rs");
        teller.note(&item);
        teller.note(&item);
        teller.note(&Receipt {
            decision: Decision::Approve.into(),
            ..receipt("2", "workspace_write", "b")
        });
        teller.note(&Receipt {
            state: State::Executing.into(),
            ..receipt("3", "workspace_write", "c")
        });
        teller.note(&Receipt {
            inbox_kind: InboxKind::Question.into(),
            ..receipt("4", "workspace_ask", "Which one?")
        });
        // Its time was over while nobody ran.
        teller.note(&Receipt {
            expires_at_ms: Some(Timestamp::now().as_millis() - 1),
            ..receipt("5", "workspace_write", "d")
        });
        let lines = |teller: &Teller| -> Vec<String> {
            let waiting = teller.waiting.iter();
            waiting.map(|(_, line)| line.clone()).collect()
        };
        assert_eq!(
            lines(&teller),
            ["workspace_write: src/main.rs", "a question: Which one?"]
        );
        assert_eq!(title(&lines(&teller)), "2 things wait for you");
        teller.note(&Receipt {
            decision: Decision::Deny.into(),
            ..receipt("1", "workspace_write", "src/main.rs")
        });
        assert_eq!(lines(&teller), ["a question: Which one?"]);
    }

    #[test]
    fn text_of_an_agent_is_neither_markup_nor_a_control_sequence() {
        let shown = line(&receipt(
            "1",
            "workspace_exec",
            "<b>echo</b> \u{1b}]0;x\u{7} & \u{202e}",
        ));
        assert!(!shown.chars().any(char::is_control), "{shown:?}");
        let body = body(&[shown]);
        assert!(body.contains("&lt;b&gt;echo&lt;/b&gt;"), "{body}");
        assert!(body.contains("&amp; "), "{body}");
    }
}
