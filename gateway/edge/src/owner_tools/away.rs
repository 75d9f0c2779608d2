//! Why a server is away, as its owner is told it and as the log is.

use std::fmt;

/// Why a server is away. Written out whole it is for the owner; what the server itself wrote last is no business of a log that is
/// kept, unless everything is.
#[derive(Debug)]
pub(super) struct Away {
    /// How it ended, or what failed.
    pub(super) how: String,
    /// The last line that it wrote to standard error.
    pub(super) last_words: Option<String>,
    /// What failed by that.
    pub(super) failed: Option<String>,
}

impl From<String> for Away {
    fn from(how: String) -> Self {
        Self {
            how,
            last_words: None,
            failed: None,
        }
    }
}

impl fmt::Display for Away {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.how)?;
        if let Some(words) = &self.last_words {
            write!(formatter, "; its last words: {words}")?;
        }
        if let Some(failed) = &self.failed {
            write!(formatter, "; {failed}")?;
        }
        Ok(())
    }
}
