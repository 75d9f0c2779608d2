//! SHA-256 digests and the digest of arguments.

use std::{fmt, str::FromStr};

use sha2::Digest as _;

/// A SHA-256 digest, written as 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Sha256([u8; 32]);

impl Sha256 {
    /// Thirty-two zero bytes: what stands before the first event of a chain.
    pub const ZERO: Self = Self([0; 32]);

    /// The digest of `content`.
    #[must_use]
    pub fn of(content: &[u8]) -> Self {
        Self(sha2::Sha256::digest(content).into())
    }

    /// A digest from its bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The digest's bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Sha256 {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [0; 64];
        #[expect(clippy::expect_used, reason = "64 digits hold 32 bytes")]
        hex::encode_to_slice(self.0, &mut text).expect("sizes fit");
        formatter.write_str(std::str::from_utf8(&text).unwrap_or_default())
    }
}

impl fmt::Debug for Sha256 {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl FromStr for Sha256 {
    type Err = super::InvalidText;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let lower = !text.bytes().any(|byte| byte.is_ascii_uppercase());
        let mut bytes = [0; 32];
        match hex::decode_to_slice(text, &mut bytes) {
            Ok(()) if lower => Ok(Self(bytes)),
            _ => Err(super::InvalidText(
                "a SHA-256 digest is 64 lower-case hexadecimal digits",
            )),
        }
    }
}

impl serde::Serialize for Sha256 {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Sha256 {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// The arguments are not JSON, or hold a number that has no canonical form.
#[derive(Debug, thiserror::Error)]
#[error("the arguments have no canonical form: {0}")]
pub struct InvalidArgs(#[from] serde_json::Error);

/// The digest of a call's arguments: SHA-256 of their canonical JSON (RFC 8785).
///
/// # Errors
/// [`InvalidArgs`] when `args` is not JSON.
pub fn args_sha256(args: &str) -> Result<Sha256, InvalidArgs> {
    let value: serde_json::Value = serde_json::from_str(args)?;
    Ok(Sha256::of(&serde_json_canonicalizer::to_vec(&value)?))
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    #[test]
    fn order_and_white_space_do_not_count() {
        let one = args_sha256(r#"{"b":1,"a":[1.0, "x"]}"#).expect("digest");
        let other = args_sha256("{ \"a\" : [1, \"\\u0078\"],\n\"b\":1e0 }").expect("digest");
        assert_eq!(one, other);
        assert_ne!(one, args_sha256(r#"{"b":2,"a":[1,"x"]}"#).expect("digest"));
    }

    #[test]
    fn text_form_is_strict() {
        let empty = Sha256::of(b"");
        assert_eq!(
            empty.to_string(),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
        assert_eq!(empty.to_string().parse::<Sha256>(), Ok(empty));
        for bad in [
            "",
            "e3",
            &empty.to_string().to_uppercase(),
            &format!("{empty}0"),
        ] {
            assert!(bad.parse::<Sha256>().is_err(), "{bad}");
        }
    }
}
