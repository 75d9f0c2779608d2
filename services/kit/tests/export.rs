//! The export of traces: what is sent at the end, and what is lost. A process has one exporter, so it has one test.
#![expect(clippy::expect_used, reason = "tests fail by panicking")]

use std::{
    sync::{Arc, mpsc},
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

/// Tells what came, and holds its answers while it is told to.
#[derive(Clone, Debug)]
struct Collector {
    came: mpsc::Sender<String>,
    held: Arc<tokio::sync::Mutex<()>>,
}

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
        for span in scopes.flat_map(|scope| scope.spans) {
            self.came.send(span.name).expect("the test waits");
        }
        drop(self.held.lock().await);
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

/// A collector on a thread of its own, which ends with the test's process.
fn collector(collector: Collector) -> String {
    let (told, address) = mpsc::channel();
    let service = TraceServiceServer::new(collector);
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
    address.recv_timeout(LIMIT).expect("it listens")
}

#[test]
fn a_panic_sends_what_waits_and_what_is_lost_is_counted() {
    let (sender, came) = mpsc::channel();
    let held = Arc::new(tokio::sync::Mutex::new(()));
    let hold = Arc::clone(&held).blocking_lock_owned();
    let address = collector(Collector { came: sender, held });
    let next = || came.recv_timeout(LIMIT).expect("a span");
    let exporting = telemetry::export_by("postern-test", |name| match name {
        "OTEL_EXPORTER_OTLP_ENDPOINT" => Some(format!("http://{address}")),
        "OTEL_BSP_MAX_EXPORT_BATCH_SIZE" | "OTEL_BSP_MAX_QUEUE_SIZE" => Some("1".to_owned()),
        _ => None,
    });
    let exporting = exporting.expect("started");
    let call = || drop(trace::answer("call-1", "workspace_read"));

    call();
    assert_eq!(next(), "channel.answer");
    // The collector has the first and holds its answer: one waits, and there is no room for three.
    for _ in 0..4 {
        call();
    }
    drop(hold);
    let ended = std::thread::spawn(move || {
        let _exporting = exporting;
        panic!("the program fails");
    });
    assert!(ended.join().is_err(), "it panicked");
    assert_eq!(next(), "channel.answer");
    // Nobody takes what comes now.
    call();
    call();

    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let page = runtime.expect("a runtime").block_on(metrics::render());
    for line in [
        "postern_spans_exported_total 2",
        "postern_spans_dropped_total{reason=\"queue_full\"} 3",
        "postern_spans_dropped_total{reason=\"ended\"} 2",
    ] {
        assert!(page.lines().any(|told| told == line), "{line} in {page}");
    }
    assert!(came.try_recv().is_err(), "nothing else came");
}
