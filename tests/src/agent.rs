//! An agent: MCP over streamable HTTP, spoken by hand in both eras of the protocol.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use http::{Method, StatusCode};
use serde::Serialize;
use serde_json::{Value, json, value::RawValue};
use tokio::time::timeout;

use crate::http_client::{Http, NoReply, Reply};

/// The protocol without handshake and sessions.
const MODERN: &str = "2026-07-28";
/// Longest run of a command that a test waits for.
const COMMAND_LIMIT: Duration = Duration::from_secs(60);

/// How the agent speaks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Era {
    /// 2026-07-28: every request stands alone.
    Modern,
    /// An earlier version, by its date: `initialize` and a session.
    Handshake(&'static str),
}

/// Why a call has no tool result.
#[derive(Debug)]
pub enum Fault {
    /// No answer, or one that is no JSON-RPC.
    Lost(String),
    /// Refused by HTTP.
    Http(StatusCode, Value),
    /// A JSON-RPC error.
    Rpc {
        /// Its code.
        code: i64,
        /// Its message.
        message: String,
    },
}

impl From<NoReply> for Fault {
    fn from(lost: NoReply) -> Self {
        Self::Lost(lost.0)
    }
}

/// A tool's result.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// Whether it is an error.
    pub is_error: bool,
    /// `structuredContent`, or the JSON of an error that has content alone; else `null`.
    pub structured: Value,
    /// `content`.
    pub content: Value,
    /// `_meta`.
    pub meta: Value,
}

impl Answer {
    fn read(result: &Value) -> Self {
        let is_error = result["isError"] == true;
        let mut structured = result["structuredContent"].clone();
        // Tools that answer by content alone tell their errors there, too.
        if is_error && structured.is_null() {
            let text = result["content"][0]["text"].as_str().unwrap_or_default();
            structured = serde_json::from_str(text).unwrap_or_default();
        }
        Self {
            is_error,
            structured,
            content: result["content"].clone(),
            meta: result["_meta"].clone(),
        }
    }

    /// The structured content of a success.
    ///
    /// # Panics
    /// When it is an error.
    #[must_use]
    pub fn ok(self) -> Value {
        assert!(!self.is_error, "refused: {}", self.structured);
        self.structured
    }

    /// The error's code, empty for a success.
    #[must_use]
    pub fn code(&self) -> &str {
        self.structured["error"]["code"].as_str().unwrap_or("")
    }

    /// The error of a refusal with that code.
    ///
    /// # Panics
    /// When it is a success or has another code.
    #[must_use]
    pub fn refused(self, code: &str) -> Value {
        assert!(
            self.is_error && self.code() == code,
            "expected {code}, got {}",
            self.structured
        );
        let error = self.structured["error"].clone();
        assert!(
            error["message"]
                .as_str()
                .is_some_and(|text| !text.is_empty())
        );
        assert!(error["retryable"].is_boolean() && error["details"].is_object());
        error
    }
}

/// A command that was followed to its end.
#[derive(Clone, Debug)]
pub struct Finished {
    /// Id of the command.
    pub id: String,
    /// Its whole output, as the polls gave it.
    pub output: String,
    /// The last poll.
    pub last: Value,
}

/// An agent with a token.
#[derive(Debug)]
pub struct Agent {
    http: Http,
    url: String,
    token: String,
    era: Era,
    session: Option<String>,
    conversation: Option<String>,
    traceparent: Option<String>,
    next: AtomicU64,
}

#[derive(Serialize)]
struct CallParams<'a> {
    name: &'a str,
    arguments: &'a RawValue,
    #[serde(rename = "_meta")]
    meta: Value,
}

#[derive(Serialize)]
struct Envelope<'a, P> {
    jsonrpc: &'a str,
    id: u64,
    method: &'a str,
    params: &'a P,
}

impl Agent {
    /// An agent of the newest protocol.
    #[must_use]
    pub fn modern(url: &str, token: &str) -> Self {
        Self {
            http: Http::default(),
            url: url.to_owned(),
            token: token.to_owned(),
            era: Era::Modern,
            session: None,
            conversation: None,
            traceparent: None,
            next: AtomicU64::new(1),
        }
    }

    /// An agent that shakes hands for `version`.
    ///
    /// # Panics
    /// When the server does not accept that version.
    pub async fn handshake(url: &str, token: &str, version: &'static str) -> Self {
        let mut agent = Self {
            era: Era::Handshake(version),
            ..Self::modern(url, token)
        };
        let params = json!({
            "protocolVersion": version,
            "capabilities": {},
            "clientInfo": {"name": "postern-tests", "version": "1"},
        });
        let reply = agent
            .post("initialize", None, &params)
            .await
            .expect("initialize is answered");
        assert_eq!(
            reply.json["result"]["protocolVersion"], version,
            "initialize: {} {}",
            reply.status, reply.json
        );
        agent.session = reply
            .headers
            .get("mcp-session-id")
            .and_then(|value| value.to_str().ok())
            .map(str::to_owned);
        agent.notify("notifications/initialized").await;
        agent
    }

    /// An agent of either era.
    pub async fn of_era(era: Era, url: &str, token: &str) -> Self {
        match era {
            Era::Modern => Self::modern(url, token),
            Era::Handshake(version) => Self::handshake(url, token, version).await,
        }
    }

    /// The same token in a conversation of its own (`_meta["postern/session"]`).
    #[must_use]
    pub fn in_conversation(mut self, key: &str) -> Self {
        self.conversation = Some(key.to_owned());
        self
    }

    /// The same agent within a trace of its own (`_meta.traceparent`).
    #[must_use]
    pub fn in_trace(mut self, traceparent: &str) -> Self {
        self.traceparent = Some(traceparent.to_owned());
        self
    }

    /// Whether the server gave it a session.
    #[must_use]
    pub const fn has_session(&self) -> bool {
        self.session.is_some()
    }

    /// The session that the server gave it.
    #[must_use]
    pub fn session(&self) -> Option<&str> {
        self.session.as_deref()
    }

    fn meta(&self, call_id: Option<&str>) -> Value {
        let mut meta = match self.era {
            Era::Modern => json!({
                "io.modelcontextprotocol/protocolVersion": MODERN,
                "io.modelcontextprotocol/clientInfo": {"name": "postern-tests", "version": "1"},
                "io.modelcontextprotocol/clientCapabilities": {},
            }),
            Era::Handshake(_) => json!({}),
        };
        if let Some(key) = &self.conversation {
            meta["postern/session"] = json!(key);
        }
        if let Some(id) = call_id {
            meta["postern/callId"] = json!(id);
        }
        if let Some(traceparent) = &self.traceparent {
            meta["traceparent"] = json!(traceparent);
        }
        meta
    }

    async fn post<P: Serialize>(
        &self,
        method: &str,
        name: Option<&str>,
        params: &P,
    ) -> Result<Reply, NoReply> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let body = serde_json::to_vec(&Envelope {
            jsonrpc: "2.0",
            id,
            method,
            params,
        })
        .expect("parameters are JSON");
        self.send(method, name, body, |message| message["id"] == id)
            .await
    }

    async fn send(
        &self,
        method: &str,
        name: Option<&str>,
        body: Vec<u8>,
        is_last: impl Fn(&Value) -> bool,
    ) -> Result<Reply, NoReply> {
        let bearer = format!("Bearer {}", self.token);
        let mut headers = vec![
            ("authorization", bearer.as_str()),
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
        ];
        match self.era {
            Era::Modern => {
                headers.push(("mcp-protocol-version", MODERN));
                headers.push(("mcp-method", method));
                headers.extend(name.map(|name| ("mcp-name", name)));
            }
            Era::Handshake(version) if method != "initialize" => {
                headers.push(("mcp-protocol-version", version));
                headers.extend(self.session.as_deref().map(|id| ("mcp-session-id", id)));
            }
            Era::Handshake(_) => {}
        }
        self.http
            .send(Method::POST, &self.url, &headers, body, is_last)
            .await
    }

    async fn notify(&self, method: &str) {
        let body = json!({"jsonrpc": "2.0", "method": method}).to_string();
        let reply = self.send(method, None, body.into_bytes(), |_| true).await;
        let status = reply.expect("a notification is answered").status;
        assert_eq!(status, StatusCode::ACCEPTED);
    }

    /// Any request; answers its `result`.
    ///
    /// # Errors
    /// [`Fault`] as it came.
    pub async fn request(&self, method: &str, mut params: Value) -> Result<Value, Fault> {
        params["_meta"] = self.meta(None);
        into_result(self.post(method, None, &params).await?)
    }

    /// The names of the tools, in order.
    ///
    /// # Panics
    /// When the list is not answered.
    pub async fn tools(&self) -> Vec<Value> {
        let list = self
            .request("tools/list", json!({}))
            .await
            .expect("tools/list is answered");
        list["tools"].as_array().cloned().unwrap_or_default()
    }

    /// Calls a tool with arguments as they are written, under `call_id` when there is one.
    ///
    /// # Errors
    /// [`Fault`] when there is no tool result.
    pub async fn try_call(
        &self,
        call_id: Option<&str>,
        tool: &str,
        arguments: &str,
    ) -> Result<Answer, Fault> {
        let params = CallParams {
            name: tool,
            arguments: serde_json::from_str(arguments).expect("arguments are JSON"),
            meta: self.meta(call_id),
        };
        let result = into_result(self.post("tools/call", Some(tool), &params).await?)?;
        Ok(Answer::read(&result))
    }

    /// Calls a tool.
    ///
    /// # Panics
    /// When there is no tool result.
    pub async fn call(&self, tool: &str, arguments: Value) -> Answer {
        self.try_call(None, tool, &arguments.to_string())
            .await
            .unwrap_or_else(|fault| panic!("{tool} has no result: {fault:?}"))
    }

    /// Calls a tool under an id of the agent's.
    ///
    /// # Panics
    /// When there is no tool result.
    pub async fn call_as(&self, call_id: &str, tool: &str, arguments: &Value) -> Answer {
        self.try_call(Some(call_id), tool, &arguments.to_string())
            .await
            .unwrap_or_else(|fault| panic!("{tool} has no result: {fault:?}"))
    }

    /// Starts a command and answers its id.
    pub async fn exec(&self, command: &str) -> String {
        let started = self
            .call("workspace_exec", json!({"command": command}))
            .await
            .ok();
        text(&started["commandId"])
    }

    /// Runs a command to its end.
    pub async fn run(&self, command: &str) -> Finished {
        let id = self.exec(command).await;
        self.follow(&id).await
    }

    /// Polls a command from its first byte to its end, checking that the pages join without gap or overlap.
    ///
    /// # Panics
    /// When it does not end within a minute, or the offsets do not join.
    pub async fn follow(&self, id: &str) -> Finished {
        let polls = async {
            let mut output = String::new();
            let mut offset = 0;
            loop {
                let page = self.poll(id, offset).await;
                if page["gap"].is_null() {
                    assert_eq!(page["offset"], offset, "pages join: {page}");
                }
                output.push_str(page["output"].as_str().unwrap_or_default());
                let next = page["nextOffset"].as_u64().unwrap_or(offset);
                assert!(next >= offset, "offsets never go back");
                offset = next;
                let at_end = page["totalBytes"].as_u64() == Some(offset);
                if page["status"] != "running" && at_end {
                    return (output, page);
                }
            }
        };
        let Ok((output, last)) = timeout(COMMAND_LIMIT, polls).await else {
            panic!("the command did not end within {COMMAND_LIMIT:?}");
        };
        Finished {
            id: id.to_owned(),
            output,
            last,
        }
    }

    /// One poll.
    pub async fn poll(&self, id: &str, offset: u64) -> Value {
        self.call("workspace_poll", json!({"commandId": id, "offset": offset}))
            .await
            .ok()
    }
}

fn into_result(reply: Reply) -> Result<Value, Fault> {
    let message = reply.json;
    if let Some(error) = message.get("error").filter(|error| error.is_object()) {
        return Err(Fault::Rpc {
            code: error["code"].as_i64().unwrap_or(0),
            message: text(&error["message"]),
        });
    }
    match message.get("result") {
        Some(result) if reply.status.is_success() => Ok(result.clone()),
        _ if reply.status.is_success() => Err(Fault::Lost(message.to_string())),
        _ => Err(Fault::Http(reply.status, message)),
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
