//! One open channel, from the host's ready to its close.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::{
    SinkExt as _, StreamExt as _,
    stream::{SplitSink, SplitStream},
};
use postern_kit::{
    Failure,
    listened::{self, Heard},
    task::Tasks,
};
use postern_proto::channel::{HostFrame, close, parse_host_frame};
use postern_types::ErrorCode;
use tokio::{
    sync::{Semaphore, mpsc},
    time::{Instant, MissedTickBehavior},
};
use tokio_tungstenite::tungstenite::{
    self, Message, Utf8Bytes,
    protocol::{CloseFrame, frame::coding::CloseCode},
};
use tokio_util::sync::CancellationToken;

use super::connect::Socket;
use crate::{call::Call, config::Config, control::Control, reply::Reply, stack::Stack};

/// Frames waiting to be written. A call whose frame finds no room waits with it.
const OUTGOING_FRAMES: usize = 8;
/// Calls of one channel that are answered at once: the four in flight, the same ones asked for again, and finished ones
/// whose frames wait to be written. Further calls are told so by the reader itself, which then waits for room.
const ANSWERS_AT_ONCE: usize = 16;
/// Time for the close handshake.
const CLOSE_PATIENCE: Duration = Duration::from_secs(2);
/// Longest reason of a close frame in bytes (RFC 6455, section 5.5).
const MAX_REASON_BYTES: usize = 123;

/// Why a channel ended.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum Ended {
    /// The edge shuts down.
    Stopped,
    /// The owner closed the channel.
    ClosedByOwner,
    /// Another edge took the workspace over in the ledger.
    Fenced,
    /// A newer channel of this workspace took over.
    Superseded,
    /// The token was revoked or has expired.
    Unauthorized,
    /// Anything else; a new channel may do better.
    Lost(String),
}

/// What a channel needs to serve.
pub(crate) struct Serving<'a> {
    pub(crate) config: &'a Config,
    pub(crate) control: &'a Control,
    pub(crate) stack: &'a Stack,
    pub(crate) tasks: &'a Tasks,
    pub(crate) stop: &'a CancellationToken,
    /// Called once the host has said ready.
    pub(crate) on_ready: &'a (dyn Fn() + Send + Sync),
}

/// Why reading stopped.
enum Stop {
    Ended(Ended),
    /// The host closed the channel in order; its close frame is not answered yet.
    ClosedByHost(Ended),
    /// The host broke the protocol: closed with this code and reason.
    Violation(u16, String),
    /// As a violation, and what came cannot be read on.
    Unreadable(u16, &'static str),
}

type Sink = SplitSink<Socket, Message>;
type Source = SplitStream<Socket>;

/// Serves one channel until it ends. Calls that run go on when it is lost; only at a shutdown and when the owner closes
/// it are their answers waited for.
pub(crate) async fn serve(socket: Socket, heard: Heard, serving: Serving<'_>) -> Ended {
    let (mut sink, mut source) = socket.split();
    let (frames, mut outgoing) = mpsc::channel(OUTGOING_FRAMES);
    let answers = Arc::new(Semaphore::new(ANSWERS_AT_ONCE));
    let config = serving.config;
    // One future writes from the first frame to the last, so that no stop cuts it between two halves of a frame.
    let mut writing = Box::pin(write(&mut sink, &mut outgoing, config.ping_interval));

    let stop = tokio::select! {
        biased;
        () = serving.stop.cancelled() => Stop::Ended(Ended::Stopped),
        () = serving.control.fenced().cancelled() => Stop::Ended(Ended::Fenced),
        () = serving.control.wait_open(false) => Stop::Ended(Ended::ClosedByOwner),
        stop = read(&mut source, &frames, &answers, &serving) => stop,
        lost = &mut writing => Stop::Ended(lost),
        () = heard.silent_for(config.silence_limit) => {
            Stop::Ended(Ended::Lost("nothing was heard from the host".to_owned()))
        }
    };
    drop(frames);
    let unreadable = matches!(stop, Stop::Unreadable(..));
    if let Stop::ClosedByHost(ended) = stop {
        drop(writing);
        // The answer to the close frame waits to be written, behind whatever was being sent (RFC 6455, section 5.5.1).
        if let Ok(mut socket) = source.reunite(sink) {
            let _ = tokio::time::timeout(CLOSE_PATIENCE, socket.flush()).await;
        }
        return ended;
    }
    let (ended, code, reason) = match farewell(stop) {
        Ok(farewell) => farewell,
        Err(ended) => return ended,
    };
    if matches!(ended, Ended::Stopped | Ended::Fenced | Ended::ClosedByOwner) {
        let deadline = if ended == Ended::ClosedByOwner {
            Instant::now() + config.drain_limit
        } else {
            serving.control.leave(config.drain_limit)
        };
        // Ends once the last call of this channel has been answered.
        let _ = tokio::time::timeout_at(deadline, &mut writing).await;
    }
    drop(writing);
    let closing = async {
        if !say_goodbye(&mut sink, code, reason).await {
            return;
        }
        if unreadable {
            // The parser stands in the middle of a message that it must not go on with, so the rest is thrown away below
            // it.
            if let Ok(mut socket) = source.reunite(sink) {
                listened::drain(socket.get_mut()).await;
            }
        } else {
            while let Some(Ok(message)) = source.next().await {
                if message.is_close() {
                    return;
                }
            }
        }
    };
    // A host that does not answer the close is left alone; the connection ends with the socket.
    let _ = tokio::time::timeout(CLOSE_PATIENCE, closing).await;
    ended
}

/// How the end is told to the host: the close code and its reason. Not at all when the connection is gone.
fn farewell(stop: Stop) -> Result<(Ended, u16, String), Ended> {
    let away = |ended, reason: &str| Ok((ended, close::GOING_AWAY, reason.to_owned()));
    match stop {
        Stop::Ended(Ended::Stopped) => away(Ended::Stopped, "shutting down"),
        Stop::Ended(Ended::Fenced) => away(Ended::Fenced, "replaced"),
        Stop::Ended(Ended::ClosedByOwner) => away(Ended::ClosedByOwner, "closed by the owner"),
        Stop::Ended(ended) | Stop::ClosedByHost(ended) => Err(ended),
        Stop::Violation(code, reason) => Ok((violated(&reason), code, reason)),
        Stop::Unreadable(code, reason) => Ok((violated(reason), code, reason.to_owned())),
    }
}

fn violated(reason: &str) -> Ended {
    Ended::Lost(format!("the host broke the protocol: {reason}"))
}

/// Sends the close frame. Tells whether it left.
async fn say_goodbye(sink: &mut Sink, code: u16, mut reason: String) -> bool {
    let mut end = reason.len().min(MAX_REASON_BYTES);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    reason.truncate(end);
    let frame = CloseFrame {
        code: CloseCode::from(code),
        reason: reason.into(),
    };
    sink.send(Message::Close(Some(frame))).await.is_ok()
}

/// Writes frames as they come, and a ping at each interval, until the connection is lost or nobody is left to send.
async fn write(
    sink: &mut Sink,
    outgoing: &mut mpsc::Receiver<Message>,
    ping_interval: Duration,
) -> Ended {
    let mut pings = tokio::time::interval(ping_interval);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    pings.reset();
    loop {
        let message = tokio::select! {
            message = outgoing.recv() => match message {
                Some(message) => message,
                None => return Ended::Lost("every call was answered".to_owned()),
            },
            _ = pings.tick() => Message::Ping(Bytes::new()),
        };
        #[cfg(feature = "fault-points")]
        let is_result = message.is_text();
        #[cfg(feature = "fault-points")]
        if is_result {
            postern_kit::fault_point!(crate::fault_points::SEND_BEFORE);
        }
        if let Err(error) = sink.send(message).await {
            return Ended::Lost(format!("the connection was lost: {error}"));
        }
        #[cfg(feature = "fault-points")]
        if is_result {
            postern_kit::fault_point!(crate::fault_points::SEND_AFTER);
        }
    }
}

async fn read(
    source: &mut Source,
    frames: &mpsc::Sender<Message>,
    answers: &Arc<Semaphore>,
    serving: &Serving<'_>,
) -> Stop {
    match tokio::time::timeout(serving.config.ready_timeout, await_ready(source)).await {
        Ok(Ok(())) => (serving.on_ready)(),
        Ok(Err(stop)) => return stop,
        Err(_elapsed) => {
            return Stop::Violation(close::PROTOCOL_ERROR, "no ready frame came".to_owned());
        }
    }
    loop {
        let text = match next_text(source).await {
            Ok(text) => text,
            Err(stop) => return stop,
        };
        let frame = Bytes::from(text);
        // The WebSocket checked the text, and the frame's parts are slices of it.
        let text = std::str::from_utf8(&frame).unwrap_or_default();
        postern_kit::fault_point!(crate::fault_points::SHAPE_BEFORE);
        match parse_host_frame(text) {
            // Said again it says nothing new.
            Ok(HostFrame::Ready) => {}
            Ok(HostFrame::Call(call)) => {
                let call = Call::from_frame(&frame, *call);
                postern_kit::fault_point!(crate::fault_points::SHAPE_AFTER);
                answer(call, frames, answers, serving).await;
            }
            Err(error) => return Stop::Violation(error.close_code(), error.to_string()),
        }
    }
}

async fn await_ready(source: &mut Source) -> Result<(), Stop> {
    let text = next_text(source).await?;
    match parse_host_frame(&text) {
        Ok(HostFrame::Ready) => Ok(()),
        Ok(HostFrame::Call(_)) => Err(Stop::Violation(
            close::POLICY_VIOLATION,
            "the first frame must be ready".to_owned(),
        )),
        Err(error) => Err(Stop::Violation(error.close_code(), error.to_string())),
    }
}

/// The next text message; control frames are answered by the WebSocket itself.
async fn next_text(source: &mut Source) -> Result<Utf8Bytes, Stop> {
    loop {
        match source.next().await {
            Some(Ok(Message::Text(text))) => return Ok(text),
            Some(Ok(Message::Binary(_))) => {
                return Err(Stop::Violation(
                    close::UNSUPPORTED,
                    "binary messages are not part of the protocol".to_owned(),
                ));
            }
            Some(Ok(Message::Close(frame))) => return Err(Stop::ClosedByHost(closed(frame))),
            Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
            Some(Err(error)) => return Err(broken(&error)),
            None => {
                return Err(Stop::Ended(Ended::Lost(
                    "the host closed the connection".to_owned(),
                )));
            }
        }
    }
}

/// What the host's close code means.
fn closed(frame: Option<CloseFrame>) -> Ended {
    let Some(frame) = frame else {
        return Ended::Lost("the host closed the channel".to_owned());
    };
    match u16::from(frame.code) {
        close::SUPERSEDED => Ended::Superseded,
        close::UNAUTHORIZED => Ended::Unauthorized,
        code => Ended::Lost(format!("the host closed the channel with code {code}")),
    }
}

fn broken(error: &tungstenite::Error) -> Stop {
    if matches!(error, tungstenite::Error::Capacity(_)) {
        Stop::Unreadable(close::TOO_LARGE, "the message is over the frame limit")
    } else if matches!(error, tungstenite::Error::Utf8(_)) {
        Stop::Unreadable(close::INVALID_UTF8, "the text is not UTF-8")
    } else if matches!(error, tungstenite::Error::Protocol(problem)
        if !matches!(problem, tungstenite::error::ProtocolError::ResetWithoutClosingHandshake))
    {
        Stop::Unreadable(close::PROTOCOL_ERROR, "the WebSocket protocol was broken")
    } else {
        Stop::Ended(Ended::Lost(format!("the connection was lost: {error}")))
    }
}

/// Starts answering one call. The call runs as a task of the edge, so the end of the channel does not end it.
async fn answer(
    call: Call,
    frames: &mpsc::Sender<Message>,
    answers: &Arc<Semaphore>,
    serving: &Serving<'_>,
) {
    let (call_id, session_id) = (call.call_id.clone(), call.session_id.clone());
    let frames = frames.clone();
    let Ok(permit) = Arc::clone(answers).try_acquire_owned() else {
        let busy = Reply::failure(&Failure::new(
            ErrorCode::Busy,
            "This workspace has as many calls under way as it may. Wait for one to end, then send this call again.",
        ));
        // Waiting for room here stops the reading, which is what a host that floods the channel should feel.
        send(&frames, &busy, &call_id, &session_id).await;
        return;
    };
    let stack = serving.stack.clone();
    serving.tasks.spawn("call", async move {
        let reply = stack.answer(call).await;
        postern_kit::fault_point!(crate::fault_points::ANSWER_BEFORE);
        send(&frames, &reply, &call_id, &session_id).await;
        drop(permit);
    });
}

/// Hands a result to the writer. When the channel is gone the answer is not lost: the host sends the call again, and the
/// receipt answers it.
async fn send(frames: &mpsc::Sender<Message>, reply: &Reply, call_id: &str, session_id: &str) {
    match reply.frame(call_id, session_id) {
        Ok(frame) => {
            if frames.send(Message::Text(frame.into())).await.is_err() {
                tracing::debug!("a result found its channel closed");
            }
        }
        Err(error) => tracing::error!(%error, "a result frame could not be written"),
    }
}
