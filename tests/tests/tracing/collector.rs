//! A collector of traces: OTLP over gRPC, as any process of the program sends it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use opentelemetry_proto::tonic::{
    collector::trace::v1::{
        ExportTraceServiceRequest, ExportTraceServiceResponse,
        trace_service_server::{TraceService, TraceServiceServer},
    },
    common::v1::any_value::Value,
    trace::v1::{Span, status::StatusCode},
};
use postern_kit::task::Tasks;
use postern_tests::World;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status, transport::Server};

/// For spans to arrive, on a loaded machine.
const LIMIT: Duration = Duration::from_secs(60);

/// Pause between two looks at what came.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// One span, as it came.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// `service.name`.
    pub(crate) service: String,
    /// Trace, in hexadecimal digits.
    pub(crate) trace: String,
    /// Its id.
    pub(crate) id: String,
    /// Its parent's id; empty for a root.
    pub(crate) parent: String,
    /// Name.
    pub(crate) name: String,
    /// Attributes.
    pub(crate) attributes: BTreeMap<String, String>,
    /// Traces and spans that it points at.
    pub(crate) links: Vec<(String, String)>,
    /// Whether it failed.
    pub(crate) failed: bool,
    /// When it began and ended, in nanoseconds since 1970.
    pub(crate) times: (u64, u64),
}

/// A running collector.
#[derive(Debug)]
pub(crate) struct Collector {
    endpoint: String,
    came: Came,
    tasks: Tasks,
}

#[derive(Clone, Debug, Default)]
struct Came(Arc<Mutex<Vec<ExportTraceServiceRequest>>>);

#[tonic::async_trait]
impl TraceService for Came {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let mut came = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        came.push(request.into_inner());
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Collector {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
        let (came, tasks) = (Came::default(), Tasks::new());
        let serving = Server::builder()
            .add_service(TraceServiceServer::new(came.clone()))
            .serve_with_incoming_shutdown(
                TcpListenerStream::new(listener),
                tasks.stopping().cancelled_owned(),
            );
        tasks.spawn("collector", serving);
        Self {
            endpoint,
            came,
            tasks,
        }
    }

    /// A world in which everything exports to it.
    pub(crate) fn world(&self) -> World {
        let mut world = World::new();
        world.set("OTEL_EXPORTER_OTLP_ENDPOINT", &self.endpoint);
        world.set("OTEL_BSP_SCHEDULE_DELAY", "20");
        world
    }

    /// Everything that came, as text.
    pub(crate) fn text(&self) -> String {
        let came = self.came.0.lock().unwrap_or_else(PoisonError::into_inner);
        format!("{came:?}")
    }

    /// Every span that came.
    pub(crate) fn spans(&self) -> Vec<Seen> {
        let came = self.came.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut spans = Vec::new();
        for resource in came.iter().flat_map(|request| &request.resource_spans) {
            let about = resource.resource.as_ref().expect("a resource");
            let about = told(&about.attributes);
            let service = about.get("service.name").expect("a service's name");
            for span in resource.scope_spans.iter().flat_map(|scope| &scope.spans) {
                spans.push(seen(service, span));
            }
        }
        spans
    }

    /// The spans of a trace, once all of these names are among them, as `service: name`.
    pub(crate) async fn trace(&self, id: &str, names: &[&str]) -> Vec<Seen> {
        let wanted: BTreeSet<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let deadline = Instant::now() + LIMIT;
        loop {
            let mut spans = self.spans();
            spans.retain(|span| span.trace == id);
            let there: BTreeSet<_> = spans.iter().map(Seen::to_string).collect();
            let missing: Vec<_> = wanted.difference(&there).collect();
            if missing.is_empty() {
                return spans;
            }
            let waits = Instant::now() < deadline;
            assert!(
                waits,
                "of trace {id} are missing: {missing:?}; there are {there:#?}"
            );
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    pub(crate) async fn stop(self) {
        self.tasks.shutdown(LIMIT).await;
    }
}

impl std::fmt::Display for Seen {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}: {}", self.service, self.name)
    }
}

fn seen(service: &str, span: &Span) -> Seen {
    assert_eq!(span.events.len(), 0, "log lines are no events: {span:?}");
    Seen {
        service: service.to_owned(),
        trace: hex(&span.trace_id),
        id: hex(&span.span_id),
        parent: hex(&span.parent_span_id),
        name: span.name.clone(),
        attributes: told(&span.attributes),
        links: span
            .links
            .iter()
            .map(|link| (hex(&link.trace_id), hex(&link.span_id)))
            .collect(),
        failed: span
            .status
            .as_ref()
            .is_some_and(|status| status.code() == StatusCode::Error),
        times: (span.start_time_unix_nano, span.end_time_unix_nano),
    }
}

fn told(
    attributes: &[opentelemetry_proto::tonic::common::v1::KeyValue],
) -> BTreeMap<String, String> {
    attributes
        .iter()
        .map(|pair| {
            let value = pair.value.as_ref().and_then(|value| value.value.as_ref());
            let text = match value {
                Some(Value::StringValue(text)) => text.clone(),
                Some(Value::IntValue(number)) => number.to_string(),
                Some(Value::BoolValue(is)) => is.to_string(),
                other => panic!("another kind of value: {other:?}"),
            };
            (pair.key.clone(), text)
        })
        .collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
