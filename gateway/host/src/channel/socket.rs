//! One open channel, from its first frame to its last.

use std::{sync::Arc, time::Duration};

use futures_util::{
    SinkExt as _, StreamExt as _,
    stream::{SplitSink, SplitStream},
};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use postern_kit::{
    listened::{self, Heard, Listened},
    metrics,
};
use postern_proto::channel::{close, parse_edge_frame, ready_frame};
use tokio::{
    sync::mpsc,
    time::{MissedTickBehavior, timeout},
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Error, Message, Utf8Bytes,
        protocol::{CloseFrame, Role, WebSocketConfig},
    },
};

use super::Seat;
use crate::{
    host::Shared,
    lane::{Close, Lane},
    tokens::Credentials,
};

/// Time for the upgrade, and for the first frame to leave.
const OPENING: Duration = Duration::from_secs(10);
/// Time for a closing handshake, and for the rest of a message that is not wanted.
const CLOSING: Duration = Duration::from_secs(2);
/// Bytes read at once.
const READ_BUFFER: usize = 64 * 1024;

type Stream = WebSocketStream<Listened<TokioIo<Upgraded>>>;

/// How a channel ended.
enum End {
    /// From this side, for a reason.
    Closed(Close),
    /// From this side, because what came cannot be read on.
    Failed(Close),
    /// From the other side, in order.
    Left,
    /// The connection is gone, or as good as gone.
    Lost(&'static str),
}

/// A channel that has been let in.
pub(super) struct Socket {
    pub(super) shared: Arc<Shared>,
    pub(super) credentials: Credentials,
    /// Kept until the connection is closed.
    pub(super) seat: Seat,
}

impl Socket {
    pub(super) async fn run(self, upgrade: OnUpgrade) {
        let Ok(Ok(upgraded)) = timeout(OPENING, upgrade).await else {
            return;
        };
        let wire = Listened::new(TokioIo::new(upgraded));
        let heard = wire.heard();
        let bytes = self.shared.config.limits.frame_bytes;
        let config = WebSocketConfig::default()
            .read_buffer_size(READ_BUFFER)
            .max_message_size(Some(bytes))
            .max_frame_size(Some(bytes));
        let mut stream = WebSocketStream::from_raw_socket(wire, Role::Server, Some(config)).await;
        let ready = stream.send(Message::text(ready_frame()));
        if !matches!(timeout(OPENING, ready).await, Ok(Ok(()))) {
            return;
        }
        let alone = !self.shared.config.beside_edge;
        let _counted = alone.then(|| metrics::CHANNELS.enter());
        let workspace = self.credentials.workspace_id.as_str();
        tracing::info!(
            workspace,
            token = self.credentials.token_id,
            "channel opened"
        );
        let lane = self.shared.calls.lane(workspace);
        let (stream, end) = self.serve(&lane, stream, &heard).await;
        let (code, reason) = end.told();
        tracing::info!(workspace, code, reason, "channel closed");
        hang_up(stream, end).await;
        drop(self.seat);
    }

    async fn serve(&self, lane: &Arc<Lane>, stream: Stream, heard: &Heard) -> (Stream, End) {
        let limits = &self.shared.config.limits;
        let (mut sink, mut source) = stream.split();
        let attaching = self.shared.calls.attach(lane, self.seat.number);
        let mut attachment = attaching.await;
        let unauthorized = self
            .shared
            .tokens
            .end(&self.credentials, limits.ping_interval);
        let end = tokio::select! {
            // What ends a channel goes before what it carries.
            biased;
            closed = &mut attachment.closing => End::Closed(closed.unwrap_or_else(|_| going_away())),
            () = self.shared.stopping.cancelled() => End::Closed(going_away()),
            () = unauthorized => {
                End::Closed(Close::new(close::UNAUTHORIZED, "the token is no longer valid"))
            }
            () = heard.silent_for(limits.silence) => End::Lost("silent"),
            end = self.read(lane, &mut source) => end,
            end = write(&mut sink, &mut attachment.outgoing, limits.ping_interval) => end,
        };
        drop(attachment);
        #[expect(clippy::expect_used, reason = "both halves are of one stream")]
        let stream = source.reunite(sink).expect("halves of one stream");
        (stream, end)
    }

    /// Reads results until something ends the channel.
    async fn read(&self, lane: &Lane, source: &mut SplitStream<Stream>) -> End {
        loop {
            let text = match source.next().await {
                Some(Ok(Message::Text(text))) => text,
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => continue,
                Some(Ok(Message::Binary(_))) => {
                    let reason = "only text messages are frames";
                    return End::Closed(Close::new(close::UNSUPPORTED, reason));
                }
                Some(Ok(Message::Close(_))) => return End::Left,
                Some(Err(error)) => return End::of(&error),
                None => return End::Lost("closed without a closing handshake"),
            };
            let frame = match parse_edge_frame(&text) {
                Ok(frame) => frame,
                Err(error) => {
                    return End::Closed(Close::new(error.close_code(), error.to_string()));
                }
            };
            postern_kit::fault_point!(crate::fault_points::RESULT_BEFORE);
            self.shared.calls.answered(lane, &frame).await;
        }
    }
}

/// Sends calls and pings until the connection breaks.
async fn write(
    sink: &mut SplitSink<Stream, Message>,
    outgoing: &mut mpsc::Receiver<Utf8Bytes>,
    ping_interval: Duration,
) -> End {
    let mut pings =
        tokio::time::interval_at(tokio::time::Instant::now() + ping_interval, ping_interval);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let message = tokio::select! {
            frame = outgoing.recv() => match frame {
                Some(frame) => Message::Text(frame),
                // The lane let go of this channel and says why.
                None => std::future::pending().await,
            },
            _ = pings.tick() => Message::Ping(Vec::new().into()),
        };
        #[cfg(feature = "fault-points")]
        let is_call = message.is_text();
        #[cfg(feature = "fault-points")]
        if is_call {
            postern_kit::fault_point!(crate::fault_points::SEND_BEFORE);
        }
        if sink.send(message).await.is_err() {
            return End::Lost("the connection broke");
        }
        #[cfg(feature = "fault-points")]
        if is_call {
            postern_kit::fault_point!(crate::fault_points::SEND_AFTER);
        }
    }
}

fn going_away() -> Close {
    Close::new(close::GOING_AWAY, "the host is shutting down")
}

impl End {
    /// What a failed read says of the peer.
    fn of(error: &Error) -> Self {
        match error {
            Error::Capacity(_) => Self::Failed(Close::new(close::TOO_LARGE, "message too large")),
            Error::Utf8(_) => Self::Failed(Close::new(close::INVALID_UTF8, "text is not UTF-8")),
            Error::Protocol(
                tokio_tungstenite::tungstenite::error::ProtocolError::ResetWithoutClosingHandshake,
            ) => Self::Lost("closed without a closing handshake"),
            Error::Protocol(_) => Self::Failed(Close::new(
                close::PROTOCOL_ERROR,
                "the WebSocket protocol was broken",
            )),
            Error::ConnectionClosed
            | Error::AlreadyClosed
            | Error::Io(_)
            | Error::Tls(_)
            | Error::WriteBufferFull(_)
            | Error::AttackAttempt
            | Error::Url(_)
            | Error::Http(_)
            | Error::HttpFormat(_) => Self::Lost("the connection broke"),
        }
    }

    fn told(&self) -> (u16, &str) {
        match self {
            Self::Closed(close) | Self::Failed(close) => (close.code, &close.reason),
            Self::Left => (0, "closed by the edge"),
            Self::Lost(reason) => (0, reason),
        }
    }
}

/// Says goodbye as far as the other side lets it, within [`CLOSING`].
async fn hang_up(mut stream: Stream, end: End) {
    let goodbye = async {
        match end {
            End::Lost(_) => {}
            End::Left => while let Some(Ok(_)) = stream.next().await {},
            End::Closed(close) => {
                if stream.send(frame(close)).await.is_ok() {
                    while let Some(Ok(_)) = stream.next().await {}
                }
            }
            End::Failed(close) => {
                // The parser stands in the middle of a message that it must not go on with, so the rest is thrown away
                // below it.
                if stream.send(frame(close)).await.is_ok() {
                    listened::drain(stream.get_mut()).await;
                }
            }
        }
    };
    if timeout(CLOSING, goodbye).await.is_err() {
        tracing::debug!("the edge did not take part in closing");
    }
}

fn frame(close: Close) -> Message {
    Message::Close(Some(CloseFrame {
        code: close.code.into(),
        reason: close.reason.into(),
    }))
}
