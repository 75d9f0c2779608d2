//! `postern session`: what conversations changed, and taking it back, through the owner API of a running edge.

use postern_types::printable;
use serde_json::{Value, json};

use super::owner::{list, owner_api, percent_encoded};
use crate::{
    cli::{Session, SessionAction},
    error::Error,
    output,
    remote::Api,
};

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
            output::bytes(&api.get_bytes(&format!("{path}?format=patch"))?);
            Ok(())
        }
        SessionAction::Undo { id } => {
            let id = percent_encoded(&id);
            undo(&api, &format!("/owner/v1/sessions/{id}/undo"), json)
        }
    }
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
    let undone = api.post(path, &json!({}))?;
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
