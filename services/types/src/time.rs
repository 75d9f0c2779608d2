//! Instants, to the millisecond.

use std::fmt;

use serde::{Serialize, Serializer};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use crate::InvalidText;

/// An instant, milliseconds since 1970 UTC. Written as RFC 3339 in UTC.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The instant by the system's clock.
    #[must_use]
    pub fn now() -> Self {
        let nanos = OffsetDateTime::now_utc().unix_timestamp_nanos();
        Self(i64::try_from(nanos / 1_000_000).unwrap_or(i64::MAX))
    }

    /// An instant from milliseconds since 1970 UTC.
    #[must_use]
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// An instant from RFC 3339, with any offset from UTC. What is finer than a millisecond is cut off.
    ///
    /// # Errors
    /// When the text is none.
    pub fn parse(text: &str) -> Result<Self, InvalidText> {
        let instant = OffsetDateTime::parse(text, &Rfc3339).map_err(|_| {
            InvalidText(
                "a time is RFC 3339, such as 2026-11-30T18:00:00Z or with an offset, +01:00",
            )
        })?;
        let millis = instant.unix_timestamp_nanos().div_euclid(1_000_000);
        Ok(Self(i64::try_from(millis).unwrap_or(i64::MAX)))
    }

    /// Milliseconds since 1970 UTC.
    #[must_use]
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// This instant and a time after it.
    #[must_use]
    pub fn after(self, duration: std::time::Duration) -> Self {
        Self(
            self.0
                .saturating_add(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)),
        )
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = OffsetDateTime::from_unix_timestamp_nanos(i128::from(self.0) * 1_000_000)
            .ok()
            .and_then(|instant| instant.format(&Rfc3339).ok())
            .ok_or(fmt::Error)?;
        formatter.write_str(&text)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_read_from_rfc_3339() {
        let millis = |text| Timestamp::parse(text).map(Timestamp::as_millis).ok();
        assert_eq!(millis("2023-11-14T22:13:20.1239Z"), Some(1_700_000_000_123));
        assert_eq!(millis("2023-11-14T23:13:20+01:00"), Some(1_700_000_000_000));
        for bad in ["", "yesterday", "2023-11-14", "2023-11-14T22:13:20"] {
            assert_eq!(millis(bad), None, "{bad}");
        }
    }

    #[test]
    fn is_written_as_rfc_3339() {
        assert_eq!(
            Timestamp::from_millis(0).to_string(),
            "1970-01-01T00:00:00Z"
        );
        assert_eq!(
            Timestamp::from_millis(1_700_000_000_123).to_string(),
            "2023-11-14T22:13:20.123Z"
        );
    }
}
