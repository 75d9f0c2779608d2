//! Where a patch goes: the one occurrence of a text, byte for byte.

use memchr::{memchr_iter, memmem};
use postern_kit::{Failure, root::brief};
use postern_types::ErrorCode;
use unicode_normalization::UnicodeNormalization as _;

use crate::refusal;

/// Offsets named when a text occurs more than once.
const OFFSETS_TOLD: usize = 10;
/// Largest content that is searched for what would have matched, in bytes.
const HINT_LIMIT: usize = 4 * 1024 * 1024;

/// The one occurrence.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Occurrence {
    /// Its first byte.
    pub(crate) offset: usize,
    /// The line of that byte, from 1.
    pub(crate) line: u64,
}

/// Refuses texts that cannot be a patch.
pub(crate) fn validate(old: &str, new: &str) -> Result<(), Failure> {
    if old.is_empty() {
        return Err(refusal::invalid(
            "/oldText",
            "minLength",
            "oldText cannot be empty.",
        ));
    }
    if old == new {
        return Err(refusal::invalid(
            "/newText",
            "not",
            "newText is the same as oldText, so nothing would change.",
        ));
    }
    Ok(())
}

/// Finds the one occurrence of `old`.
pub(crate) fn find(content: &[u8], old: &str, shown: &str) -> Result<Occurrence, Failure> {
    let finder = memmem::Finder::new(old);
    let Some(offset) = finder.find(content) else {
        return Err(no_match(content, old, shown));
    };
    if finder.find(&content[offset + 1..]).is_some() {
        return Err(ambiguous(content, old.as_bytes(), shown));
    }
    let line = 1 + memchr_iter(b'\n', &content[..offset]).count() as u64;
    Ok(Occurrence { offset, line })
}

fn ambiguous(content: &[u8], old: &[u8], shown: &str) -> Failure {
    let (count, first) = count_overlapping(content, old);
    let shown = brief(shown);
    let message = format!(
        "oldText occurs {count} times in '{shown}', so nothing was changed. Add text around it until it occurs once."
    );
    Failure::new(ErrorCode::AmbiguousMatch, message)
        .with("count", count)
        .with("firstOffsets", first)
}

/// Counts occurrences, overlapping ones too, in one pass (Knuth, Morris and Pratt): searching anew behind each
/// occurrence would take the product of both lengths where one text repeats itself.
fn count_overlapping(content: &[u8], old: &[u8]) -> (u64, Vec<u64>) {
    let mut borders = vec![0_usize; old.len()];
    let mut length = 0;
    for position in 1..old.len() {
        while length > 0 && old[position] != old[length] {
            length = borders[length - 1];
        }
        length += usize::from(old[position] == old[length]);
        borders[position] = length;
    }
    let (mut count, mut first) = (0, Vec::new());
    let mut matched = 0;
    for (position, byte) in content.iter().enumerate() {
        while matched > 0 && (matched == old.len() || *byte != old[matched]) {
            matched = borders[matched - 1];
        }
        matched += usize::from(*byte == old[matched]);
        if matched == old.len() {
            count += 1;
            if first.len() < OFFSETS_TOLD {
                first.push((position + 1 - matched) as u64);
            }
        }
    }
    (count, first)
}

fn no_match(content: &[u8], old: &str, shown: &str) -> Failure {
    let hint = would_match(content, old);
    let advice = match hint {
        Some("line-endings") => {
            "It would have matched with the file's line endings, which workspace_read tells."
        }
        Some(_) => {
            "It would have matched in another Unicode normalization; copy it from what workspace_read returns."
        }
        None => "Read the file again and copy the text from it exactly.",
    };
    let shown = brief(shown);
    let message = format!("oldText does not occur in '{shown}'. {advice}");
    let failure = Failure::new(ErrorCode::NoMatch, message);
    match hint {
        Some(hint) => failure.with("wouldMatch", hint),
        None => failure,
    }
}

fn would_match(content: &[u8], old: &str) -> Option<&'static str> {
    if content.len() > HINT_LIMIT {
        return None;
    }
    let content = std::str::from_utf8(content).ok()?.replace("\r\n", "\n");
    let old = old.replace("\r\n", "\n");
    if content.contains(&old) {
        return Some("line-endings");
    }
    if content.is_ascii() {
        return None;
    }
    let content: String = content.nfc().collect();
    let old: String = old.nfc().collect();
    content.contains(&old).then_some("normalization")
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_occurrence_is_told_with_its_line() {
        let found = find(b"a\nb\nprice: X\n", "X", "f").expect("found");
        assert_eq!(
            found,
            Occurrence {
                offset: 11,
                line: 3
            }
        );
        assert_eq!(find(b"X", "X", "f").expect("found").line, 1);
    }

    #[test]
    fn overlaps_count() {
        let failure = find(b"aaaa", "aa", "f").expect_err("ambiguous");
        assert_eq!(failure.code, ErrorCode::AmbiguousMatch);
        assert_eq!(failure.details["count"], 3);
        assert_eq!(
            failure.details["firstOffsets"],
            serde_json::json!([0, 1, 2])
        );
    }

    #[test]
    fn what_would_have_matched_is_told() {
        for (content, old, hint) in [
            ("a\r\nb\r\nc\r\n", "a\nb", Some("line-endings")),
            ("a\nb", "a\r\nb", Some("line-endings")),
            ("cafe\u{301}", "caf\u{e9}", Some("normalization")),
            ("caf\u{e9}\r\nx", "cafe\u{301}\nx", Some("normalization")),
            ("abc", "missing", None),
            ("caf\u{e9}", "tea", None),
        ] {
            let failure = find(content.as_bytes(), old, "f").expect_err("no match");
            assert_eq!(failure.code, ErrorCode::NoMatch);
            let told = failure
                .details
                .get("wouldMatch")
                .and_then(|hint| hint.as_str());
            assert_eq!(told, hint, "{content:?}");
        }
    }

    #[test]
    fn a_text_that_repeats_itself_is_counted_in_linear_time() {
        let content = vec![b'a'; 8 << 20];
        let failure = find(&content, &"a".repeat(1 << 20), "f").expect_err("ambiguous");
        assert_eq!(failure.details["count"], (7 << 20) + 1);
    }

    proptest! {
        #[test]
        fn counts_equal_a_search_at_every_offset(content in "[ab]{0,40}", old in "[ab]{1,5}") {
            let (content, old) = (content.as_bytes(), old.as_bytes());
            let expected: Vec<u64> = content
                .windows(old.len())
                .enumerate()
                .filter(|(_, window)| *window == old)
                .map(|(offset, _)| offset as u64)
                .collect();
            let (count, first) = count_overlapping(content, old);
            prop_assert_eq!(count, expected.len() as u64);
            prop_assert_eq!(&first[..], &expected[..expected.len().min(OFFSETS_TOLD)]);
        }
    }
}
