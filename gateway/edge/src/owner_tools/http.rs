//! A server at a URL: streamable HTTP. Redirects are not followed, so that a token goes nowhere else.

use std::{borrow::Cow, collections::HashMap, sync::Arc, time::Duration};

use futures_util::StreamExt as _;
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use rmcp::{
    model::{ClientJsonRpcMessage, ClientRequest, ErrorData, ServerJsonRpcMessage},
    transport::{
        StreamableHttpClientTransport,
        streamable_http_client::{
            SseError, StreamableHttpClient, StreamableHttpClientTransportConfig,
            StreamableHttpError, StreamableHttpPostResponse,
        },
    },
};
use sse_stream::{Sse, SseStream};
use tokio::sync::Notify;

use super::{config::ToolServer, resolve::Resolver, tap::Tap, text};

/// Bytes of one answer, its events together.
const ANSWER_BYTES: usize = 16 * 1024 * 1024;
/// Bytes of a refusal that are looked at.
const REFUSAL_BYTES: usize = 64 * 1024;
/// Bytes of a token's file.
const TOKEN_BYTES: usize = 64 * 1024;
/// Time for a connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// Connections kept for the next request.
const IDLE_CONNECTIONS: usize = 4;
const EVENTS: &str = "text/event-stream";
const JSON: &str = "application/json";
const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");

type Refused = StreamableHttpError<Unreached>;
type Events = futures_util::stream::BoxStream<'static, Result<Sse, SseError>>;

/// Sends the library's messages. Clones share their connections.
#[derive(Clone)]
pub(super) struct HttpClient {
    client: Client<HttpsConnector<HttpConnector<Resolver>>, Full<Bytes>>,
    tap: Tap,
    /// Told when the server knows the session no more.
    session_over: Arc<Notify>,
}

/// The server did not answer. Says nothing of the request.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unreached {
    /// Nobody took the request.
    #[error("the server cannot be reached")]
    Connect,
    /// It was taken, or a part of it.
    #[error("the server did not answer: {0}")]
    Broken(String),
    /// It could not be written.
    #[error("the request cannot be written")]
    Unwritten,
}

impl HttpClient {
    /// A transport to the server's URL.
    pub(super) async fn transport(
        server: &ToolServer,
        tap: Tap,
        session_over: Arc<Notify>,
        tls: Option<Arc<rustls::ClientConfig>>,
    ) -> Result<StreamableHttpClientTransport<Self>, String> {
        let url = server.url.clone().unwrap_or_default();
        let mut config = StreamableHttpClientTransportConfig::with_uri(url);
        config.custom_headers = server.header_map()?.into_iter().collect();
        // What was said in a session is not said again in another by the library: the server is listed anew first.
        config.reinit_on_expired_session = false;
        if let Some(path) = &server.token_file {
            let path = path.clone();
            let read = tokio::task::spawn_blocking(move || read_token(&path)).await;
            config.auth_header = Some(read.map_err(|_| "its token cannot be read".to_owned())??);
        }
        let mut connector = HttpConnector::new_with_resolver(Resolver::new());
        connector.enforce_http(false);
        connector.set_connect_timeout(Some(CONNECT_LIMIT));
        connector.set_nodelay(true);
        let builder = HttpsConnectorBuilder::new();
        let builder = match tls {
            Some(tls) => builder.with_tls_config((*tls).clone()),
            None => builder.with_webpki_roots(),
        };
        let connector = builder
            .https_or_http()
            .enable_http1()
            .wrap_connector(connector);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_max_idle_per_host(IDLE_CONNECTIONS)
            // A connection that was closed meanwhile is no reason to send a call twice.
            .retry_canceled_requests(false)
            .build(connector);
        let own = Self {
            client,
            tap,
            session_over,
        };
        Ok(StreamableHttpClientTransport::with_client(own, config))
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, Refused> {
        let answered = self.client.request(request).await;
        answered.map_err(|error| {
            StreamableHttpError::Client(if error.is_connect() {
                Unreached::Connect
            } else {
                Unreached::Broken(error.to_string())
            })
        })
    }

    async fn post(
        &self,
        request: Request<Full<Bytes>>,
        message: &ClientJsonRpcMessage,
    ) -> Result<StreamableHttpPostResponse, Refused> {
        let had_session = request.headers().contains_key(SESSION);
        self.tap.sending(message);
        // A server may answer only once it is done, so nothing that it says can be waited for to know that it was reached.
        self.tap.sent(message);
        let answered = self.send(request).await;
        // Whoever was not reached got nothing of it.
        if matches!(
            answered,
            Err(StreamableHttpError::Client(Unreached::Connect))
        ) {
            self.tap.unsent(message);
        }
        let response = answered?;
        let status = response.status();
        let awaits = matches!(message, ClientJsonRpcMessage::Request(_));
        if matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT)
            || (status.is_success() && !awaits)
        {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        if status == StatusCode::NOT_FOUND && had_session {
            // The server says that it knows no such session, so it did nothing for it.
            self.tap.unsent(message);
            self.session_over.notify_one();
            return Err(StreamableHttpError::SessionExpired);
        }
        let session = response
            .headers()
            .get(SESSION)
            .and_then(|session| session.to_str().ok())
            .map(str::to_owned);
        if !status.is_success() {
            return self.refused(response, message, had_session, session).await;
        }
        if is_type(&response, EVENTS) {
            return Ok(StreamableHttpPostResponse::Sse(
                self.events(response),
                session,
            ));
        }
        if !is_type(&response, JSON) {
            return Err(unexpected("an answer that is neither JSON nor events"));
        }
        let body = read(response, ANSWER_BYTES).await?;
        let read = self.tap.read(&body);
        let read = read.ok_or_else(|| unexpected("an answer that is no message"))?;
        Ok(StreamableHttpPostResponse::Json(read, session))
    }

    /// A refusal may be a message, and one of the first request tells that the server speaks an older protocol.
    async fn refused(
        &self,
        response: Response<Incoming>,
        message: &ClientJsonRpcMessage,
        had_session: bool,
        session: Option<String>,
    ) -> Result<StreamableHttpPostResponse, Refused> {
        let status = response.status();
        let is_json = is_type(&response, JSON);
        let unauthorized = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        let body = if is_json && !unauthorized {
            read(response, REFUSAL_BYTES).await?
        } else {
            String::new()
        };
        let error = match serde_json::from_str(&body) {
            Ok(ServerJsonRpcMessage::Error(error)) => Some(error),
            Ok(_) | Err(_) => None,
        };
        if let ClientJsonRpcMessage::Request(request) = message
            && matches!(request.request, ClientRequest::DiscoverRequest(_))
            && status.is_client_error()
            && !unauthorized
            && !had_session
        {
            let error = error.map_or_else(
                || ErrorData::invalid_request(format!("HTTP {}", status.as_u16()), None),
                |error| error.error,
            );
            let told = ServerJsonRpcMessage::error(error, Some(request.id.clone()));
            return Ok(StreamableHttpPostResponse::Json(told, None));
        }
        match error {
            Some(error) => Ok(StreamableHttpPostResponse::Json(
                ServerJsonRpcMessage::Error(error),
                session,
            )),
            None => Err(unexpected(&format!("HTTP {}", status.as_u16()))),
        }
    }

    /// Events, each message in them taken aside and made readable.
    fn events(&self, response: Response<Incoming>) -> Events {
        let tap = self.tap.clone();
        let body = Limited::new(response.into_body(), ANSWER_BYTES);
        let events = SseStream::new(body.map_err(std::io::Error::other));
        Box::pin(events.map(move |event| {
            event.map(|mut event| {
                if let Some(data) = event.data.take() {
                    let read = tap.read(&data);
                    // What is no message is left empty, which the library passes over.
                    event.data = Some(
                        read.and_then(|read| serde_json::to_string(&read).ok())
                            .unwrap_or_default(),
                    );
                }
                event
            })
        }))
    }
}

impl StreamableHttpClient for HttpClient {
    type Error = Unreached;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, Refused> {
        let body = serde_json::to_vec(&message)?;
        let mut request = request(
            Method::POST,
            &uri,
            session_id,
            auth_header,
            custom_headers,
            body,
        )?;
        let kind = HeaderValue::from_static(JSON);
        request.headers_mut().insert(header::CONTENT_TYPE, kind);
        self.post(request, &message).await
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), Refused> {
        let session = Some(session_id);
        let request = request(
            Method::DELETE,
            &uri,
            session,
            auth_header,
            custom_headers,
            Vec::new(),
        )?;
        self.send(request).await.map(drop)
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<Events, Refused> {
        let mut request = request(
            Method::GET,
            &uri,
            session_id,
            auth_header,
            custom_headers,
            Vec::new(),
        )?;
        if let Some(last) = last_event_id {
            let last = HeaderValue::try_from(last).map_err(|_| unwritten())?;
            request.headers_mut().insert(LAST_EVENT, last);
        }
        let response = self.send(request).await?;
        if response.status() == StatusCode::METHOD_NOT_ALLOWED {
            return Err(StreamableHttpError::ServerDoesNotSupportSse);
        }
        if !response.status().is_success() || !is_type(&response, EVENTS) {
            let status = response.status().as_u16();
            return Err(unexpected(&format!("no events but HTTP {status}")));
        }
        Ok(self.events(response))
    }
}

fn request(
    method: Method,
    uri: &str,
    session_id: Option<Arc<str>>,
    auth_header: Option<String>,
    custom_headers: HashMap<HeaderName, HeaderValue>,
    body: Vec<u8>,
) -> Result<Request<Full<Bytes>>, Refused> {
    let mut request = Request::new(Full::new(Bytes::from(body)));
    *request.method_mut() = method;
    *request.uri_mut() = uri.parse().map_err(|_| unwritten())?;
    let headers = request.headers_mut();
    headers.extend(custom_headers);
    let accepted = HeaderValue::from_static("application/json, text/event-stream");
    headers.insert(header::ACCEPT, accepted);
    if let Some(session) = session_id {
        let session = HeaderValue::try_from(&*session).map_err(|_| unwritten())?;
        headers.insert(SESSION, session);
    }
    if let Some(token) = auth_header {
        let mut bearer =
            HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| unwritten())?;
        bearer.set_sensitive(true);
        headers.insert(header::AUTHORIZATION, bearer);
    }
    Ok(request)
}

/// A body of at most so many bytes.
async fn read(response: Response<Incoming>, limit: usize) -> Result<String, Refused> {
    let body = Limited::new(response.into_body(), limit).collect().await;
    let body = body.map_err(|_| StreamableHttpError::ResponseBodyTooLarge { max_size: limit })?;
    String::from_utf8(body.to_bytes().into()).map_err(|_| unexpected("an answer that is no UTF-8"))
}

fn is_type<B>(response: &Response<B>, kind: &str) -> bool {
    response
        .headers()
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split(';').next())
        .is_some_and(|value| value.trim().eq_ignore_ascii_case(kind))
}

fn unwritten() -> Refused {
    StreamableHttpError::Client(Unreached::Unwritten)
}

fn unexpected(what: &str) -> Refused {
    let what = text::shown(what.as_bytes(), text::TOLD);
    StreamableHttpError::UnexpectedServerResponse(Cow::Owned(what))
}

fn read_token(path: &std::path::Path) -> Result<String, String> {
    use std::io::Read as _;
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(|error| format!("its token: {error}"))?;
    let limit = u64::try_from(TOKEN_BYTES).unwrap_or(u64::MAX);
    file.take(limit)
        .read_to_string(&mut text)
        .map_err(|error| format!("its token: {error}"))?;
    let token = text.trim();
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("the file of its token holds no token".to_owned());
    }
    Ok(token.to_owned())
}
