//! The host's `/mcp` as the bridge uses it: one message there, what answers it back.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use postern_host::CONVERSATION_HEADER;
use serde_json::Value;
use uuid::Uuid;

use super::{
    events::Events,
    message::{Era, Request, answer_to, answers},
};
use crate::{cli::Profile, error::Error};

const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");
/// Media types that an answer may have.
const ACCEPT: &str = "application/json, text/event-stream";
/// Longest answer, in bytes.
const MAX_ANSWER_BYTES: usize = 16 * 1024 * 1024;
/// Time to reach the host.
const CONNECT: Duration = Duration::from_secs(10);
/// Statuses that pass: of a proxy in front of a host that restarts, and of a host that has no room now.
const AWAY: [StatusCode; 4] = [
    StatusCode::TOO_MANY_REQUESTS,
    StatusCode::BAD_GATEWAY,
    StatusCode::SERVICE_UNAVAILABLE,
    StatusCode::GATEWAY_TIMEOUT,
];
/// When a silent connection is looked after, and how often until it counts as broken.
const KEEPALIVE: Duration = Duration::from_secs(20);
const KEEPALIVE_TRIES: u32 = 3;
/// Code of the host's refusal of a session that it does not know (any more).
const SESSION_NOT_FOUND: &str = "session_not_found";

/// A session that a handshake opened.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Session {
    id: HeaderValue,
    version: HeaderValue,
}

/// What came back.
#[derive(Debug)]
pub(super) enum Answer {
    /// Nothing, as for a notification.
    Nothing,
    /// One message.
    Message(String),
    /// Messages as they come.
    Events(Incoming),
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The host was not reached: nothing was sent.
    Unreached(String),
    /// The connection broke, and what became of the message is not known.
    Lost(String),
    /// The session is no longer known.
    SessionGone,
    /// The host refused.
    Refused(String),
}

/// A host's endpoint with its token.
#[derive(Debug)]
pub(super) struct Host {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    endpoint: Uri,
    shown: String,
    headers: HeaderMap,
}

impl Host {
    /// The endpoint of a host, for one conversation.
    pub(super) fn new(url: &str, profile: Profile, token: &str) -> Result<Self, Error> {
        let shown = url.trim_end_matches('/').to_owned();
        let query = match profile {
            Profile::Core => "",
            Profile::Full => "?profile=full",
        };
        let unusable = |problem: &dyn std::fmt::Display| {
            Error::Usage(format!("the host '{shown}' cannot be used: {problem}"))
        };
        let endpoint: Uri = format!("{shown}/mcp{query}")
            .parse()
            .map_err(|problem| unusable(&problem))?;
        let mut bearer = HeaderValue::try_from(format!("Bearer {token}"))
            .map_err(|problem| unusable(&problem))?;
        bearer.set_sensitive(true);
        let conversation = HeaderValue::try_from(Uuid::new_v4().to_string())
            .map_err(|problem| unusable(&problem))?;
        let mut headers = HeaderMap::new();
        headers.insert(header::AUTHORIZATION, bearer);
        headers.insert(header::ACCEPT, HeaderValue::from_static(ACCEPT));
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/json"),
        );
        headers.insert(CONVERSATION_HEADER, conversation);
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT));
        tcp.set_keepalive(Some(KEEPALIVE));
        tcp.set_keepalive_interval(Some(KEEPALIVE));
        tcp.set_keepalive_retries(Some(KEEPALIVE_TRIES));
        let connector = HttpsConnectorBuilder::new()
            .with_provider_and_webpki_roots(rustls::crypto::ring::default_provider())
            .map_err(|problem| unusable(&problem))?
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        Ok(Self {
            client: Client::builder(TokioExecutor::new()).build(connector),
            endpoint,
            shown,
            headers,
        })
    }

    /// Sends a request.
    pub(super) async fn ask(
        &self,
        request: &Request,
        session: Option<&Session>,
    ) -> Result<Answer, Trouble> {
        let mut headers = self.headers.clone();
        match &request.era {
            Era::Session => enter(&mut headers, session),
            Era::Alone(version) => {
                headers.insert(PROTOCOL_VERSION, plain(version)?);
                headers.insert(METHOD, plain(&request.method)?);
                if let Some(name) = &request.name {
                    headers.insert(NAME, worded(name)?);
                }
            }
        }
        let response = self.send(Method::POST, headers, &request.body).await?;
        self.answer(response, &request.id).await
    }

    /// Opens a session by a message of that id: its answer, and the session when the host opened one.
    pub(super) async fn initialize(
        &self,
        id: &str,
        body: &str,
    ) -> Result<(String, Option<Session>), Trouble> {
        let response = self.send(Method::POST, self.headers.clone(), body).await?;
        let session_id = response.headers().get(SESSION_ID).cloned();
        let answer = match self.answer(response, id).await? {
            Answer::Message(answer) => Some(answer),
            Answer::Nothing => None,
            Answer::Events(body) => {
                let mut events = Events::new(body);
                loop {
                    match events.next().await {
                        Some(event) if answers(&event, id) => break Some(one_line(&event)),
                        Some(_) => {}
                        None => break None,
                    }
                }
            }
        };
        let answer = answer.ok_or_else(|| {
            Trouble::Refused(format!(
                "The host {} did not answer the handshake.",
                self.shown
            ))
        })?;
        let version = agreed_version(&answer);
        let session = session_id
            .zip(version)
            .map(|(id, version)| Session { id, version });
        Ok((answer, session))
    }

    /// Sends a notification inside a session.
    pub(super) async fn notify(
        &self,
        body: &str,
        session: Option<&Session>,
    ) -> Result<(), Trouble> {
        let mut headers = self.headers.clone();
        enter(&mut headers, session);
        let response = self.send(Method::POST, headers, body).await?;
        let status = response.status();
        if status.is_success() {
            return Ok(());
        }
        let body = self.whole(response.into_body()).await?;
        Err(self.refused(status, &body))
    }

    /// Ends a session.
    pub(super) async fn leave(&self, session: &Session) {
        let mut headers = self.headers.clone();
        enter(&mut headers, Some(session));
        if let Err(trouble) = self.send(Method::DELETE, headers, "").await {
            tracing::debug!(?trouble, "the session could not be ended");
        }
    }

    async fn send(
        &self,
        method: Method,
        headers: HeaderMap,
        body: &str,
    ) -> Result<http::Response<Incoming>, Trouble> {
        let mut request = http::Request::new(Full::new(Bytes::copy_from_slice(body.as_bytes())));
        *request.method_mut() = method;
        *request.uri_mut() = self.endpoint.clone();
        *request.headers_mut() = headers;
        self.client.request(request).await.map_err(|problem| {
            let shown = &self.shown;
            if problem.is_connect() {
                Trouble::Unreached(format!(
                    "The host {shown} cannot be reached. Is it running, and is --host right?"
                ))
            } else {
                Trouble::Lost(format!("The connection to the host {shown} broke."))
            }
        })
    }

    /// What answers a request of that id. Something that is no answer to it is none of the client's business.
    async fn answer(
        &self,
        response: http::Response<Incoming>,
        id: &str,
    ) -> Result<Answer, Trouble> {
        let (parts, body) = response.into_parts();
        let kind = parts
            .headers
            .get(header::CONTENT_TYPE)
            .and_then(|kind| kind.to_str().ok())
            .and_then(|kind| kind.split(';').next())
            .unwrap_or_default()
            .trim();
        if parts.status.is_success() && kind == "text/event-stream" {
            return Ok(Answer::Events(body));
        }
        let text = self.whole(body).await?;
        if let Some(answer) = answer_to(id, &text) {
            return Ok(Answer::Message(one_line(&answer)));
        }
        if parts.status.is_success() && text.is_empty() {
            return Ok(Answer::Nothing);
        }
        Err(self.refused(parts.status, &text))
    }

    async fn whole(&self, body: Incoming) -> Result<String, Trouble> {
        let body = Limited::new(body, MAX_ANSWER_BYTES).collect().await;
        let body = body.map_err(|_| {
            Trouble::Lost(format!(
                "The answer of the host {} did not come whole.",
                self.shown
            ))
        })?;
        Ok(String::from_utf8_lossy(&body.to_bytes()).into_owned())
    }

    fn refused(&self, status: StatusCode, body: &str) -> Trouble {
        let problem: Value = serde_json::from_str(body).unwrap_or_default();
        if status == StatusCode::NOT_FOUND && problem["code"] == SESSION_NOT_FOUND {
            return Trouble::SessionGone;
        }
        if AWAY.contains(&status) {
            // A proxy whose host is away, or a host that has no room: the next try may find it.
            return Trouble::Lost(format!("The host {} answered {status}.", self.shown));
        }
        let told = ["detail", "title"]
            .iter()
            .find_map(|field| problem[field].as_str())
            .unwrap_or("no reason given");
        let hint = match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                " Check the token in --token-file: it must be an agent token of this host that is still valid."
            }
            _ => "",
        };
        Trouble::Refused(format!(
            "The host {} answered {status}: {told}{hint}",
            self.shown
        ))
    }
}

fn enter(headers: &mut HeaderMap, session: Option<&Session>) {
    if let Some(session) = session {
        headers.insert(SESSION_ID, session.id.clone());
        headers.insert(PROTOCOL_VERSION, session.version.clone());
    }
}

fn agreed_version(message: &str) -> Option<HeaderValue> {
    let message: Value = serde_json::from_str(message).ok()?;
    message["result"]["protocolVersion"].as_str()?.parse().ok()
}

fn plain(text: &str) -> Result<HeaderValue, Trouble> {
    HeaderValue::try_from(text).map_err(|_| {
        Trouble::Refused("The request's method or version is no plain text.".to_owned())
    })
}

/// A name as a header: as it is, or in Base64 where it is no plain text.
fn worded(name: &str) -> Result<HeaderValue, Trouble> {
    use base64::{Engine as _, prelude::BASE64_STANDARD};

    let is_plain = name.trim() == name
        && !name.starts_with("=?")
        && name.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    if is_plain {
        plain(name)
    } else {
        plain(&format!("=?base64?{}?=", BASE64_STANDARD.encode(name)))
    }
}

/// A message as one line. Line ends stand between its tokens only, where a space does as well.
pub(super) fn one_line(message: &str) -> String {
    message.trim().replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    #[test]
    fn names_that_are_no_header_text_travel_encoded() {
        let worded = |name: &str| worded(name).expect("a header").to_str().map(str::to_owned);
        assert_eq!(
            worded("workspace_read").ok(),
            Some("workspace_read".to_owned())
        );
        assert_eq!(worded("é").ok(), Some("=?base64?w6k=?=".to_owned()));
        assert_eq!(worded("a\nb").ok(), Some("=?base64?YQpi?=".to_owned()));
    }

    #[test]
    fn a_token_that_is_no_header_is_refused_and_not_repeated() {
        let problem = Host::new("http://127.0.0.1:1", Profile::Core, "secret\n")
            .map(drop)
            .expect_err("refused");
        assert!(!problem.to_string().contains("secret"));
    }
}
