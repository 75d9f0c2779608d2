//! Ids of spans: chosen for the root of a call, random for all others.

use std::cell::Cell;

use opentelemetry::{
    Context,
    trace::{SpanContext, SpanId, TraceContextExt as _, TraceFlags, TraceId, TraceState},
};
use opentelemetry_sdk::trace::{IdGenerator, RandomIdGenerator};
use postern_types::{root_span_id, trace_id};

use super::Sampler;

thread_local! {
    /// Ids of the one span that is being made under [`chosen`].
    static CHOSEN: Cell<Option<(TraceId, SpanId)>> = const { Cell::new(None) };
}

/// Makes a span under the ids of `place`.
pub(super) fn chosen<T>(place: SpanContext, make: impl FnOnce() -> T) -> T {
    CHOSEN.set(Some((place.trace_id(), place.span_id())));
    let made = make();
    CHOSEN.set(None);
    made
}

/// The root of a call's trace as both ends derive it. Sampled if the sampler says so, which both ends ask for themselves.
pub(super) fn root(call_id: &str, sampler: Option<&Sampler>) -> SpanContext {
    let trace = TraceId::from_hex(&trace_id(call_id)).unwrap_or(TraceId::INVALID);
    let span = SpanId::from_bytes(root_span_id(call_id));
    let is_sampled = sampler.is_some_and(|sampler| sampler.samples(trace));
    let flags = TraceFlags::default().with_sampled(is_sampled);
    SpanContext::new(trace, span, flags, true, TraceState::default())
}

/// The chosen ids, else random ones.
#[derive(Debug, Default)]
pub(crate) struct Ids(RandomIdGenerator);

impl IdGenerator for Ids {
    fn new_trace_id(&self) -> TraceId {
        let chosen = CHOSEN.get().map(|(trace, _)| trace);
        chosen.unwrap_or_else(|| self.0.new_trace_id())
    }

    fn new_span_id(&self) -> SpanId {
        let chosen = CHOSEN.get().map(|(_, span)| span);
        chosen.unwrap_or_else(|| self.0.new_span_id())
    }
}

/// Trace id and span id of where the caller is, for its log lines.
pub(crate) fn here() -> Option<(TraceId, SpanId)> {
    Context::map_current(|context| {
        let span = context.span();
        let place = span.span_context();
        place
            .is_valid()
            .then(|| (place.trace_id(), place.span_id()))
    })
}
