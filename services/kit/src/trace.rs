//! Traces: what happened to one call, from the agent's request to the disk, over every process (CONTRACT.md, section 8).
//!
//! A call's frame has no room for a trace context, so both ends of a channel derive it: the trace id from the call's id, and from
//! it the id of the root span (`ids`). Between services it travels in the W3C `traceparent` header (`rpc`).
//!
//! Invariants:
//! - Only a call and a request to the host begin a trace. Whatever else happens has a span only inside one of these, so that what
//!   goes on by itself (signs of life, sweeps, watches) makes none.
//! - Attributes are texts of the program itself (`&'static str`) and numbers: no content, path, name or token can be one.
//! - While nothing is exported there are no spans; what is left is the id that log lines carry.
//!
//! Deliberately not here: where spans are sent ([`crate::telemetry`]).

mod header;
mod ids;
mod rpc;
mod sampler;

use std::{borrow::Cow, future::Future, sync::OnceLock, time::SystemTime};

use opentelemetry::{
    Context, KeyValue, Value,
    context::FutureExt as _,
    trace::{Link, SpanBuilder, SpanContext, SpanKind, Status, TraceContextExt as _, Tracer as _},
};
use opentelemetry_sdk::trace::SdkTracer;

pub use header::Agent;
pub(crate) use ids::{Ids, here as log_ids};
pub(crate) use rpc::{Side, Traced};
pub(crate) use sampler::Sampler;

/// Status of an answer to a call, whatever its outcome.
const ANSWERED: u16 = 200;
/// What makes spans; absent while none are exported.
static TRACER: OnceLock<(SdkTracer, Sampler)> = OnceLock::new();

/// Name of a call's root span, which the host makes.
const CALL: &str = "channel.call";
/// Name of the span of a call that was made before, at the host.
const AGAIN: &str = "channel.call again";
/// Name of the span of a call at the edge.
const ANSWER: &str = "channel.answer";
/// Tool of a call.
const TOOL: &str = "postern.tool";
/// `ok`, or the code of an error.
const OUTCOME: &str = "postern.outcome";
/// Whether a call is answered once more.
const IS_AGAIN: &str = "postern.again";
/// Outcome of what was done.
const OK: &str = "ok";
/// Why a span failed, in a word.
const ERROR_TYPE: &str = "error.type";
/// What a span that was left before its end failed by.
const CANCELLED: &str = "cancelled";

/// From now on spans are made by `tracer`; once.
pub(crate) fn export_by(tracer: SdkTracer, sampler: Sampler) {
    // A second exporter would get half of each trace.
    let _once = TRACER.set((tracer, sampler));
}

/// A fact of a span.
#[derive(Clone, Copy, Debug)]
pub enum Fact {
    /// A text of the program's own.
    Text(&'static str),
    /// A number.
    Number(i64),
}

impl From<&'static str> for Fact {
    fn from(text: &'static str) -> Self {
        Self::Text(text)
    }
}

impl From<i64> for Fact {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl From<Fact> for Value {
    fn from(fact: Fact) -> Self {
        match fact {
            Fact::Text(text) => text.into(),
            Fact::Number(number) => number.into(),
        }
    }
}

/// A span, which ends when this is dropped; or, while nothing is exported, the id of a trace; or nothing.
#[derive(Debug, Default)]
pub struct Span(Option<Context>);

/// A place in a trace, to hang a span below or to point at, when the span itself may have ended. Nothing outside a trace.
#[derive(Clone, Debug, Default)]
pub struct Place(Option<Box<SpanContext>>);

impl Span {
    /// Runs a future within it: spans made there are its children, and log lines carry its ids.
    pub fn run<F: Future>(&self, future: F) -> impl Future<Output = F::Output> + use<F> {
        let context = self.0.clone().unwrap_or_else(Context::current);
        future.with_context(context)
    }

    /// Its place in its trace.
    #[must_use]
    pub fn place(&self) -> Place {
        let context = self.0.as_ref();
        Place(context.map(|context| Box::new(context.span().span_context().clone())))
    }

    /// Notes a fact.
    pub fn note(&self, name: &'static str, fact: impl Into<Fact>) {
        if let Some(context) = &self.0 {
            let fact: Value = fact.into().into();
            context.span().set_attribute(KeyValue::new(name, fact));
        }
    }

    /// Notes that it failed, by a word for why.
    pub fn fail(&self, why: &'static str) {
        if let Some(context) = &self.0 {
            let span = context.span();
            span.set_attribute(KeyValue::new(ERROR_TYPE, why));
            span.set_status(Status::error(""));
        }
    }

    /// Notes what came of a call: `ok`, or the code of its error.
    pub fn outcome(&self, outcome: &'static str) {
        self.note(OUTCOME, outcome);
        if outcome != OK {
            self.fail(outcome);
        }
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        // Futures that were run within it may still hold the context.
        if let Some(context) = &self.0 {
            context.span().end();
        }
    }
}

impl Place {
    /// Where the caller is.
    #[must_use]
    pub fn here() -> Self {
        Context::map_current(|context| {
            let place = context.span().span_context().clone();
            Self(place.is_valid().then(|| Box::new(place)))
        })
    }

    /// Runs a future below it.
    pub fn run<F: Future>(&self, future: F) -> impl Future<Output = F::Output> + use<F> {
        let context = match &self.0 {
            Some(place) => Context::new().with_remote_span_context(place.as_ref().clone()),
            None => Context::current(),
        };
        future.with_context(context)
    }
}

/// The root span of a call, at the host; `since` is when its request came, `agent` where the agent is in a trace of its own.
#[must_use]
pub fn call(call_id: &str, tool: &'static str, agent: Option<&Agent>, since: SystemTime) -> Span {
    let Some((tracer, _)) = TRACER.get() else {
        return off(call_id);
    };
    let builder = of_call(CALL, tool)
        .with_start_time(since)
        .with_links(links([agent.map(Agent::place)]));
    let made = ids::chosen(root(call_id), || {
        tracer.build_with_context(builder, &Context::new())
    });
    Span(Some(Context::new().with_span(made)))
}

/// The span of a call at the host that was made before: it points at the root, and is none.
#[must_use]
pub fn again(call_id: &str, tool: &'static str, agent: Option<&Agent>) -> Span {
    below_root(call_id, |root| {
        of_call(AGAIN, tool).with_links(links([Some(root.clone()), agent.map(Agent::place)]))
    })
}

/// The span of a call at the edge, below the root that the host has made or might have made.
#[must_use]
pub fn answer(call_id: &str, tool: &'static str) -> Span {
    below_root(call_id, |_| of_call(ANSWER, tool))
}

/// A span of this kind with these facts, if there is a trace here.
fn child(
    name: impl Into<Cow<'static, str>>,
    kind: SpanKind,
    facts: &[(&'static str, Fact)],
) -> Span {
    let Some((tracer, _)) = TRACER.get() else {
        return Span::default();
    };
    let context = Context::current();
    if !context.span().span_context().is_valid() {
        return Span::default();
    }
    let builder = SpanBuilder::from_name(name)
        .with_kind(kind)
        .with_attributes(attributes(facts));
    Span(Some(
        context.with_span(tracer.build_with_context(builder, &context)),
    ))
}

/// Says of the span of a call that is answered here that it was answered before: it points at the root, and is none.
pub fn is_again(call_id: &str) {
    if TRACER.get().is_none() {
        return;
    }
    Context::map_current(|context| {
        let span = context.span();
        span.set_attribute(KeyValue::new(IS_AGAIN, true));
        span.add_link(root(call_id), Vec::new());
    });
}

/// The span of an operation of a database.
#[must_use]
pub fn database(system: &'static str, namespace: &'static str, operation: &'static str) -> Span {
    if TRACER.get().is_none() {
        return Span::default();
    }
    child(
        format!("{operation} {namespace}"),
        SpanKind::Client,
        &database_facts(system, namespace, operation),
    )
}

/// One commit of a database in which several calls had a part: a span below each, and each but the first points at the first.
/// `since` is when it began; it ends now.
pub fn shared_commit(
    system: &'static str,
    namespace: &'static str,
    parts: &[Place],
    since: SystemTime,
    is_done: bool,
) {
    let Some((tracer, _)) = TRACER.get() else {
        return;
    };
    let now = SystemTime::now();
    let mut facts = database_facts(system, namespace, "COMMIT").to_vec();
    let count = i64::try_from(parts.len()).unwrap_or(i64::MAX);
    facts.push(("db.operation.batch.size", count.into()));
    let mut first: Option<SpanContext> = None;
    for place in parts.iter().filter_map(|part| part.0.as_deref()) {
        let builder = SpanBuilder::from_name(format!("COMMIT {namespace}"))
            .with_kind(SpanKind::Client)
            .with_start_time(since)
            .with_attributes(attributes(&facts))
            .with_links(links([first.clone()]));
        let context = Context::new().with_remote_span_context(place.clone());
        let context = context.with_span(tracer.build_with_context(builder, &context));
        let span = context.span();
        if !is_done {
            span.set_attribute(KeyValue::new(ERROR_TYPE, "not_committed"));
            span.set_status(Status::error(""));
        }
        span.end_with_timestamp(now);
        first.get_or_insert_with(|| span.span_context().clone());
    }
}

/// The span of a request to the host that is no call: it goes on with the sender's trace, or begins one.
#[must_use]
pub fn request(method: &'static str, route: &'static str, sender: Option<&Agent>) -> Span {
    let Some((tracer, _)) = TRACER.get() else {
        return Span::default();
    };
    let builder = of_request(method, route);
    let context = match sender {
        Some(sender) => Context::new().with_remote_span_context(sender.place()),
        None => Context::new(),
    };
    Span(Some(
        context.with_span(tracer.build_with_context(builder, &context)),
    ))
}

/// Notes the request by which a call came, below the call: it came at `since`, and the call's answer is ready now.
pub fn request_of_call(call: &Place, method: &'static str, route: &'static str, since: SystemTime) {
    let (Some((tracer, _)), Some(place)) = (TRACER.get(), &call.0) else {
        return;
    };
    let builder = of_request(method, route).with_start_time(since);
    let context = Context::new().with_remote_span_context(place.as_ref().clone());
    let span = Span(Some(
        context.with_span(tracer.build_with_context(builder, &context)),
    ));
    answered(&span, ANSWERED);
}

/// Notes the status of an answer over HTTP.
pub fn answered(span: &Span, status: u16) {
    span.note("http.response.status_code", i64::from(status));
    if status >= 500 {
        span.fail("server_error");
    }
}

fn of_request(method: &'static str, route: &'static str) -> SpanBuilder {
    SpanBuilder::from_name(format!("{method} {route}"))
        .with_kind(SpanKind::Server)
        .with_attributes(attributes(&[
            ("http.request.method", method.into()),
            ("http.route", route.into()),
            ("network.protocol.name", "http".into()),
        ]))
}

fn of_call(name: &'static str, tool: &'static str) -> SpanBuilder {
    SpanBuilder::from_name(name)
        .with_kind(SpanKind::Server)
        .with_attributes(attributes(&[(TOOL, tool.into())]))
}

fn database_facts(
    system: &'static str,
    namespace: &'static str,
    operation: &'static str,
) -> [(&'static str, Fact); 3] {
    [
        ("db.system.name", system.into()),
        ("db.namespace", namespace.into()),
        ("db.operation.name", operation.into()),
    ]
}

fn attributes(facts: &[(&'static str, Fact)]) -> Vec<KeyValue> {
    facts
        .iter()
        .map(|(name, fact)| KeyValue::new(*name, Value::from(*fact)))
        .collect()
}

fn links<const N: usize>(places: [Option<SpanContext>; N]) -> Vec<Link> {
    places
        .into_iter()
        .flatten()
        .map(Link::with_context)
        .collect()
}

/// The root of a call's trace, whoever made it.
fn root(call_id: &str) -> SpanContext {
    let sampler = TRACER.get().map(|(_, sampler)| sampler);
    ids::root(call_id, sampler)
}

fn below_root(call_id: &str, builder: impl FnOnce(&SpanContext) -> SpanBuilder) -> Span {
    let Some((tracer, _)) = TRACER.get() else {
        return off(call_id);
    };
    let root = root(call_id);
    let builder = builder(&root);
    let context = Context::new().with_remote_span_context(root);
    Span(Some(
        context.with_span(tracer.build_with_context(builder, &context)),
    ))
}

/// What is left while nothing is exported.
fn off(call_id: &str) -> Span {
    Span(Some(Context::new().with_remote_span_context(root(call_id))))
}

#[cfg(test)]
mod tests;
