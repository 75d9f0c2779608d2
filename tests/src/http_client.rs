//! A small HTTP client over hyper: kept connections, bounded waits, bodies as bytes or as server-sent events.

use std::time::Duration;

use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde_json::Value;
use tokio::time::timeout;

/// Longest wait for an answer. Above every documented wait of the product (60 s for a channel).
const ANSWER_LIMIT: Duration = Duration::from_secs(90);

/// What came back.
#[derive(Debug)]
pub struct Reply {
    /// Status code.
    pub status: StatusCode,
    /// Headers.
    pub headers: HeaderMap,
    /// The JSON body, `null` when the body is empty or not JSON.
    pub json: Value,
    /// The body.
    pub body: Bytes,
}

/// The client. Clones share their connections.
#[derive(Clone, Debug)]
pub struct Http(Client<HttpConnector, Full<Bytes>>);

impl Default for Http {
    fn default() -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        Self(Client::builder(TokioExecutor::new()).build(connector))
    }
}

/// Why no answer came.
#[derive(Debug)]
pub struct NoReply(pub String);

impl Http {
    /// Sends a request and takes the whole body. Of a stream of events, the body ends with the first event for
    /// which `is_last` holds, and that event is the reply's JSON.
    ///
    /// # Errors
    /// When the connection fails or nothing comes in time.
    pub async fn send(
        &self,
        method: Method,
        url: &str,
        headers: &[(&str, &str)],
        body: Vec<u8>,
        is_last: impl Fn(&Value) -> bool,
    ) -> Result<Reply, NoReply> {
        let mut request = Request::builder().method(method).uri(url);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| NoReply(error.to_string()))?;
        timeout(ANSWER_LIMIT, self.exchange(request, is_last))
            .await
            .map_err(|_| NoReply(format!("no answer within {ANSWER_LIMIT:?}")))?
    }

    async fn exchange(
        &self,
        request: Request<Full<Bytes>>,
        is_last: impl Fn(&Value) -> bool,
    ) -> Result<Reply, NoReply> {
        let lost = |error: &dyn std::fmt::Debug| NoReply(format!("{error:?}"));
        let response = self
            .0
            .request(request)
            .await
            .map_err(|error| lost(&error))?;
        let (head, body) = response.into_parts();
        let is_stream = head
            .headers
            .get("content-type")
            .is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
        let (json, body) = if is_stream {
            read_events(body, is_last).await?
        } else {
            let whole = body.collect().await.map_err(|error| lost(&error))?;
            let bytes = whole.to_bytes();
            (serde_json::from_slice(&bytes).unwrap_or(Value::Null), bytes)
        };
        Ok(Reply {
            status: head.status,
            headers: head.headers,
            json,
            body,
        })
    }
}

async fn read_events(
    mut body: Incoming,
    is_last: impl Fn(&Value) -> bool,
) -> Result<(Value, Bytes), NoReply> {
    let mut all = Vec::new();
    let mut parsed = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| NoReply(format!("{error:?}")))?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        all.extend_from_slice(&data);
        while let Some(length) = end_of_event(&all[parsed..]) {
            let event = data_of(&all[parsed..parsed + length]);
            parsed += length;
            if let Some(value) = event.filter(|value| is_last(value)) {
                return Ok((value, Bytes::from(all)));
            }
        }
    }
    Err(NoReply("the stream ended without the answer".to_owned()))
}

fn end_of_event(bytes: &[u8]) -> Option<usize> {
    let plain = bytes
        .windows(2)
        .position(|pair| pair == b"\n\n")
        .map(|at| at + 2);
    let carriage = bytes
        .windows(4)
        .position(|four| four == b"\r\n\r\n")
        .map(|at| at + 4);
    match (plain, carriage) {
        (Some(first), Some(second)) => Some(first.min(second)),
        (first, second) => first.or(second),
    }
}

fn data_of(event: &[u8]) -> Option<Value> {
    let text = std::str::from_utf8(event).ok()?;
    let data: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("data:"))
        .map(|rest| rest.strip_prefix(' ').unwrap_or(rest))
        .collect();
    serde_json::from_str(&data.join("\n")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_end_at_an_empty_line_and_their_data_is_joined() {
        let stream = b"event: message\ndata: {\"id\":\ndata: 1}\n\n: comment\n\ndata:[]\r\n\r\n";
        let first = end_of_event(stream).expect("first event");
        assert_eq!(
            data_of(&stream[..first]),
            Some(serde_json::json!({"id": 1}))
        );
        let second = end_of_event(&stream[first..]).expect("comment");
        assert_eq!(data_of(&stream[first..first + second]), None);
        let third = end_of_event(&stream[first + second..]).expect("third event");
        assert_eq!(
            data_of(&stream[first + second..first + second + third]),
            Some(serde_json::json!([]))
        );
        assert_eq!(end_of_event(b"data: unfinished\n"), None);
    }
}
