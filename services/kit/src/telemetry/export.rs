//! Spans on their way out: a bounded queue, and a thread of its own that sends them.
//!
//! The thread has its own small runtime, so that the last spans are sent when the program's runtime has ended or its threads are
//! busy. What finds no room in the queue is dropped and counted: traces are never the record of anything.

use std::{
    sync::mpsc as blocking,
    time::{Duration, Instant},
};

use opentelemetry::{Context, KeyValue, trace::TracerProvider as _};
use opentelemetry_otlp::{ExporterBuildError, SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::{
    Resource,
    error::{OTelSdkError, OTelSdkResult},
    trace::{SdkTracerProvider, Span, SpanData, SpanExporter as _, SpanProcessor},
};
use tokio::{
    runtime::{Builder, Runtime},
    sync::mpsc,
    time::timeout,
};

use super::settings::Settings;
use crate::{metrics, trace};

/// Name of the instrumentation.
const SCOPE: &str = "postern";
/// Longest that one batch takes, its attempts included.
const EXPORT_LIMIT: Duration = Duration::from_secs(10);
/// Time in which what waits is sent at the end.
const FLUSH_LIMIT: Duration = Duration::from_secs(5);
/// Pause between two attempts to tell the thread of the end.
const FLUSH_PAUSE: Duration = Duration::from_millis(5);

/// Why traces are not exported.
#[derive(Debug, thiserror::Error)]
pub(super) enum ExportError {
    /// The variables name what cannot be used.
    #[error("the exporter cannot be built: {0}")]
    Exporter(#[from] ExporterBuildError),
    /// The system gives no thread.
    #[error("the exporter's thread cannot be started: {0}")]
    Thread(#[from] std::io::Error),
}

/// What comes to the thread.
#[derive(Debug)]
enum Parcel {
    Span(Box<SpanData>),
    /// Answered once everything before it was sent.
    Flush(Flush),
}

/// Somebody who waits for what was queued to be sent.
#[derive(Debug)]
struct Flush {
    done: blocking::Sender<()>,
    /// Nothing is taken after it.
    is_last: bool,
}

/// The running export. Dropped, it sends what waits.
#[derive(Debug)]
pub struct Exporting {
    queue: Queue,
    runtime: Option<Runtime>,
}

impl Exporting {
    pub(super) fn start(service: &'static str, settings: &Settings) -> Result<Self, ExportError> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("otlp")
            .enable_all()
            .build()?;
        let resource = resource(service, settings.is_named);
        let within = runtime.enter();
        let builder = SpanExporter::builder().with_tonic();
        let mut exporter = builder.with_endpoint(&settings.endpoint).build()?;
        drop(within);
        exporter.set_resource(&resource);
        metrics::SPANS_EXPORTED.show();
        metrics::SPANS_DROPPED.show();
        let (sender, parcels) = mpsc::channel(settings.queue);
        let sending = Sending {
            exporter,
            parcels,
            batch: settings.batch,
            delay: settings.delay,
            is_away: false,
        };
        // The runtime is this task's alone, and ends with it.
        drop(runtime.spawn(sending.run()));
        let queue = Queue(sender);
        let provider = SdkTracerProvider::builder()
            .with_span_processor(queue.clone())
            .with_id_generator(trace::Ids::default())
            .with_sampler(settings.sampler)
            .with_resource(resource)
            .build();
        trace::export_by(provider.tracer(SCOPE), settings.sampler);
        Ok(Self {
            queue,
            runtime: Some(runtime),
        })
    }
}

impl Drop for Exporting {
    fn drop(&mut self) {
        if self.queue.flush(FLUSH_LIMIT, true).is_err() {
            tracing::warn!("the last spans were not exported");
        }
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Who and what exports.
fn resource(service: &'static str, is_named: bool) -> Resource {
    let builder = Resource::builder().with_attributes([
        KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
        KeyValue::new("process.pid", i64::from(std::process::id())),
    ]);
    if is_named {
        builder.build()
    } else {
        builder.with_service_name(service).build()
    }
}

/// The way to the thread.
#[derive(Clone, Debug)]
struct Queue(mpsc::Sender<Parcel>);

impl Queue {
    /// Waits until everything that was queued is sent. After the last one, what comes is dropped and counted.
    fn flush(&self, limit: Duration, is_last: bool) -> OTelSdkResult {
        let deadline = Instant::now() + limit;
        let late = || OTelSdkError::Timeout(limit);
        let (sender, done) = blocking::channel();
        let mut parcel = Parcel::Flush(Flush {
            done: sender,
            is_last,
        });
        loop {
            parcel = match self.0.try_send(parcel) {
                Ok(()) => break,
                Err(mpsc::error::TrySendError::Full(parcel)) => parcel,
                Err(mpsc::error::TrySendError::Closed(_)) => {
                    return Err(OTelSdkError::AlreadyShutdown);
                }
            };
            if Instant::now() >= deadline {
                return Err(late());
            }
            std::thread::sleep(FLUSH_PAUSE);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        done.recv_timeout(left).map_err(|_| late())
    }
}

impl SpanProcessor for Queue {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        if !span.span_context.is_sampled() {
            return;
        }
        let reason = match self.0.try_send(Parcel::Span(Box::new(span))) {
            Ok(()) => return,
            Err(mpsc::error::TrySendError::Full(_)) => "queue_full",
            Err(mpsc::error::TrySendError::Closed(_)) => "ended",
        };
        metrics::SPANS_DROPPED.add([reason], 1);
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.flush(FLUSH_LIMIT, false)
    }

    fn shutdown_with_timeout(&self, limit: Duration) -> OTelSdkResult {
        self.flush(limit, false)
    }
}

/// What the thread does.
struct Sending {
    exporter: SpanExporter,
    parcels: mpsc::Receiver<Parcel>,
    batch: usize,
    delay: Duration,
    /// Whether the last batch could not be sent; it is told once.
    is_away: bool,
}

impl Sending {
    async fn run(mut self) {
        let mut spans = Vec::with_capacity(self.batch);
        while let Some(first) = self.parcels.recv().await {
            let mut flushed = Vec::new();
            take(first, &mut spans, &mut flushed);
            // What comes soon after shares the batch; somebody who waits for the end does not wait for it.
            let filled = async {
                while spans.len() < self.batch && flushed.is_empty() {
                    match self.parcels.recv().await {
                        Some(parcel) => take(parcel, &mut spans, &mut flushed),
                        None => return,
                    }
                }
            };
            // Either end is good: a batch is there, or the time is over.
            let _ = timeout(self.delay, filled).await;
            self.send(std::mem::take(&mut spans)).await;
            if flushed.iter().any(|flush| flush.is_last) {
                self.parcels.close();
            }
            for waiting in flushed {
                // Who waited may have given up.
                let _ = waiting.done.send(());
            }
        }
    }

    async fn send(&mut self, spans: Vec<SpanData>) {
        let count = u64::try_from(spans.len()).unwrap_or(u64::MAX);
        if count == 0 {
            return;
        }
        match timeout(EXPORT_LIMIT, self.exporter.export(spans)).await {
            Ok(Ok(())) => {
                self.is_away = false;
                metrics::SPANS_EXPORTED.add([], count);
            }
            failed => {
                metrics::SPANS_DROPPED.add(["not_accepted"], count);
                if !self.is_away {
                    tracing::warn!(?failed, "traces cannot be exported for now");
                }
                self.is_away = true;
            }
        }
    }
}

fn take(parcel: Parcel, spans: &mut Vec<SpanData>, flushed: &mut Vec<Flush>) {
    match parcel {
        Parcel::Span(span) => spans.push(*span),
        Parcel::Flush(waiting) => flushed.push(waiting),
    }
}
