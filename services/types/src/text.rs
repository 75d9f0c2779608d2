//! Text of agents where people look at it: on one line, harmless to a terminal.

use std::fmt::Write as _;

/// Text that shows what it holds: what could move a cursor, end a line, hide or reorder the text around it is written as an
/// escape.
#[must_use]
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        push_printable(&mut shown, c);
    }
    shown
}

/// As [`printable`], of at most `limit` characters: a longer text is cut at a whole character or escape and ends with `…`.
#[must_use]
pub fn printable_start(text: &str, limit: usize) -> String {
    let (mut shown, mut length) = (String::new(), 0);
    // Where to cut if the text turns out too long: before the last character that leaves no room for the mark.
    let mut cut = 0;
    for c in text.chars() {
        let before = shown.len();
        push_printable(&mut shown, c);
        length += shown[before..].chars().count();
        if length > limit {
            shown.truncate(cut);
            if limit > 0 {
                shown.push('…');
            }
            return shown;
        }
        if length < limit {
            cut = shown.len();
        }
    }
    shown
}

fn push_printable(shown: &mut String, c: char) {
    match c {
        '\n' => shown.push_str("\\n"),
        '\r' => shown.push_str("\\r"),
        '\t' => shown.push_str("\\t"),
        c if c.is_control() || is_invisible(c) => {
            // Writing to a string does not fail.
            let _ = write!(shown, "{}", c.escape_unicode());
        }
        c => shown.push(c),
    }
}

/// What is not seen, or changes how the text around it is seen: format characters (Unicode category Cf), blanks that are no
/// space, and what takes no room. Controls are not among them: whoever asks for these decides about line ends, too.
#[must_use]
pub const fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{a0}' | '\u{ad}' | '\u{34f}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{8e2}'
        | '\u{115f}' | '\u{1160}' | '\u{1680}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{2000}'..='\u{200f}' | '\u{2028}'..='\u{202f}' | '\u{205f}'..='\u{206f}' | '\u{2800}' | '\u{3000}'
        | '\u{3164}' | '\u{fe00}'..='\u{fe0e}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
        | '\u{110bd}' | '\u{110cd}' | '\u{13430}'..='\u{1345f}' | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_steers_a_terminal_is_written_as_an_escape() {
        assert_eq!(
            printable("a\u{1b}[31mb\nc\u{202e}d\te"),
            "a\\u{1b}[31mb\\nc\\u{202e}d\\te"
        );
        assert_eq!(printable("naïve 日本語 🚪"), "naïve 日本語 🚪");
    }

    #[test]
    fn what_the_eye_would_miss_is_written_as_an_escape() {
        for c in [
            '\u{a0}',
            '\u{2800}',
            '\u{3164}',
            '\u{ffa0}',
            '\u{e0100}',
            '\u{9b}',
        ] {
            let shown = printable(&format!("rm{c}x"));
            assert_eq!(shown, format!("rm{}x", c.escape_unicode()));
        }
        assert_eq!(printable("❤\u{fe0f}"), "❤\u{fe0f}", "how a sign is drawn");
    }

    #[test]
    fn a_start_ends_at_a_whole_escape() {
        assert_eq!(printable_start("abcdef", 6), "abcdef");
        assert_eq!(printable_start("abcdefg", 6), "abcde…");
        assert_eq!(printable_start("abc\n\n", 6), "abc\\n…");
        assert_eq!(printable_start("abcd\u{1b}", 6), "abcd…");
        assert_eq!(printable_start("ab", 0), "");
    }

    proptest! {
        #[test]
        fn a_start_is_short_and_shows_only_what_is_harmless(text in any::<String>(), limit in 0usize..40) {
            let shown = printable_start(&text, limit);
            prop_assert!(shown.chars().count() <= limit, "{shown:?}");
            let again = printable(&shown);
            prop_assert_eq!(&again, &shown);
            let whole = printable(&text);
            if whole.chars().count() <= limit {
                prop_assert_eq!(shown, whole);
            } else if limit > 0 {
                let kept = shown.strip_suffix('…').expect("a mark");
                prop_assert!(whole.starts_with(kept));
            }
        }
    }
}
