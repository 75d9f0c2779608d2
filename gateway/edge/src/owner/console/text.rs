//! Text of others: shown as what it is, with everything that the eye would miss made visible.

use std::fmt::Write as _;

use maud::{Markup, PreEscaped, html};
use postern_types::is_invisible;

/// Text of several lines.
pub(super) fn block(text: &str) -> Markup {
    marked(text, |c| matches!(c, '\n' | '\t'))
}

/// Text on one line: a line's end in it is shown like any other odd character.
pub(super) fn line(text: &str) -> Markup {
    marked(text, |_| false)
}

/// The beginning of a text, at most `limit` bytes of whole characters, and how many bytes are left.
pub(super) fn start(text: &str, limit: usize) -> (&str, usize) {
    let mut end = limit.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    (&text[..end], text.len() - end)
}

fn marked(text: &str, plain: impl Fn(char) -> bool) -> Markup {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => shown.push_str("&amp;"),
            '<' => shown.push_str("&lt;"),
            '>' => shown.push_str("&gt;"),
            '"' => shown.push_str("&quot;"),
            '\'' => shown.push_str("&#39;"),
            c if !plain(c) && is_odd(c) => {
                let name = odd_name(c);
                // Writing to a string does not fail.
                let _ = write!(shown, r#"<span class="odd">{name}</span>"#);
            }
            c => shown.push(c),
        }
    }
    html! { bdi { (PreEscaped(shown)) } }
}

/// How an odd character is shown.
fn odd_name(c: char) -> String {
    match c {
        '\n' => "⏎".to_owned(),
        '\r' => "␍".to_owned(),
        '\t' => "⇥".to_owned(),
        '\u{1b}' => "␛".to_owned(),
        c => format!("U+{:04X}", u32::from(c)),
    }
}

fn is_odd(c: char) -> bool {
    c.is_control() || is_invisible(c)
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    #[test]
    fn text_of_others_is_never_markup() {
        let shown = block("<script>a&'\"</script>\n\tx").into_string();
        let expected = "<bdi>&lt;script&gt;a&amp;&#39;&quot;&lt;/script&gt;\n\tx</bdi>";
        assert_eq!(shown, expected);
    }

    #[test]
    fn what_the_eye_would_miss_is_seen() {
        for (text, seen) in [
            ("a\u{202e}b", "U+202E"),
            ("a\u{200b}b", "U+200B"),
            ("a\u{2066}b", "U+2066"),
            ("a\u{e0041}b", "U+E0041"),
            ("a\u{3164}b", "U+3164"),
            ("a\u{a0}b", "U+00A0"),
            ("a\u{1b}[2Jb", "␛"),
            ("a\rb", "␍"),
            ("a\0b", "U+0000"),
        ] {
            let shown = block(text).into_string();
            let expected = format!(r#"<span class="odd">{seen}</span>"#);
            assert!(shown.contains(&expected), "{shown}");
        }
        assert!(line("a\nb").into_string().contains("⏎"));
    }

    #[test]
    fn ordinary_text_of_any_script_is_left_alone() {
        for text in ["naïve 日本語 🚪❤️ שלום", "x = 1;\n\ty"] {
            assert_eq!(block(text).into_string(), format!("<bdi>{text}</bdi>"));
        }
    }

    #[test]
    fn a_start_ends_at_a_whole_character() {
        assert_eq!(start("aé", 2), ("a", 2));
        assert_eq!(start("aé", 3), ("aé", 0));
    }
}
