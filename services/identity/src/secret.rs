//! Secrets of tokens: a prefix that tells the kind (and lets scanners find leaked ones), 256 random bits, and a checksum that
//! lets a mistyped or truncated secret be refused without a look-up.

use std::fmt;

use postern_types::Sha256;

/// Digits of a secret, in the order of their value.
const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// Random digits of a secret: 43 of base 62 hold 256 bits.
const RANDOM_DIGITS: usize = 43;
/// Digits of the checksum: 6 of base 62 hold 32 bits.
const CHECKSUM_DIGITS: usize = 6;
/// Random bytes fetched at once: enough for all digits nearly always, since 8 of 256 are thrown away.
const RANDOM_BYTES: usize = 64;

/// Kind of a token (CONTRACT.md, section 5). Each opens its own doors only.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Kind {
    /// Every scope on a host.
    Admin,
    /// Works as an agent in one workspace.
    Agent,
    /// Opens channels.
    Channel,
    /// The owner's API of one edge.
    Owner,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 4] = [Self::Admin, Self::Agent, Self::Channel, Self::Owner];

    /// The kind as written.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Agent => "agent",
            Self::Channel => "channel",
            Self::Owner => "owner",
        }
    }

    const fn prefix(self) -> &'static str {
        match self {
            Self::Admin => "postern_admin_",
            Self::Agent => "postern_agent_",
            Self::Channel => "postern_channel_",
            Self::Owner => "postern_owner_",
        }
    }
}

/// A token's secret. Shows itself only when asked by name, so that none slips into a log.
#[derive(Clone, Eq, PartialEq)]
pub struct Secret(String);

impl Secret {
    /// The secret's text.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// The secret's text.
    #[must_use]
    pub fn into_exposed(self) -> String {
        self.0
    }

    /// What a store keeps of it.
    #[must_use]
    pub fn digest(&self) -> Sha256 {
        Sha256::of(self.0.as_bytes())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Secret(…)")
    }
}

/// A new secret.
///
/// # Errors
/// When the system gives no random bytes.
pub fn mint(kind: Kind) -> Result<Secret, getrandom::Error> {
    let mut text = String::with_capacity(kind.prefix().len() + RANDOM_DIGITS + CHECKSUM_DIGITS);
    text.push_str(kind.prefix());
    let full = text.len() + RANDOM_DIGITS;
    while text.len() < full {
        let mut bytes = [0; RANDOM_BYTES];
        getrandom::fill(&mut bytes)?;
        // 248 is the greatest multiple of 62 that a byte holds: what is above would favour the first digits.
        let digits = bytes.iter().filter(|byte| **byte < 248);
        for byte in digits.take(full - text.len()) {
            text.push(char::from(BASE62[usize::from(byte % 62)]));
        }
    }
    let checksum = checksum(text.as_bytes());
    text.extend(checksum.map(char::from));
    Ok(Secret(text))
}

/// The kind of a secret whose form and checksum are right. Says nothing of whether it opens anything.
#[must_use]
pub fn well_formed(text: &str) -> Option<Kind> {
    let kind = Kind::ALL
        .into_iter()
        .find(|kind| text.starts_with(kind.prefix()))?;
    let digits = &text.as_bytes()[kind.prefix().len()..];
    if digits.len() != RANDOM_DIGITS + CHECKSUM_DIGITS
        || !digits.iter().all(u8::is_ascii_alphanumeric)
    {
        return None;
    }
    let (content, sum) = text.as_bytes().split_at(text.len() - CHECKSUM_DIGITS);
    (checksum(content) == sum).then_some(kind)
}

fn checksum(content: &[u8]) -> [u8; CHECKSUM_DIGITS] {
    let mut rest = crc32(content);
    let mut digits = [0; CHECKSUM_DIGITS];
    for digit in digits.iter_mut().rev() {
        *digit = BASE62[(rest % 62) as usize];
        rest /= 62;
    }
    digits
}

/// CRC-32 as in ISO 3309, bit by bit: secrets are short.
fn crc32(content: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in content {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0xEDB8_8320 & (crc & 1).wrapping_neg());
        }
    }
    !crc
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use pretty_assertions::assert_eq;

    use super::*;

    #[test]
    fn crc_is_the_known_one() {
        assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
    }

    #[test]
    fn minted_secrets_are_well_formed_and_differ() {
        let mut seen = HashSet::new();
        for kind in Kind::ALL {
            for _ in 0..50 {
                let secret = mint(kind).expect("random bytes");
                assert_eq!(well_formed(secret.expose()), Some(kind));
                assert!(seen.insert(secret.into_exposed()));
            }
        }
    }

    #[test]
    fn a_mistyped_truncated_or_relabelled_secret_is_not_well_formed() {
        let secret = mint(Kind::Agent).expect("random bytes").into_exposed();
        let swapped = if secret.ends_with('0') { '1' } else { '0' };
        let mut mistyped = secret.clone();
        mistyped.pop();
        for bad in [
            mistyped.clone(),
            format!("{mistyped}{swapped}"),
            format!("{secret}0"),
            secret.replace("_agent_", "_admin_"),
            secret.replace("_agent_", "_owner_"),
            secret.to_uppercase(),
            String::new(),
            "postern_agent_".to_owned(),
            format!("postern_agent_{}", "é".repeat(24)),
        ] {
            assert_eq!(well_formed(&bad), None, "{bad}");
        }
    }

    #[test]
    fn a_secret_is_not_shown_by_debug() {
        let secret = mint(Kind::Owner).expect("random bytes");
        assert_eq!(format!("{secret:?}"), "Secret(…)");
    }
}
