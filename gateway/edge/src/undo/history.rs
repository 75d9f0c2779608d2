//! What a session changed, all in all.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use postern_proto::ledger::v1::{ListRequest, Receipt};
use postern_types::Id;
use serde_json::{Value, json};

use super::{
    FileChange, Refused, TOOL, Undo,
    plan::{self, FILE_TOOLS, planned_changes},
    refused,
};
use crate::clients::hop;

/// Receipts of one tool that are looked at for one session.
const RECEIPTS: usize = 20_000;
/// Receipts a page.
const PAGE: u32 = 1000;
/// Of calls that ran at once, the order in which their results were recorded may not be that in which they acted. This far is
/// looked ahead for the one that fits.
const AHEAD: usize = 8;

/// What a session changed and what of it is not undone.
#[derive(Debug)]
pub(crate) struct History {
    /// The receipts of these changes.
    pub(super) receipts: Vec<String>,
    /// Each file once, by path.
    pub(super) files: Vec<FileHistory>,
}

/// One file in a session.
#[derive(Debug)]
pub(crate) struct FileHistory {
    /// From before the first change to after the last one.
    pub(super) net: FileChange,
    /// Where somebody else changed it between two changes of the session.
    pub(super) broken: Option<Broken>,
}

/// A change that does not begin where the one before it ended.
#[derive(Debug)]
pub(crate) struct Broken {
    receipt: String,
}

impl Broken {
    pub(super) fn to_json(&self, path: &str) -> Value {
        json!({
            "path": path,
            "reason": "changed_between",
            "receipt": self.receipt,
            "message": "Somebody else changed it before this receipt did, so the session's changes are not all that happened to it.",
        })
    }
}

impl Undo {
    /// The undos in a session, newest first.
    pub(super) async fn undos_of(&self, session_id: &str) -> Result<Vec<Receipt>, Refused> {
        self.receipts_of(session_id, TOOL).await
    }

    /// The undo by which a receipt's changes are taken back now, if they are. An undo that was itself undone counts no more.
    pub(crate) async fn undone_by(&self, receipt: &Receipt) -> Result<Option<String>, Refused> {
        if plan::changes_of(receipt).is_err() {
            return Ok(None);
        }
        let undos = self.undos_of(&receipt.session_id).await?;
        Ok(plan::undone_by(&undos).remove(&receipt.id))
    }

    /// The receipts of a tool in a session, newest first.
    async fn receipts_of(&self, session_id: &str, tool: &str) -> Result<Vec<Receipt>, Refused> {
        let (mut receipts, mut after) = (Vec::new(), String::new());
        loop {
            let request = ListRequest {
                workspace_id: self.0.control.workspace_id().to_string(),
                session_id: session_id.to_owned(),
                tool: tool.to_owned(),
                limit: PAGE,
                after,
                ..ListRequest::default()
            };
            let page = hop(self.0.receipts.clone().list(request)).await?;
            receipts.extend(page.receipts);
            if receipts.len() > RECEIPTS {
                return Err(refused::too_many(RECEIPTS));
            }
            if page.next.is_empty() {
                return Ok(receipts);
            }
            after = page.next;
        }
    }

    /// Refuses a session of which there is no receipt.
    pub(super) async fn demand_session(
        &self,
        session_id: &str,
        history: &History,
    ) -> Result<(), Refused> {
        if !history.receipts.is_empty() {
            return Ok(());
        }
        let request = ListRequest {
            workspace_id: self.0.control.workspace_id().to_string(),
            session_id: session_id.to_owned(),
            limit: 1,
            ..ListRequest::default()
        };
        let page = hop(self.0.receipts.clone().list(request)).await?;
        if page.receipts.is_empty() {
            return Err(refused::no_such_session());
        }
        Ok(())
    }

    /// What a session changed and what of it is not undone.
    pub(super) async fn history_of(&self, session_id: &str) -> Result<History, Refused> {
        // The ledger takes an empty name for every session, and what is no name for a fault of ours.
        if session_id.parse::<Id>().is_err() {
            return Err(refused::no_such_session());
        }
        let undos = self.undos_of(session_id).await?;
        let undone = plan::undone_by(&undos);
        let mut receipts = Vec::new();
        for tool in FILE_TOOLS {
            let of_tool = self.receipts_of(session_id, tool).await?;
            receipts.extend(of_tool.into_iter().filter(|receipt| {
                plan::has_happened(receipt) && !undone.contains_key(&receipt.id)
            }));
        }
        receipts.sort_unstable_by_key(|receipt| receipt.sequence);
        let mut changes: BTreeMap<String, Vec<(String, FileChange)>> = BTreeMap::new();
        for receipt in &receipts {
            let planned = planned_changes(receipt);
            for change in planned.ok_or_else(|| refused::not_recorded(receipt))? {
                let of_file = changes.entry(change.path.clone()).or_default();
                of_file.push((receipt.id.clone(), change));
            }
        }
        Ok(History {
            receipts: receipts.into_iter().map(|receipt| receipt.id).collect(),
            files: changes.into_values().filter_map(net).collect(),
        })
    }
}

/// All that happened to one file; none when nothing is left of it.
fn net(mut changes: Vec<(String, FileChange)>) -> Option<FileHistory> {
    let mut broken = None;
    for at in 1..changes.len() {
        let left = changes[at - 1].1.after.clone();
        let fitting =
            (at..changes.len().min(at + AHEAD)).find(|next| changes[*next].1.before == left);
        match fitting {
            Some(next) => changes[at..=next].rotate_right(1),
            None => {
                let receipt = changes[at].0.clone();
                broken.get_or_insert(Broken { receipt });
            }
        }
    }
    let (first, last) = (&changes.first()?.1, &changes.last()?.1);
    let was_away = changes
        .iter()
        .take(changes.len() - 1)
        .any(|(_, change)| change.after.is_none());
    let mut seen = HashSet::new();
    let directories: BTreeSet<&String> = changes
        .iter()
        .flat_map(|(_, change)| &change.directories)
        .filter(|directory| seen.insert(*directory))
        .collect();
    let net = FileChange {
        path: first.path.clone(),
        before: first.before.clone(),
        after: last.after.clone(),
        mode: first.mode,
        // A file that was deleted and made anew lost its mode on the way.
        new_mode: last.new_mode.or_else(|| was_away.then_some(NEW_FILE_MODE)),
        directories: directories.into_iter().cloned().collect(),
    };
    let is_nothing = net.before == net.after && (net.before.is_none() || net.new_mode.is_none());
    (!is_nothing || broken.is_some()).then_some(FileHistory { net, broken })
}

/// Permission bits of a file that an agent makes, as far as they are told: which the umask leaves is not recorded.
const NEW_FILE_MODE: u32 = 0o644;
