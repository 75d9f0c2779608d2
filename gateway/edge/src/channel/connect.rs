//! One attempt to open the channel.

use std::time::{Duration, UNIX_EPOCH};

use http::{HeaderMap, HeaderValue, StatusCode, header};
use postern_kit::listened::{Heard, Listened};
use postern_proto::catalogue::MAX_FRAME_BYTES;
use postern_types::Timestamp;
use tokio::net::TcpStream;
use tokio_tungstenite::{
    Connector, MaybeTlsStream, WebSocketStream, client_async_tls_with_config,
    tungstenite::{self, client::IntoClientRequest as _, protocol::WebSocketConfig},
};

use super::endpoint::Endpoint;
use crate::config::Config;

/// Bytes read at once.
const READ_BUFFER_BYTES: usize = 32 * 1024;
/// Bytes waiting to be written: one frame under way, the next, and what the protocol adds.
const WRITE_BUFFER_BYTES: usize = 2 * MAX_FRAME_BYTES + 64 * 1024;
/// Bytes collected before they are written.
const WRITE_BATCH_BYTES: usize = 32 * 1024;

/// An open WebSocket.
pub(crate) type Socket = WebSocketStream<MaybeTlsStream<Listened<TcpStream>>>;

/// Why an attempt came to nothing.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The host said no, or pointed elsewhere: trying again would not help.
    Fatal(String),
    /// Later may be better.
    Passing {
        /// Why, for the owner.
        reason: String,
        /// How long the host asked to wait.
        retry_after: Option<Duration>,
    },
}

impl Refusal {
    fn passing(reason: impl Into<String>) -> Self {
        Self::Passing {
            reason: reason.into(),
            retry_after: None,
        }
    }
}

/// Opens the WebSocket, within the configured time.
pub(crate) async fn connect(
    config: &Config,
    endpoint: &Endpoint,
    now: Timestamp,
) -> Result<(Socket, Heard), Refusal> {
    let opening = Box::pin(open(config, endpoint, now));
    tokio::time::timeout(config.connect_timeout, opening)
        .await
        .unwrap_or_else(|_| Err(Refusal::passing("the host did not answer in time")))
}

async fn open(
    config: &Config,
    endpoint: &Endpoint,
    now: Timestamp,
) -> Result<(Socket, Heard), Refusal> {
    let stream = TcpStream::connect((endpoint.host.as_str(), endpoint.port))
        .await
        .map_err(|error| Refusal::passing(format!("the host cannot be reached: {error}")))?;
    let local = stream
        .peer_addr()
        .is_ok_and(|address| address.ip().is_loopback());
    if endpoint.loopback_only && !local {
        return Err(Refusal::Fatal(
            "the host's name does not lead to this machine, so the channel token would travel in plaintext"
                .to_owned(),
        ));
    }
    // Without it small frames wait for acknowledgements; a failure only costs time.
    let _ = stream.set_nodelay(true);
    let mut request = endpoint
        .url
        .as_str()
        .into_client_request()
        .map_err(|_| Refusal::Fatal("the host's URL cannot be used".to_owned()))?;
    let bearer = format!("Bearer {}", config.token.expose());
    let mut bearer = HeaderValue::try_from(bearer).map_err(|_| {
        Refusal::Fatal("the channel token holds characters that no token has".to_owned())
    })?;
    bearer.set_sensitive(true);
    request.headers_mut().insert(header::AUTHORIZATION, bearer);

    let limits = WebSocketConfig::default()
        .read_buffer_size(READ_BUFFER_BYTES)
        .write_buffer_size(WRITE_BATCH_BYTES)
        .max_write_buffer_size(WRITE_BUFFER_BYTES)
        .max_message_size(Some(MAX_FRAME_BYTES))
        .max_frame_size(Some(MAX_FRAME_BYTES));
    let connector = config.tls.clone().map(Connector::Rustls);
    let stream = Listened::new(stream);
    let heard = stream.heard();
    match client_async_tls_with_config(request, stream, Some(limits), connector).await {
        Ok((socket, _response)) => Ok((socket, heard)),
        Err(tungstenite::Error::Http(response)) => {
            Err(refusal(response.status(), response.headers(), now))
        }
        Err(error) => Err(Refusal::passing(format!("the upgrade failed: {error}"))),
    }
}

/// What an answer other than 101 means. Its body is not read: a host could put anything there.
fn refusal(status: StatusCode, headers: &HeaderMap, now: Timestamp) -> Refusal {
    if status.is_redirection() {
        return Refusal::Fatal(format!(
            "the host answered {} and points elsewhere; redirects are not followed, so that the token goes nowhere else",
            status.as_u16()
        ));
    }
    let reason = match status {
        StatusCode::UNAUTHORIZED => {
            "the host does not accept the channel token (401); create a launch for a new one"
        }
        StatusCode::FORBIDDEN => "the channel token is for another workspace or purpose (403)",
        StatusCode::NOT_FOUND => "the host knows no such workspace or endpoint (404)",
        _ => {
            return Refusal::Passing {
                reason: format!("the host answered {}", status.as_u16()),
                retry_after: retry_after(headers, now),
            };
        }
    };
    Refusal::Fatal(reason.to_owned())
}

/// `Retry-After`, in seconds or as a date.
fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = httpdate::parse_http_date(text).ok()?;
    let now = UNIX_EPOCH + Duration::from_millis(u64::try_from(now.as_millis()).ok()?);
    date.duration_since(now).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_tell_whether_to_go_on() {
        for code in [301, 302, 303, 304, 307, 308, 401, 403, 404] {
            let status = StatusCode::from_u16(code).expect("status");
            assert!(
                matches!(
                    refusal(status, &HeaderMap::new(), Timestamp::from_millis(0)),
                    Refusal::Fatal(_)
                ),
                "{code}"
            );
        }
        let mut headers = HeaderMap::new();
        headers.insert(header::RETRY_AFTER, HeaderValue::from_static("7"));
        for code in [429, 503, 500, 502, 400, 200] {
            let status = StatusCode::from_u16(code).expect("status");
            assert!(
                matches!(
                    refusal(status, &headers, Timestamp::from_millis(0)),
                    Refusal::Passing { retry_after: Some(wait), .. } if wait == Duration::from_secs(7)
                ),
                "{code}"
            );
        }
    }

    #[test]
    fn a_wait_is_asked_for_in_seconds_or_by_date() {
        let asked = |text| {
            let mut headers = HeaderMap::new();
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static(text));
            retry_after(&headers, Timestamp::from_millis(784_111_770_000))
        };
        assert_eq!(asked("120"), Some(Duration::from_secs(120)));
        assert_eq!(
            asked("Sun, 06 Nov 1994 08:49:37 GMT"),
            Some(Duration::from_secs(7))
        );
        assert_eq!(asked("Sun, 06 Nov 1994 08:49:00 GMT"), None);
        assert_eq!(asked("soon"), None);
    }
}
