//! Names that this service keeps for itself: a change under way may stand beside its target for an instant.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt as _, path::Path};

use postern_kit::Failure;
use postern_types::ReceiptId;

use crate::refusal;

const PREFIX: &str = ".postern-";
const SUFFIX: &str = ".tmp";

/// The name beside its target of the change under a receipt.
pub(crate) fn temporary(receipt: ReceiptId) -> String {
    format!("{PREFIX}{receipt}{SUFFIX}")
}

/// Whether a name is kept for changes under way.
pub(crate) fn is_temporary(name: &[u8]) -> bool {
    name.strip_prefix(PREFIX.as_bytes())
        .and_then(|name| name.strip_suffix(SUFFIX.as_bytes()))
        .and_then(|receipt| std::str::from_utf8(receipt).ok())
        .is_some_and(|receipt| receipt.parse::<ReceiptId>().is_ok())
}

/// Refuses a link-free path that leads to a name kept for changes under way.
pub(crate) fn allowed(path: &Path) -> Result<(), Failure> {
    if path.iter().map(OsStr::as_bytes).any(is_temporary) {
        return Err(refusal::reserved());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_receipts_are_kept() {
        let name = temporary(ReceiptId::generate());
        assert!(is_temporary(name.as_bytes()));
        assert!(allowed(&Path::new("a").join(&name)).is_err());
        for other in [".postern-.tmp", ".postern-x.tmp", "postern.tmp", &name[1..]] {
            assert!(!is_temporary(other.as_bytes()), "{other}");
        }
    }
}
