//! Logs, always to standard error, and the export of traces (OTLP by gRPC), which is off unless the OpenTelemetry variables name an
//! endpoint.

mod export;
mod format;
mod settings;

use std::io::IsTerminal as _;

use tracing_subscriber::{EnvFilter, fmt};

pub use export::Exporting;

/// What is logged unless somebody says otherwise.
const DEFAULT_FILTER: &str = "warn";
/// A library that warns with what agents say.
const TALKATIVE: &str = "rmcp";
/// What is logged of it unless somebody names it.
const LESS_OF_IT: &str = "rmcp=error";

/// How logs are written.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Starts logging with the given filter (`POSTERN_LOG`, such as `info,postern_edge=debug`). An unusable filter means `warn`.
/// Later calls in the same process change nothing.
pub fn init(format: LogFormat, filter: Option<&str>) {
    let builder = fmt()
        .with_env_filter(filter_of(filter))
        .with_writer(std::io::stderr);
    let started = match format {
        LogFormat::Text => builder
            .with_ansi(std::io::stderr().is_terminal())
            .with_target(false)
            .fmt_fields(format::Text::default())
            .try_init(),
        LogFormat::Json => builder.json().map_event_format(format::Json).try_init(),
    };
    if started.is_err() {
        tracing::debug!("logging was started before");
    }
}

/// Starts the export of traces under the name of a service, if the OpenTelemetry variables name an endpoint. What waits when
/// this is dropped is sent first, for some seconds, also while a panic unwinds.
#[must_use]
pub fn export(service: &'static str) -> Option<Exporting> {
    export_by(service, |name| std::env::var(name).ok())
}

/// As [`export()`], by variables that are told.
#[must_use]
pub fn export_by(
    service: &'static str,
    variable: impl Fn(&str) -> Option<String>,
) -> Option<Exporting> {
    let settings = settings::Settings::read(variable)?;
    let started = Exporting::start(service, &settings);
    started
        .inspect_err(|error| tracing::error!(%error, "traces are not exported"))
        .ok()
}

fn filter_of(text: Option<&str>) -> EnvFilter {
    let text = text.unwrap_or(DEFAULT_FILTER);
    let names_it = text.contains(TALKATIVE);
    let filter = EnvFilter::try_new(text).unwrap_or_else(|_| EnvFilter::new(DEFAULT_FILTER));
    match LESS_OF_IT.parse() {
        Ok(less) if !names_it && text != "off" => filter.add_directive(less),
        Ok(_) | Err(_) => filter,
    }
}

#[cfg(test)]
mod tests;
