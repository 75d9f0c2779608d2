//! What a call is about, in one line for the owner: which path, which command's text, which question. Never contents, what is
//! typed into a command, or a token.

use std::borrow::Cow;

use postern_types::printable_start;
use serde::Deserialize;

/// Longest summary, in characters, as the ledger takes it.
const CHARS: usize = 200;
/// Characters of an argument that are looked at: every one that could be shown, and a token at their end whole.
const LOOKED_AT: usize = 2 * CHARS;
/// What every token of Postern begins with.
const TOKEN_START: &str = "postern_";
/// Shortest part of a token that is taken for one, in characters.
const TOKEN_CHARS: usize = 16;

/// The arguments by which a person tells calls apart, of all tools together: no two of them say different things by one name.
/// What is not here, contents and typed text above all, is never looked at.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Told<'a> {
    #[serde(borrow)]
    path: Option<Cow<'a, str>>,
    #[serde(borrow)]
    command: Option<Cow<'a, str>>,
    #[serde(borrow)]
    question: Option<Cow<'a, str>>,
    #[serde(borrow)]
    command_id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    name: Option<Cow<'a, str>>,
}

/// The summary of a call with these arguments; empty when they say nothing of the kind, or are not what any tool takes.
pub(crate) fn summary(args: &str) -> String {
    let told: Told<'_> = serde_json::from_str(args).unwrap_or_default();
    let said = [
        told.path,
        told.command,
        told.question,
        told.command_id,
        told.name,
    ];
    let Some(said) = said.into_iter().flatten().next() else {
        return String::new();
    };
    let end = said
        .char_indices()
        .nth(LOOKED_AT)
        .map_or(said.len(), |it| it.0);
    let mut shown = printable_start(&without_tokens(&said[..end]), CHARS);
    if end < said.len() && !shown.ends_with('…') {
        shown = printable_start(&format!("{shown}…"), CHARS);
    }
    shown
}

/// The text with tokens of Postern left out. An agent knows its own, and may write it anywhere.
fn without_tokens(text: &str) -> Cow<'_, str> {
    let mut parts = text.split(TOKEN_START);
    let mut kept = parts.next().unwrap_or_default().to_owned();
    let mut found = false;
    for part in parts {
        let length = part
            .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .unwrap_or(part.len());
        kept.push_str(TOKEN_START);
        if length >= TOKEN_CHARS {
            found = true;
            kept.push_str("<token>");
            kept.push_str(&part[length..]);
        } else {
            kept.push_str(part);
        }
    }
    if found {
        Cow::Owned(kept)
    } else {
        Cow::Borrowed(text)
    }
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    #[test]
    fn what_a_call_is_about_is_told_and_nothing_else() {
        for (args, told) in [
            (
                r#"{"path":"src/main.rs","content":"SECRET"}"#,
                "src/main.rs",
            ),
            (r#"{"command":"make\ntest","cwd":"a"}"#, "make\\ntest"),
            (r#"{"question":"May I?"}"#, "May I?"),
            (r#"{"commandId":"c-1","text":"SECRET"}"#, "c-1"),
            (
                r#"{"name":"db__query","arguments":{"command":"SECRET"}}"#,
                "db__query",
            ),
            (r#"{"oldText":"SECRET"}"#, ""),
            (r#"{"path":7}"#, ""),
            ("[]", ""),
            ("", ""),
        ] {
            assert_eq!(summary(args), told, "{args}");
        }
    }

    #[test]
    fn a_summary_is_one_short_harmless_line() {
        let args = serde_json::json!({"command": "\u{1b}[2J\u{202e}x\r\n"}).to_string();
        assert_eq!(summary(&args), r"\u{1b}[2J\u{202e}x\r\n");
        let args = serde_json::json!({"command": "x".repeat(100_000)}).to_string();
        let shown = summary(&args);
        assert_eq!(shown.chars().count(), CHARS);
        assert!(shown.ends_with('…'), "{shown}");
    }

    #[test]
    fn a_token_is_left_out_wherever_it_stands() {
        let token = format!("postern_agent_{}", "a1B2".repeat(13));
        for before in [0, 150, 395] {
            let command = format!("{} curl -H {token} postern_x", "x".repeat(before));
            let shown = summary(&serde_json::json!({ "command": command }).to_string());
            assert!(!shown.contains("a1B2"), "{shown}");
        }
        let args = serde_json::json!({"command": format!("a {token}; b postern_x")}).to_string();
        assert_eq!(summary(&args), "a postern_<token>; b postern_x");
    }
}
