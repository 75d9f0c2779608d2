//! Ids and the intention.

use std::{fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A text that does not have its type's form; says which form that is.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidText(pub &'static str);

macro_rules! text_type {
    ($(#[$doc:meta])* $name:ident, $valid:expr, $form:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = InvalidText;

            fn from_str(text: &str) -> Result<Self, InvalidText> {
                let valid: fn(&str) -> bool = $valid;
                if valid(text) { Ok(Self(text.into())) } else { Err(InvalidText($form)) }
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidText;

            fn try_from(text: String) -> Result<Self, InvalidText> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(value: $name) -> Self {
                value.0.as_ref().to_owned()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(&self.0)
            }
        }
    };
}

text_type!(
    /// The id of a workspace, session or call: 1 to 200 visible ASCII characters.
    Id,
    |text| (1..=200).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic()),
    "an id is 1 to 200 visible ASCII characters"
);
text_type!(
    /// What a launch is for: 1 to 4000 characters.
    Intention,
    |text| !text.is_empty() && text.chars().count() <= 4000,
    "an intention is 1 to 4000 characters"
);

/// The id of a receipt, a UUID of version 7, so that ids sort by time.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ReceiptId(Uuid);

impl ReceiptId {
    /// A new id.
    #[must_use]
    pub fn generate() -> Self {
        Self(Uuid::now_v7())
    }

    /// The UUID.
    #[must_use]
    pub const fn as_uuid(self) -> Uuid {
        self.0
    }
}

impl From<Uuid> for ReceiptId {
    fn from(uuid: Uuid) -> Self {
        Self(uuid)
    }
}

impl fmt::Display for ReceiptId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0.as_hyphenated(), formatter)
    }
}

impl FromStr for ReceiptId {
    type Err = InvalidText;

    fn from_str(text: &str) -> Result<Self, InvalidText> {
        match Uuid::try_parse(text) {
            Ok(uuid) if text.len() == 36 && !text.bytes().any(|byte| byte.is_ascii_uppercase()) => {
                Ok(Self(uuid))
            }
            _ => Err(InvalidText("a receipt id is a UUID in lower case")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_visible_ascii() {
        assert!("a".parse::<Id>().is_ok());
        assert!("~".repeat(200).parse::<Id>().is_ok());
        for bad in ["", "a b", "é", "a\n", &"x".repeat(201)] {
            assert!(bad.parse::<Id>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn intentions_count_characters() {
        assert!("é".repeat(4000).parse::<Intention>().is_ok());
        assert!("é".repeat(4001).parse::<Intention>().is_err());
        assert!("".parse::<Intention>().is_err());
    }

    #[test]
    fn receipt_ids_are_strict_uuids() {
        let id = ReceiptId::generate();
        assert_eq!(id.to_string().parse(), Ok(id));
        assert!(
            id.to_string().to_uppercase().parse::<ReceiptId>().is_err()
                || !id.to_string().contains(|c: char| c.is_ascii_lowercase())
        );
        assert!("{}".parse::<ReceiptId>().is_err());
    }
}
