//! The OpenTelemetry variables that are heeded here. Headers, timeout and certificates are read by the exporter itself.

use std::time::Duration;

use crate::trace::Sampler;

/// Spans that wait to be sent at most, unless `OTEL_BSP_MAX_QUEUE_SIZE` says otherwise: a second of what a busy edge makes, some
/// 10 MB. The SDK's own 2048 lost up to a tenth under load.
const QUEUE: usize = 16 * 1024;
/// Spans sent at once.
const BATCH: usize = 512;
/// Longest wait for a batch to be full.
const DELAY: Duration = Duration::from_secs(1);
/// Bounds of what the variables say.
const MAX_QUEUE: usize = 1024 * 1024;

/// How traces are exported.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Settings {
    pub(super) endpoint: String,
    pub(super) sampler: Sampler,
    pub(super) queue: usize,
    pub(super) batch: usize,
    pub(super) delay: Duration,
    /// Whether a variable names the service.
    pub(super) is_named: bool,
}

impl Settings {
    /// Reads the variables; `None` while nothing is to be exported.
    pub(super) fn read(variable: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let told = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
        let is = |name: &str, value: &str| {
            told(name).is_some_and(|told| told.trim().eq_ignore_ascii_case(value))
        };
        let endpoint = [
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
            "OTEL_EXPORTER_OTLP_ENDPOINT",
        ];
        let endpoint = endpoint.iter().find_map(|name| told(name))?;
        if is("OTEL_SDK_DISABLED", "true") || is("OTEL_TRACES_EXPORTER", "none") {
            return None;
        }
        let number = |name: &str, standard: usize| {
            let value = told(name).and_then(|value| value.trim().parse().ok());
            value.unwrap_or(standard).clamp(1, MAX_QUEUE)
        };
        let sampler = Sampler::read(
            told("OTEL_TRACES_SAMPLER").unwrap_or_default().trim(),
            told("OTEL_TRACES_SAMPLER_ARG").as_deref(),
        );
        let delay = told("OTEL_BSP_SCHEDULE_DELAY").and_then(|value| value.trim().parse().ok());
        let resource = told("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default();
        Some(Self {
            endpoint,
            sampler: sampler.unwrap_or_else(|problem| {
                tracing::warn!(%problem, "every trace is kept");
                Sampler::ALL
            }),
            queue: number("OTEL_BSP_MAX_QUEUE_SIZE", QUEUE),
            batch: number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", BATCH),
            delay: delay.map_or(DELAY, Duration::from_millis),
            is_named: told("OTEL_SERVICE_NAME").is_some()
                || resource
                    .split(',')
                    .any(|pair| pair.trim().starts_with("service.name=")),
        })
    }
}
