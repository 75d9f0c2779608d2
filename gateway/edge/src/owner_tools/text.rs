//! What a server wrote, as it may be shown: one line of printable characters, of a bounded length.

/// Characters that go into a log.
pub(super) const LOGGED: usize = 500;
/// Characters that the owner or an agent is told.
pub(super) const TOLD: usize = 200;

/// Printable and short. What is not UTF-8 becomes U+FFFD, control characters are escaped, so that nothing of it moves a
/// terminal.
pub(super) fn shown(bytes: &[u8], chars: usize) -> String {
    // A character is at most four bytes.
    let bytes = &bytes[..bytes.len().min(chars * 4)];
    let text = String::from_utf8_lossy(bytes);
    let mut out = String::new();
    for c in text.chars().take(chars) {
        // Those that turn the direction of text would make it read as something else.
        let turns = matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if c.is_control() || turns {
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
        let odd = "\u{1b}[2J\u{202e}a\r\nb\u{7f}é".as_bytes();
        assert_eq!(shown(odd, 100), "\\u{1b}[2J\\u{202e}a\\r\\nb\\u{7f}é");
        assert_eq!(shown(&[0xff; 9], 3).chars().count(), 3);
        assert_eq!(shown(&vec![b'x'; 1 << 20], TOLD).len(), TOLD);
    }
}
