//! What a host is told at its start.

use std::{path::PathBuf, time::Duration};

use postern_proto::catalogue;
use tokio::sync::watch;

/// Configuration of a host.
#[derive(Clone, Debug)]
pub struct Config {
    /// Directory of the call journal (`journal.db`). It must exist.
    pub data_dir: PathBuf,
    /// Where agents and edges reach the host, such as `https://agents.example`; without a slash at its end.
    pub public_url: String,
    /// `Host` names accepted beside the public one, `localhost` and IP addresses; without a port.
    pub allowed_hosts: Vec<String>,
    /// Web origins accepted beside the public one and those of this machine, such as `https://console.example`.
    pub allowed_origins: Vec<String>,
    /// Whether tool discovery carries output schemas.
    pub output_schemas: bool,
    /// Whether an edge of the same process counts calls and channels, so that the host must not count them once more.
    pub beside_edge: bool,
    /// Whether identity is ready, as its service tells.
    pub identity_ready: watch::Receiver<bool>,
    /// Bounds.
    pub limits: Limits,
}

impl Config {
    /// The default configuration.
    pub fn new(data_dir: impl Into<PathBuf>, public_url: impl Into<String>) -> Self {
        Self {
            data_dir: data_dir.into(),
            public_url: public_url.into(),
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            output_schemas: false,
            beside_edge: false,
            identity_ready: watch::channel(true).1,
            limits: Limits::default(),
        }
    }

    /// The configuration of a host beside an edge of the same process.
    #[must_use]
    pub fn beside_edge(self) -> Self {
        Self {
            beside_edge: true,
            ..self
        }
    }
}

/// Bounds of a host. The defaults are the contract's; tests make them small.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Channels of the host.
    pub channels: usize,
    /// Channels of one token.
    pub channels_per_token: usize,
    /// Calls of one workspace that an edge works on.
    pub in_flight: usize,
    /// Calls of one workspace that wait for their turn.
    pub waiting: usize,
    /// Bytes of a frame.
    pub frame_bytes: usize,
    /// Longest wait of a call for its turn.
    pub turn_wait: Duration,
    /// Longest wait of a call for a channel, counted from the loss of the last one.
    pub channel_wait: Duration,
    /// Time between two pings.
    pub ping_interval: Duration,
    /// Silence after which an edge is gone.
    pub silence: Duration,
    /// Time for the head of a request, and for the body to go on.
    pub request_timeout: Duration,
    /// Time for what is running to end when the host stops.
    pub drain: Duration,
    /// Open connections of the listener.
    pub connections: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            channels: catalogue::MAX_CHANNELS,
            channels_per_token: catalogue::MAX_CHANNELS_PER_TOKEN,
            in_flight: catalogue::MAX_IN_FLIGHT,
            // A model rarely asks for more than a dozen calls at once; more than this is a loop.
            waiting: 256,
            frame_bytes: catalogue::MAX_FRAME_BYTES,
            turn_wait: Duration::from_secs(30),
            channel_wait: Duration::from_secs(60),
            ping_interval: Duration::from_secs(20),
            silence: Duration::from_secs(60),
            request_timeout: Duration::from_secs(10),
            drain: Duration::from_secs(10),
            // Enough for every agent's few connections; a flood of half-open ones is turned over in `request_timeout`.
            connections: 1024,
        }
    }
}
