//! `postern healthcheck`.

use clap::{Args, builder::RangedU64ValueParser};

use super::TlsArg;

/// `postern healthcheck`
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  postern healthcheck unix:/run/postern/ledger.sock
  postern healthcheck ledger:7303 --tls-dir /tls
  postern healthcheck http://127.0.0.1:7301")]
pub(crate) struct Healthcheck {
    /// host:port or unix:/path of a service, or the http:// or https:// URL of a host or console
    #[arg(env = "POSTERN_HEALTHCHECK")]
    pub(crate) address: String,
    /// One service of it by its full name, such as postern.ledger.v1.Ledger [default: all of it]
    #[arg(
        long,
        value_name = "NAME",
        env = "POSTERN_SERVICE",
        default_value = "",
        hide_default_value = true
    )]
    pub(crate) service: String,
    /// Milliseconds in which it must answer
    #[arg(long, value_name = "MS", env = "POSTERN_TIMEOUT_MS", default_value_t = 3000, value_parser = RangedU64ValueParser::<u64>::new().range(1..=60_000))]
    pub(crate) timeout_ms: u64,
    /// Certificates to ask with
    #[command(flatten)]
    pub(crate) tls: TlsArg,
}
