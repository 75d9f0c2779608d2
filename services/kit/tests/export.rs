//! The export of traces: what is sent at the end, and what is lost. A process has one exporter, so it has one test.
#![expect(clippy::expect_used, reason = "tests fail by panicking")]

use std::{
    sync::{Arc, Mutex, mpsc},
    time::Duration,
};

use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
    trace_service_server::{TraceService, TraceServiceServer},
};
use postern_kit::{metrics, telemetry, trace};
use pretty_assertions::assert_eq;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status, transport::Server};

/// For what was sent to come.
const LIMIT: Duration = Duration::from_secs(30);

#[derive(Clone, Debug, Default)]
struct Collector(Arc<Mutex<Vec<String>>>);

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let request = request.into_inner();
        let scopes = request
            .resource_spans
            .into_iter()
            .flat_map(|of| of.scope_spans);
        let names = scopes.flat_map(|scope| scope.spans).map(|span| span.name);
        self.0.lock().expect("names").extend(names);
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

/// A collector on a thread of its own, which ends with the test's process.
fn collector() -> (Collector, String) {
    let came = Collector::default();
    let (told, address) = mpsc::channel();
    let service = TraceServiceServer::new(came.clone());
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.expect("a runtime").block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
                .await
                .expect("bound");
            let address = listener.local_addr().expect("an address").to_string();
            told.send(address).expect("the test waits");
            let incoming = TcpListenerStream::new(listener);
            let serving = Server::builder()
                .add_service(service)
                .serve_with_incoming(incoming);
            serving.await.expect("served");
        });
    });
    (came, address.recv_timeout(LIMIT).expect("it listens"))
}

#[test]
fn a_panic_sends_what_waits_and_a_full_queue_is_counted() {
    let (came, address) = collector();
    let ended = std::thread::spawn(move || {
        let exporting = telemetry::export_by("postern-test", |name| match name {
            "OTEL_EXPORTER_OTLP_ENDPOINT" => Some(format!("http://{address}")),
            // Nothing is sent by itself in this test's time.
            "OTEL_BSP_SCHEDULE_DELAY" => Some("600000".to_owned()),
            _ => None,
        });
        let _exporting = exporting.expect("started");
        drop(trace::answer("call-1", "workspace_read"));
        panic!("the program fails");
    })
    .join();
    assert!(ended.is_err(), "it panicked");
    assert_eq!(*came.0.lock().expect("names"), ["channel.answer"]);
    // Nobody takes what comes now.
    for _ in 0..3 {
        drop(trace::answer("call-2", "workspace_read"));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let page = runtime.expect("a runtime").block_on(metrics::render());
    for line in [
        "postern_spans_exported_total 1",
        "postern_spans_dropped_total{reason=\"queue_full\"} 3",
    ] {
        assert!(page.lines().any(|told| told == line), "{line} in {page}");
    }
}
