//! What receipts say that they changed.

use std::collections::HashMap;

use bytes::Bytes;
use postern_proto::{
    filesystem::v1::RestoreFile,
    ledger::v1::{Receipt, State},
};
use serde::{Deserialize, Serialize};

use super::{Refused, TOOL, refused};
use crate::tools::FilePlan;

/// Tools that change files.
pub(super) const FILE_TOOLS: [&str; 3] = ["workspace_write", "workspace_patch", "workspace_delete"];

/// What became of one file.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FileChange {
    /// Path relative to the project's root, without links.
    pub(crate) path: String,
    /// Revision before; none where there was no file.
    pub(crate) before: Option<String>,
    /// Revision after; none where there is no file then.
    pub(crate) after: Option<String>,
    /// Permission bits before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) mode: Option<u32>,
    /// Permission bits that it was given, where they are not those before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) new_mode: Option<u32>,
    /// Directories that came with the file, or went with it, the outermost first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) directories: Vec<String>,
}

/// The plan of an undo.
#[derive(Debug, Default, Deserialize, Serialize)]
struct UndoPlan {
    /// Receipts whose changes it takes back.
    undoes: Vec<String>,
    files: Vec<FileChange>,
}

impl FileChange {
    /// The change that takes this one back.
    pub(crate) fn reversed(&self) -> Self {
        let gets_its_mode_back = self.after.is_none() || self.new_mode.is_some();
        Self {
            path: self.path.clone(),
            before: self.after.clone(),
            after: self.before.clone(),
            // Known once the file is looked at.
            mode: None,
            new_mode: self.mode.filter(|_| gets_its_mode_back),
            directories: self.directories.clone(),
        }
    }

    /// What the filesystem service is asked for.
    pub(super) fn to_request(&self) -> RestoreFile {
        RestoreFile {
            path: self.path.clone(),
            expected_sha256: self.before.clone(),
            wanted_sha256: self.after.clone(),
            mode: self.new_mode,
            directories: self.directories.clone(),
        }
    }

    fn of_tool(plan: FilePlan) -> Self {
        Self {
            path: plan.location.place.unwrap_or(plan.path),
            before: plan.before,
            after: plan.after,
            mode: plan.mode,
            new_mode: None,
            directories: plan.directories,
        }
    }
}

/// The plan of an undo, as its receipt keeps it.
pub(super) fn to_bytes(undoes: Vec<String>, files: Vec<FileChange>) -> Bytes {
    // Strings and numbers always have a JSON form.
    serde_json::to_vec(&UndoPlan { undoes, files })
        .unwrap_or_default()
        .into()
}

/// Whether a receipt's effect is known to have happened.
pub(super) fn has_happened(receipt: &Receipt) -> bool {
    receipt.state() == State::Completed && receipt.outcome == "ok"
}

/// What a receipt changed, or why there is nothing to take back.
pub(super) fn changes_of(receipt: &Receipt) -> Result<Vec<FileChange>, Refused> {
    if receipt.state() == State::Refused {
        return Err(refused::not_completed(receipt));
    }
    let is_file_tool = FILE_TOOLS.contains(&receipt.tool.as_str());
    if !is_file_tool && receipt.tool != TOOL {
        return Err(refused::not_a_file_change(receipt));
    }
    if !has_happened(receipt) {
        return Err(refused::not_completed(receipt));
    }
    planned_changes(receipt).ok_or_else(|| refused::not_recorded(receipt))
}

/// What a receipt is to change, or has changed.
pub(super) fn planned_changes(receipt: &Receipt) -> Option<Vec<FileChange>> {
    if receipt.tool == TOOL {
        return serde_json::from_slice::<UndoPlan>(&receipt.plan_json)
            .ok()
            .map(|plan| plan.files);
    }
    let plan = serde_json::from_slice(&receipt.plan_json).ok()?;
    Some(vec![FileChange::of_tool(plan)])
}

/// The receipts that an undo takes back; none for any other receipt.
pub(crate) fn undone_receipts(receipt: &Receipt) -> Vec<String> {
    if receipt.tool != TOOL {
        return Vec::new();
    }
    serde_json::from_slice::<UndoPlan>(&receipt.plan_json)
        .unwrap_or_default()
        .undoes
}

/// Which receipts are undone now, and by which undo. `undos` come newest first. An undo that was itself undone counts no more.
pub(super) fn undone_by(undos: &[Receipt]) -> HashMap<String, String> {
    let mut undone = HashMap::new();
    for undo in undos.iter().filter(|undo| has_happened(undo)) {
        if undone.contains_key(&undo.id) {
            continue;
        }
        for receipt in undone_receipts(undo) {
            undone.entry(receipt).or_insert_with(|| undo.id.clone());
        }
    }
    undone
}
