//! Logs, always to standard error.

use std::io::IsTerminal as _;

use tracing_subscriber::{EnvFilter, fmt};

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
    let filter = filter
        .and_then(|text| EnvFilter::try_new(text).ok())
        .unwrap_or_else(|| EnvFilter::new("warn"));
    let builder = fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started = match format {
        LogFormat::Text => builder
            .with_ansi(std::io::stderr().is_terminal())
            .with_target(false)
            .try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
    if started.is_err() {
        tracing::debug!("logging was started before");
    }
}
