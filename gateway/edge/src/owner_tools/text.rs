//! What a server wrote, as it may be shown: one line of printable characters, of a bounded length.

use postern_types::is_invisible;

/// Characters that go into a log.
pub(super) const LOGGED: usize = 500;
/// Characters that the owner or an agent is told.
pub(super) const TOLD: usize = 200;

/// Printable and short. What is not UTF-8 becomes U+FFFD; controls and what the eye would miss are escaped, so that nothing of it
/// moves a terminal or reads as something else.
pub(super) fn shown(bytes: &[u8], chars: usize) -> String {
    // A character is at most four bytes.
    let bytes = &bytes[..bytes.len().min(chars * 4)];
    let text = String::from_utf8_lossy(bytes);
    let mut out = String::new();
    for c in text.chars().take(chars) {
        if c.is_control() || is_invisible(c) {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    #[test]
    fn nothing_moves_a_terminal_or_goes_on_for_ever() {
        let odd = "\u{1b}[2J\u{202e}a\r\nb\u{7f}é\u{200b}\u{3164}".as_bytes();
        let expected = "\\u{1b}[2J\\u{202e}a\\r\\nb\\u{7f}é\\u{200b}\\u{3164}";
        assert_eq!(shown(odd, 100), expected);
        assert_eq!(shown(&[0xff; 9], 3).chars().count(), 3);
        assert_eq!(shown(&vec![b'x'; 1 << 20], TOLD).len(), TOLD);
    }
}
