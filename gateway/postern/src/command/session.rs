//! `postern session`: what conversations changed, and taking it back, through the owner API of a running edge.

use std::{io::IsTerminal as _, time::Duration};

use postern_types::printable;
use serde_json::{Value, json};

use super::owner::{list, owner_api, percent_encoded, printable_lines};
use crate::{
    cli::{Session, SessionAction},
    error::Error,
    output,
    remote::Api,
};

/// Longest wait for an undo: for those before it, for a look at every file, and for its carrying out, each of which has its own
/// limit at the edge.
const UNDO_LIMIT: Duration = Duration::from_secs(180);

/// Runs `postern session …`.
pub(crate) fn run(arguments: Session, json: bool) -> Result<(), Error> {
    let api = owner_api(&arguments.access)?;
    match arguments.action {
        SessionAction::List { limit } => {
            let answer = api.get(&format!("/owner/v1/sessions?limit={limit}"))?;
            list(json, &answer, "there are no sessions yet", session_line);
            Ok(())
        }
        SessionAction::Diff { id } => {
            let path = format!("/owner/v1/sessions/{}/diff", percent_encoded(&id));
            if json {
                output::json_line(&api.get(&path)?);
                return Ok(());
            }
            show_patch(&api.get_bytes(&format!("{path}?format=patch"))?)
        }
        SessionAction::Undo { id } => {
            let id = percent_encoded(&id);
            undo(&api, &format!("/owner/v1/sessions/{id}/undo"), json)
        }
    }
}

/// Prints a patch: as it is for a program, so that `git apply` takes it, and with nothing that steers a terminal for one. What
/// is not in it is said beside it, and is a failure: a patch that lacks a file must not pass for the whole.
fn show_patch(patch: &[u8]) -> Result<(), Error> {
    let is_for_people = std::io::stdout().is_terminal();
    output::bytes(&if is_for_people {
        printable_lines(&String::from_utf8_lossy(patch)).into_bytes()
    } else {
        patch.to_owned()
    });
    let first_lines = patch
        .split(|byte| *byte == b'\n')
        .map_while(|line| line.strip_prefix(b"# "));
    let left_out: Vec<String> = first_lines
        .filter_map(|line| line.strip_prefix(b"left out: "))
        .map(|line| printable(&String::from_utf8_lossy(line)))
        .collect();
    if left_out.is_empty() {
        return Ok(());
    }
    Err(Error::Failed(format!(
        "the patch lacks {} (--json tells what is known of each)",
        left_out.join("; ")
    )))
}

fn session_line(session: &Value) -> String {
    format!(
        "{}  {}  {} receipts, {} changes",
        text(&session["lastAt"]),
        text(&session["id"]),
        session["receipts"],
        session["changes"],
    )
}

/// Asks for an undo and tells what became of which file.
pub(super) fn undo(api: &Api, path: &str, json: bool) -> Result<(), Error> {
    let undone = api.waiting(UNDO_LIMIT).post(path, &json!({}))?;
    let mut lines = vec![format!("undone, by receipt {}", text(&undone["id"]))];
    for file in undone["files"].as_array().into_iter().flatten() {
        let done = match (file["before"].is_null(), file["after"].is_null()) {
            (true, _) => "restored",
            (_, true) => "removed",
            _ => "put back",
        };
        lines.push(format!("  {done:<9} {}", text(&file["path"])));
    }
    for directory in undone["keptDirectories"].as_array().into_iter().flatten() {
        lines.push(format!("  not empty, so it stays: {}", text(directory)));
    }
    output::either(json, &undone, &lines.join("\n"));
    Ok(())
}

fn text(value: &Value) -> String {
    printable(value.as_str().unwrap_or("-"))
}
