//! Trace ids that both ends of a channel derive by themselves, since frames have no room for them.

use uuid::Uuid;

use crate::Sha256;

/// The trace id of a call: the call id's 16 bytes when it is a UUID, else the first 16 bytes of its SHA-256.
/// 32 hexadecimal digits.
#[must_use]
pub fn trace_id(call_id: &str) -> String {
    match Uuid::try_parse(call_id) {
        Ok(uuid) if !uuid.is_nil() => uuid.as_simple().to_string(),
        _ => Sha256::of(call_id.as_bytes()).to_string()[..32].to_owned(),
    }
}

/// The id of the root span of a call: the first 8 bytes of the SHA-256 of the call id.
#[must_use]
pub fn root_span_id(call_id: &str) -> [u8; 8] {
    let digest = Sha256::of(call_id.as_bytes());
    let mut id = [0; 8];
    id.copy_from_slice(&digest.as_bytes()[..8]);
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_its_own_trace() {
        assert_eq!(
            trace_id("0193a0e4-5b1c-7000-8000-00000000abcd"),
            "0193a0e45b1c7000800000000000abcd"
        );
        assert_eq!(trace_id("call-1").len(), 32);
        assert_ne!(trace_id("call-1"), trace_id("call-2"));
    }
}
