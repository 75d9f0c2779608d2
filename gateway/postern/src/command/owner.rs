//! The owner's side from a terminal: inbox and mode, through the owner API of a running edge.

use std::path::PathBuf;

use postern_types::printable;
use serde_json::{Value, json};

use crate::{
    cli::{Console, Inbox, InboxAction, ModeArgs, OwnerAccess},
    data_dir,
    error::Error,
    output,
    project::Project,
    remote::{Api, read_token},
    services::{CONSOLE_URL_FILE, OWNER_TOKEN_FILE},
};

/// Characters of a proposal that a list shows; more is cut, and said to be.
const LINE_LIMIT: usize = 2000;

/// Runs `postern inbox …`.
pub(crate) fn inbox(arguments: Inbox, json: bool) -> Result<(), Error> {
    let api = owner_api(&arguments.access)?;
    let decide = |id: &str, body: Value| {
        let path = format!("/owner/v1/inbox/{}/decision", percent_encoded(id));
        let receipt = api.post(&path, &body)?;
        output::either(json, &receipt, &decision_line(&receipt));
        Ok(())
    };
    match arguments.action.unwrap_or(InboxAction::List) {
        InboxAction::List => {
            let answer = api.get("/owner/v1/inbox")?;
            list(json, &answer, "nothing waits for you", inbox_line);
            Ok(())
        }
        InboxAction::Show { id } => {
            let item = api.get(&format!("/owner/v1/inbox/{}", percent_encoded(&id)))?;
            let pretty = serde_json::to_string_pretty(&item).unwrap_or_default();
            output::either(json, &item, &printable_lines(&pretty));
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

/// Runs `postern console`.
pub(crate) fn console(arguments: &Console, json: bool) -> Result<(), Error> {
    let api = owner_api(&arguments.access)?;
    let link = api.post("/owner/v1/links", &json!({"plain": arguments.plain}))?;
    let url = link["url"].as_str().unwrap_or_default();
    let warning = match link["warning"].as_str() {
        Some(warning) => format!("\n\n{warning}"),
        None => String::new(),
    };
    let text = format!("{url}\n\nOpen it within five minutes; it works once.{warning}");
    output::either(json, &link, &text);
    Ok(())
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

pub(super) fn directory(access: &OwnerAccess) -> Result<PathBuf, Error> {
    match &access.data_dir {
        Some(directory) => Ok(directory.clone()),
        None => data_dir::default_for(&Project::open(".".as_ref())?.path),
    }
}

pub(super) fn owner_api(access: &OwnerAccess) -> Result<Api, Error> {
    let directory = directory(access)?;
    // A file that a killed edge left names a port that anybody may hold by now, and the token would go there.
    let url = match data_dir::is_held(&directory)? {
        true => data_dir::read_optional(&directory.join(CONSOLE_URL_FILE))?,
        false => None,
    };
    let url = url.ok_or_else(|| {
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

fn items(answer: &Value) -> &[Value] {
    answer["items"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default()
}

pub(super) fn list(json: bool, answer: &Value, none: &str, line: fn(&Value) -> String) {
    for item in items(answer) {
        output::either(json, item, &line(item));
    }
    if items(answer).is_empty() && !json {
        output::text_line(none);
    }
}

fn text(item: &Value, field: &str) -> String {
    printable(item[field].as_str().unwrap_or("-"))
}

/// What was decided. The receipt's state is still the one before: what the call came to is not known yet.
fn decision_line(receipt: &Value) -> String {
    format!(
        "{}  {:<18} decided: {}",
        text(receipt, "id"),
        text(receipt, "tool"),
        text(receipt, "decision"),
    )
}

/// An item with what is asked. What is too long for a list is cut, and the line says so.
fn inbox_line(item: &Value) -> String {
    let asked = if item["kind"] == "question" {
        &item["question"]
    } else {
        &item["proposal"]
    };
    let asked = printable(
        &asked
            .as_str()
            .map_or_else(|| asked.to_string(), str::to_owned),
    );
    let id = text(item, "id");
    let shown: String = asked.chars().take(LINE_LIMIT).collect();
    let left = asked.chars().count().saturating_sub(LINE_LIMIT);
    let cut = if left > 0 {
        format!("\n    … {left} MORE CHARACTERS: postern inbox show {id}")
    } else {
        String::new()
    };
    format!(
        "{id}  {:<8} {:<18} until {}\n    {shown}{cut}",
        text(item, "kind"),
        text(item, "tool"),
        text(item, "expiresAt")
    )
}

pub(super) fn printable_lines(text: &str) -> String {
    text.lines().map(printable).collect::<Vec<_>>().join("\n")
}

pub(super) fn percent_encoded(text: &str) -> String {
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
    fn a_long_proposal_says_that_it_was_cut() {
        let hidden = format!("echo ok; : {}; rm -rf ~", "x".repeat(5000));
        let line =
            inbox_line(&json!({"id": "r", "kind": "approval", "proposal": {"command": hidden}}));
        assert!(
            line.contains("MORE CHARACTERS: postern inbox show r"),
            "{line}"
        );
        let short =
            inbox_line(&json!({"id": "r", "kind": "approval", "proposal": {"command": "make"}}));
        assert!(!short.contains("MORE"), "{short}");
    }

    #[test]
    fn filters_are_encoded() {
        assert_eq!(percent_encoded("a&b=c é"), "a%26b%3Dc%20%C3%A9");
    }
}
