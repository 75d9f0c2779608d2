//! Server-sent events of an answer. Only their data matters here.

use std::collections::VecDeque;

use http_body_util::BodyExt as _;
use hyper::body::Incoming;

/// Longest event, in bytes.
const MAX_EVENT_BYTES: usize = 16 * 1024 * 1024;

/// The events of a response, as they arrive.
#[derive(Debug)]
pub(super) struct Events {
    body: Incoming,
    parser: Parser,
    ready: VecDeque<String>,
}

impl Events {
    pub(super) fn new(body: Incoming) -> Self {
        Self {
            body,
            parser: Parser::default(),
            ready: VecDeque::new(),
        }
    }

    /// Whether the stream ended here because of an event over the limit.
    pub(super) fn is_too_long(&self) -> bool {
        self.parser.pending() > MAX_EVENT_BYTES
    }

    /// The data of the next event; nothing once the stream has ended, or has become something that is none.
    pub(super) async fn next(&mut self) -> Option<String> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            if self.is_too_long() {
                return None;
            }
            let frame = self.body.frame().await?.ok()?;
            if let Ok(data) = frame.into_data() {
                self.ready.extend(self.parser.add(&data));
            }
        }
    }
}

/// Puts events together from pieces.
#[derive(Debug, Default)]
struct Parser {
    /// What has come of a line.
    line: Vec<u8>,
    /// Data lines of the event.
    data: String,
}

impl Parser {
    /// The data of the events that are complete with these bytes.
    fn add(&mut self, bytes: &[u8]) -> Vec<String> {
        let mut complete = Vec::new();
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(part);
            if part.ends_with(b"\n") {
                let line = std::mem::take(&mut self.line);
                complete.extend(self.end_line(String::from_utf8_lossy(&line).trim_end()));
            }
        }
        complete
    }

    fn end_line(&mut self, line: &str) -> Option<String> {
        if line.is_empty() {
            let data = std::mem::take(&mut self.data);
            return (!data.is_empty()).then_some(data);
        }
        if let Some(data) = line.strip_prefix("data:") {
            if !self.data.is_empty() {
                self.data.push('\n');
            }
            self.data.push_str(data.strip_prefix(' ').unwrap_or(data));
        }
        None
    }

    fn pending(&self) -> usize {
        self.line.len() + self.data.len()
    }
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    #[test]
    fn events_are_joined_from_pieces_of_any_size() {
        let stream = b": waiting\n\nevent: message\ndata: {\"a\":\"\xc3\xa9\",\ndata: \"b\":1}\r\n\r\nid: 1\ndata:{}\n\n";
        for size in 1..stream.len() {
            let mut events = Parser::default();
            let found: Vec<_> = stream
                .chunks(size)
                .flat_map(|chunk| events.add(chunk))
                .collect();
            assert_eq!(found, ["{\"a\":\"é\",\n\"b\":1}", "{}"], "{size}");
            assert_eq!(events.pending(), 0);
        }
    }
}
