//! Pages of a file that never split a character (CONTRACT.md, section 3, `workspace_read`).

use postern_kit::Failure;

use crate::refusal;

/// Largest page, in bytes, and the page when none is asked for.
pub(crate) const PAGE_LIMIT: u32 = 131_072;
/// Longest character, in bytes.
const CHARACTER: usize = 4;

/// Which bytes of a file a page needs: the page, and around it what may belong to a character at its borders.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Window {
    pub(crate) start: u64,
    pub(crate) length: usize,
    lead: usize,
    offset: u64,
    limit: usize,
}

impl Window {
    pub(crate) fn new(offset: u64, limit: u32) -> Self {
        let lead = offset.min(CHARACTER as u64 - 1);
        let limit = limit as usize;
        Self {
            start: offset - lead,
            length: lead as usize + limit + CHARACTER - 1,
            lead: lead as usize,
            offset,
            limit,
        }
    }

    /// The window's bytes out of the whole content.
    pub(crate) fn of<'a>(&self, content: &'a [u8]) -> &'a [u8] {
        let start = usize::try_from(self.start).unwrap_or(usize::MAX);
        let end = start.saturating_add(self.length).min(content.len());
        content.get(start..end).unwrap_or_default()
    }

    /// The page out of the window's bytes, which are fewer than asked for only at the end of the file.
    pub(crate) fn cut<'a>(&self, window: &'a [u8], shown: &str) -> Result<&'a str, Failure> {
        let page = window.get(self.lead..).unwrap_or_default();
        if let Some(boundary) = self.inside_character(window) {
            let message = format!(
                "offset {} is inside a character that begins at {boundary}. Use {boundary}.",
                self.offset
            );
            return Err(refusal::invalid("/offset", "boundary", message).with("boundary", boundary));
        }
        let wanted = &page[..page.len().min(self.limit)];
        let error = match std::str::from_utf8(wanted) {
            Ok(text) => return Ok(text),
            Err(error) => error,
        };
        let valid = error.valid_up_to();
        let next = &page[valid..page.len().min(valid + CHARACTER)];
        let cut_by_limit = error.error_len().is_none() && first_character(next).is_some();
        if !cut_by_limit {
            return Err(refusal::not_utf8(shown, self.offset + valid as u64));
        }
        if valid == 0 {
            let least = first_character(next).unwrap_or(CHARACTER);
            let message =
                format!("The next character has {least} bytes, so limit must be at least {least}.");
            return Err(refusal::invalid("/limit", "minimum", message).with("least", least));
        }
        Ok(std::str::from_utf8(&wanted[..valid]).unwrap_or_default())
    }

    /// Where the character begins that the offset is inside of.
    fn inside_character(&self, window: &[u8]) -> Option<u64> {
        if window.len() <= self.lead {
            return None;
        }
        (1..=self.lead).find_map(|back| {
            let from = &window[self.lead - back..];
            let width = first_character(&from[..from.len().min(CHARACTER)])?;
            (width > back).then(|| self.offset - back as u64)
        })
    }
}

/// Width of the character at the front of at most four bytes, if they begin with one.
fn first_character(bytes: &[u8]) -> Option<usize> {
    let valid = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default(),
    };
    valid.chars().next().map(char::len_utf8)
}

#[cfg(test)]
mod tests {
    use postern_types::ErrorCode;
    use pretty_assertions::assert_eq;
    use proptest::prelude::*;

    use super::*;

    fn cut(content: &[u8], offset: u64, limit: u32) -> Result<String, Failure> {
        let window = Window::new(offset, limit);
        window.cut(window.of(content), "f").map(str::to_owned)
    }

    #[test]
    fn pages_end_before_a_character_that_does_not_fit() {
        let content = "a漢🙂é".as_bytes();
        assert_eq!(cut(content, 0, 3).expect("page"), "a");
        assert_eq!(cut(content, 0, 4).expect("page"), "a漢");
        assert_eq!(cut(content, 1, 100).expect("page"), "漢🙂é");
        assert_eq!(cut(content, 10, 4).expect("page"), "");
        let failure = cut(content, 4, 3).expect_err("too small");
        assert_eq!(failure.code, ErrorCode::InvalidArguments);
        assert_eq!(failure.details["least"], 4);
        assert_eq!(failure.details["pointer"], "/limit");
        assert_eq!(failure.details["rule"], "minimum");
        for inside in [5, 6, 7] {
            let failure = cut(content, inside, 100).expect_err("inside");
            assert_eq!(failure.code, ErrorCode::InvalidArguments);
            assert_eq!(failure.details["boundary"], 4, "{inside}");
            assert_eq!(failure.details["rule"], "boundary");
        }
    }

    #[test]
    fn the_first_bad_byte_is_told() {
        for (content, offset, bad) in [
            (b"ab\xFFcd".as_slice(), 0, 2),
            (b"ab\xE6\xBC".as_slice(), 0, 2),
            (b"\xE6\xBCab".as_slice(), 0, 0),
            (b"a\x80".as_slice(), 1, 1),
            (b"\xE6\xBC\xFF".as_slice(), 1, 1),
        ] {
            let failure = cut(content, offset, 100).expect_err("bad");
            assert_eq!(failure.code, ErrorCode::NotUtf8);
            assert_eq!(failure.details["firstBadOffset"], bad, "{content:?}");
        }
        // A page before the bad byte can be read.
        assert_eq!(cut(b"ab\xFF", 0, 2).expect("page"), "ab");
    }

    proptest! {
        #[test]
        fn pages_join_to_the_exact_bytes(content in "(?s).{0,200}", limit in 4_u32..40) {
            let bytes = content.as_bytes();
            let mut joined = String::new();
            while joined.len() < bytes.len() {
                let page = cut(bytes, joined.len() as u64, limit).expect("page");
                prop_assert!(!page.is_empty() && page.len() <= limit as usize);
                joined.push_str(&page);
            }
            prop_assert_eq!(joined, content);
        }

        #[test]
        fn any_bytes_offset_and_limit_are_answered(
            content in prop::collection::vec(any::<u8>(), 0..40),
            offset in 0_u64..45,
            limit in 1_u32..10,
        ) {
            if let Ok(page) = cut(&content, offset, limit) {
                let start = usize::try_from(offset).expect("small").min(content.len());
                prop_assert!(content[start..].starts_with(page.as_bytes()));
                prop_assert!(page.len() <= limit as usize);
            }
        }
    }
}
