//! `postern receipts`: lists and single receipts by the owner API of a running edge, proofs and exports from the files.

mod export;
mod list;
mod verify;

use std::path::PathBuf;

use serde_json::Value;

use super::{
    owner::{directory, owner_api, percent_encoded, printable_lines},
    session,
};
use crate::{
    cli::{OwnerAccess, Place, Receipts, ReceiptsAction},
    error::Error,
    output,
    services::LEDGER_FILE,
};

/// Runs `postern receipts …`.
pub(crate) async fn run(arguments: Receipts, json: bool) -> Result<(), Error> {
    let access = &arguments.access;
    match arguments.action {
        ReceiptsAction::List(wanted) => list::run(&owner_api(access)?, &wanted, json),
        ReceiptsAction::Show { id } => {
            let path = format!("/owner/v1/receipts/{}", percent_encoded(&id));
            let receipt = owner_api(access)?.get(&path)?;
            output::either(json, &receipt, &shown(&receipt));
            Ok(())
        }
        ReceiptsAction::Undo { id } => {
            let path = format!("/owner/v1/receipts/{}/undo", percent_encoded(&id));
            session::undo(&owner_api(access)?, &path, json)
        }
        ReceiptsAction::Verify(what) => {
            let directory = access.data_dir.as_deref();
            match (&what.file, &what.place) {
                (Some(file), _) => verify::file(file, what.public_key.as_deref(), json),
                (None, Place::Database(url)) => verify::database(url, directory, json).await,
                (None, Place::Running(address)) => {
                    verify::remote(address, &what.tls, directory, json).await
                }
                (None, Place::DataDirectory) => verify::ledger(&ledger_file(access)?, json).await,
                (None, Place::Two) => Err(Error::Usage(
                    "a database and a running ledger are both named (POSTERN_DATABASE and POSTERN_LEDGER, or --database and --ledger); say which one with --database or --ledger alone".to_owned(),
                )),
            }
        }
        ReceiptsAction::Export(what) => export::run(&ledger_file(access)?, &what, json).await,
    }
}

/// The ledger of a data directory.
fn ledger_file(access: &OwnerAccess) -> Result<PathBuf, Error> {
    let file = directory(access)?.join(LEDGER_FILE);
    if file.exists() {
        return Ok(file);
    }
    Err(Error::Usage(format!(
        "there is no ledger '{}'; name the edge's data directory with --data-dir",
        file.display()
    )))
}

/// A receipt for a person: a field a line, and what is large at the end.
fn shown(receipt: &Value) -> String {
    let Some(fields) = receipt.as_object() else {
        return String::new();
    };
    let large = |value: &Value| value.is_object() || value.is_array();
    let width = fields.keys().map(String::len).max().unwrap_or(0);
    let mut text = String::new();
    for (name, value) in fields
        .iter()
        .filter(|(_, value)| !large(value) && !value.is_null())
    {
        let value = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        text.push_str(&format!(
            "{name:<width$}  {}\n",
            postern_types::printable(&value)
        ));
    }
    for (name, value) in fields.iter().filter(|(_, value)| large(value)) {
        let pretty = serde_json::to_string_pretty(value).unwrap_or_default();
        text.push_str(&format!("\n{name}\n{}\n", printable_lines(&pretty)));
    }
    text.trim_end().to_owned()
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod shown_tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_receipt_is_shown_field_by_field_and_cannot_steer_the_terminal() {
        let text = shown(&json!({
            "id": "r", "summary": "\u{1b}[2J\n", "outcome": null,
            "result": {"content": "two\nlines \u{202e}"},
        }));
        assert!(text.starts_with("id       r\n"), "{text}");
        assert!(!text.contains("outcome"), "{text}");
        assert!(text.contains("\\u{1b}[2J\\n"), "{text}");
        assert!(
            text.ends_with('}') && text.contains("\nresult\n{\n"),
            "{text}"
        );
        assert!(
            !text.contains('\u{1b}') && !text.contains('\u{202e}'),
            "{text}"
        );
    }
}
