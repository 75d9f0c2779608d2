//! A host that does what a test tells it.

use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};
use tokio_tungstenite::{
    WebSocketStream, accept_hdr_async_with_config,
    tungstenite::{
        Message,
        handshake::server::{Request, Response},
        protocol::{CloseFrame, WebSocketConfig},
    },
};

/// Longest wait of a test for anything.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) struct Host {
    listener: TcpListener,
    pub(crate) url: String,
}

/// What the edge asked for in its upgrade.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) path: String,
    pub(crate) authorization: Option<String>,
}

pub(crate) struct Channel(pub(crate) WebSocketStream<TcpStream>);

impl Host {
    pub(crate) async fn listen() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let url = format!("http://{}", listener.local_addr().expect("address"));
        Self { listener, url }
    }

    pub(crate) async fn socket(&self) -> TcpStream {
        let accepted = tokio::time::timeout(PATIENCE, self.listener.accept());
        accepted.await.expect("a connection").expect("accept").0
    }

    /// Whether nobody connects for this long.
    pub(crate) async fn is_left_alone(&self, time: Duration) -> bool {
        tokio::time::timeout(time, self.listener.accept())
            .await
            .is_err()
    }

    /// Takes the next channel, without saying ready.
    pub(crate) async fn accept(&self) -> (Channel, Asked) {
        let socket = self.socket().await;
        let mut asked = None;
        #[expect(
            clippy::result_large_err,
            reason = "the callback's signature is the library's"
        )]
        let note = |request: &Request, response: Response| {
            asked = Some(Asked {
                path: request.uri().to_string(),
                authorization: request
                    .headers()
                    .get("authorization")
                    .map(|value| value.to_str().expect("text").to_owned()),
            });
            Ok(response)
        };
        let limits = WebSocketConfig::default()
            .max_message_size(Some(2_097_152))
            .max_frame_size(Some(2_097_152));
        let socket = accept_hdr_async_with_config(socket, note, Some(limits))
            .await
            .expect("upgrade");
        (Channel(socket), asked.expect("a request"))
    }

    /// Takes the next channel and says ready.
    pub(crate) async fn ready(&self) -> Channel {
        let (mut channel, _) = self.accept().await;
        channel.send(r#"{"type":"ready","protocol":1}"#).await;
        channel
    }

    /// Answers the next upgrade with a plain HTTP response.
    pub(crate) async fn refuse(&self, response: &str) {
        let mut socket = self.socket().await;
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            request.push(socket.read_u8().await.expect("request"));
        }
        socket
            .write_all(response.as_bytes())
            .await
            .expect("response");
        socket.shutdown().await.expect("shutdown");
    }
}

impl Channel {
    pub(crate) async fn send(&mut self, text: &str) {
        self.0.send(Message::Text(text.into())).await.expect("send");
    }

    pub(crate) async fn call(&mut self, call: &Value) {
        self.send(&call.to_string()).await;
    }

    /// The next message that is no ping or pong; `None` at the end of the connection.
    pub(crate) async fn next(&mut self) -> Option<Message> {
        let wait = async {
            loop {
                match self.0.next().await {
                    Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                    Some(Ok(message)) => return Some(message),
                    Some(Err(_)) | None => return None,
                }
            }
        };
        tokio::time::timeout(PATIENCE, wait)
            .await
            .expect("a message")
    }

    /// The next result frame, as text.
    pub(crate) async fn frame(&mut self) -> String {
        match self.next().await {
            Some(Message::Text(text)) => text.to_string(),
            other => panic!("a result frame was expected, not {other:?}"),
        }
    }

    /// The next result frame.
    pub(crate) async fn result(&mut self) -> Value {
        serde_json::from_str(&self.frame().await).expect("json")
    }

    /// The next result frame's structured content.
    pub(crate) async fn content(&mut self) -> Value {
        self.result().await["result"]["structuredContent"].take()
    }

    /// Waits for the edge's close frame.
    pub(crate) async fn closed(&mut self) -> Option<(u16, String)> {
        loop {
            match self.next().await {
                Some(Message::Close(Some(CloseFrame { code, reason }))) => {
                    // Answers the close.
                    let _ = self.0.flush().await;
                    return Some((code.into(), reason.to_string()));
                }
                Some(Message::Close(None)) | None => return None,
                Some(_) => {}
            }
        }
    }

    pub(crate) async fn close(&mut self, code: u16) {
        let frame = CloseFrame {
            code: code.into(),
            reason: "".into(),
        };
        self.0
            .send(Message::Close(Some(frame)))
            .await
            .expect("close");
    }
}

/// A call of the pinned workspace, intention and one session.
pub(crate) fn call(id: &str, tool: &str, args: Value) -> Value {
    json!({"type": "call", "protocol": 1, "id": id, "workspaceId": "work", "sessionId": "session",
        "intention": "Mend the roof", "tool": tool, "args": args})
}

/// As [`call`], of another session.
pub(crate) fn call_of(session: &str, id: &str, tool: &str, args: Value) -> Value {
    let mut call = call(id, tool, args);
    call["sessionId"] = session.into();
    call
}

/// The error's code of a structured content.
pub(crate) fn code(content: &Value) -> &str {
    content["error"]["code"].as_str().unwrap_or("ok")
}
