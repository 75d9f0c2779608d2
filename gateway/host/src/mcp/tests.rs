//! The MCP server over HTTP messages, with a workspace that is told what to do.

mod calls;
mod conformance;
mod fake;
mod fixtures;
mod lists;
mod sessions;

use axum::body::{Body, to_bytes};
use http::{Method, Request, Response, StatusCode, header};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use fake::{Workspace, server};

/// A client: its token, and where it is in the protocol.
#[derive(Clone)]
struct Client {
    router: axum::Router,
    token: &'static str,
    version: Option<&'static str>,
    session: Option<String>,
    query: &'static str,
}

/// What came back.
#[derive(Debug)]
struct Answer {
    status: StatusCode,
    kind: String,
    session: Option<String>,
    body: String,
}

impl Answer {
    async fn of(response: Response<Body>) -> Self {
        let header = |name| {
            let value = response.headers().get(name)?;
            Some(value.to_str().expect("text").to_owned())
        };
        let (status, session) = (response.status(), header("mcp-session-id"));
        let kind = header("content-type").unwrap_or_default();
        let body = to_bytes(response.into_body(), usize::MAX)
            .await
            .expect("body");
        Self {
            status,
            kind,
            session,
            body: String::from_utf8(body.into()).expect("UTF-8"),
        }
    }

    /// The last message, of a JSON body or of a stream.
    fn message(&self) -> Value {
        let text = if self.kind == "text/event-stream" {
            let mut data = self
                .body
                .lines()
                .filter_map(|line| line.strip_prefix("data: "));
            data.next_back().expect("an event")
        } else {
            &self.body
        };
        serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }
}

impl Client {
    fn new(workspace: &Workspace) -> Self {
        Self {
            router: server(workspace),
            token: "agent-a",
            version: None,
            session: None,
            query: "",
        }
    }

    /// A client of the lifecycle without sessions.
    fn alone(workspace: &Workspace) -> Self {
        Self {
            version: Some("2026-07-28"),
            ..Self::new(workspace)
        }
    }

    /// A client after its handshake.
    async fn in_session(workspace: &Workspace) -> Self {
        let mut client = Self::new(workspace);
        client.shake_hands("2025-11-25").await;
        client
    }

    async fn shake_hands(&mut self, version: &'static str) -> Value {
        self.session = None;
        self.version = None;
        let answer = self
            .send(json!({"jsonrpc":"2.0","id":0,"method":"initialize","params":{
                "protocolVersion":version,"capabilities":{},"clientInfo":{"name":"test","version":"1"}}}))
            .await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
        self.session.clone_from(&answer.session);
        self.version = Some(version);
        let initialized = json!({"jsonrpc":"2.0","method":"notifications/initialized"});
        assert_eq!(self.send(initialized).await.status, StatusCode::ACCEPTED);
        answer.message()["result"].clone()
    }

    fn request(&self, method: Method, body: impl Into<Body>) -> Request<Body> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("/mcp{}", self.query))
            .header(header::HOST, "localhost")
            .header(header::AUTHORIZATION, format!("Bearer {}", self.token))
            .header(header::ACCEPT, "application/json, text/event-stream")
            .header(header::CONTENT_TYPE, "application/json");
        if let Some(version) = self.version {
            request = request.header("mcp-protocol-version", version);
        }
        if let Some(session) = &self.session {
            request = request.header("mcp-session-id", session);
        }
        request.body(body.into()).expect("request")
    }

    async fn respond(&self, request: Request<Body>) -> Response<Body> {
        let response = self.router.clone().oneshot(request).await;
        response.expect("a router answers")
    }

    async fn send(&self, message: Value) -> Answer {
        let mut message = message;
        let mut request = self.request(Method::POST, Body::empty());
        if self.version == Some("2026-07-28") {
            let method = message["method"].as_str().expect("method").to_owned();
            let headers = request.headers_mut();
            headers.insert("mcp-method", method.parse().expect("method"));
            if let Some(name) = message["params"]["name"].as_str() {
                headers.insert("mcp-name", name.parse().expect("name"));
            }
            let meta = &mut message["params"]["_meta"];
            meta["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
            meta["io.modelcontextprotocol/clientCapabilities"] = json!({});
        }
        *request.body_mut() = message.to_string().into();
        Answer::of(self.respond(request).await).await
    }

    async fn ask(&self, method: &str, params: Value) -> Answer {
        self.send(json!({"jsonrpc":"2.0","id":1,"method":method,"params":params}))
            .await
    }

    async fn call(&self, tool: &str, args: Value) -> Answer {
        self.ask("tools/call", json!({"name":tool,"arguments":args}))
            .await
    }
}
