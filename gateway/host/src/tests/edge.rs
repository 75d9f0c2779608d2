//! An edge that does as it is told.

use futures_util::{SinkExt as _, StreamExt as _};
use http::header;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream,
    tungstenite::{Error, Message, client::IntoClientRequest as _, http::Response},
};

use super::{World, soon};

/// The client's side of a channel.
pub(super) struct Edge {
    pub(super) socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
}

impl Edge {
    /// Opens a channel and waits for its ready frame.
    pub(super) async fn open(
        world: &World,
        workspace: &str,
        secret: &str,
    ) -> Result<Self, Response<Option<Vec<u8>>>> {
        let path = format!("/api/ai-gateway/v1/workspaces/{workspace}/channel");
        let mut edge = Self::connect(
            world,
            &path,
            &[("authorization", &format!("Bearer {secret}"))],
        )
        .await?;
        assert_eq!(edge.frame().await, json!({"type": "ready", "protocol": 1}));
        Ok(edge)
    }

    /// The handshake alone.
    pub(super) async fn connect(
        world: &World,
        path: &str,
        headers: &[(&'static str, &str)],
    ) -> Result<Self, Response<Option<Vec<u8>>>> {
        let mut request = format!("ws://{}{path}", world.address)
            .into_client_request()
            .expect("request");
        for (name, value) in headers {
            request
                .headers_mut()
                .insert(*name, value.parse().expect("header"));
        }
        assert!(request.headers().contains_key(header::SEC_WEBSOCKET_KEY));
        match soon(Box::pin(tokio_tungstenite::connect_async(request))).await {
            Ok((socket, _)) => Ok(Self { socket }),
            Err(Error::Http(response)) => Err(*response),
            Err(error) => panic!("the handshake failed: {error}"),
        }
    }

    /// The next message that is no ping or pong.
    async fn message(&mut self) -> Option<Message> {
        loop {
            let message = soon(self.socket.next()).await?.ok()?;
            if !matches!(message, Message::Ping(_) | Message::Pong(_)) {
                return Some(message);
            }
        }
    }

    /// The next frame.
    pub(super) async fn frame(&mut self) -> Value {
        let message = self.message().await;
        let Some(Message::Text(text)) = &message else {
            panic!("no frame: {message:?}");
        };
        serde_json::from_str(text).expect("JSON")
    }

    /// The next call.
    pub(super) async fn call(&mut self) -> Value {
        let frame = self.frame().await;
        assert_eq!(frame["type"], "call");
        frame
    }

    /// Answers a call.
    pub(super) async fn answer(&mut self, call: &Value, result: &Value) {
        let frame = json!({"type": "result", "id": call["id"], "sessionId": call["sessionId"], "result": result});
        self.send(Message::text(frame.to_string())).await;
    }

    pub(super) async fn send(&mut self, message: Message) {
        soon(self.socket.send(message)).await.expect("sent");
    }

    /// How the host closes the channel.
    pub(super) async fn closed(&mut self) -> (u16, String) {
        let message = self.message().await;
        let Some(Message::Close(Some(frame))) = message else {
            panic!("no close frame: {message:?}");
        };
        (frame.code.into(), frame.reason.to_string())
    }

    /// Whether nothing has come so far that is no ping. Reads what is there.
    pub(super) async fn is_quiet(&mut self) -> bool {
        self.send(Message::Ping(b"still there?".to_vec().into()))
            .await;
        loop {
            let message = soon(self.socket.next()).await;
            let message = message.expect("open").expect("message");
            if !matches!(message, Message::Ping(_)) {
                return matches!(message, Message::Pong(_));
            }
        }
    }
}

/// A successful result.
pub(super) fn success(value: Value) -> Value {
    json!({"content": [{"type": "text", "text": value.to_string()}], "structuredContent": value})
}

/// A failed result.
pub(super) fn failure(code: &str) -> Value {
    let error = json!({"error": {"code": code, "message": "m", "retryable": true, "details": {}}});
    json!({"content": [{"type": "text", "text": error.to_string()}], "structuredContent": error, "isError": true})
}
