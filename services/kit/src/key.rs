//! A key that a service demands with every call, beside whatever keeps strangers from its socket.
//!
//! It travels as `authorization: Bearer …`, so only between processes of one machine or under TLS.

use std::{fmt, str::FromStr};

use http::{HeaderMap, HeaderValue, Request, header::AUTHORIZATION};
use subtle::ConstantTimeEq as _;
use tonic::{Code, Status, body::Body};

use crate::Problem;

/// Random bits of a key, in bytes.
const KEY_BYTES: usize = 32;

/// A key of 256 random bits. Shows itself only when asked by name, so that none slips into a log.
#[derive(Clone)]
pub struct Key {
    /// `Bearer ` and the digits, as the header holds it.
    header: HeaderValue,
}

/// The text is no key. It is not told, because it may be one nearly.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("a key is {} hexadecimal digits in lower case", KEY_BYTES * 2)]
pub struct InvalidKey;

impl Key {
    /// A new key.
    ///
    /// # Errors
    /// When the system gives no random bytes.
    pub fn generate() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; KEY_BYTES];
        getrandom::fill(&mut bytes)?;
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        digits.parse().map_err(|_| getrandom::Error::UNEXPECTED)
    }

    /// The key's digits, as [`FromStr`] reads them.
    #[must_use]
    pub fn expose(&self) -> &str {
        let header = self.header.to_str().unwrap_or_default();
        header.strip_prefix("Bearer ").unwrap_or_default()
    }

    /// Shows the key to the server of a request.
    pub(crate) fn show(&self, mut request: Request<Body>) -> Request<Body> {
        request
            .headers_mut()
            .insert(AUTHORIZATION, self.header.clone());
        request
    }
}

impl FromStr for Key {
    type Err = InvalidKey;

    fn from_str(text: &str) -> Result<Self, InvalidKey> {
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if text.len() != KEY_BYTES * 2 || !text.bytes().all(is_digit) {
            return Err(InvalidKey);
        }
        let mut header =
            HeaderValue::from_str(&format!("Bearer {text}")).map_err(|_| InvalidKey)?;
        header.set_sensitive(true);
        Ok(Self { header })
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        bool::from(self.header.as_bytes().ct_eq(other.header.as_bytes()))
    }
}

impl Eq for Key {}

impl fmt::Debug for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Key(…)")
    }
}

/// Turns away every call that does not show the key, whatever service it is for; none without a key.
#[derive(Clone, Debug)]
pub(crate) struct Lock(pub(crate) Option<Key>);

impl Lock {
    /// Refuses a request whose headers do not show the key.
    pub(crate) fn demand(&self, headers: &HeaderMap) -> Result<(), Status> {
        let Some(key) = &self.0 else {
            return Ok(());
        };
        let shown = headers.get(AUTHORIZATION);
        let opens =
            shown.is_some_and(|shown| bool::from(shown.as_bytes().ct_eq(key.header.as_bytes())));
        if opens {
            return Ok(());
        }
        let fault = if shown.is_some() {
            "is not the key of this service"
        } else {
            "is missing"
        };
        tracing::warn!(fault, "a caller without the key was turned away");
        Err(Problem::new(
            Code::Unauthenticated,
            "key_refused",
            format!("The key that this service demands with every call {fault}. Use the key file that it was started with."),
        )
        .into())
    }
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    #[test]
    fn a_key_is_read_as_it_was_written_and_never_shown() {
        let key = Key::generate().expect("random bytes");
        let read: Key = key.expose().parse().expect("a key");
        assert_eq!(read, key);
        assert_ne!(Key::generate().expect("random bytes"), key);
        let request = key.show(Request::new(Body::empty()));
        for shown in [format!("{key:?}"), format!("{:?}", request.headers())] {
            assert!(!shown.contains(key.expose()), "{shown}");
        }
    }

    #[test]
    fn what_is_nearly_a_key_is_none() {
        let good = "0123456789abcdef".repeat(4);
        assert!(good.parse::<Key>().is_ok());
        for bad in [
            String::new(),
            good[1..].to_owned(),
            format!("{good}0"),
            format!("{}G", &good[1..]),
            good.to_uppercase(),
            format!("{}\n", &good[1..]),
        ] {
            let problem = bad.parse::<Key>().expect_err("no key").to_string();
            assert_eq!(problem, "a key is 64 hexadecimal digits in lower case");
        }
    }
}
