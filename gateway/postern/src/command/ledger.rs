//! `postern ledger`: what is done with a ledger's database by its owner: while no ledger runs on it, or none can go on.

use std::time::{Duration, Instant};

use postern_ledger::Progress;
use serde_json::json;

use crate::{
    cli::{AcceptLoss, Copy, Ledger, LedgerAction},
    error::Error,
    output, services,
};

/// Time between two words on how far a copy is.
const TELL_EVERY: Duration = Duration::from_secs(2);

/// Runs `postern ledger …`.
pub(crate) async fn run(arguments: Ledger, json: bool) -> Result<(), Error> {
    match arguments.action {
        LedgerAction::Copy(what) => copy(&what, json).await,
        LedgerAction::AcceptLoss(what) => accept_loss(&what, json).await,
    }
}

async fn accept_loss(what: &AcceptLoss, json: bool) -> Result<(), Error> {
    let database = services::database(&what.database)?;
    let lost = postern_ledger::accept_loss(&database).await;
    let lost = lost.map_err(|problem| Error::failed("the loss cannot be accepted", problem))?;
    let listed: Vec<_> = lost
        .iter()
        .map(|it| json!({"workspaceId": it.workspace_id, "incarnation": it.incarnation, "sequence": it.sequence}))
        .collect();
    let mut told: Vec<_> = lost
        .iter()
        .map(|it| format!("accepted: {it} is lost"))
        .collect();
    told.push(match lost.len() {
        0 => "nothing was missed in this database".to_owned(),
        _ => "ledgers go on with this database within seconds; edges tell which signed receipts are gone, and `postern receipts verify` there fails until their owners have seen it".to_owned(),
    });
    output::either(
        json,
        &json!({"event": "loss-accepted", "lost": listed}),
        &told.join("\n"),
    );
    Ok(())
}

async fn copy(what: &Copy, json: bool) -> Result<(), Error> {
    let from = services::database(&what.from)?;
    let to = services::database(&what.to)?;
    let mut told = Instant::now();
    let progress = |progress: Progress| {
        if told.elapsed() < TELL_EVERY {
            return;
        }
        told = Instant::now();
        let Progress { copied, total } = progress;
        if json {
            output::json_line(&json!({"event": "copying", "events": copied, "total": total}));
        } else {
            output::warn(&format!("{copied} of about {total} events are copied"));
        }
    };
    let copied = postern_ledger::copy(&from, &to, progress).await;
    let copied = copied.map_err(|problem| Error::failed("the ledger cannot be copied", problem))?;
    let found = &copied.found;
    output::either(
        json,
        &json!({"event": "copied", "events": found.events, "receipts": found.receipts, "valid": true}),
        &format!(
            "{} receipts in {} events are copied, and both ledgers hold",
            found.receipts, found.events
        ),
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_cannot_be_copied_is_told_without_passwords() {
        let folder = tempfile::tempdir().expect("folder");
        let url = |name: &str| format!("sqlite://{}", folder.path().join(name).display());
        for (from, to, told) in [
            ("mysql://u:secret@x/y", url("b.db"), "sqlite:///"),
            (
                url("a.db").as_str(),
                "postgres://u:secret@".to_owned(),
                "sqlite:///",
            ),
            (url("a.db").as_str(), url("b.db"), "no ledger"),
        ] {
            let what = Copy {
                from: from.to_owned(),
                to,
            };
            let problem = copy(&what, true).await.expect_err("refused").to_string();
            assert!(problem.contains(told), "{problem}");
            assert!(!problem.contains("secret"), "{problem}");
        }
    }
}
