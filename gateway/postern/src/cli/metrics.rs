//! `--metrics`.

use clap::Args;

use crate::net;

/// Where a process shows its figures.
#[derive(Args, Debug, Default)]
pub(crate) struct MetricsArgs {
    /// Address of a page of figures for Prometheus (`/metrics`, plaintext: figures hold no content); port 0 picks a free one
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "POSTERN_METRICS",
        value_parser = net::parse_address
    )]
    pub(crate) metrics: Option<String>,
}
