//! The W3C header `traceparent` (Trace Context, version 00).

use http::{HeaderMap, HeaderValue};
use opentelemetry::trace::{SpanContext, SpanId, TraceFlags, TraceId, TraceState};

/// Name of the header, and of the field of `_meta`.
pub(super) const NAME: &str = "traceparent";

/// Where an agent is in a trace of its own.
#[derive(Clone, Debug)]
pub struct Agent(SpanContext);

impl Agent {
    /// Reads a `traceparent`. One that is not as the standard wants it is none.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        read(text).map(Self)
    }

    /// Reads that of a request's headers.
    #[must_use]
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        of(headers).map(Self)
    }

    pub(super) fn place(&self) -> SpanContext {
        self.0.clone()
    }
}

pub(super) fn of(headers: &HeaderMap) -> Option<SpanContext> {
    read(headers.get(NAME)?.to_str().ok()?)
}

/// Writes a place into headers.
pub(super) fn write(headers: &mut HeaderMap, place: &SpanContext) {
    let text = format!(
        "00-{}-{}-{:02x}",
        place.trace_id(),
        place.span_id(),
        place.trace_flags().to_u8()
    );
    if let Ok(value) = HeaderValue::try_from(text) {
        headers.insert(NAME, value);
    }
}

fn read(text: &str) -> Option<SpanContext> {
    let mut parts = text.split('-');
    let [version, trace, span, flags] = [(); 4].map(|()| parts.next().unwrap_or_default());
    let is_version = hexadecimal(version, 2) && version != "ff";
    // A later version may have more parts, this one has not.
    if !is_version || (version == "00" && parts.next().is_some()) {
        return None;
    }
    if !hexadecimal(trace, 32) || !hexadecimal(span, 16) || !hexadecimal(flags, 2) {
        return None;
    }
    let trace = TraceId::from_hex(trace).ok()?;
    let span = SpanId::from_hex(span).ok()?;
    let sampled = u8::from_str_radix(flags, 16).ok()? & TraceFlags::SAMPLED.to_u8();
    let flags = TraceFlags::new(sampled);
    let place = SpanContext::new(trace, span, flags, true, TraceState::default());
    place.is_valid().then_some(place)
}

fn hexadecimal(text: &str, length: usize) -> bool {
    text.len() == length
        && text
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const SPAN: &str = "00f067aa0ba902b7";

    #[test]
    fn what_is_written_is_read() {
        let place = read(&format!("00-{TRACE}-{SPAN}-01")).expect("read");
        assert!(place.is_sampled() && place.is_remote());
        let mut headers = HeaderMap::new();
        write(&mut headers, &place);
        assert_eq!(of(&headers), Some(place));
    }

    #[test]
    fn what_is_not_as_the_standard_wants_it_is_none() {
        let zeros = (&"0".repeat(32), &"0".repeat(16));
        for good in [
            format!("00-{TRACE}-{SPAN}-00"),
            format!("00-{TRACE}-{SPAN}-ff"),
            format!("01-{TRACE}-{SPAN}-01-more"),
        ] {
            assert!(read(&good).is_some(), "{good}");
        }
        for bad in [
            String::new(),
            format!("00-{TRACE}-{SPAN}"),
            format!("00-{TRACE}-{SPAN}-01-more"),
            format!("ff-{TRACE}-{SPAN}-01"),
            format!("00-{}-{SPAN}-01", zeros.0),
            format!("00-{TRACE}-{}-01", zeros.1),
            format!("00-{}-{SPAN}-01", TRACE.to_uppercase()),
            format!("00-{TRACE}0-{SPAN}-01"),
            format!("0-{TRACE}-{SPAN}-01"),
            format!("00-{TRACE}-{SPAN}-0g"),
        ] {
            assert!(read(&bad).is_none(), "{bad}");
        }
    }
}
