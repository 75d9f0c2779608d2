//! How far the owner lets calls go unattended.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// The owner's mode (CONTRACT.md, section 6).
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Only tools with `readOnlyHint`, and questions.
    ReadOnly,
    /// Each effect waits for the owner.
    #[default]
    Ask,
    /// File changes go ahead, the rest waits.
    Edit,
    /// Everything goes ahead.
    Full,
}

impl Mode {
    /// Every mode, from the narrowest.
    pub const ALL: [Self; 4] = [Self::ReadOnly, Self::Ask, Self::Edit, Self::Full];

    /// The mode as written.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ReadOnly => "read-only",
            Self::Ask => "ask",
            Self::Edit => "edit",
            Self::Full => "full",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// There is no such mode.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("a mode is one of read-only, ask, edit, full")]
pub struct InvalidMode;

impl FromStr for Mode {
    type Err = InvalidMode;

    fn from_str(text: &str) -> Result<Self, InvalidMode> {
        Self::ALL
            .into_iter()
            .find(|mode| mode.as_str() == text)
            .ok_or(InvalidMode)
    }
}
