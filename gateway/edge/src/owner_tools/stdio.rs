//! A server that is a program in the exec worker, spoken to by lines through a stream.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use postern_kit::Failure;
use postern_proto::exec::v1::{
    PipeEnd, PipeRequest, PipeResponse, PipeStart, pipe_request, pipe_response,
};
use rmcp::{
    RoleClient, model::ClientJsonRpcMessage, service::RxJsonRpcMessage, transport::Transport,
};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use super::{away::Away, config::ToolServer, tap::Tap, text};
use crate::clients::{Clients, hop};

/// Longest line of a server, in bytes: four times the largest result that an agent can get. A longer one ends the server.
const LINE_BYTES: usize = 8 * 1024 * 1024;
/// Messages that wait for a server that does not read.
const AHEAD: usize = 8;
/// Time in which there must be room for a further one.
const TAKE_LIMIT: Duration = Duration::from_secs(2);
/// Lines of a server that are read in one second; whatever it writes beyond that waits, so that a flood costs little.
const LINES_A_SECOND: u32 = 2000;
/// Bytes of a server's last words on standard error.
const WORDS_BYTES: usize = 1024;

/// The program's pipes.
pub(super) struct Stdio {
    /// `None` once it is closed, which ends the program.
    input: Option<mpsc::Sender<PipeRequest>>,
    output: Streaming<PipeResponse>,
    lines: Lines,
    pace: Pace,
    tap: Tap,
    words: LastWords,
}

/// A program's output as lines.
#[derive(Debug, Default)]
struct Lines {
    /// What came and is no whole line yet.
    rest: Vec<u8>,
    /// Where in it no line end is.
    searched: usize,
    /// Lines that came together with an earlier one.
    whole: VecDeque<Vec<u8>>,
}

/// How much of a second's lines is read.
struct Pace {
    until: Instant,
    lines: u32,
}

/// Why a program is gone, as far as that is known.
#[derive(Clone, Debug, Default)]
pub(super) struct LastWords(Arc<Mutex<Words>>);

#[derive(Debug, Default)]
struct Words {
    errors: VecDeque<u8>,
    end: Option<String>,
}

/// The program reads no more.
#[derive(Debug, thiserror::Error)]
#[error("the program has ended")]
pub(super) struct Gone;

impl Stdio {
    /// Starts the program.
    pub(super) async fn start(
        server: &ToolServer,
        clients: &Clients,
        tap: Tap,
        words: LastWords,
    ) -> Result<Self, Failure> {
        let (input, requests) = mpsc::channel(AHEAD);
        let start = PipeStart {
            argv: server.command.clone(),
            cwd: server.cwd.clone(),
            env: server.env.clone().into_iter().collect(),
            pass: server.env_pass.clone(),
            write: server.sandbox_write.clone(),
        };
        let first = PipeRequest {
            part: Some(pipe_request::Part::Start(start)),
        };
        // There is room: nothing was sent before.
        let _room = input.try_send(first);
        let mut exec = clients.exec.clone();
        let output = hop(exec.pipe(ReceiverStream::new(requests))).await?;
        Ok(Self {
            input: Some(input),
            output,
            lines: Lines::default(),
            pace: Pace {
                until: Instant::now(),
                lines: 0,
            },
            tap,
            words,
        })
    }

    /// The next line, without its end. Nothing is lost when this is dropped before it is done.
    async fn line(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(line) = self.lines.whole.pop_front() {
                return Some(line);
            }
            let answer = match self.output.message().await {
                Ok(Some(answer)) => answer,
                Ok(None) => return None,
                Err(status) => {
                    self.words.ended(&format!(
                        "the exec worker is away ({})",
                        status.code().description()
                    ));
                    return None;
                }
            };
            match answer.part {
                Some(pipe_response::Part::Output(bytes)) if self.lines.take(&bytes) => {}
                Some(pipe_response::Part::Output(_)) => {
                    self.words.ended("it wrote a line of over 8 MiB");
                    return None;
                }
                Some(pipe_response::Part::Errors(bytes)) => self.words.hear(&bytes),
                Some(pipe_response::Part::End(end)) => {
                    self.words.ended(&how(&end));
                    return None;
                }
                None => {}
            }
        }
    }
}

impl Lines {
    /// Cuts what came into lines; whether all are of a bearable length. Every byte is looked at and moved once, however short the
    /// lines are: nothing else runs on this thread meanwhile.
    fn take(&mut self, bytes: &[u8]) -> bool {
        self.rest.extend_from_slice(bytes);
        let (mut start, mut is_bearable) = (0, true);
        while let Some(length) = self.rest[self.searched..]
            .iter()
            .position(|byte| *byte == b'\n')
        {
            let end = self.searched + length;
            is_bearable &= end - start <= LINE_BYTES;
            self.whole.push_back(self.rest[start..end].to_vec());
            start = end + 1;
            self.searched = start;
        }
        self.rest.drain(..start);
        self.searched = self.rest.len();
        is_bearable && self.rest.len() <= LINE_BYTES
    }
}

impl Transport<RoleClient> for Stdio {
    type Error = Gone;

    fn send(
        &mut self,
        item: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Gone>> + Send + 'static {
        self.tap.sending(&item);
        let (input, tap) = (self.input.clone(), self.tap.clone());
        async move {
            let mut line = serde_json::to_vec(&item).map_err(|_| Gone)?;
            line.push(b'\n');
            // Whoever waits for an answer tells the server first that he gives up, so this wait must have an end itself.
            let room = tokio::time::timeout(TAKE_LIMIT, input.as_ref().ok_or(Gone)?.reserve());
            let room = room.await.map_err(|_| Gone)?.map_err(|_| Gone)?;
            tap.sent(&item);
            room.send(PipeRequest {
                part: Some(pipe_request::Part::Input(Bytes::from(line))),
            });
            Ok(())
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            self.pace.turn().await;
            let line = self.line().await?;
            self.pace.lines += 1;
            let read = std::str::from_utf8(&line)
                .ok()
                .and_then(|line| self.tap.read(line));
            match read {
                Some(message) => return Some(message),
                // Some programs write other things there; what is no message is no matter.
                None => tracing::debug!(
                    line = text::shown(&line, text::LOGGED),
                    "an owner's tool server wrote something that is no message"
                ),
            }
        }
    }

    async fn close(&mut self) -> Result<(), Gone> {
        self.input = None;
        Ok(())
    }
}

impl Pace {
    /// Waits until another line may be read. Nothing is lost when this is dropped before it is done.
    async fn turn(&mut self) {
        if self.lines >= LINES_A_SECOND {
            sleep_until(self.until).await;
        }
        let now = Instant::now();
        if self.until <= now {
            self.until = now + Duration::from_secs(1);
            self.lines = 0;
        }
    }
}

impl LastWords {
    fn hear(&self, bytes: &[u8]) {
        tracing::debug!(
            text = text::shown(bytes, text::LOGGED),
            "an owner's tool server says"
        );
        let errors = &mut self.words().errors;
        let kept = bytes.len().saturating_sub(WORDS_BYTES);
        errors.extend(&bytes[kept..]);
        let over = errors.len().saturating_sub(WORDS_BYTES);
        errors.drain(..over);
    }

    fn ended(&self, how: &str) {
        self.words().end = Some(how.to_owned());
    }

    /// How it ended, and the last line that it wrote to standard error.
    pub(super) fn tell(&self) -> Away {
        let mut words = self.words();
        let errors = words.errors.make_contiguous();
        let last = errors
            .split(|byte| *byte == b'\n')
            .rfind(|line| !line.trim_ascii().is_empty());
        Away {
            last_words: last.map(|line| text::shown(line.trim_ascii(), text::TOLD)),
            how: words.end.as_deref().unwrap_or("it has ended").to_owned(),
            failed: None,
        }
    }

    fn words(&self) -> MutexGuard<'_, Words> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn how(end: &PipeEnd) -> String {
    match (end.exit_code, &end.signal) {
        (Some(code), _) => format!("it ended with exit code {code}"),
        (None, Some(signal)) => format!("it was ended by {signal}"),
        (None, None) => "it has ended".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    #[test]
    fn lines_are_cut_wherever_what_came_was_cut() {
        let text = b"one\n\ntwo\r\nthr";
        for length in 1..=text.len() {
            let mut lines = Lines::default();
            assert!(text.chunks(length).all(|piece| lines.take(piece)));
            assert_eq!(lines.whole, [&b"one"[..], b"", b"two\r"], "{length}");
            assert_eq!(lines.rest, b"thr", "{length}");
        }
    }

    #[test]
    fn a_line_beyond_the_limit_is_not_borne() {
        let mut lines = Lines::default();
        assert!(lines.take(&vec![b'x'; LINE_BYTES]));
        assert!(lines.take(b"\n"), "just as long as may be");
        assert!(lines.take(&vec![b'x'; LINE_BYTES]));
        assert!(!lines.take(b"x\n"));
        assert!(!Lines::default().take(&vec![b'x'; LINE_BYTES + 1]));
    }

    /// If each line cost all that came behind it, this would take many minutes.
    #[test]
    fn millions_of_empty_lines_cost_no_more_than_their_bytes() {
        const LINES: usize = LINE_BYTES / 2;
        let mut lines = Lines::default();
        assert!(lines.take(&vec![b'\n'; LINES]));
        assert_eq!(lines.whole.len(), LINES);
    }
}
