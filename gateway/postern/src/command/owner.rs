//! The owner's side from a terminal: inbox, receipts and mode, through the owner API of a running edge.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::{
    cli::{Inbox, InboxAction, ModeArgs, OwnerAccess, Receipts, ReceiptsAction},
    data_dir,
    error::Error,
    output,
    remote::{Api, read_token},
    services::{CONSOLE_URL_FILE, LEDGER_FILE, OWNER_TOKEN_FILE},
};

/// Runs `postern inbox …`.
pub(crate) fn inbox(arguments: Inbox, json: bool) -> Result<(), Error> {
    let api = owner_api(&arguments.access)?;
    let decide = |id: &str, body: Value| {
        let receipt = api.post(&format!("/owner/v1/inbox/{id}/decision"), &body)?;
        output::either(json, &receipt, &receipt_line(&receipt));
        Ok(())
    };
    match arguments.action.unwrap_or(InboxAction::List) {
        InboxAction::List => {
            let answer = api.get("/owner/v1/inbox")?;
            list(json, &answer, "nothing waits for you", inbox_line);
            Ok(())
        }
        InboxAction::Approve { id, session: false } => decide(&id, json!({"decision": "approve"})),
        InboxAction::Approve { id, session: true } => {
            decide(&id, json!({"decision": "approve_session"}))
        }
        InboxAction::Deny { id, reason: None } => decide(&id, json!({"decision": "deny"})),
        InboxAction::Deny {
            id,
            reason: Some(reason),
        } => decide(&id, json!({"decision": "deny", "answer": reason})),
        InboxAction::Answer { id, text } => {
            decide(&id, json!({"decision": "answer", "answer": text}))
        }
    }
}

/// Runs `postern receipts …`.
pub(crate) fn receipts(arguments: Receipts, json: bool) -> Result<(), Error> {
    match arguments.action {
        ReceiptsAction::List {
            session,
            tool,
            state,
            limit,
        } => {
            let filters = [("session", session), ("tool", tool), ("state", state)];
            let mut path = format!("/owner/v1/receipts?limit={limit}");
            for (name, value) in filters {
                if let Some(value) = value {
                    path.push_str(&format!("&{name}={}", percent_encoded(&value)));
                }
            }
            let answer = owner_api(&arguments.access)?.get(&path)?;
            list(json, &answer, "there are no such receipts", receipt_line);
            Ok(())
        }
        ReceiptsAction::Show { id } => {
            let receipt = owner_api(&arguments.access)?.get(&format!("/owner/v1/receipts/{id}"))?;
            let pretty = serde_json::to_string_pretty(&receipt).unwrap_or_default();
            output::either(json, &receipt, &pretty);
            Ok(())
        }
        ReceiptsAction::Verify => verify(&arguments.access, json),
    }
}

/// Runs `postern mode …`.
pub(crate) fn mode(arguments: &ModeArgs, json: bool) -> Result<(), Error> {
    let api = owner_api(&arguments.access)?;
    let answer = match arguments.mode {
        Some(mode) => api.put("/owner/v1/mode", &json!({ "mode": mode }))?,
        None => api.get("/owner/v1/status")?,
    };
    let mode = &answer["mode"];
    output::either(
        json,
        &json!({ "mode": mode }),
        mode.as_str().unwrap_or_default(),
    );
    Ok(())
}

fn verify(access: &OwnerAccess, json: bool) -> Result<(), Error> {
    let file = directory(access)?.join(LEDGER_FILE);
    if !file.exists() {
        return Err(Error::Usage(format!(
            "there is no ledger '{}'",
            file.display()
        )));
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.map_err(|problem| Error::failed("cannot start", problem))?;
    let report = runtime.block_on(postern_ledger::verify_file(&file));
    let report =
        report.map_err(|problem| Error::failed("the ledger cannot be verified", problem))?;
    let fault = report.fault.as_ref();
    let value = json!({
        "valid": fault.is_none(),
        "events": report.events,
        "receipts": report.receipts,
        "badReceiptId": fault.map(|fault| &fault.receipt_id),
        "problem": fault.map(|fault| &fault.problem),
    });
    let Some(fault) = fault else {
        let text = format!(
            "{} receipts in {} events: every link holds",
            report.receipts, report.events
        );
        output::either(json, &value, &text);
        return Ok(());
    };
    if json {
        output::json_line(&value);
    }
    Err(Error::Failed(format!(
        "the chain does not hold at receipt {}: {}",
        fault.receipt_id, fault.problem
    )))
}

fn directory(access: &OwnerAccess) -> Result<PathBuf, Error> {
    match &access.data_dir {
        Some(directory) => Ok(directory.clone()),
        None => data_dir::default_for(&super::up::real_project(".".as_ref())?),
    }
}

fn owner_api(access: &OwnerAccess) -> Result<Api, Error> {
    let directory = directory(access)?;
    let url = data_dir::read_optional(&directory.join(CONSOLE_URL_FILE))?.ok_or_else(|| {
        Error::Failed(format!(
            "no edge runs on '{}'; start it, or name its data directory with --data-dir",
            directory.display()
        ))
    })?;
    Ok(Api::new(
        &url,
        read_token(&directory.join(OWNER_TOKEN_FILE))?,
    ))
}

fn list(json: bool, answer: &Value, none: &str, line: fn(&Value) -> String) {
    let items = answer["items"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    for item in items {
        output::either(json, item, &line(item));
    }
    if items.is_empty() && !json {
        output::text_line(none);
    }
}

fn text<'a>(item: &'a Value, field: &str) -> &'a str {
    item[field].as_str().unwrap_or("-")
}

fn receipt_line(receipt: &Value) -> String {
    format!(
        "{}  {}  {:<14} {:<18} {}",
        text(receipt, "createdAt"),
        text(receipt, "id"),
        text(receipt, "state"),
        text(receipt, "tool"),
        text(receipt, "outcome"),
    )
}

fn inbox_line(item: &Value) -> String {
    let asked = if item["kind"] == "question" {
        &item["question"]
    } else {
        &item["proposal"]
    };
    let asked = asked
        .as_str()
        .map_or_else(|| asked.to_string(), str::to_owned);
    format!(
        "{}  {:<8} {:<18} until {}\n    {}",
        text(item, "id"),
        text(item, "kind"),
        text(item, "tool"),
        text(item, "expiresAt"),
        printable(&asked)
    )
}

/// An agent's text on one line of a terminal: no control character reaches it.
fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(400)
        .collect()
}

fn percent_encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes()
        .map(|byte| {
            if plain(byte) {
                char::from(byte).to_string()
            } else {
                format!("%{byte:02X}")
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agents_text_cannot_steer_the_terminal() {
        assert_eq!(printable("a\u{1b}[31mb\nc\u{7}"), "a [31mb c ");
    }

    #[test]
    fn filters_are_encoded() {
        assert_eq!(percent_encoded("a&b=c é"), "a%26b%3Dc%20%C3%A9");
    }
}
