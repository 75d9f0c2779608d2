//! The authorities of a `ca.pem`, as it was written: what else stands in it stays.

use std::ops::Range;

use x509_parser::pem::Pem;

const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";

/// The certificates in a file.
#[derive(Clone, Debug)]
pub(super) struct Bundle {
    text: String,
}

impl Bundle {
    pub(super) fn new(text: &str) -> Self {
        // However its last line breaks were written or read.
        Self {
            text: format!("{}\n", text.trim_end()),
        }
    }

    pub(super) fn pem(&self) -> &str {
        &self.text
    }

    /// The bytes of each certificate that can be read, in their order.
    pub(super) fn certificates(&self) -> impl Iterator<Item = Vec<u8>> {
        self.blocks().map(|(_, bytes)| bytes)
    }

    pub(super) fn has(&self, certificate: &[u8]) -> bool {
        self.certificates().any(|bytes| bytes == certificate)
    }

    /// One of its certificates as it is written there.
    pub(super) fn only(&self, certificate: &[u8]) -> &str {
        self.blocks()
            .find(|(_, bytes)| bytes == certificate)
            .map_or("", |(range, _)| &self.text[range])
    }

    /// With another certificate behind those that are there.
    pub(super) fn and(&self, pem: &str) -> Self {
        Self::new(&format!("{}{pem}", self.text))
    }

    /// Without a certificate, wherever it stands.
    pub(super) fn without(&self, certificate: &[u8]) -> Self {
        let mut text = self.text.clone();
        let mut found: Vec<_> = self.blocks().collect();
        found.retain(|(_, bytes)| bytes == certificate);
        for (range, _) in found.into_iter().rev() {
            text.replace_range(range, "");
        }
        Self::new(text.trim_start())
    }

    /// Where each certificate stands, and its bytes.
    fn blocks(&self) -> impl Iterator<Item = (Range<usize>, Vec<u8>)> {
        let mut from = 0;
        std::iter::from_fn(move || {
            loop {
                let begin = from + self.text[from..].find(BEGIN)?;
                let end = begin + self.text[begin..].find(END)? + END.len();
                from = end;
                if let Some(bytes) = decoded(&self.text[begin..end]) {
                    // The line break behind it goes with it.
                    let line = self.text[end..].starts_with('\n');
                    return Some((begin..end + usize::from(line), bytes));
                }
            }
        })
    }
}

fn decoded(block: &str) -> Option<Vec<u8>> {
    let pem = Pem::iter_from_buffer(block.as_bytes()).next()?.ok()?;
    Some(pem.contents)
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;
    use time::OffsetDateTime;

    use super::{super::authority::Authority, *};

    #[test]
    fn authorities_come_and_go_and_words_between_them_stay() {
        let [first, second] = [(); 2].map(|()| {
            let made = Authority::new(OffsetDateTime::now_utc()).expect("made");
            made.pem().to_owned()
        });
        let one = Bundle::new(&format!("# ours\n{first}"));
        let bytes = |pem: &str| Bundle::new(pem).certificates().next().expect("one");
        let both = one.and(&second);
        assert!(both.has(&bytes(&first)) && both.has(&bytes(&second)));
        assert_eq!(both.certificates().count(), 2);
        assert_eq!(both.only(&bytes(&first)), first);
        assert_eq!(both.without(&bytes(&second)).pem(), one.pem());
        let left = both.without(&bytes(&first));
        assert_eq!(left.pem(), format!("# ours\n{second}"));
        assert!(!left.has(&bytes(&first)));
        assert_eq!(left.without(&bytes(&first)).pem(), left.pem());
    }
}
